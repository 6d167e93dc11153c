"""What became a dead letter: poison stays dead, and what only had bad luck is told again."""

from collections import Counter
from types import TracebackType
from typing import Self

from lamina import errors
from lamina.dead_letters import EXHAUSTED
from lamina.errors import LaminaError
from lamina.pubsub.dead_letters import DeadLetter, DeadLetters
from lamina_services.chaos.story import POISON, Poison
from lamina_services.local.home import StackState


class Graveyard:
    """The dead letters of a running stack; use it as an async context manager."""

    def __init__(self, state: StackState) -> None:
        self.parked: Counter[Poison] = Counter()
        """What is poison by its error, and how often it was parked: at least once."""
        self.replays = 0
        self._dead = DeadLetters.connect(state.project, emulator=state.pubsub)

    async def __aenter__(self) -> Self:
        """Open."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections."""
        await self._dead.aclose()

    async def visit(self) -> int:
        """Take note of the poison that has arrived, replay the rest; gives how many letters there were."""
        try:
            letters = [letter async for letter in self._dead.scan()]
            unlucky = [letter for letter in letters if _is_transient(letter.failure.error)]
            self.replays += (await self._dead.replay(unlucky)).done
            poison = [letter for letter in letters if letter not in unlucky]
            await self._dead.remove(poison)
        except LaminaError:  # killed just now: what was not acknowledged comes again
            return 1
        self.parked.update(map(_poison, poison))
        return len(letters)


def _is_transient(error: str) -> bool:
    """By the name of its class, as an operator tells them apart."""
    kind = getattr(errors, error, None)
    return error == EXHAUSTED or (isinstance(kind, type) and issubclass(kind, errors.Transient))


def _poison(letter: DeadLetter) -> Poison:
    owner = letter.owner
    key = "/".join((owner.app, owner.user_id, owner.session_id, owner.turn_id))
    return Poison(letter.message.attributes.get(POISON, key), letter.subscription, letter.failure.error)
