"""Which server goes through a conversation for memories, and how long that waits."""

from __future__ import annotations

from kvchat.backends import kinds
from kvchat.chat.background.memory_service import MemoryService
from kvchat.chat.cache.routes import Routes
from kvchat.chat.core import Core
from kvchat.chat.server.link import Link

REST_TIMES = 5
"""How many times as long a prompt of its own waits where it may push the conversation that is looked at out of the
server's cache; it is prefilled again behind it."""


class Workplace:
    def __init__(self, core: Core, routes: Routes, memory: MemoryService) -> None:
        self._core = core
        self._routes = routes
        self._memory = memory

    def of(self, id: str) -> Link | None:
        """The server that does the work for a conversation; None: it cannot be asked now."""
        own, link = self._core.servers.link(id), self._memory.worker(id)
        if link.lane is own.lane:
            return own if own.info is not None and own.connector.connection.phase == "ready" else None
        away = link.info is not None and self._core.servers.is_on_the_internet(link)
        return link if self._core.settings.memory.on_cloud or not away else None

    def spares_open(self, link: Link) -> bool:
        """Whether a prompt of its own certainly leaves what the server holds of the conversation that is looked at, as
        far as the cache is followed."""
        return link.cache is None or self._routes.spares_open(link.cache)

    def rest_times(self, link: Link) -> int:
        """`REST_TIMES` where the cache is not followed and may be small; else 1."""
        info = link.info
        follows = link is not self._core.servers.link() or (link.cache is not None and link.cache.prompts.works)
        roomy = follows or (info is not None and (info.replicas or kinds.kind_of(info.kind).answers_many))
        return 1 if roomy else REST_TIMES
