"""Which sessions the buffer holds of a user: for an operator who has to find what no log knows of."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

from lamina import strict_json
from lamina.model import SessionKey
from lamina.valkey.buffer import KINDS, script
from lamina.valkey.client import Client
from lamina.valkey.errors import translated

_KEY = re.compile(rb"lamina:\{([0-9a-f]{32})\}:(\w+)")
_AT_ONCE = 32


class ValkeySessions:
    """Looks through the whole buffer: no index by user is kept, as only this needs one."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._whose = script(client, "whose.lua")
        self._drop = script(client, "drop.lua")

    async def of_user(self, app: str, user_id: str) -> list[str]:
        """The ids of the user's sessions, sorted."""
        found: set[str] = set()
        async for digests in self._digests():
            for owner in await asyncio.gather(*map(self._owner, digests)):
                if owner and (owner.app, owner.user_id) == (app, user_id):
                    found.add(owner.session_id)
        return sorted(found)

    async def remove_orphans(self) -> int:
        """Delete what is left of sessions that lost their `meta` key, and with it whose they were.

        To the buffer such a session is lost, and whatever is left of it is garbage. Gives how many keys.
        """
        removed = 0
        async for digests in self._digests():
            for digest in digests:
                keys = [f"lamina:{{{digest}}}:{kind}" for kind in KINDS]
                with translated():
                    if not await self._client.exists(keys[KINDS.index("meta")]):
                        removed += await self._client.exists(*keys[:3])
                        await self._drop(keys, ["0"])  # looks again, in one step
        return removed

    async def _digests(self) -> AsyncIterator[Sequence[str]]:
        """The sessions' digests, some at a time, each once."""
        seen: set[str] = set()
        some: list[str] = []
        with translated():
            scan = cast(Any, self._client).scan_iter(match="lamina:{*", count=1000)
            async for key in cast("AsyncIterator[bytes]", scan):
                matched = _KEY.fullmatch(key)
                if matched and (digest := matched[1].decode()) not in seen:
                    seen.add(digest)
                    some.append(digest)
                if len(some) == _AT_ONCE:
                    yield some
                    some = []
        if some:
            yield some

    async def _owner(self, digest: str) -> SessionKey | None:
        keys = [f"lamina:{{{digest}}}:{kind}" for kind in KINDS]
        with translated():
            header, cached = await self._whose(keys, [])
        told: Any = None
        if header:
            told = strict_json.loads(header)
        elif cached:
            told = strict_json.loads(cast(bytes, cached).partition(b" ")[2]).get("session")
        if not isinstance(told, dict):
            return None
        names = cast("dict[str, Any]", told)
        return SessionKey(app=names["app"], user_id=names["user_id"], session_id=names["session_id"])
