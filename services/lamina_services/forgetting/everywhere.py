"""Forgets in the database, then in the buffer, then in the queues.

In this order: whatever comes late finds the database's tombstone, wherever it is let in. Each step looks at
what is there and at the tombstones, and at nothing that the step before remembers: killed at any moment, the
same command finishes the work.
"""

from collections import Counter
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime

from lamina.envelope import encode
from lamina.events import TurnRecorded
from lamina.forgetting import Selection, Tombstones
from lamina.model import SessionKey
from lamina.ports import Message
from lamina.postgres.forgetting import PostgresForgetting
from lamina.pubsub.dead_letters import DeadLetters
from lamina.pubsub.publisher import PubSubPublisher
from lamina.topology import REPLAY_ATTRIBUTE
from lamina.valkey.buffer import ValkeyBuffer
from lamina.valkey.sessions import ValkeySessions
from lamina_services.forgetting.letters import is_forgotten

_SUMMARIZER = "summarizer"


@dataclass
class Receipt:
    """What was forgotten, by place. In a dry run, what would be."""

    selection: Selection
    forgotten_at: datetime
    acted: bool
    database: Counter[str] = field(default_factory=Counter[str])
    valkey: Counter[str] = field(default_factory=Counter[str])
    queues: Counter[str] = field(default_factory=Counter[str])
    """Dead letters, by the subscription that had failed."""
    stays: Counter[str] = field(default_factory=Counter[str])
    """What the selection leaves though one might look for it."""
    summarised_again: int = 0
    """Sessions whose kept turns the summarizer was asked to summarise again."""

    @property
    def total(self) -> int:
        """How many things went."""
        return self.database.total() + self.valkey.total() + self.queues.total()


@dataclass(frozen=True)
class Everywhere:
    """The places."""

    database: PostgresForgetting
    buffer: ValkeyBuffer
    buffered: ValkeySessions
    dead: DeadLetters
    publisher: PubSubPublisher
    summary_trigger: int
    """So many turns without a summary are due for one."""

    async def forget(self, selection: Selection, *, act: bool) -> Receipt:
        """Forget for good; `act` False changes nothing, and counts what would go.

        NotFound where the user has, and had, no such entity.
        """
        gone = await self.database.forget(selection, act=act)
        receipt = Receipt(selection, gone.forgotten_at, act, database=+gone.counts, stays=+gone.stays)
        await self._forget_buffered(gone.tombstones, receipt)
        if selection.scope != "entity":  # the turns in which it was said stay, and so do their events
            await self._forget_letters(gone.tombstones, receipt)
        if act:
            await self._summarise_again(receipt)
        return receipt

    async def _forget_buffered(self, stones: Tombstones, receipt: Receipt) -> None:
        app, user_id = stones.app, stones.user_id
        if receipt.acted:
            await self.buffer.entomb(app, user_id, stones.of_turns())
            receipt.valkey["keys of lost sessions"] = await self.buffered.remove_orphans()
        logged = await self.database.sessions(app, user_id)
        buffered = await self.buffered.of_user(app, user_id)
        for session_id in sorted({*logged, *buffered}):
            session = receipt.selection.session(session_id)
            await self._forget_in_session(session, stones, receipt)
        receipt.valkey = +receipt.valkey

    async def _forget_in_session(self, session: SessionKey, stones: Tombstones, receipt: Receipt) -> None:
        view = await self.buffer.read(session)
        gone = [turn.turn_id for turn in view.turns if stones.forgets(turn)]
        receipt.valkey["turns"] += len(gone)
        if not receipt.acted:
            return
        # Of a session without a summary in the database, what the buffer knows of one is out of date as well.
        current = await self.database.has_summary(session, view.summary)
        if gone or not current:
            await self.buffer.drop(session, gone, summary=not current)
            receipt.valkey["summaries"] += int(view.summary is not None and not current)

    async def _forget_letters(self, stones: Tombstones, receipt: Receipt) -> None:
        async with aclosing(self.dead.scan()) as scan:
            letters = [letter async for letter in scan if is_forgotten(letter, stones)]
        receipt.queues = Counter(letter.subscription for letter in letters)
        if receipt.acted:
            await self.dead.remove(letters)
        await self.dead.release()

    async def _summarise_again(self, receipt: Receipt) -> None:
        """Tell the summarizer alone of the latest turn of each session that is due."""
        chosen = receipt.selection
        for turn in await self.database.due(chosen.app, chosen.user_id, self.summary_trigger):
            told = encode(TurnRecorded(turn=turn))
            attributes = {**told.attributes, REPLAY_ATTRIBUTE: _SUMMARIZER}
            await self.publisher.send(TurnRecorded.topic, Message(told.data, attributes, told.ordering_key))
            receipt.summarised_again += 1
