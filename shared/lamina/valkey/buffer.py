"""The buffer on Valkey: four keys a session, in one cluster slot, changed by one script at a time.

    order     sorted set   turn id, by microseconds of occurred_at; equal ones by id
    meta      hash         `h:<turn>` header JSON, `s:<turn>` "open|closed|trimmed <events>",
                           `p:<turn>` when it was published (ms since 1970), `live` turns
    events    hash         `<turn>:<position>` event JSON, ASCII
    summary   string       "<version> <summary JSON>"

And two keys a user who had something forgotten: hashes of tombstones, [scope, owner, name] by microseconds.

Each event is a field of its own, so an append costs what it adds and a read what it returns.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from importlib.resources import files
from typing import Any, Literal, cast

from pydantic import ValidationError

from lamina import strict_json
from lamina.errors import Forgotten, InvalidEvent
from lamina.forgetting import Tombstone
from lamina.model import EPOCH, SessionKey, Summary, Turn, derived_id
from lamina.ports import Appended, BufferTrace, BufferView
from lamina.valkey.client import Client
from lamina.valkey.errors import translated

Script = Callable[[Sequence[str], Sequence[str | bytes | int]], Awaitable[Any]]

PING_S = 2.0
"""How long a health check waits."""

TOMBSTONE_TTL_S = 90 * 24 * 3600
"""Far beyond what Pub/Sub keeps and an operator replays; the database's tombstones are for good."""

KINDS = ("order", "meta", "events", "summary")


def session_keys(session: SessionKey) -> list[str]:
    """Every key of a session, all with the same hash tag."""
    return [f"lamina:{{{session.digest}}}:{kind}" for kind in KINDS]


def _meta(session: SessionKey) -> str:
    return session_keys(session)[KINDS.index("meta")]


class ValkeyBuffer:
    """Implements `lamina.ports.Buffer`. `ttl_s`: how long a silent session is kept, in seconds."""

    def __init__(self, client: Client, ttl_s: int) -> None:
        self._client = client
        self._ttl_ms = ttl_s * 1000
        self._append = script(client, "append.lua")
        self._read = script(client, "read.lua")
        self._trim = script(client, "trim.lua")
        self._drop = script(client, "drop.lua")
        self._entomb = script(client, "entomb.lua")
        self._mark = script(client, "mark.lua")

    async def append(self, turn: Turn, *, first_event: int = 0, close: bool = True) -> Appended:
        """See `Buffer.append`: atomic and idempotent.

        The tombstones are read after the append: they are written before a user's sessions are looked for,
        so that a late turn is either found there or found out here.
        """
        appended = await self._take(turn, first_event, close)
        if any(stone.hits(turn) for stone in await self._tombstones(turn)):
            await self.drop(turn.session, [turn.turn_id])
            raise Forgotten(f"turn {turn.turn_id} was forgotten at its user's wish")
        return appended

    async def _take(self, turn: Turn, first_event: int, close: bool) -> Appended:
        arguments: list[str | bytes | int] = [
            self._ttl_ms,
            _micros(turn.occurred_at),
            turn.turn_id,
            strict_json.dumps(turn.header()),
            first_event,
            int(close),
            *(strict_json.dumps(event.root) for event in turn.events),
        ]
        with translated():
            answer = await self._append(session_keys(turn.session), arguments)
        what, state, *held = cast("tuple[bytes, bytes, Any, Any]", answer)
        if what in (b"gap", b"ended"):
            raise refusal(turn, first_event, held=int(state), ended=what == b"ended")
        if what == b"trimmed":
            return Appended(duplicate=True, closed=turn if close and first_event == 0 else None)
        if state == b"as sent":
            return Appended(duplicate=False, closed=turn)
        return Appended(duplicate=what == b"duplicate", closed=_turn(*held) if held else None)

    async def read(self, session: SessionKey, *, last: int | None = None) -> BufferView:
        """See `Buffer.read`: one round trip, and O(what is returned)."""
        with translated():
            answer = await self._read(session_keys(session), ["all" if last is None else max(last, 0)])
        known, cached, turns = cast(
            "tuple[int, bytes | None, list[tuple[bytes, bytes, bytes, list[bytes]]]]", answer
        )
        return BufferView(
            known=bool(known),
            turns=tuple(_turn(header, events) for _, _, header, events in turns),
            open_turns=frozenset(turn_id.decode() for turn_id, state, _, _ in turns if state == b"open"),
            summary=_summary(cached),
        )

    async def trim(self, session: SessionKey, covered: Sequence[str], summary: Summary) -> bool:
        """See `Buffer.trim`: compare-and-set on the summary's version."""
        cached = f"{summary.version} {summary.model_dump_json()}"
        with translated():
            return await self._trim(session_keys(session), [self._ttl_ms, cached, *covered]) == 1

    async def drop(self, session: SessionKey, turn_ids: Sequence[str], *, summary: bool = False) -> int:
        """See `Buffer.drop`: in one step."""
        with translated():
            return await self._drop(session_keys(session), [int(summary), *turn_ids])

    async def entomb(self, app: str, user_id: str, tombstones: Sequence[Tombstone]) -> None:
        """See `Buffer.entomb`."""
        fields: dict[str, list[str | bytes | int]] = {"of turns": [], "others": []}
        for stone in tombstones:
            kind = "of turns" if stone.scope == "turn" else "others"
            fields[kind] += [_field(stone.scope, stone.owner, stone.name), _micros(stone.forgotten_at)]
        for kind, key in zip(fields, tombstones_keys(app, user_id), strict=True):
            if fields[kind]:
                with translated():
                    await self._entomb([key], [TOMBSTONE_TTL_S, *fields[kind]])

    async def _tombstones(self, turn: Turn) -> list[Tombstone]:
        """Those that may hit the turn. There may be very many of single turns: its own is asked for."""
        of_turns, others = tombstones_keys(turn.app, turn.user_id)
        own = _field("turn", turn.session_id, turn.turn_id)
        with translated():
            async with self._client.pipeline(transaction=False) as pipeline:
                pipeline.hgetall(others)
                pipeline.hget(of_turns, cast(str, own))
                held, single = cast("tuple[dict[bytes, bytes], bytes | None]", await pipeline.execute())
        found = {**held, **({own: single} if single else {})}
        return [_tombstone(name, micros) for name, micros in found.items()]

    async def mark_published(self, session: SessionKey, turn_id: str) -> bool:
        """See `Buffer.mark_published`."""
        with translated():
            return await self._mark([_meta(session)], [turn_id]) == 1

    async def trace(self, session: SessionKey, turn_id: str) -> BufferTrace | None:
        """See `Buffer.trace`."""
        with translated():
            answer = await self._client.hmget(_meta(session), [f"s:{turn_id}", f"p:{turn_id}"])
        about, published = cast("list[bytes | None]", answer)
        if about is None:
            return None
        state = cast("Literal['open', 'closed', 'trimmed']", about.decode().partition(" ")[0])
        moment = EPOCH + timedelta(milliseconds=int(published)) if published else None
        return BufferTrace(state, moment)

    async def ping(self) -> None:
        """Raise DependencyUnavailable unless the server answers."""
        with translated():
            async with asyncio.timeout(PING_S):
                await self._client.ping()  # pyright: ignore[reportUnknownMemberType] - the driver leaves kwargs untyped

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()


def refusal(turn: Turn, first_event: int, *, held: int, ended: bool) -> InvalidEvent:
    """Why an append cannot be taken: it leaves a gap, or the turn has ended."""
    if ended:
        return InvalidEvent([f"events: turn {turn.turn_id!r} is closed with {held} events and cannot grow"])
    return InvalidEvent(
        [f"events: turn {turn.turn_id!r} holds {held} events; position {first_event} leaves a gap"]
    )


def tombstones_keys(app: str, user_id: str) -> tuple[str, str]:
    """Of single turns, and of all else."""
    key = f"lamina:forgotten:{{{derived_id('user', app, user_id).hex}}}"
    return f"{key}:turns", key


def _field(scope: str, owner: str, name: str) -> bytes:
    return strict_json.dumps([scope, owner, name])


def _tombstone(name: bytes, micros: bytes) -> Tombstone:
    scope, owner, what = strict_json.loads(name)
    moment = EPOCH + timedelta(microseconds=int(micros))
    return Tombstone(scope=scope, owner=owner, name=what, forgotten_at=moment)


def _micros(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


def script(client: Client, name: str) -> Script:
    """One of this package's scripts, ready to run."""
    # EVALSHA; the driver loads the script where the server does not know it yet.
    return cast(Script, client.register_script(files("lamina.valkey").joinpath(name).read_text("ascii")))


def _turn(header: bytes, events: Sequence[bytes]) -> Turn:
    fields = cast("dict[str, Any]", strict_json.loads(header))
    return Turn.model_validate({**fields, "events": [strict_json.loads(event) for event in events]})


def _summary(cached: bytes | None) -> Summary | None:
    """The cached summary; None where there is none, or a later release wrote it in a form unknown here."""
    try:
        return Summary.model_validate_json(cached.partition(b" ")[2]) if cached else None
    except ValidationError:
        return None
