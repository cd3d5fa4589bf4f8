"""What stays of the saved states: the kept conversations and the trunks, as the shelf of snapshots asks for it.

The rule: it is read from the store and the folder of trunks in the shelf's thread; on the event loop only what is known
from there is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from kvchat.cache.kept import Kept
from kvchat.chat.events import ConversationsChanged, ServiceEvent
from kvchat.chat.ground import Ground
from kvchat.store import StoreError

GB = 1_000_000_000


class KeptClaims:
    """The claims on the shelf (`backends.engine.snapshots.Claims`), and what is kept."""

    def __init__(self, ground: Ground, trunks: Callable[[], Mapping[str, tuple[str, str]]]) -> None:
        """`trunks`: by their ids, the name of each and the digest of its one message; asked in threads."""
        self._ground = ground
        self._store = ground.store
        self._ask_trunks = trunks
        self._known: Mapping[str, Kept] | None = None
        """None: it is to be read."""
        self._paths: Mapping[str, Sequence[str]] = {}
        self._trunks: Mapping[str, tuple[str, str]] | None = None
        """As they were when the shelf asked last. None: nobody has asked yet."""
        ground.events.subscribe(self._heard)

    def all(self) -> Mapping[str, Kept]:
        """What is kept, by conversation, the oldest first."""
        if self._known is None:
            try:
                self._known = {kept.conversation: kept for kept in self._store.kept.all()}
            except StoreError:
                return {}
        return self._known

    def stays(self, id: str) -> bool:
        """Whether the state of a conversation is kept, or `id` is a trunk's."""
        return id in self.all() or id in (self._trunks or ())

    async def ready(self) -> None:
        """Have looked at the trunks once."""
        if self._trunks is None:
            self._trunks = await asyncio.to_thread(self._ask_trunks)

    def look_again(self) -> None:
        """Something else is kept, or the trash was emptied."""
        self._known = None

    def _heard(self, event: ServiceEvent) -> None:
        if isinstance(event, ConversationsChanged):
            self.look_again()

    # -- what the shelf asks in its thread

    def paths(self) -> Mapping[str, Sequence[str]]:
        """By conversation, and trunk: the digests of the messages whose state stays, root first; the last known ones
        where the store cannot be read."""
        try:
            self._paths = self._store.kept.paths()
        except StoreError:
            pass
        self._trunks = trunks = self._ask_trunks()
        return {**self._paths, **{id: (digest,) for id, (_, digest) in trunks.items()}}

    def most_bytes(self) -> int:
        return GB * self._ground.settings.cache.kept_gb

    def title(self, conversation: str) -> str:
        try:
            record = self._store.known(conversation)
        except StoreError:
            record = None
        name, _ = (self._trunks or {}).get(conversation, ("", ""))
        return record.title if record is not None else name
