"""Summarising turns of which the model may refuse some: one of them must not hold up its session."""

from collections.abc import Sequence
from dataclasses import dataclass

from lamina.errors import ModelAnswerInvalid, ModelRefused, ModelRequestInvalid, Permanent
from lamina.model import SummaryLine, Turn
from lamina.ports import LanguageModel
from lamina_services.summarizer.decision import checked

_REFUSALS = (ModelRefused, ModelAnswerInvalid, ModelRequestInvalid)


@dataclass(frozen=True)
class Folded:
    """What a summary has become."""

    lines: tuple[SummaryLine, ...]
    refused: tuple[tuple[Turn, Permanent], ...] = ()
    """The turns that the lines go without, and why."""


async def fold(
    lines: tuple[SummaryLine, ...], turns: Sequence[Turn], *, model: LanguageModel, budget: int
) -> Folded:
    """Fold turns, oldest first, into the lines; what the model refuses is halved until the turn is found.

    A refusal of several turns that holds for each one of them is raised: the fault may be in the lines or in
    the deployment, and setting every turn aside would hide it.
    """
    try:
        return Folded(checked(lines, await model.summarise(lines, turns, budget)))
    except _REFUSALS as error:
        if len(turns) == 1:
            return Folded(lines, ((turns[0], error),))
        middle = len(turns) // 2
        first = await fold(lines, turns[:middle], model=model, budget=budget)
        second = await fold(first.lines, turns[middle:], model=model, budget=budget)
        refused = (*first.refused, *second.refused)
        if len(refused) == len(turns):
            raise
        return Folded(second.lines, refused)
