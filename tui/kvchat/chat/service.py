"""The conversation service: everything a person can do with conversations, behind one object.

The rule: the screen and the command line call it and listen to its events; it alone speaks to the store and the
server. A message is stored before anything is sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from kvchat.chat.cache_reports import CacheReports
from kvchat.chat.compactor import Compactor
from kvchat.chat.consolidation import Consolidation
from kvchat.chat.conversations import system_clock
from kvchat.chat.defusing import SpecialTokens
from kvchat.chat.document_service import DocumentService
from kvchat.chat.events import Noticed
from kvchat.chat.extraction import Extraction
from kvchat.chat.jobs import Jobs
from kvchat.chat.memory_service import MemoryService
from kvchat.chat.question_builder import QuestionBuilder
from kvchat.chat.retrieval import Retrieval
from kvchat.chat.serving import Serving
from kvchat.chat.side_requests import SideRequests
from kvchat.chat.sources import AttachmentSource, MemorySource, PassageSource
from kvchat.chat.unsaved import Rescued
from kvchat.chat.vectors import Vectors
from kvchat.config import Settings
from kvchat.prompt.conversation import SavedPrompt, SearchHit
from kvchat.prompt.request import Parameters
from kvchat.store import Store, StoreError

if TYPE_CHECKING:
    from kvchat.documents.library import Library
    from kvchat.memory.book import Memories

log = logging.getLogger(__name__)

QUIT_SECONDS = 1.5
TRASH_DAYS = 30


class ChatService(Serving):
    """Conversations on a store, talking through a connector. All methods belong to one event loop."""

    def __init__(self, store: Store, settings: Settings, *, incognito: bool = False, strict: bool = False,
                 clock: Callable[[], datetime] = system_clock, snapshots: Path | None = None, lanes: Path | None = None,
                 one_server: bool = False, memories: Callable[[], Memories | None] | None = None,
                 library: Callable[[], Library | None] | None = None) -> None:
        """`snapshots`, `lanes`: the folders of saved states and of the locks between kvchats. `one_server`: every
        conversation goes to the server of the settings, whatever it was begun on. `memories`, `library` are opened
        when they are first needed; None, and in an incognito run: there are none."""
        super().__init__(store, settings, incognito=incognito, strict=strict, clock=clock, snapshots=snapshots,
                         lanes=lanes, one_server=one_server)
        self.side_requests = SideRequests(self, settings)
        self.cache_reports = CacheReports(self)
        self.compactor = Compactor(self, settings, self.side_requests)
        self.jobs = Jobs(store, self.keeper, self.tell)
        self.subscribe(self.jobs.heard)
        self.memory = MemoryService(self, settings, None if incognito else memories, self._vector_of)
        self.extraction = Extraction(self, settings, self.jobs, self.memory, self.side_requests)
        self.consolidation = Consolidation(self, settings, self.jobs, self.memory, self.extraction,
                                           self.side_requests)
        self.documents = DocumentService(self, settings, None if incognito else library)
        self.vectors = Vectors(self, settings, self.jobs, self.memory, self.documents)
        self.retrieval = Retrieval(self, settings, self.documents, self.vectors)
        sources = AttachmentSource(), PassageSource(), MemorySource(self.memory.recall, self.memory.profile)
        tokens = SpecialTokens(self.link, self.agreed_to)
        self.questions = QuestionBuilder(self.retrieval.resolved, sources, tokens.plain, settings, clock)

    async def _vector_of(self, question: str) -> list[float] | None:
        return await self.vectors.of(question)

    def begin_background(self) -> None:
        """Do what can wait from now on, until `aclose`."""
        self.jobs.begin()
        self.extraction.begin()
        self.documents.begin(self.jobs.enabled)
        self.vectors.begin()

    def refresh(self) -> None:
        """Look whether another process changed the store, or somebody the memory's files; tell if so."""
        if self.look_elsewhere():
            self.jobs.look_again()
            self.extraction.look_again()
            self.documents.look_again()
        self.memory.look_soon()

    @property
    def notices(self) -> list[str]:
        """What happened when the conversations were opened, in sentences."""
        return self.store.notices

    # -- options --------------------------------------------------------------------------------------------------

    async def set_parameters(self, id: str, parameters: Parameters) -> None:
        await self.update(await self.opened(id), parameters=parameters)

    async def set_template_options(self, id: str, options: Mapping[str, object]) -> None:
        """Options of the chat template. They are part of the prefix: the next turn may read everything again."""
        conversation = await self.opened(id)
        self.did(conversation, "template")
        await self.update(conversation, template_options=dict(options))

    async def set_model(self, id: str, model: str) -> None:
        conversation = await self.opened(id)
        self.did(conversation, "model")
        await self.update(conversation, model=model)

    def prompts(self) -> list[SavedPrompt]:
        """The library of system prompts, by name."""
        return self.store.prompts()

    async def save_prompt(self, prompt: SavedPrompt) -> None:
        await self.keeper.write(lambda: self.store.save_prompt(prompt))

    async def delete_prompt(self, name: str) -> None:
        await self.keeper.write(lambda: self.store.delete_prompt(name))


    # -- finding and giving out -----------------------------------------------------------------------------------

    async def search(self, query: str, limit: int = 50, ranked: bool = False) -> list[SearchHit]:
        """Messages and titles that match, newest first; `ranked`: best first among the newest."""
        return await self.keeper.call(lambda: self.store.search(query, limit, ranked=ranked))

    async def export(self, ids: Sequence[str], format: str, path: Path, *, all_branches: bool = False,
                     overwrite: bool = False) -> Path:
        """Write conversations to the file `path` and return it. Raises TransferError."""
        from kvchat.chat.exporting import Exported
        from kvchat.transfer import export

        sources = Exported(self.store, ids, self.open_conversations)
        return await asyncio.to_thread(export, path, format, sources, all_branches=all_branches, overwrite=overwrite)

    def export_text(self, ids: Sequence[str], format: str, *, all_branches: bool = False) -> Iterator[str]:
        """Conversations as the text of an export file, in pieces. Raises TransferError."""
        from kvchat.chat.exporting import Exported
        from kvchat.transfer import pieces

        return pieces(format, Exported(self.store, ids, self.open_conversations), all_branches=all_branches)

    # -- the end of a day, and of the program ------------------------------------------------------------------------

    async def housekeeping(self) -> None:
        """What is done when nobody waits: a daily backup, and what lay in the trash for 30 days is removed."""
        before = self.clock().timestamp() - TRASH_DAYS * 86400
        try:
            await self.keeper.call(lambda: self.store.purge_trash(before))
            await asyncio.to_thread(self.store.backup_if_due)  # seconds in a large store: nothing waits for it
            await self.links.snapshots.tidy()
        except StoreError as error:
            self.tell(Noticed(str(error), "warning"))

    async def stop_all(self) -> None:
        """End all running answers and keep what came."""
        self.shared.give_up_all()
        if self._falling is not None:
            self._falling.cancel()
        for answering, _ in self._answering.values():
            answering.stop()
        if self.compactor.running is not None:
            await self.compactor.stop(self.compactor.running.conversation)
        if tasks := {task for _, task in self._answering.values()}:
            _, late = await asyncio.wait(tasks, timeout=QUIT_SECONDS)
            if late:
                self._explain_no_more()
                await asyncio.wait(late, timeout=QUIT_SECONDS)

    async def aclose(self, rescue: Sequence[Path] = ()) -> Rescued | None:
        """Stop what runs, keep what came, write what waits, end the engine. What the disk still refuses then is
        written beside the store, or to the first of the folders `rescue` that takes it; without any it is lost."""
        for end in (self.stop_all, self.jobs.aclose, self._rest_now, self._note_states, self.links.aclose,
                    self.vectors.aclose, self.documents.aclose, self.memory.aclose, self.keeper.aclose):
            try:
                await end()
            except Exception:  # what is said is still to be kept
                log.exception("a part of the service did not end")
        rescued = self.unsaved.rescue(rescue, self.clock()) if rescue else None
        self.store.close()
        return rescued
