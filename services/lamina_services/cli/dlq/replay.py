"""`lamina dlq replay`: send dead letters back to the subscriber that failed at them."""

import asyncio
from pathlib import Path
from typing import Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from lamina.pubsub.dead_letters import DeadLetters, Outcome
from lamina.pubsub.letter import DeadLetter
from lamina_services.cli.app import command, complain, notes, output
from lamina_services.cli.dlq import options, records
from lamina_services.cli.dlq.printing import print_plan
from lamina_services.cli.dlq.reading import Found, connect, find, warn
from lamina_services.cli.dlq.selection import Selection
from lamina_services.cli.options import HOME, Cloud, Home, Json
from lamina_services.cli.up import stop_on_signals

_COMPLAINTS = 10


@command
async def replay(
    ids: options.Ids = None,
    *,
    subscription: options.Subscriptions = None,
    reason: options.Reason = None,
    user: options.User = None,
    app: options.App = None,
    since: options.Since = None,
    until: options.Until = None,
    limit: options.Limit = None,
    rate: options.Rate = None,
    from_file: options.FromFile = None,
    yes: options.ReplayThem = False,
    cloud: Cloud = False,
    home: Home = HOME,
    json: Json = False,
) -> None:
    """Send dead letters back to the subscriber that failed, and to no other. Shows them only, without --yes.

    Event id, data and ordering key stay; one that fails again comes back with its count raised. A dead letter
    is given up only once Pub/Sub has its message: killed half-way, nothing is lost, and it can be run again.
    """
    selection = options.selection_of(
        ids=ids, subscriptions=subscription, reason=reason, user=user, app=app, since=since, until=until
    )
    stop_on_signals()
    async with connect(home, cloud=cloud) as dead:
        if from_file is None:
            found = await find(dead, selection, home, cloud=cloud, limit=limit)
        else:
            found = _found_in(from_file, selection, limit)
        warn(found.elsewhere)
        if not yes:
            print_plan(output(), found.letters, "replay", "replayed", json=json)
            return
        outcome = await _replay(dead, found.letters, rate)
    _say(outcome, json=json)
    if outcome.failed or outcome.untried:
        raise typer.Exit(1)


def _found_in(file: Path, selection: Selection, limit: int | None) -> Found:
    return Found(selection.pick(records.read(file))[:limit])


async def _replay(dead: DeadLetters, letters: list[DeadLetter], rate: float | None) -> Outcome:
    columns = (TextColumn("replaying"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    done = 0
    with Progress(*columns, console=notes(), transient=True) as progress:
        task = progress.add_task("replaying", total=len(letters))

        def count(_: DeadLetter) -> None:
            nonlocal done
            done += 1
            progress.advance(task)

        try:
            return await dead.replay(letters, rate=rate, on_done=count)
        except asyncio.CancelledError:
            complain(
                f"interrupted: {done} of {len(letters)} were replayed; the others are dead letters still"
            )
            raise


def _say(outcome: Outcome, *, json: bool) -> None:
    if json:
        body: dict[str, Any] = {
            "replayed": outcome.done,
            "failed": [{**records.facts(letter), "problem": str(error)} for letter, error in outcome.failed],
            "untried": outcome.untried,
        }
        output().print_json(data=body)
    else:
        output().print(f"replayed {outcome.done} dead letters")
    for letter, error in outcome.failed[:_COMPLAINTS]:
        complain(f"{letter.subscription} {letter.event_id or letter.message_id}: {error}")
    if left := len(outcome.failed) + outcome.untried:
        complain(f"{left} were not replayed and are dead letters still")
