"""The one error tree. It splits at the top by what the caller must do: try again, or give up and park."""

from collections.abc import Sequence


class LaminaError(Exception):
    """Anything Lamina raises on purpose. Catch a subclass: the branch says what to do."""


class Transient(LaminaError):  # noqa: N818 - read as a property: "is it transient?"
    """The same call may succeed later. A worker nacks; Pub/Sub backs off, then dead-letters."""


class Permanent(LaminaError):  # noqa: N818 - as above
    """No retry can help. A worker parks the message at once with this reason; HTTP answers 4xx."""

    status = 422


class DependencyUnavailable(Transient):
    """Valkey, AlloyDB or Pub/Sub did not answer. Cause: an outage or a timeout. Remedy: wait."""

    def __init__(self, dependency: str, detail: str) -> None:
        super().__init__(f"{dependency} is unavailable: {detail}")
        self.dependency = dependency


class StaleVersion(Transient):
    """Another worker committed first. Cause: two workers on one session. Remedy: reload and decide again."""


class ModelUnavailable(Transient):
    """The model timed out, was overloaded (429) or failed (5xx). Remedy: back off and try again."""


class InvalidEvent(Permanent):
    """The payload does not satisfy its contract. `problems` names each field and what is wrong with it."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


class TooLarge(Permanent):
    """The message would exceed what Pub/Sub carries. Cause: inline data. Remedy: send a reference."""

    status = 413


class ModelRequestInvalid(Permanent):
    """The model's API refused the request as such (400, 413). Remedy: mend what was sent, then replay."""


class ModelRefused(Permanent):
    """The model declined to answer (safety block, empty candidate). Remedy: a person looks at the message."""


class ModelAnswerInvalid(Permanent):
    """The model's answer did not fit its schema after every retry. Remedy: mend the prompt, then replay."""


class ConstraintViolated(Permanent):
    """The database refused the row. Cause: code and schema disagree. Remedy: mend, replay."""


class NotFound(Permanent):
    """What was asked for does not exist, or belongs to someone else: the two are not told apart."""

    status = 404


class Forgotten(Permanent):
    """The user had this forgotten, and it came late or again. A worker drops it: parking would keep it."""

    status = 410


class ConfigurationError(Permanent):
    """A setting is missing or contradictory. The message names every one of them at once."""

    status = 500


class Unforeseen(Permanent):
    """A defect of this service. Remedy: its log tells where it arose, and the class of the error."""

    status = 500

    def __init__(self) -> None:
        super().__init__("an unforeseen error; the service's log tells where it arose")
