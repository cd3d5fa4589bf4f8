"""The servers in use: each with the way to it, its lane, and what is known of its cache.

The rule: one link for one server. Conversations name theirs; those that name none share the default one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kvchat.backends.dialect import Backend, ServerInfo, TemplateFacts
from kvchat.cache.speed import SpeedFit
from kvchat.chat.connection import Connector
from kvchat.chat.lane import Lane
from kvchat.chat.snapshots import Snapshots
from kvchat.config import ServerSettings, Settings

if TYPE_CHECKING:
    from kvchat.chat.following import Following
    from kvchat.chat.sharing import SharedPrefixes

DEFAULT = ""
"""The name of the server that the settings, or else discovery, choose."""


@dataclass(eq=False, slots=True)
class Link:
    """One server in use."""

    name: str
    """DEFAULT, a profile's name, a base URL, or the path of a model file for the built-in engine."""
    connector: Connector
    lane: Lane
    following: Following | None = None
    shared: SharedPrefixes | None = None
    """The prefixes sent to a server that cannot be followed."""
    speed: tuple[ServerInfo, SpeedFit | None] | None = None
    template: TemplateFacts | None = None
    """What the chat template of its model does; None until it was found out."""
    meeting: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def info(self) -> ServerInfo | None:
        return self.connector.info

    def changed(self) -> None:
        """The server was identified, lost or changed: what was known of another one is forgotten."""
        if self.following is not None and self.following.server is not self.info:
            self.following = self.template = None
        if self.shared is not None and self.shared.server is not self.info:
            self.shared = None
        self.speed = None


class Links:
    """Every server in use. `changed` is called with the link that changed."""

    def __init__(self, settings: Settings, changed: Callable[[Link], None], snapshots: Path | None = None) -> None:
        self._settings = settings
        self._changed = changed
        self.folder = snapshots if settings.engine.snapshots else None
        self.snapshots = Snapshots(self.folder)
        """The saved states of the built-in engine, which one link at a time runs."""
        self._all: dict[str, Link] = {}
        self._engine_lane = Lane()
        """The built-in engine runs one model at a time: whatever runs on it shares a lane."""

    def __iter__(self) -> Iterator[Link]:
        return iter(tuple(self._all.values()))

    def at(self, name: str) -> Link:
        """The link to the server of this name; made when it is first asked for."""
        found = self._all.get(name) or self._same(name)
        if found is None:
            found = self._all[name] = self._made(name)
        return found

    def of(self, backend: Backend) -> Link:
        """The link that this backend belongs to."""
        return next((link for link in self if link.connector.has(backend)), None) or self.at(DEFAULT)

    @property
    def engine(self) -> Link | None:
        """The link that runs the built-in engine."""
        return next((link for link in self if link.connector.runs_engine), None)

    def _same(self, name: str) -> Link | None:
        """The link that leads to the same place under another name."""
        if "://" in name:
            return next((link for link in self if _address(link) == name.rstrip("/")), None)
        if is_file(name):
            return next((link for link in self if link.connector.runs_engine
                         and link.connector.model_path == Path(name)), None)
        return None

    def _made(self, name: str) -> Link:
        server, file = _server_of(name, self._settings)
        links: list[Link] = []
        connector = Connector(self._settings, lambda: self._changed(links[0]) if links else None,
                              snapshot_folder=self.folder, snapshots=self.snapshots, server=server, model_path=file,
                              finds=name == DEFAULT, free_engine=lambda: self._free_engine(links[0]))
        links.append(Link(name, connector, self._lane_for(name, server, file)))
        return links[0]

    def _lane_for(self, name: str, server: ServerSettings, file: Path | None) -> Lane:
        if file is not None or name == DEFAULT:  # the default may come to run the engine
            return self._engine_lane
        address = server.base_url.rstrip("/")
        return next((link.lane for link in self if _address(link) == address), None) or Lane()

    async def _free_engine(self, taker: Link) -> None:
        """Before the engine starts for one link, it ends for any other."""
        for link in self:
            if link is not taker and link.connector.runs_engine:
                await link.connector.let_go()

    async def aclose(self) -> None:
        for link in self:
            await link.connector.aclose()


def _address(link: Link) -> str:
    info = link.info
    if info is not None and info.embedded:
        return ""
    return (info.base_url if info is not None else link.connector.base_url).rstrip("/")


def is_file(name: str) -> bool:
    """Whether a server's name is the path of a model file."""
    return name != DEFAULT and "://" not in name and ("/" in name or "\\" in name or name.endswith(".gguf"))


def _server_of(name: str, settings: Settings) -> tuple[ServerSettings, Path | None]:
    """The settings of the server of this name, and the model file where it is one."""
    if name == DEFAULT:
        return settings.server, Path(settings.engine.model).expanduser() if settings.engine.model else None
    if name in settings.profiles:
        return settings.profiles[name], None
    if "://" in name:
        known = [settings.server, *settings.profiles.values()]
        own = next((server for server in known if server.base_url.rstrip("/") == name.rstrip("/")), None)
        return own or ServerSettings(base_url=name), None
    return ServerSettings(), Path(name)
