"""Searches the long-term memory of one user."""

import time

from lamina.api import SearchRequest, SearchResponse
from lamina.deadline import Attempt
from lamina.ports import Embedder, MemoryReader

EMBED_S = 1.5
"""How long a search waits for the question's vector before it goes by words alone."""


async def search_memory(
    request: SearchRequest, *, reader: MemoryReader, embedder: Embedder
) -> SearchResponse:
    """Ranked entities and episodes. Raises Transient where the database is down: nothing else can answer."""
    began = time.perf_counter()
    embedding = Attempt("embedder", embedder.query(request.query)) if request.query.strip() else None
    vector = await embedding.within(EMBED_S) if embedding else None
    embedded = time.perf_counter()
    found = await reader.search(request, vector, embedder.name)
    ended = time.perf_counter()
    return SearchResponse(
        entities=found.entities,
        episodes=found.episodes,
        timings_ms={
            "embed": round((embedded - began) * 1000, 2),
            "memory": round((ended - embedded) * 1000, 2),
            "total": round((ended - began) * 1000, 2),
        },
        degraded=("vectors",) if embedding and embedding.failed else (),
    )
