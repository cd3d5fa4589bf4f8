"""The servers in use: each with the way to it, its lane, and what is known of its cache.

One link for one server. Conversations name theirs; those that name none share the default one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from kvchat.backends.dialect import Backend, BackendError, HostClass, ServerInfo, TemplateFacts
from kvchat.chat.cache.states.snapshots import Snapshots
from kvchat.chat.ground import Ground
from kvchat.chat.server.access import ServerAccess
from kvchat.chat.server.connection import Connector
from kvchat.chat.server.embedded import EmbeddedEngine
from kvchat.chat.server.known_servers import KnownServers
from kvchat.chat.server.lane import Lane
from kvchat.config import ServerSettings, Settings
from kvchat.paths import PathError
from kvchat.sanitize import one_line
from kvchat.store.presence.server_presence import ServerLocks

if TYPE_CHECKING:
    from kvchat.backends.engine.snapshot_file import Snapshot
    from kvchat.chat.cache.server_cache import ServerCache
    from kvchat.chat.cache.shared_prefixes import SharedPrefixes

DEFAULT = ""
"""The name of the server that the settings, or else discovery, choose."""


class Link(Struct, eq=False):
    """One server in use."""

    name: str
    """DEFAULT, a profile's name, a base URL, or the path of a model file for the built-in engine."""
    connector: Connector
    own_lane: Lane
    lanes: dict[str, Lane]
    """The lanes of all servers, by their addresses."""
    seats: ServerLocks
    cache: ServerCache | None = None
    shared: SharedPrefixes | None = None
    """The prefixes sent to a server that cannot be tracked."""
    template: TemplateFacts | None = None
    """What the chat template of its model does; None until it was found out."""
    template_asked: bool = False
    """Whether it is found out, or was."""
    meeting: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def info(self) -> ServerInfo | None:
        return self.connector.info

    @property
    def kept_name(self) -> str:
        """The name that leads here in later runs too, whatever is found or set then; DEFAULT while that is not
        known."""
        connector, file = self.connector, self.connector.engine_model
        return self.name or connector.profile or connector.address or (str(file) if file else "")

    def leads_to(self, name: str) -> bool:
        """Whether this is the server of that name, too."""
        if name in (self.name, self.kept_name):
            return True
        if "://" in name:
            return _address(self) == normal(name)
        return is_file(name) and self.connector.engine_model == Path(name)

    @property
    def lane(self) -> Lane:
        """The lane of the server, however it is called: its address may only be known once it is found."""
        address = _address(self)
        if not address:
            return self.own_lane
        lane = self.lanes.setdefault(address, self.own_lane)
        lane.serves(address, self.seats)
        return lane

    def changed(self) -> None:
        """The server was identified, lost or changed: what was known of another one is forgotten."""
        if self.cache is not None and self.cache.server is not self.info:
            self.cache = self.template = None
            self.template_asked = False
        if self.connector.connection.phase == "lost" or (
            self.shared is not None and self.shared.server is not self.info
        ):
            self.shared = None  # what a server holds that was gone is not known


class Links:
    """Every server in use. `changed` is called with the link that changed."""

    def __init__(
        self,
        ground: Ground,
        changed: Callable[[Link], None],
        names_model: Callable[[Link], bool],
        snapshots: Path | None = None,
        seats: Path | None = None,
    ) -> None:
        """`names_model`: whether a model is named for a link, or has answered there. `snapshots`, `seats`: the folders
        of saved states and of what kvchats on one store share; None: nowhere."""
        self._ground = ground
        self._known = KnownServers(ground)
        self._changed = changed
        self._names_model = names_model
        self.wait_seconds: float | None = None
        """How long a server is waited for that loads its model, or is busy; None: without limit."""
        self.is_brief = False
        """Whether this run ends with its answer: nothing is asked for then that only a later question needs."""
        self.folder = snapshots if ground.settings.engine.snapshots else None
        self.snapshots = Snapshots(self.folder)
        """The saved states of the built-in engine, which one link at a time runs."""
        self._server_snapshots = snapshots / "servers" if snapshots is not None else None
        """The folder of what is known of the states that other servers have saved."""
        self._all: dict[str, Link] = {}
        self._lanes: dict[str, Lane] = {}
        self._seats = ServerLocks(seats)
        self._engine_changes = asyncio.Lock()
        self._engine_lane = Lane()
        """The built-in engine runs one model at a time: whatever runs on it shares a lane."""

    def __iter__(self) -> Iterator[Link]:
        return iter(tuple(self._all.values()))

    def at(self, name: str) -> Link:
        """The link to the server of this name; made when it is first asked for. One that was made before another was
        found to lead there, and is not in use, gives way to that."""
        found = self._all.get(name)
        if found is None:
            own = self._ground.settings.server
            is_own = name == DEFAULT and own.base_url  # a conversation may have named it by its address before
            same = (link for link in self if (link.connector.server is own if is_own else link.leads_to(name)))
            found = next(same, None)
        elif name != DEFAULT and found.info is None:
            met = (link for link in self if link is not found and link.info is not None and link.leads_to(name))
            found = next(met, found)
        if found is None:
            found = self._all[name] = self._made(name)
        return found

    def lane_at(self, base_url: str) -> Lane:
        """The lane of the server at this address, whatever it is used for."""
        address = normal(base_url)
        lane = self._lanes.setdefault(address, Lane())
        lane.serves(address, self._seats)
        return lane

    def of(self, backend: Backend) -> Link:
        """The link that this backend belongs to."""
        return next((link for link in self if link.connector.has(backend)), None) or self.at(DEFAULT)

    def take_settings(self) -> None:
        """What is in force at once of the servers' settings is so from now on."""
        for link in self:
            link.connector.server = _server_of(link.name, self._ground.settings)[0]

    @property
    def engine(self) -> Link | None:
        """The link that runs the built-in engine."""
        return next((link for link in self if link.connector.runs_engine), None)

    def with_cache(self, cache: ServerCache) -> Link | None:
        """The link to the server that has this cache; None where it has another one by now."""
        return next((link for link in self if link.cache is cache), None)

    async def kept(self, claimed: Mapping[str, Sequence[str]]) -> dict[str, Snapshot]:
        """By conversation of `claimed`, with its path: the snapshot that stays, wherever it was saved; where its server
        is in use, the one there."""
        found = await self.snapshots.kept()
        if (folder := self._server_snapshots) is not None:
            from kvchat.backends.engine import server_snapshots

            with suppress(OSError):
                found |= await asyncio.to_thread(server_snapshots.kept, folder, claimed)
        for link in self:
            found |= await link.connector.snapshots.kept()
        return found

    async def forget(self, conversations: Collection[str]) -> None:
        """The saved states of these conversations go, wherever they are."""
        await self.snapshots.forget(conversations)
        for link in self:
            await link.connector.snapshots.forget(conversations)
        if (folder := self._server_snapshots) is not None:
            from kvchat.backends.engine import server_snapshots

            with suppress(OSError, PathError):  # as far as they are of servers that are not in use
                await asyncio.to_thread(server_snapshots.forget, folder, conversations)

    def _made(self, name: str) -> Link:
        settings = self._ground.settings
        server, file, missing = _server_of(name, settings)
        links: list[Link] = []
        connector = Connector(
            settings,
            lambda: self._changed(links[0]) if links else None,
            server=server,
            model_path=file,
            finds=name == DEFAULT,
            missing=missing,
            access=ServerAccess(
                profile=next((name for name, own in settings.profiles.items() if own.base_url and own == server), ""),
                images=self._image,
                names_model=lambda: self._names_model(links[0]),
                wait_seconds=lambda: self.wait_seconds,
                is_brief=lambda: self.is_brief and not settings.cache.token_ids,  # which need the vocabulary's size
                known=self._known,
            ),
            engine=EmbeddedEngine(settings.engine, self.folder, self.snapshots, self._image),
            engine_turn=lambda: self._engine_turn(links[0]),
            server_snapshots=self._server_snapshots,
        )
        may_run_engine = file is not None or name == DEFAULT
        links.append(Link(name, connector, self._engine_lane if may_run_engine else Lane(), self._lanes, self._seats))
        return links[0]

    def _image(self, sha256: str) -> bytes | None:
        found = self._ground.store.images.get(sha256)
        return found.url if found is not None else None

    @asynccontextmanager
    async def _engine_turn(self, taker: Link) -> AsyncIterator[None]:
        """The time in which the engine is started for one link: first it ends for any other."""
        async with self._engine_changes:
            for link in self:
                if link is not taker and link.connector.runs_engine:
                    await link.connector.let_go()
            yield

    async def aclose(self) -> None:
        await asyncio.gather(*(link.connector.aclose() for link in self))


def _address(link: Link) -> str:
    info = link.info
    if info is not None and info.embedded:
        return ""
    return normal(info.base_url if info is not None else link.connector.base_url)


def normal(base_url: str) -> str:
    """A base URL in the one form that tells whether two of them lead to the same server; empty for none."""
    if not base_url:
        return ""
    from kvchat.backends.http.endpoint import is_loopback_name, parse_base_url

    try:
        url = parse_base_url(base_url)
    except BackendError:
        return base_url
    return str(replace(url, host="127.0.0.1") if is_loopback_name(url.host) or url.host == "::1" else url)


def is_on_this_machine(base_url: str) -> bool:
    """Whether an address is one of this machine as it is written, whatever a name server says."""
    from kvchat.backends.http.endpoint import BadAddressError, classify, is_loopback_name, literal, parse_base_url

    try:
        host = parse_base_url(base_url).host
        address = literal(host)
        return is_loopback_name(host) or (address is not None and classify(address) is HostClass.LOOPBACK)
    except (BackendError, BadAddressError):
        return False


def is_file(name: str) -> bool:
    """Whether a server's name is the path of a model file."""
    return name != DEFAULT and "://" not in name and ("/" in name or "\\" in name or name.endswith(".gguf"))


def _server_of(name: str, settings: Settings) -> tuple[ServerSettings, Path | None, str]:
    """The settings of the server of this name, the model file where it is one, and its name if it is nothing."""
    if name == DEFAULT:
        return settings.server, Path(settings.engine.model).expanduser() if settings.engine.model else None, ""
    if name in settings.profiles:
        return settings.profiles[name], None, ""
    if "://" in name:
        known = [settings.server, *settings.profiles.values()]
        own = next((server for server in known if server.base_url and normal(server.base_url) == normal(name)), None)
        return own or ServerSettings(base_url=name), None, ""
    if is_file(name):
        return ServerSettings(), Path(name), ""
    return ServerSettings(), None, one_line(name, 60)
