"""The token ids of branches: noted with their conversations when kvchat ends, so that the next run need not ask for
them.
"""

from __future__ import annotations

import base64
import json
import zlib
from array import array
from collections.abc import Iterable, Mapping
from contextlib import suppress

from kvchat.cache import Held, Tokens
from kvchat.chat.cache.branch_requests import BranchRequests
from kvchat.chat.cache.server_cache import ServerCache
from kvchat.chat.conversations.conversations import Conversations
from kvchat.chat.ground import Ground
from kvchat.chat.server.servers import Servers
from kvchat.store import StoreError
from kvchat.store.conversations import PROMPT_IDS

MOST_IDS = 1 << 16
"""Token ids that are noted of a state; those of a longer one are asked for again."""


class ServerBranchIds:
    """Those of one server."""

    def __init__(
        self,
        cache: ServerCache,
        ground: Ground,
        conversations: Conversations,
        servers: Servers,
        requests: BranchRequests,
    ) -> None:
        self._cache = cache
        self._ground = ground
        self._conversations = conversations
        self._servers = servers
        self._requests = requests

    def known(self, id: str, tip: str) -> Tokens | None:
        """As of `BranchIds`."""
        conversation = self._conversations.loaded.get(id)
        turn = self._requests.after_tip(conversation, tip) if conversation is not None else None
        return self._cache.prompts.known_prefix(turn) if turn is not None else None

    def _noted(self, id: str, tip: str) -> Tokens | None:
        return ids_in(self._ground.setting(PROMPT_IDS + id), self._cache.slots.state.process).get(tip)

    async def find(self, id: str, tip: str) -> Tokens | None:
        """As of `BranchIds`."""
        if (noted := self._noted(id, tip)) is not None:
            return noted
        if self._servers.links.is_brief or not self._servers.consent.agreed_to(self._cache.server):
            return None
        try:
            turn = self._requests.after_tip(self._conversations.load(id), tip)
        except StoreError:
            return None
        return await self._cache.prompts.prefix(turn) if turn is not None else None

    async def note_down(self, states: Iterable[Held]) -> None:
        """Note those of what the server holds."""
        process, found = self._cache.slots.state.process, dict[str, dict[str, Tokens]]()
        for held in states:
            if held.owner and held.tip:
                ids = self.known(held.owner, held.tip) or self._noted(held.owner, held.tip)
                if ids is not None:
                    found.setdefault(held.owner, {})[held.tip] = ids
        for owner, ids_of in found.items():
            name, note = PROMPT_IDS + owner, ids_noted(process, ids_of)
            if self._conversations.listed(owner) is not None and self._ground.setting(name) != note:
                with suppress(StoreError):  # the next run asks for them
                    await self._ground.keep_setting(name, note)


def ids_noted(process: str, ids: Mapping[str, Tokens]) -> str:
    """The token ids of branches, by the digest of their last message, that a process of a server holds, as JSON."""
    return json.dumps(
        {
            "process": process,
            "ids": {
                tip: base64.b64encode(zlib.compress(tokens.data, 1)).decode()
                for tip, tokens in ids.items()
                if tokens.known == len(tokens) <= MOST_IDS
            },
        }
    )


def ids_in(note: str, process: str) -> dict[str, Tokens]:
    """What was noted of this process; nothing of another, nor where the note is damaged."""
    try:
        found = json.loads(note or "{}")
        if not process or found.get("process") != process:
            return {}
        return {str(tip): _unpacked(packed) for tip, packed in found["ids"].items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, zlib.error):
        return {}


def _unpacked(packed: str) -> Tokens:
    unpacking = zlib.decompressobj()
    return Tokens(array("i", unpacking.decompress(base64.b64decode(packed), MOST_IDS * array("i").itemsize)))
