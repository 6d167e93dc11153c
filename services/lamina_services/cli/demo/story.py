"""The story, told in several languages: who said what, and what memory must make of it."""

from functools import cache
from importlib.resources import files
from typing import Any

from lamina.model import Frozen, Turn

APP = "demo"
LANGUAGES = ("en", "es", "pt")


class Session(Frozen):
    """One conversation. Its turns are in long or short form, without identities."""

    session_id: str
    user_id: str
    turns: tuple[dict[str, Any], ...]


class Question(Frozen):
    """What is asked in the new session."""

    session_id: str
    previous_session_id: str
    project_id: str
    text: str


class Statement(Frozen):
    """A statement that the context must hold."""

    scope: str
    words: tuple[str, ...]
    """All of them, in one statement, whatever its case."""
    kinds: tuple[str, ...] = ()
    """Any of these; empty: any kind."""


class Story(Frozen):
    """The whole of it. The first session is the one whose memory is shown and asked for."""

    language: str
    sessions: tuple[Session, ...]
    question: Question
    statements: tuple[Statement, ...]
    absent: tuple[str, ...]
    """Words of another user, or of another project, that may appear nowhere."""
    never_learned: tuple[str, ...]
    """Words that only a tool said: no statement may hold them."""

    @property
    def main(self) -> Session:
        """The session that is continued."""
        return self.sessions[0]


@cache
def load_story(language: str) -> Story:
    """The packaged story in one of LANGUAGES."""
    text = files(__package__ or "").joinpath("stories").joinpath(f"{language}.json").read_text("utf-8")
    return Story.model_validate_json(text)


def turn_fields(story: Story, session: Session, position: int) -> dict[str, Any]:
    """One turn with its identity: the same each time the story is played, which makes that safe."""
    return {
        "app": APP,
        "user_id": user_of(story, session),
        "session_id": session.session_id,
        "turn_id": f"{session.session_id}-turn-{position + 1}",
        **session.turns[position],
    }


def user_of(story: Story, session: Session) -> str:
    """A user of this language alone: the story can be told in several on one stack."""
    return f"{session.user_id}-{story.language}"


def has_tool_call(turn: Turn) -> bool:
    """Whether the turn holds a function call and its response."""
    calls = any(True for event in turn.events for _ in event.function_calls())
    return calls and any(True for event in turn.events for _ in event.function_responses())
