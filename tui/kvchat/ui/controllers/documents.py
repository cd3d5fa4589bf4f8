"""Documents: the list of collections, what this conversation searches, and the sources of a message.

Indexing is shown at the edge of the screen and never interrupts; nothing of the documents is loaded before it is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvchat.chat.errors import ChatError
from kvchat.prompt.citations import sources
from kvchat.prompt.context import SUMMARY
from kvchat.prompt.conversation import ASK, OFF
from kvchat.prompt.message import Node, Role
from kvchat.sanitize import one_line
from kvchat.ui.controllers.workspace import Workspace, in_worker
from kvchat.ui.widgets.transcript import given, sources_of

if TYPE_CHECKING:
    from kvchat.documents.collection import IndexingReport
    from kvchat.prompt.context import ContextBlock

    Sources = Sequence[tuple[int | None, ContextBlock]]

LONG = 3.0
"""An indexing of this many seconds or more reports its end."""


class DocumentController:
    """Opens what there is of documents, and shows what is searched and indexed."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        service, screen = workspace.service, workspace.screen
        self._service = service
        self._documents = service.documents
        self._retrieval = service.retrieval
        self._header = screen.header
        self._status = screen.status
        self._reported: dict[str, IndexingReport] = {}
        """The reports that were seen."""
        self._known: frozenset[str] | None = None
        """The collections that exist; None: that has not been looked up yet."""

    # -- the list, and what is searched here

    async def run(self, argument: str = "") -> None:
        """The documents; or add a path, or remove a collection; or off, ask, always: what this conversation does with
        collections; or a search for words."""
        word, _, rest = argument.strip().partition(" ")
        with self.workspace.key_queue.coming():  # what is read may take a while
            match word.lower():
                case "":
                    self._open()
                case "add":
                    await self._add(rest.strip())
                case "remove":
                    self._remove(rest.strip().removeprefix("@"))
                case "off" | "ask" | "always" as mode:
                    await self._search_in(mode, rest.replace("@", " ").replace(",", " ").split())
                case _:
                    self._search(argument.strip())

    @in_worker("dialog")
    async def _open(self, *, add: str | None = None) -> None:
        from kvchat.ui.screens.documents.source import DocumentsSource
        from kvchat.ui.screens.kit import ManagerScreen

        if not self._documents.has_library:
            self.workspace.say("No documents in an incognito run")
            return
        service = self._service
        await self.workspace.ask(
            ManagerScreen(DocumentsSource(service, self.workspace.open_id, add=add), service.events)
        )
        self.show_retrieval()

    @in_worker("dialog")
    async def _search(self, query: str) -> None:
        """Try the index with these words; Esc leads back here."""
        from kvchat.ui.screens.documents.search import DocumentSearchScreen

        if not self._documents.has_library:
            self.workspace.say("No documents in an incognito run")
        elif not self._documents.has_collections:
            self.workspace.say("No documents yet · /documents add FOLDER", "warning")
        else:
            await self.workspace.ask(
                DocumentSearchScreen(self._documents, query=query, editor=self._service.settings.editor)
            )

    @in_worker("dialog")
    async def _remove(self, name: str) -> None:
        """Ask whether a collection is to be removed."""
        try:
            with self.workspace.key_queue.coming() as dialog:
                known = [one.name for one in await self._documents.collections()]
                if not name:
                    self.workspace.say(
                        f"Which collection? /documents remove {one_line(known[0], 24)}"
                        if known
                        else "No documents yet",
                        "warning",
                    )
                    return
                one = await self._documents.named(name)
                status = (await self._documents.statuses([one.name])).get(one.name)
        except ChatError as error:
            self.workspace.say(str(error), "warning")
            return
        if dialog.is_given_up:
            return
        from kvchat.ui.screens.documents.source import remove_question

        sure = await self.workspace.choose(*remove_question(one, status), coming=dialog)
        if sure and await self.workspace.attempt(self._documents.remove(one.name)):
            self.show_retrieval()
            self.workspace.say(f"{one_line(one.name, 24)} removed · its files stay")

    async def _add(self, path: str) -> None:
        """Index a folder or file, at once."""
        from kvchat.ui.screens.documents.add import unquoted

        if not path:
            self._open(add="")
            return
        try:
            added = await self._documents.add(unquoted(path))
        except ChatError as error:
            self.workspace.say(str(error), "warning")
            return
        name, key = one_line(added.name, 40), self.workspace.key_of("documents")
        self.workspace.say(f"Indexing {name} · {key} shows progress")

    async def _search_in(self, mode: str, names: Sequence[str]) -> None:
        """Have this conversation search in the named collections, else in those it searches already, else in the only
        one there is."""
        record, id = self.workspace.conversation.record, self.workspace.open_id
        if mode != OFF:
            try:
                known = [one.name for one in await self._documents.collections()]
                self._known = frozenset(known)
                chosen = [(await self._documents.named(name)).name for name in names]
            except ChatError as error:
                self.workspace.say(str(error), "warning")
                return
            chosen = chosen or [name for name in record.collections if name in known]
            chosen = chosen or (known if len(known) == 1 else [])
            if not chosen:
                self.workspace.say(
                    f"Which collection? /documents {mode} {one_line(known[0], 24)}"
                    if known
                    else "No documents yet · /documents add FOLDER",
                    "warning",
                )
                return
        else:
            chosen = []
        if await self.workspace.attempt(self._retrieval.set_retrieval(id, mode, chosen)):
            self.show_retrieval()
            self.workspace.say(retrieval_words(mode, chosen))

    def show_retrieval(self) -> None:
        """In the header, what this conversation searches by itself, of what exists."""
        record = self.workspace.current.record if self.workspace.current is not None else None
        searches = record is not None and record.retrieval != OFF and bool(record.collections)
        if searches and self._known is None:
            self._look_what_exists()
        names = [one_line(name, 24) for name in record.collections if name in (self._known or ())] if record else []
        if record is None or not searches or not names:
            self._header.set_documents(())
            return
        ask = "?" if record.retrieval == ASK else ""
        what = names[0] if len(names) == 1 else f"{len(names):,}"
        self._header.set_documents((f"▤ {', '.join(names)}{ask}", f"▤ {what}{ask}", f"▤{ask}"))

    @in_worker("collections", exclusive=True)
    async def _look_what_exists(self) -> None:
        try:
            self._known = frozenset(one.name for one in await self._documents.collections())
        except ChatError:
            self._known = frozenset()  # nothing can be searched
        if self.workspace.screen.is_mounted:
            self.show_retrieval()

    # -- what the service tells

    def show_indexing(self) -> None:
        """In the status line, how far indexing is."""
        words = ""
        if self._documents.indexing:
            from kvchat.ui.screens.documents.rows import indexing_words

            words = indexing_words(self._documents.indexing)
        self._status.set_background(words)

    def changed(self) -> None:
        """Something was indexed to the end, added or removed: a word about what took long or went wrong."""
        self.show_indexing()
        if self._known is not None:
            self._look_what_exists()
        seen, self._reported = self._reported, dict(self._documents.reports)
        fresh = [report for name, report in self._reported.items() if seen.get(name) is not report]
        if not any(map(worth_telling, fresh)) or not self.workspace.screen.is_active:
            return
        from kvchat.ui.screens.documents.rows import other_kinds, report_words

        for report in filter(worth_telling, fresh):
            if report.trouble:
                self.workspace.say(report_words(report), "warning")
            else:
                key, what = self.workspace.key_of("documents"), "them" if other_kinds(report.skipped)[1] else "it"
                self.workspace.say(f"{report_words(report)}; {key} shows {what}.")

    # -- sources

    def source(self, number: str = "") -> None:
        """The sources of the selected message, else of the last one; or one source by its number."""
        node = self.workspace.target()
        if node is None:
            self.workspace.say("No message with sources yet")
        elif number.strip("[] ").isdecimal():
            self.show_sources(node, (int(number.strip("[] ")),))
        else:
            self.show_sources(node)

    @in_worker("dialog")
    async def show_sources(self, id: str, numbers: Sequence[int] = ()) -> None:
        """One source at once; several in a list."""
        tree = self.workspace.conversation.tree
        if id not in tree:
            return
        found, words = sources_at(tree.path(id), numbers)
        if not found:
            self.workspace.say(words)
        elif len(found) == 1:
            from kvchat.ui.screens.sources import SourceScreen

            await self.workspace.ask(
                SourceScreen(self._documents, found[0][1], number=found[0][0], editor=self._service.settings.editor)
            )
        else:
            from kvchat.ui.screens.sources import SourcesScreen

            await self.workspace.ask(
                SourcesScreen(self._documents, found, words=words, editor=self._service.settings.editor)
            )


def sources_at(path: Sequence[Node], numbers: Sequence[int] = ()) -> tuple[Sources, str]:
    """The sources of the last message of a branch, or those with these numbers, and a sentence about them: for an
    answer what it cites, else what its question was sent with, else the summary that the branch goes on from."""
    node = path[-1]
    if numbers:
        known = sources(path)
        found: Sources = [(number, known[number]) for number in numbers if number in known]
        return found, f"No source {numbers[0]} up to this message"
    summary: Sources = [(None, block) for one in path for block in one.message.blocks if block.kind == SUMMARY]
    if node.role is not Role.ASSISTANT:
        found = given(node.message.blocks) or summary
        return found, "Sent with the question:" if found else "This question was sent without sources"
    cited: Sources = sources_of(node.text, sources(path))
    if cited:
        return cited, ""
    question = next((one for one in reversed(path) if one.role is Role.USER), None)
    found = given(question.message.blocks) if question is not None else []
    found = found or summary
    return found, ("The answer cites nothing. Sent with its question:" if found else "This answer cites no source")


def retrieval_words(mode: str, names: Sequence[str]) -> str:
    """What was switched, in a sentence."""
    listed = ", ".join(one_line(name, 40) for name in names[:5]) + (" …" if len(names) > 5 else "")
    match mode:
        case "ask":
            return f"Asks before it sends passages of {listed}"
        case "always":
            return f"Passages of {listed} go with every question"
        case _:
            return "Documents off here · @NAME in a message still searches"


def worth_telling(report: IndexingReport) -> bool:
    """Whether the end of an indexing is worth a notice: not that a single saved file was taken in."""
    return bool(report.trouble) or report.seconds >= LONG or (report.added > 0 and not report.unchanged)
