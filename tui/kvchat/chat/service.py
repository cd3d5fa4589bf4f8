"""The conversation service: the parts that the screen and the command line talk to, built and held.

They alone speak to the store and to servers, and tell what happened by events. What a part needs of another
it is given here.

In the order in which they are called:

1. `ChatService`: builds what every conversation needs; `core.Core` the ground of it. What a start does not need is a
   `cached_property`, built at its first use.
2. `begin_background`: jobs, memory, indexing and the mirror begin.
3. `refresh`: called by the surface while it runs, like `housekeeping`. `take_settings`: when settings were changed.
4. `stop_all`, `aclose`: the end, in an order in which nothing is lost.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from kvchat.chat.background.document_service import DocumentService
from kvchat.chat.background.jobs import Jobs
from kvchat.chat.background.memory_service import MemoryService
from kvchat.chat.background.vectors import Vectors
from kvchat.chat.cache.routes import Routes
from kvchat.chat.cache.states.state_saver import StateSaver
from kvchat.chat.cache.warm_up import WarmUp
from kvchat.chat.conversations.branches import Branches
from kvchat.chat.conversations.drafts import Drafts
from kvchat.chat.conversations.new_conversations import NewConversations
from kvchat.chat.conversations.options import Options
from kvchat.chat.conversations.unsaved import Rescued
from kvchat.chat.core import Core
from kvchat.chat.ground import QUIT_S, Clock, Once, system_clock
from kvchat.chat.question.builder import QuestionBuilder, SpecialTokens
from kvchat.chat.question.prompt_size import PromptSizes
from kvchat.chat.question.retrieval import Retrieval
from kvchat.chat.tools.consent import ToolConsent
from kvchat.chat.turns.answer_request import AnswerRequests
from kvchat.chat.turns.dropped_text import DroppedText
from kvchat.chat.turns.queue import MessageQueue
from kvchat.chat.turns.turns import Turns
from kvchat.config import Settings
from kvchat.config.layers import running
from kvchat.store import Store, StoreError

if TYPE_CHECKING:
    from kvchat.chat.background.consolidation import Consolidation
    from kvchat.chat.background.episodes import Episodes
    from kvchat.chat.background.extraction import Extraction
    from kvchat.chat.background.extraction_job import ExtractionJob
    from kvchat.chat.background.side_requests import SideRequests
    from kvchat.chat.background.skills import Skills
    from kvchat.chat.background.spare_time import SpareTime
    from kvchat.chat.background.summaries import Summaries
    from kvchat.chat.background.titles import Titles
    from kvchat.chat.background.workplace import Workplace
    from kvchat.chat.cache.prices import Prices
    from kvchat.chat.cache.rail import Rail
    from kvchat.chat.cache.reports import CacheReports
    from kvchat.chat.cache.states.kept_states import KeptStates
    from kvchat.chat.compactor import Compactor, RunningCompaction
    from kvchat.chat.exports import Exports
    from kvchat.chat.housekeeping import Housekeeping
    from kvchat.chat.imports import Imports
    from kvchat.chat.mirror import Mirror
    from kvchat.chat.server.choice import ServerChooser
    from kvchat.chat.thumbnails import Thumbnails
    from kvchat.chat.tools.mcp_servers import McpServers
    from kvchat.chat.tools.steps import ToolSteps
    from kvchat.chat.trunks import Trunks
    from kvchat.documents.library import Library
    from kvchat.memory.memories import Memories

log = logging.getLogger(__name__)


class ChatService:
    """Conversations on a store, talking to servers. All belongs to one event loop."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        *,
        incognito: bool = False,
        strict: bool = False,
        clock: Clock = system_clock,
        snapshots: Path | None = None,
        lanes: Path | None = None,
        one_server: bool = False,
        model: str = "",
        memories: Callable[[], Memories | None] | None = None,
        memory_is_untouched: Callable[[], bool] = lambda: False,
        library: Callable[[], Library | None] | None = None,
        mcp_file: Path | None = None,
    ) -> None:
        """`snapshots`, `lanes`: the folders of saved states and of the locks between kvchats.
        `one_server`: every conversation goes to the server of the settings, whatever it was begun on; `model`: and asks
        for this one. `memories`, `library` are opened when they are first needed; None, and in an incognito run: there
        are none. `mcp_file`: that of MCP servers where the settings name none. `memory_is_untouched`: whether nothing
        was ever remembered, so that a question need not have it opened."""
        self.store, self.incognito, self.clock = store, incognito, clock
        self.core = core = Core(
            store,
            settings,
            incognito=incognito,
            strict=strict,
            clock=clock,
            snapshots=snapshots,
            lanes=lanes,
            one_server=one_server,
            model=model,
            mcp_file=mcp_file,
        )
        self.events, self.writer = core.events, core.writer
        self.conversations, self.servers = core.conversations, core.servers
        self.tracker, self.speeds = core.tracker, core.speeds
        self.drafts = Drafts(core)
        self.new_conversations = NewConversations(core)
        self.saver = StateSaver(core)
        self.claims = self.saver.claims
        self.routes = Routes(core, self.saver)
        self.options = Options(core)
        self.sizes = PromptSizes(core)

        self.jobs = jobs = Jobs(core)
        core.conversations.observers.append(jobs)
        self._register_jobs()
        self.memory = MemoryService(core, None if incognito else memories, self._vector_of, memory_is_untouched)
        self.documents = DocumentService(core, None if incognito else library)
        self.vectors = Vectors(core, jobs, self.memory, self.documents)
        self.retrieval = Retrieval(core, self.documents, self.vectors)
        self._special_tokens = SpecialTokens(core.servers)
        self.questions = QuestionBuilder(core, self.retrieval, self.memory, self._special_tokens)
        self._build_turns()
        self._in_background = False
        self._build_wanted()

    def _build_turns(self) -> None:
        """What answers a question: from the prefill ahead of it to the branch that it ends on."""
        core = self.core
        self.warm_up = WarmUp(core, self.saver, self.routes, self.questions)
        self.queue = MessageQueue(core)
        self.tools = ToolConsent(core)
        self.requests = AnswerRequests(core, self.routes, self.queue, self.warm_up)
        self.turns = Turns(
            core,
            self.saver,
            self.warm_up,
            self.questions,
            self.sizes,
            self.queue,
            self.requests,
            lambda: self._tool_steps,
        )
        self.turns.observers.append(DroppedText(core))
        self.branches = Branches(core, self.warm_up, self.sizes)

    @property
    def settings(self) -> Settings:
        return self.core.settings

    def take_settings(self, wanted: Settings) -> None:
        """Work with changed settings from now on; what is read at the start stays as it is."""
        before, self.core.settings = self.settings, running(self.settings, wanted)
        self.core.servers.links.take_settings()
        self._build_wanted()
        if before.memory.enabled != self.settings.memory.enabled:
            self.extraction.begin()  # of what is written while it is off nothing is ever extracted
        if before.export != self.settings.export and self._has_mirror:
            self._begin_mirror()
            self.mirror.look_again()

    def _register_jobs(self) -> None:
        """Name what does each kind of jobs: it is built for the first one."""
        for kind, build in (
            ("extraction", lambda: self._extraction_job),
            ("consolidation", lambda: self.consolidation),
            ("skills", lambda: self.skills),
            ("episodes", lambda: self.episodes),
            ("title", lambda: self.titles),
            ("summary", lambda: self.summaries),
            ("trunk", lambda: self.trunks),
        ):
            self.jobs.register_later(kind, build)

    def _build_wanted(self) -> None:
        """What hears of every conversation or answer where the settings, or what is kept, want it, and is not built
        where they do not."""
        if self.claims.conversations():
            _ = self.kept
        if self.settings.titles.by_model:
            _ = self.titles
        if self.settings.cache.summary_at_rest:
            _ = self.summaries
        if self.settings.export.mirror_folder.strip():
            _ = self.mirror

    @property
    def _has_mirror(self) -> bool:
        return "mirror" in vars(self)

    def _begin_mirror(self) -> None:
        if self._in_background and self._has_mirror:
            self.mirror.begin()

    # What a start does not need is built when it is first used.

    @property
    def mcp(self) -> McpServers:
        return self.core.mcp

    @cached_property
    def prices(self) -> Prices:
        from kvchat.chat.cache.prices import Prices

        return Prices(self.core, self.routes, self.questions, self.sizes)

    @cached_property
    def _tool_steps(self) -> ToolSteps:
        from kvchat.chat.tools.steps import ToolSteps

        return ToolSteps(self.core, self.documents, self._special_tokens, self.sizes, self.tools, Path.cwd)

    @cached_property
    def chooser(self) -> ServerChooser:
        from kvchat.chat.server.choice import ServerChooser

        return ServerChooser(self.core, self.warm_up)

    @cached_property
    def cache_reports(self) -> CacheReports:
        from kvchat.chat.cache.reports import CacheReports

        return CacheReports(self.core, self.kept)

    @cached_property
    def kept(self) -> KeptStates:
        from kvchat.chat.cache.states.kept_states import KeptStates

        kept = KeptStates(self.core, self.saver, self.warm_up)
        self.turns.observers.append(kept)
        return kept

    @cached_property
    def housekeeping(self) -> Housekeeping:
        from kvchat.chat.housekeeping import Housekeeping

        return Housekeeping(self.core, lambda: self.mirror if self._has_mirror else None)

    @cached_property
    def thumbnails(self) -> Thumbnails:
        from kvchat.chat.thumbnails import Thumbnails

        return Thumbnails(self.store)

    @cached_property
    def rail(self) -> Rail:
        from kvchat.chat.cache.rail import Rail

        return Rail(self.core, self.routes)

    @cached_property
    def exports(self) -> Exports:
        from kvchat.chat.exports import Exports

        return Exports(self.store, self.conversations.loaded, self.speeds.on)

    @cached_property
    def imports(self) -> Imports:
        from kvchat.chat.imports import Imports

        return Imports(self.core)

    @cached_property
    def side_requests(self) -> SideRequests:
        from kvchat.chat.background.side_requests import SideRequests

        return SideRequests(self.core, self.routes)

    @cached_property
    def compactor(self) -> Compactor:
        from kvchat.chat.compactor import Compactor

        return Compactor(
            self.core,
            self.warm_up,
            self.branches,
            self.turns,
            self.side_requests,
        )

    @property
    def compacting(self) -> RunningCompaction | None:
        """The compaction that runs: one at a time."""
        return self.compactor.running if "compactor" in vars(self) else None

    @cached_property
    def extraction(self) -> Extraction:
        from kvchat.chat.background.extraction import Extraction

        return Extraction(
            self.core,
            self.turns,
            Once(self.store, self.writer),
            self.jobs,
            self.memory,
            lambda: (self.consolidation, self.skills, self.episodes),
        )

    @cached_property
    def _extraction_job(self) -> ExtractionJob:
        from kvchat.chat.background.extraction_job import ExtractionJob

        return ExtractionJob(
            self.core,
            self.jobs,
            self.extraction,
            self._workplace,
            self.memory,
            self.side_requests,
            self.spare_time,
            lambda: self.titles,
        )

    @cached_property
    def _workplace(self) -> Workplace:
        from kvchat.chat.background.workplace import Workplace

        return Workplace(self.core, self.routes, self.memory)

    @cached_property
    def consolidation(self) -> Consolidation:
        from kvchat.chat.background.consolidation import Consolidation

        return Consolidation(
            self.core,
            self.jobs,
            self.memory,
            self._workplace,
            self.side_requests,
            self.spare_time,
        )

    @cached_property
    def skills(self) -> Skills:
        from kvchat.chat.background.skills import Skills

        return Skills(self.core, self.jobs, self.memory, self.side_requests, self.spare_time)

    @cached_property
    def episodes(self) -> Episodes:
        from kvchat.chat.background.episodes import Episodes

        return Episodes(self.core, self.jobs, self.memory, self.side_requests, self.spare_time)

    @cached_property
    def titles(self) -> Titles:
        from kvchat.chat.background.titles import Titles

        return Titles(
            self.core,
            self.turns,
            self.jobs,
            self.memory,
            self.side_requests,
            self.spare_time,
        )

    @cached_property
    def summaries(self) -> Summaries:
        from kvchat.chat.background.summaries import Summaries

        return Summaries(self.core, self.turns, self.jobs, self.side_requests, self.compactor, self.spare_time)

    @cached_property
    def spare_time(self) -> SpareTime:
        from kvchat.chat.background.spare_time import SpareTime

        return SpareTime(self.core, self.warm_up, self.jobs, self.side_requests)

    @cached_property
    def mirror(self) -> Mirror:
        from kvchat.chat.mirror import Mirror

        return Mirror(self.core)

    @cached_property
    def trunks(self) -> Trunks | None:
        """None in a run that keeps nothing."""
        from kvchat.chat.trunks import Trunks

        if self.incognito:
            return None
        return Trunks(
            self.core,
            self.saver,
            self.routes,
            self.warm_up,
            self.new_conversations,
            self._special_tokens,
            self.jobs,
        )

    async def _vector_of(self, question: str) -> list[float] | None:
        return await self.vectors.of(question)

    def begin_background(self) -> None:
        """Do what can wait from now on, until `aclose`."""
        self.jobs.begin()
        self.extraction.begin()
        self.documents.begin(self.jobs.enabled)
        self.vectors.begin()
        self._in_background = True
        self._begin_mirror()

    def refresh(self) -> None:
        """Look whether another process changed the store, or somebody the memory's files; tell if so."""
        if self.conversations.look_elsewhere():
            self.queue.look_again()
            self.jobs.look_again()
            self.extraction.look_again()
            self.documents.look_again()
            self._build_wanted()
        self.memory.look_soon()

    async def stop_all(self) -> None:
        """End all running answers and keep what came."""
        self.conversations.shared.give_up_all()
        self.servers.look_no_more()
        stopped = [self.turns.stop_all()]
        if self.compacting is not None:
            stopped.append(self.compactor.stop_all())
        await asyncio.gather(*stopped)

    async def _stop_background(self) -> None:
        """End the work in the background, and wait until the state that the last answers left on servers is known."""
        tasks = self.warm_up.rest() | self.saver.rest() | (self.kept.rest() if "kept" in vars(self) else set())
        await self.servers.rest()
        if tasks:
            await asyncio.wait(tasks, timeout=QUIT_S)
        await self.core.rest()

    async def _end_readers(self) -> None:
        """End what still reads a file in a process of its own."""
        if process := sys.modules.get("kvchat.apart.process"):
            process.stop_all()

    async def aclose(self, rescue: Iterable[Path] = ()) -> Rescued | None:
        """Stop what runs, keep what came, write what waits, end the engine. What the disk still refuses then is
        written to the folder of the store, or to the first of the folders `rescue` that takes it; without any it is
        lost."""
        for end in (
            self.drafts.aclose,
            self.stop_all,
            self.jobs.aclose,
            self._stop_background,
            self.core.end_tools,
            self._end_readers,
            self.tracker.note_states,
            self.servers.links.aclose,
            self.vectors.aclose,
            self.documents.aclose,
            self.memory.aclose,
            *([self.mirror.aclose] if self._has_mirror else []),
            self.core.rest,  # a server that was connected to meanwhile is noted
            self.writer.aclose,
        ):
            try:
                await end()
            except Exception:  # what is said is still to be kept
                log.exception("a part of the service did not end")
        rescued = self.conversations.unsaved.rescue(rescue, self.clock()) if rescue else None
        try:
            self.store.close()
        except StoreError as error:
            log.info("the store did not close: %s", error)
        return rescued
