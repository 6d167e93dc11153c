"""One structured question to Gemini: asked, checked, asked again where the answer does not fit."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from google.genai import Client, types
from pydantic import BaseModel

from lamina.models.gemini.client import models_of
from lamina.models.gemini.errors import answer_invalid, check_answered, translated
from lamina.models.gemini.usage import OnUsage, Usage, usage_of

Answer = TypeVar("Answer", bound=BaseModel)


@dataclass(frozen=True)
class Prompt:
    """What a task sends: its rules, and the data they apply to."""

    stage: str
    rules: str
    data: str


class Asker:
    """Asks one model; `answers` is how many answers it looks at before it gives up."""

    def __init__(self, client: Client, model: str, *, answers: int, on_usage: OnUsage) -> None:
        self._models = models_of(client)
        self.model = model
        self._answers = answers
        self._on_usage = on_usage

    async def ask(
        self, prompt: Prompt, answer: type[Answer], *, fits: Callable[[Answer], bool] = lambda _: True
    ) -> Answer:
        """The answer as an `answer`; one that does not conform, or does not fit, is asked for again.

        ModelUnavailable, ModelRequestInvalid or ModelRefused at once; ModelAnswerInvalid after the last
        answer.
        """
        for attempt in range(1, self._answers + 1):
            response = await self._generate(prompt, answer)
            try:
                check_answered(response)
            except Exception:
                self._on_usage(usage_of(prompt.stage, self.model, response, ok=False))
                raise
            parsed = response.parsed
            usable = parsed if isinstance(parsed, answer) and fits(parsed) else None
            self._on_usage(usage_of(prompt.stage, self.model, response, ok=usable is not None))
            if usable is not None:
                return usable
            if attempt == self._answers:
                raise answer_invalid(prompt.stage, attempt, response)
        raise AssertionError("at least one answer is asked for")

    async def _generate(self, prompt: Prompt, answer: type[BaseModel]) -> types.GenerateContentResponse:
        config = types.GenerateContentConfig(
            system_instruction=prompt.rules,
            response_mime_type="application/json",
            response_schema=answer,
        )
        try:
            return await self._models.generate_content(model=self.model, contents=prompt.data, config=config)
        except Exception as error:
            self._on_usage(Usage(prompt.stage, self.model, ok=False))
            meaning = translated(error)
            if meaning is None:
                raise
            raise meaning from error
