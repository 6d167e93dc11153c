"""The one place where google-genai's failures become Lamina's."""

from json import JSONDecodeError
from typing import Any, cast

import httpx2
from google.auth.exceptions import GoogleAuthError
from google.genai import types
from google.genai.errors import APIError, UnknownApiResponseError

from lamina.errors import (
    LaminaError,
    ModelAnswerInvalid,
    ModelRefused,
    ModelRequestInvalid,
    ModelUnavailable,
)

_NOT_THE_MESSAGES_FAULT = frozenset({401, 403, 404, 408, 409, 425, 429})
"""Bad credentials, no such model, overload: the next message would fail alike, and this one may succeed once
an operator has mended the cause. So it is retried and not parked."""

_CUT_OFF = frozenset({types.FinishReason.MAX_TOKENS, types.FinishReason.MALFORMED_RESPONSE})
_FINISHED = frozenset({types.FinishReason.STOP, types.FinishReason.FINISH_REASON_UNSPECIFIED, *_CUT_OFF})


def translated(error: Exception) -> LaminaError | None:
    """What a failed call means; None where it is no failure of the call."""
    match error:
        case APIError():
            return _of_status(error)
        case httpx2.HTTPError() | TimeoutError() | OSError():
            return ModelUnavailable(f"Gemini did not answer: {type(error).__name__}")
        case UnknownApiResponseError() | JSONDecodeError():
            return ModelUnavailable("Gemini's answer was cut off on its way")
        case GoogleAuthError():
            return ModelUnavailable(f"no credentials for Gemini: {error}")
        case _:
            return None


def check_answered(response: types.GenerateContentResponse) -> None:
    """ModelRefused unless the response holds an answer, be it a good one or not."""
    feedback = response.prompt_feedback
    if feedback is not None and feedback.block_reason is not None:
        raise ModelRefused(f"Gemini blocked the prompt: {feedback.block_reason.value}")
    if not response.candidates:
        raise ModelRefused("Gemini gave no answer and no reason")
    reason = response.candidates[0].finish_reason
    if reason is not None and reason not in _FINISHED:
        raise ModelRefused(f"Gemini declined to answer: {reason.value}")


def answer_invalid(stage: str, attempts: int, response: types.GenerateContentResponse) -> ModelAnswerInvalid:
    """The error for an answer that did not fit after every attempt."""
    reason = response.candidates[0].finish_reason if response.candidates else None
    cut = ", the last one cut off" if reason in _CUT_OFF else ""
    return ModelAnswerInvalid(f"{stage}: {attempts} answers did not fit the schema{cut}")


def _of_status(error: APIError) -> LaminaError:
    # A wrong API key is answered with 400, and only its details tell.
    wrong_key = "API_KEY_INVALID" in str(cast(Any, error).details)
    what = f"Gemini answered {error.code} {error.status or ''}: {error.message or ''}".strip(": ")
    if wrong_key or error.code >= 500 or error.code in _NOT_THE_MESSAGES_FAULT:
        return ModelUnavailable(what)
    return ModelRequestInvalid(what)
