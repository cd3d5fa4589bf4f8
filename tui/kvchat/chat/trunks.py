"""Trunks: beginnings that are prefilled once and shared by all conversations that begin with them.

A trunk is prefilled in the lane while nothing else wants the server, in parts whose state is saved one by one
where states can be saved: what is interrupted goes on from the last part, after a restart too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from kvchat.backends.dialect import Backend, BackendError, ChatTurn, PrefillAccess, Reported, ServerInfo
from kvchat.cache import Tokens
from kvchat.chat.background.jobs import JobPlace, JobResult, Jobs, Outcome
from kvchat.chat.cache.routes import Routes
from kvchat.chat.cache.server_cache import ServerCache
from kvchat.chat.cache.states.state_saver import StateSaver
from kvchat.chat.cache.warm_up import WarmUp
from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.conversations.new_conversations import NewConversations
from kvchat.chat.core import Core
from kvchat.chat.errors import ChatError
from kvchat.chat.events import ConversationsChanged
from kvchat.chat.question.builder import SpecialTokens
from kvchat.chat.server.lane import Lane
from kvchat.chat.server.link import Link
from kvchat.documents.collection import IndexingOptions
from kvchat.documents.errors import DocumentError
from kvchat.documents.trunks import Gathered, Trunk, gathered, trunk_of
from kvchat.prompt.message import Node
from kvchat.prompt.token_estimate import TokenEstimate
from kvchat.reports.kept import Keep
from kvchat.sanitize import one_line
from kvchat.store import StoreError
from kvchat.store.jobs import Job, JobReason
from kvchat.text.problems import ChatProblem

T = TypeVar("T")

PART = 4096
"""Tokens that are prefilled between two saved states, at least."""
MOST_PARTS = 8
"""A state is written whole each time."""
ROOM = 512
"""Tokens of the window that a trunk leaves for a first question and its answer, at least."""


class Prefilled(Struct, frozen=True):
    """What a server has of a trunk."""

    tokens: int
    done: int
    """Tokens of it that it holds, or a saved state does."""
    saved: bool
    """Whether it outlives the server."""


class Trunks:
    """The trunks of a store, and what servers hold of them. Jobs of the kind `trunk`; their subject is a name."""

    kind = "trunk"

    def __init__(
        self,
        core: Core,
        saver: StateSaver,
        routes: Routes,
        warm_up: WarmUp,
        new_conversations: NewConversations,
        special_tokens: SpecialTokens,
        jobs: Jobs,
    ) -> None:
        self._core = core
        self._saver = saver
        self._routes = routes
        self._warm_up = warm_up
        self._new_conversations = new_conversations
        self._special_tokens = special_tokens
        self._jobs = jobs
        jobs.register(self)

    async def add(
        self,
        name: str,
        paths: Sequence[str],
        report: Callable[[str], None] = lambda path: None,
    ) -> tuple[Trunk, Gathered]:
        """Make a trunk of files and folders, which takes the place of one of this name. `report` is called with the
        path of each file, from a thread. Raises ChatError."""
        link, settings = self._link, self._core.settings
        await self._core.servers.reach()
        found = await _read(lambda: gathered(paths, IndexingOptions.of(settings.documents), report))
        blocks = await self._special_tokens.plain_at(link, "", found.files)
        trunk = await _read(lambda: trunk_of(name, blocks, self._core.timestamp()))
        await self._must_fit(link, trunk)
        if (known := self._rows().get(name)) is not None:
            await self._forget(known)
        await self._stored(lambda: self._core.store.kept.put_trunk(name, trunk.id, trunk.root))
        self._core.events.tell(ConversationsChanged())
        return trunk, found

    def names(self) -> list[str]:
        """The names of all, in their order. Raises ChatError."""
        return sorted(self._rows(), key=str.casefold)

    async def find(self, name: str) -> Trunk:
        """Raises ChatError."""
        row = self._rows().get(name)
        root = await self._stored(lambda: self._core.store.kept.root(row)) if row is not None else None
        if row is None or root is None:
            names = self.names()
            problem = ChatProblem.NO_SUCH_TRUNK if names else ChatProblem.NO_TRUNK_YET
            raise ChatError(problem, name=one_line(name, 80), names=", ".join(names))
        return Trunk(name, row.id, replace(root, created=row.since))

    async def all(self) -> list[Trunk]:
        """In the order of their names. Raises ChatError."""
        return [await self.find(name) for name in self.names()]

    async def begin(self, name: str) -> tuple[OpenConversation, list[str]]:
        """A new conversation that begins with a trunk, and the names of the files that have changed since it was made.
        Raises ChatError."""
        trunk = await self.find(name)
        changed = await asyncio.to_thread(trunk.changed)
        return await self._new_conversations.create(trunk=trunk.root.message), changed

    async def remove(self, name: str) -> None:
        """Conversations that began with it stay as they are. Raises ChatError."""
        trunk = await self.find(name)
        await self._forget(Keep(trunk.id, name=name))
        await self._stored(lambda: self._core.store.kept.remove(trunk.id))
        self._core.events.tell(ConversationsChanged())

    async def _forget(self, row: Keep) -> None:
        await self._jobs.drop(self.kind, row.name)
        await self._core.servers.links.forget([row.id])

    def _rows(self) -> dict[str, Keep]:
        """What is stored of each, by name. Raises ChatError."""
        try:
            return {row.name: row for row in self._core.store.kept.all() if row.name}
        except StoreError as error:
            raise ChatError.of(error) from None

    async def _stored(self, work: Callable[[], T]) -> T:
        """Work on the store, on its thread. Raises ChatError."""
        try:
            return await self._core.writer.call(work)
        except StoreError as error:
            raise ChatError.of(error) from None

    # -- prefilling

    async def prefill_soon(self, name: str) -> None:
        """Prefill a trunk in spare time, whenever that comes. Raises ChatError."""
        now = self._core.timestamp()
        await self._jobs.queued(lambda: self._core.store.jobs.put(self.kind, name, now, JobReason.ASKED))
        self._jobs.changed()

    async def prefill(self, trunk: Trunk) -> Prefilled:
        """Have the server of new conversations prefill a trunk, part by part; what it holds already costs nothing, and
        `CacheTracker.warmup_progress` tells how far it is. Ends before its end where something that goes first takes
        the server. Raises ChatError."""
        link = self._link
        await self._core.servers.reach()
        try:
            backend = await link.connector.ready()
            cache = await self._core.tracker.cache_of(backend)
            path = [trunk.root]
            if cache is None:
                return await self._untracked(link, backend, trunk)
            turn = self._turn(backend.info, trunk)
            prefix = await cache.prompts.prefix(turn)
            if not prefix:  # the server's template does not tell where the question begins
                return Prefilled(0, 0, saved=False)
            return await self._parts(link, backend, cache, trunk, path, prefix)
        except BackendError as error:
            raise ChatError.of(error.sentence) from None

    async def _parts(
        self, link: Link, backend: Backend, cache: ServerCache, trunk: Trunk, path: Sequence[Node], prefix: Tokens
    ) -> Prefilled:
        """Prefill `prefix`, which `path` renders to; after each part its state is saved."""
        size, saves = len(prefix), self._saver.snapshots(cache) is not None
        step = max(PART, -(-size // MOST_PARTS)) if saves else size
        done = self._routes.saved_tokens(cache, path) if saves else 0
        for end in [*range(step, size, step), size]:
            if end <= done:
                continue
            part, whole = prefix.first(end), end == size
            await cache.settled()
            await cache.cancelled.free()
            chosen = self._routes.plan(cache, trunk.id, path, part, idle=True).chosen
            if not await link.lane.in_spare_time(
                self._warm_up.prefill(backend, cache, trunk.id, path, part, chosen, whole=whole)
            ):
                break
            done = end
            if saves:
                await link.lane.in_spare_time(self._saver.save_owned(link, cache, trunk.id, path))
        return Prefilled(size, done, saves and self._routes.saved_tokens(cache, path) >= size)

    async def _untracked(self, link: Link, backend: Backend, trunk: Trunk) -> Prefilled:
        """A server whose cache cannot be tracked prefills it whole, as a shared prefix."""
        figures = Reported()
        if not isinstance(backend, PrefillAccess):
            return Prefilled(0, 0, saved=False)

        async def work() -> None:
            nonlocal figures
            figures = await backend.prefill_messages(self._turn(backend.info, trunk))

        await link.lane.in_spare_time(work())
        return Prefilled(figures.prompt_tokens or 0, figures.prompt_tokens or 0, saved=False)

    @property
    def _link(self) -> Link:
        return self._core.servers.links.at(self._core.servers.first())

    def _turn(self, info: ServerInfo, trunk: Trunk) -> ChatTurn:
        """The request that a conversation would begin with, as far as the prompt depends on it."""
        options = dict([info.reasoning_option] if info.reasoning_option else ())
        model = self._link.connector.server.model or info.model
        return ChatTurn((trunk.root.wire,), trunk.id, model, template_options=options)

    async def _must_fit(self, link: Link, trunk: Trunk) -> None:
        """Raises ChatError where a trunk leaves no room for a question."""
        backend = await link.connector.ready()
        info, turn = backend.info, self._turn(backend.info, trunk)
        window = info.window(turn.model)
        cache = await self._core.tracker.cache_of(backend)
        prefix = await cache.prompts.prefix(turn) if cache is not None else None
        tokens = len(prefix) if prefix else TokenEstimate().of(turn.wires)
        if window and tokens + ROOM > window:
            problem = ChatProblem.TRUNK_TOO_LONG if prefix else ChatProblem.TRUNK_ABOUT_TOO_LONG
            raise ChatError(problem, tokens=tokens, window=window)

    # -- its jobs

    async def place_of(self, job: Job) -> JobPlace | None:
        link = self._link
        if link.info is None or link.connector.connection.phase != "ready":
            return None
        return JobPlace(link.lane, self._jobs.rested_at(link.lane.quiet_since, 0.0))

    async def work_on(self, job: Job, lane: Lane) -> Outcome:
        try:
            trunk = await self.find(job.subject)
        except ChatError:
            return Outcome(JobResult.DONE)  # it was removed
        if self._link.lane is not lane or not lane.is_free:
            return Outcome(JobResult.BUSY)
        try:
            found = await self.prefill(trunk)
        except ChatError as error:
            return Outcome(JobResult.FAILED, str(error))
        return Outcome(JobResult.DONE if found.done >= found.tokens else JobResult.CALLED_OFF)

    async def retried(self, subject: str) -> None:
        """It is due as it is."""


async def _read(work: Callable[[], T]) -> T:
    """Work on files, in a thread. Raises ChatError."""
    try:
        return await asyncio.to_thread(work)
    except DocumentError as error:
        raise ChatError.of(error) from None
