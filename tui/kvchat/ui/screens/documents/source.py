"""The documents in the manager: the collections, how far indexing is, and which of them this conversation searches.

Nothing here touches the user's files. The list comes first, at once; the contents of collections are counted a few at a
time, so that a thousand of them cause no delay. Indexing continues when the screen is closed; only its own key ends it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from msgspec.structs import replace
from rich.cells import cell_len
from textual.content import Content

from kvchat.chat.errors import ChatError
from kvchat.chat.events import DocumentsChanged, IndexingProgressed, ServiceEvent
from kvchat.documents.collection import Collection, CollectionStatus
from kvchat.prompt.conversation import OFF
from kvchat.sanitize import one_line
from kvchat.text.format import counted, home_path
from kvchat.ui.screens.documents import rows as words
from kvchat.ui.screens.documents.rows import DocumentRowData, RetrievalChoice
from kvchat.ui.screens.kit import Choice, ConfirmScreen, Due, Hint, ManagerSource, Page
from kvchat.ui.terminal import copy

if TYPE_CHECKING:
    from kvchat.chat.service import ChatService

AT_ONCE = 25
"""Collections that are counted in one go."""


class DocumentsSource(ManagerSource):
    """The folders and files that are indexed."""

    heading: ClassVar[str] = "Documents"
    context: ClassVar[str] = "documents"

    def __init__(
        self,
        service: ChatService,
        conversation: str = "",
        *,
        add: str | None = None,
    ) -> None:
        """`conversation`: the open one; `add`: begin with adding this path."""
        self.documents, self.retrieval = service.documents, service.retrieval
        self.conversations, self._now = service.conversations, service.clock
        self.conversation = conversation
        self.collections: Sequence[Collection] | None = None
        """None: they are being read."""
        self.data = DocumentRowData(self._now(), lambda id: self.screen.key(id), has_conversation=bool(conversation))
        self.pages = (Collections(self),)
        self.acts = {
            "search": self._search,
            "remove": self._remove,
            "update": lambda: self._index(False),
            "read_again": lambda: self._index(True),
            "stop": self._stop,
            "report": self.report,
            "cycle": self._cycle,
            "folder": self._open_folder,
        }
        self.begins_with_adding = add is not None
        self._path = add or ""
        self.renew = self._try_again
        self._editor = service.settings.editor
        self._counted: dict[str, object] = {}
        """Of what state of a collection the count is."""
        self._told_of = ("", "")
        """A sentence that is shown until the indexing of a collection ends, and that collection."""
        self._tried: set[str] = set()
        """The collections for which kvchat checks silently whether another kvchat still indexes them."""

    # What is shown.

    @property
    def is_ready(self) -> bool:
        return self.collections is not None

    @property
    def welcome(self) -> Sequence[str]:
        return words.welcome(self.screen.key) if self.collections is not None and not self.collections else ()

    @property
    def collection(self) -> Collection | None:
        """The one under the cursor."""
        at, there = self.screen.at, self.collections or ()
        return there[at] if at is not None and at < len(there) else None

    @property
    def retrieval_choice(self) -> RetrievalChoice:
        """What the open conversation searches by itself."""
        found = self.conversations.get(self.conversation) if self.conversation else None
        if found is None or found.record.retrieval == OFF:
            return RetrievalChoice()
        return RetrievalChoice(found.record.retrieval, tuple(found.record.collections))

    def title(self) -> str:
        many = len(self.collections or ())
        return self.heading + (f" · {many:,}" if many > 1 else "")

    def hints(self) -> Sequence[Hint]:
        return (("manager.add", "add"), ("dialog.close", "close")) if self.welcome else ()

    def lines(self, page: Page, width: int) -> Mapping[str, Content]:
        """No lines above the list; but each call refreshes what is in progress."""
        indexing = {
            name: progress
            for name, progress in self.documents.indexing.items()
            if progress.all_files or name not in self._tried
        }
        self.data = replace(
            self.data,
            now=self._now(),
            indexing=indexing,
            reports=dict(self.documents.reports),
            choice=self.retrieval_choice,
            longest=max((cell_len(one_line(one.name)) for one in self.collections or ()), default=8),
        )
        sentence, name = self._told_of
        if name and name not in self.documents.indexing:
            self._told_of = ("", "")
            if self.screen.notice == sentence:
                self.screen.tell("")
        return {}

    # Looking.

    def due(self, event: ServiceEvent) -> Due:
        if isinstance(event, IndexingProgressed):
            return "draw" if self.documents.indexing.keys() <= {one.name for one in self.collections or ()} else "look"
        return "look" if isinstance(event, DocumentsChanged) else ""

    async def look(self) -> AsyncIterator[None]:
        """The collections; then what was not counted yet, or has changed: first what is under the cursor."""
        self.collections = await self.documents.collections()
        yield
        reports = self.documents.reports
        states = {one.name: (one.root, one.indexed, id(reports.get(one.name))) for one in self.collections or ()}
        names = [
            name for name, state in states.items() if self._counted.get(name) != state or name not in self.data.statuses
        ]
        first = self.collection
        names.sort(key=lambda name: first is None or name != first.name)
        while names:
            now, names = names[:AT_ONCE], names[AT_ONCE:]
            statuses = await self.documents.statuses(now)
            self._counted |= {name: states[name] for name in statuses}
            self.data = replace(self.data, statuses={**self.data.statuses, **statuses})
            yield

    async def _try_again(self) -> None:
        """Try again what another kvchat indexes, since its end is not announced."""
        self._tried &= self.documents.indexing.keys()
        for name, report in dict(self.documents.reports).items():
            if report.is_elsewhere and name not in self.documents.indexing:
                self._tried.add(name)
                with suppress(ChatError):
                    await self.documents.look_for_changes(name)

    def _tell_while_indexing(self, name: str, text: str) -> None:
        """A sentence until the cursor moves or the indexing of this collection ends."""
        self.screen.tell(text)
        self._told_of = (text, name)
        self.screen.fill()

    # Adding and removing.

    def add(self) -> None:
        from kvchat.ui.screens.documents.add import AddDocumentsScreen

        path, self._path = self._path, ""
        known = {one.root: one.name for one in self.collections or ()}

        def then(added: Collection | None) -> None:
            if added is not None:
                self.screen.run_worker(self._added(added, added.root in known), group="dialog")

        self.screen.app.push_screen(AddDocumentsScreen(self.documents.add, known, path=path), then)

    async def _added(self, added: Collection, known: bool) -> None:
        await self.screen.look_again(at=added.name)
        if added.name in self.documents.indexing:
            name = one_line(added.name, 40)
            self._tell_while_indexing(
                added.name,
                f"Looking for changes in {name}."
                if known
                else f"{name} is being indexed. You may close this; it goes on beside your chat.",
            )

    def _remove(self) -> None:
        one = self.collection
        if one is None:
            return
        question = remove_question(one, self.data.statuses.get(one.name))

        def then(sure: bool | None) -> None:
            if sure:
                self.screen.run_worker(self._removed(one), group="dialog")

        self.screen.app.push_screen(ConfirmScreen(*question), then)

    async def _removed(self, one: Collection) -> None:
        async def removed() -> None:
            await self.documents.remove(one.name)
            left = self.retrieval_choice.without(one.name)
            if left != self.retrieval_choice:
                await self.retrieval.set_retrieval(self.conversation, left.mode, left.collections)

        await self.screen.act(removed(), lambda _: f"{one_line(one.name, 40)} is removed; its files stay.")

    # Indexing.

    async def _index(self, rebuild: bool) -> None:
        """Look for changes now, or read everything again."""
        one = self.collection
        if one is None:
            return
        if one.name in self.documents.indexing:
            self.screen.tell(f"It is being indexed; {self.screen.key('documents.stop')} stops that.")
            return
        with self.screen.telling():
            await self.documents.look_for_changes(one.name, rebuild)
            name = one_line(one.name, 40)
            self._tell_while_indexing(
                one.name, f"Indexing every file of {name} again." if rebuild else f"Looking for changes in {name}."
            )

    def _stop(self) -> None:
        one = self.collection
        if one is not None and one.name in self.documents.indexing:
            self.documents.stop_indexing(one.name)
            self.screen.tell(f"Stopped. What is indexed is kept; {self.screen.key('documents.update')} goes on.")
        else:
            self.screen.tell("It is not being indexed.")

    def report(self) -> None:
        """What was skipped and why, and what the last indexing did."""
        from kvchat.ui.screens.documents.report import ReportScreen

        one = self.collection
        if one is None:
            return
        status, report = self.data.statuses.get(one.name), self.documents.reports.get(one.name)
        if status is None and report is None:
            self.screen.tell("It is still being counted.")
        else:
            self.screen.app.push_screen(ReportScreen(one, status, report))

    # Retrieval.

    def _search(self) -> None:
        """Try the index."""
        from kvchat.ui.screens.documents.search import DocumentSearchScreen

        if self.collections is not None and not self.collections:
            self.screen.tell(f"There is nothing to search in yet; {self.screen.key('manager.add')} adds a folder.")
        else:
            self.screen.app.push_screen(DocumentSearchScreen(self.documents, self.collection, editor=self._editor))

    async def _cycle(self) -> None:
        """The next of off, ask and always in this conversation for the collection under the cursor."""
        one = self.collection
        if one is None:
            return
        if not self.conversation:
            self.screen.tell("There is no open conversation.")
            return
        before = self.retrieval_choice
        after = before.cycled(one.name)
        with self.screen.telling():
            await self.retrieval.set_retrieval(self.conversation, after.mode, after.collections)
            self.screen.fill()
            others = len(after.collections) - 1
            shared = after.mode != before.mode and others > 0 and one.name in after.collections
            self.screen.tell(f"So it is for the {counted(others, 'other')} searched here too." if shared else "")

    async def _open_folder(self) -> None:
        """Open the folder in the system's own window; where there is none its path is copied."""
        one = self.collection
        if one is None:
            return
        root = Path(one.root)
        folder = root if await asyncio.to_thread(root.is_dir) else root.parent
        if not await asyncio.to_thread(folder.is_dir):
            self.screen.tell(f"There is no folder {home_path(folder)}.", bad=True)
        elif await asyncio.to_thread(_shown, folder):
            self.screen.tell(f"Opened {home_path(folder)}.")
        else:
            copied = copy(self.screen.app, str(folder))
            self.screen.tell(f"No file manager can be opened from here; the path is in {copied}.")


class Collections(Page):
    """The collections with what is in them."""

    hints = (
        ("manager.add", "add"),
        ("manager.search", "search"),
        ("documents.cycle", "this conversation"),
        ("dialog.close", "close"),
    )
    empty = ""

    def __init__(self, source: DocumentsSource) -> None:
        self._source = source

    @property
    def keys(self) -> Sequence[object]:
        return [one.name for one in self._source.collections or ()]

    def columns(self, width: int) -> Content:
        return words.heading_row(self._source.data, width)

    def row(self, index: int, width: int) -> Content:
        there = self._source.collections or ()
        return words.row(there[index], self._source.data, width) if index < len(there) else Content()

    def detail(self, index: int, width: int) -> Sequence[Content]:
        there = self._source.collections or ()
        return words.about(there[index], self._source.data, width) if index < len(there) else ()

    def acts(self, index: int) -> Sequence[Hint]:
        one = self._source.collection
        if one is not None and one.name in self._source.data.indexing:
            return (
                ("documents.stop", "stop indexing"),
                ("rows.choose", "report"),
                ("documents.remove", "remove"),
                ("documents.folder", "folder"),
            )
        return (
            ("rows.choose", "report"),
            ("documents.update", "update"),
            ("documents.read_again", "read again"),
            ("documents.remove", "remove"),
            ("documents.folder", "folder"),
        )

    def choose(self, index: int) -> None:
        self._source.report()


def remove_question(
    one: Collection, status: CollectionStatus | None = None
) -> tuple[str, Sequence[str], Sequence[Choice[bool]]]:
    """Whether a collection is to be removed: title, lines and answers. Enter leaves it: a key meant for something else
    removes nothing."""
    chunks = f", {counted(status.chunks, 'chunk')}," if status is not None else ""
    return (
        f"Remove {one_line(one.name, 40)}?",
        [
            f"Its part of the index{chunks} is thrown away. The files in {home_path(one.root)} stay as they are.",
            "What was sent of it stands in the conversations as before.",
        ],
        [("n", "Cancel", False), ("y", "Remove", True)],
    )


def _shown(folder: Path) -> bool:
    """Open a folder in the system's file manager; whether there is one."""
    if os.environ.get("SSH_CONNECTION"):
        return False
    command = "open" if sys.platform == "darwin" else "xdg-open"
    has_screen = sys.platform == "darwin" or os.environ.get("WAYLAND_DISPLAY") or os.environ.get("DISPLAY")
    if not has_screen or shutil.which(command) is None:
        return False
    try:
        subprocess.Popen(
            [command, str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return False
    return True
