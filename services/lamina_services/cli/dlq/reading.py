"""Reads the dead letters that a command is about, and tells what it could not see."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

from lamina.pubsub.dead_letters import DeadLetters
from lamina.pubsub.letter import DeadLetter
from lamina_services.cli.app import notes
from lamina_services.cli.dlq.selection import Selection
from lamina_services.cli.places import messaging, running_stack
from lamina_services.local.home import Home

_REPORT_AGE_S = 2.5
"""The local stack's counters may be older than what was done here, but not by more."""
_LOOK_EVERY_S = 0.25


def connect(home: Path, *, cloud: bool) -> DeadLetters:
    """The running stack's dead letters, else those of GOOGLE_CLOUD_PROJECT."""
    place = messaging(home, cloud=cloud)
    return DeadLetters.connect(place.project, place.prefix, emulator=place.emulator)


@dataclass(frozen=True)
class Found:
    """What a scan brought."""

    letters: list[DeadLetter]
    """Those that are meant, the longest dead first."""
    elsewhere: Mapping[str, int] = field(default_factory=dict[str, int])
    """By subscription, how many somebody else holds. Only the local stack can tell."""


async def find(
    dead: DeadLetters, selection: Selection, home: Path, *, cloud: bool, limit: int | None = None
) -> Found:
    """Lease everything that can be had, pick what is meant, and give the others back."""
    seen: Counter[str] = Counter()
    matching: list[DeadLetter] = []
    whole = True
    with notes().status("reading dead letters"):
        async with aclosing(dead.scan(selection.subscriptions)) as scan:
            async for letter in scan:
                seen[letter.subscription] += 1
                if selection.matches(letter):
                    matching.append(letter)
                if limit and not selection.ids and len(matching) >= limit:
                    whole = False
                    break
        elsewhere = await _elsewhere(seen, selection, home, cloud=cloud) if whole else {}
    letters = _picked(selection, matching, elsewhere)[:limit]
    await dead.keep(letters)
    return Found(letters, elsewhere)


def warn(elsewhere: Mapping[str, int]) -> None:
    """Say what is held by somebody else."""
    for name, count in elsewhere.items():
        notes().print(
            f"[yellow]{count} more of {name}[/] are held by somebody else: another `lamina dlq` at work, "
            "or one that was killed, whose leases run out within a minute",
            soft_wrap=True,
        )


def _picked(
    selection: Selection, letters: list[DeadLetter], elsewhere: Mapping[str, int]
) -> list[DeadLetter]:
    try:
        return selection.pick(letters)
    except BaseException:
        warn(elsewhere)  # it may be among those
        raise


async def _elsewhere(
    seen: Mapping[str, int], selection: Selection, home: Path, *, cloud: bool
) -> dict[str, int]:
    if cloud or running_stack(home) is None:
        return {}
    prefix = messaging(home, cloud=cloud).prefix
    folder = Home(home)
    deadline = asyncio.get_running_loop().time() + _REPORT_AGE_S
    while True:
        counters = folder.subscriptions()
        backlog = {
            name.removeprefix(prefix).removesuffix(".dead"): counts.get("backlog", 0)
            for name, counts in counters.items()
            if name.endswith(".dead")
        }
        hidden = {
            name: count - seen.get(name, 0)
            for name, count in backlog.items()
            if count > seen.get(name, 0) and (not selection.subscriptions or name in selection.subscriptions)
        }
        if not hidden or asyncio.get_running_loop().time() > deadline:
            return hidden
        await asyncio.sleep(_LOOK_EVERY_S)
