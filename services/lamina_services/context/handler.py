"""Builds the context for one prompt: one read of the buffer, one of the database, within the deadline."""

import time
from dataclasses import replace

from lamina.api import ContextRequest, ContextResponse
from lamina.deadline import Attempt, Deadline
from lamina.errors import DependencyUnavailable
from lamina.forgetting import Tombstones
from lamina.model import SessionKey
from lamina.ports import Buffer, BufferView, Embedder, MemoryReader, Recalled, TokenCounter
from lamina.settings import Settings
from lamina.telemetry import assembling
from lamina_services.context.decision import Material, assemble, newest

BUFFER_SHARE = 0.3
"""Of the deadline, for the buffer."""
EMBED_SHARE = 0.45
"""Of the deadline, for the question's vector; past it the database is asked by words alone."""
ASSEMBLE_SHARE = 0.1
"""Of the deadline, kept back for choosing and rendering; at most 250 ms."""


def _known_to_be_kept(view: BufferView, forgotten: Tombstones) -> BufferView:
    """Without the turns that the buffer does not know to be forgotten yet. Its summary may hold one's words:
    the database's stands alone then."""
    kept = tuple(turn for turn in view.turns if not forgotten.forgets(turn))
    return replace(view, turns=kept, summary=None)


async def build_context(
    request: ContextRequest,
    *,
    buffer: Buffer,
    reader: MemoryReader,
    embedder: Embedder,
    tokens: TokenCounter,
    settings: Settings,
) -> ContextResponse:
    """The memory that this prompt needs, within `request.deadline_ms`.

    What is down or late is named in `degraded`. DependencyUnavailable where neither the buffer nor the
    database answered: an empty context would look like a user without rules.
    """
    began = time.perf_counter()
    deadline = Deadline(request.deadline_ms)
    session = SessionKey(app=request.app, user_id=request.user_id, session_id=request.session_id)
    reading = Attempt("buffer", buffer.read(session))
    embedding = Attempt("embedder", embedder.query(request.query)) if request.query.strip() else None
    view = await reading.within(deadline.total_s * BUFFER_SHARE)
    vector = None
    if embedding:
        spent = deadline.total_s - deadline.left_s
        vector = await embedding.within(deadline.total_s * EMBED_SHARE - spent)

    turns = view.turns if view else ()
    until = deadline.left_s - min(deadline.total_s * ASSEMBLE_SHARE, 0.25)
    recalling = Attempt(
        "database",
        reader.recall(
            request.model_copy(update={"deadline_ms": max(1, int(until * 1000))}),
            vector,
            embedder.name,
            tail=settings.summary_trigger_turns + settings.summary_keep_turns,
            seen=[turn.turn_id for turn in turns],
        ),
    )
    recalled = await recalling.within(until)
    if view is None and recalled is None:
        raise DependencyUnavailable("memory", "neither the buffer nor the database answered in time")

    assembled = time.perf_counter()
    if view and recalled and recalled.forgotten.generation:
        view = _known_to_be_kept(view, recalled.forgotten)
        turns = view.turns
    material = Material(
        # A buffer that lost the session, or came back as it was a while ago, does not know what it lacks.
        turns=tuple(sorted((*turns, *(recalled.tail if recalled else ())), key=lambda turn: turn.order)),
        summary=newest(session, view.summary if view else None, recalled.summary if recalled else None),
        recalled=recalled or Recalled(),
        memory_missing=recalled is None,
    )
    with assembling():
        context = assemble(request, material, tokens=tokens, tool_output_tokens=settings.tool_output_tokens)
    ended = time.perf_counter()
    missing = {
        "buffer": reading.failed,
        "memory": recalling.failed,
        "vectors": embedding and embedding.failed,
    }
    return ContextResponse(
        summary=context.summary,
        recent=context.recent,
        entities=context.entities,
        episodes=context.episodes,
        prompt=context.prompt,
        tokens=context.tokens,
        timings_ms={
            "buffer": round(reading.took_ms, 2),
            "embed": round(embedding.took_ms, 2) if embedding else 0.0,
            "memory": round(recalling.took_ms, 2),
            "assemble": round((ended - assembled) * 1000, 2),
            "total": round((ended - began) * 1000, 2),
        },
        degraded=tuple(name for name, absent in missing.items() if absent),
    )
