"""Documents on the main screen: the list of collections, what this conversation searches, and the sources of a message.

The rule: indexing is told at the edge of the screen and never interrupts; nothing of the documents is loaded before it
is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual import on, work

from kvchat.chat.errors import ChatError
from kvchat.display import one_line
from kvchat.prompt.citing import sources
from kvchat.prompt.conversation import ASK, OFF
from kvchat.prompt.message import Node, Role
from kvchat.ui.chat.base import ChatBase
from kvchat.ui.render.sources import given, sources_of
from kvchat.ui.widgets.transcript import Transcript

if TYPE_CHECKING:
    from kvchat.documents.collection import Report
    from kvchat.prompt.context import ContextBlock

    Sources = Sequence[tuple[int | None, ContextBlock]]

LONG = 3.0
"""Seconds of an indexing from which on its end is told."""


class CollectingActs(ChatBase):
    """What the main screen does about documents."""

    _reported: dict[str, Report] | None = None
    """The reports that were seen."""

    _known: frozenset[str] | None = None
    """The collections that exist; None: that has not been looked up yet."""

    # -- the list, and what is searched here

    async def action_documents(self, argument: str = "") -> None:
        """The documents; or add a path, or remove a collection; or off, ask, always: what this conversation does with
        collections; or a search for words."""
        word, _, rest = argument.strip().partition(" ")
        match word.lower():
            case "":
                self.open_documents()
            case "add":
                await self._add(rest.strip())
            case "remove":
                self.remove_documents(rest.strip().removeprefix("@"))
            case "off" | "ask" | "always" as mode:
                await self._search_in(mode, rest.replace("@", " ").replace(",", " ").split())
            case _:
                self.search_documents(argument.strip())

    @work(group="dialog")
    async def open_documents(self, *, add: str | None = None) -> None:
        from kvchat.ui.screens.documents.source import DocumentsSource
        from kvchat.ui.screens.manager import ManagerScreen

        if not self.service.documents.has_library:
            self.say("There are no documents in an incognito run.")
            return
        id = self.current.id if self.current is not None else ""
        service = self.service
        await self.ask(ManagerScreen(DocumentsSource(
            service.documents, service.retrieval, service.conversations, service.clock, id, add=add,
            editor=service.settings.editor), service.events))
        self.show_searching()

    @work(group="dialog")
    async def search_documents(self, query: str) -> None:
        """Try the index with these words; Esc leads back here."""
        from kvchat.ui.screens.documents.search import DocumentSearchScreen

        if not self.service.documents.has_library:
            self.say("There are no documents in an incognito run.")
        elif not self.service.documents.has_collections:
            self.say("There are no documents yet. /documents add FOLDER adds some.", "warning")
        else:
            await self.ask(DocumentSearchScreen(self.service.documents, query=query,
                                                editor=self.service.settings.editor))

    @work(group="dialog")
    async def remove_documents(self, name: str) -> None:
        """Ask whether a collection is to be removed."""
        try:
            with self.app.key_queue.coming() as dialog:
                known = [one.name for one in await self.service.documents.collections()]
                if not name:
                    self.say(f"Name a collection: /documents remove {one_line(known[0], 40)}." if known else
                             "There are no documents yet.", "warning")
                    return
                one = await self.service.documents.named(name)
                status = (await self.service.documents.statuses([one.name])).get(one.name)
        except ChatError as error:
            self.say(str(error), "warning")
            return
        if dialog.is_given_up:
            return
        from kvchat.ui.screens.documents.source import remove_question

        if await self.ask(remove_question(one, status)) and await self.attempt(
                self.service.documents.remove(one.name)):
            self.show_searching()
            self.say(f"{one_line(one.name, 40)} is removed; its files stay.")

    async def _add(self, path: str) -> None:
        """Index a folder or file, at once."""
        from kvchat.ui.screens.documents.add import unquoted

        if not path:
            self.open_documents(add="")
            return
        try:
            added = await self.service.documents.add(unquoted(path))
        except ChatError as error:
            self.say(str(error), "warning")
            return
        name = one_line(added.name, 40)
        self.say(f"{name} is being indexed; {self.app.key_of('documents')} shows how far it is. @{name} in a message "
                 "searches in it.")

    async def _search_in(self, mode: str, names: Sequence[str]) -> None:
        """Have this conversation search in the named collections, else in those it searches already, else in the only
        one there is."""
        record = self.conversation.record
        if mode != OFF:
            try:
                known = [one.name for one in await self.service.documents.collections()]
                self._known = frozenset(known)
                chosen = [(await self.service.documents.named(name)).name for name in names]
            except ChatError as error:
                self.say(str(error), "warning")
                return
            chosen = chosen or [name for name in record.collections if name in known]
            chosen = chosen or (known if len(known) == 1 else [])
            if not chosen:
                self.say(f"Name a collection: /documents {mode} {one_line(known[0], 40)}." if known else
                         "There are no documents yet. /documents add FOLDER adds some.", "warning")
                return
        else:
            chosen = []
        if await self.attempt(self.service.retrieval.set_searching(self.conversation.id, mode, chosen)):
            self.show_searching()
            self.say(searching_words(mode, chosen))

    def show_searching(self) -> None:
        """In the header, what this conversation searches by itself, of what exists."""
        record = self.current.record if self.current is not None else None
        searches = record is not None and record.searching != OFF and bool(record.collections)
        if searches and self._known is None:
            self._look_what_exists()
        names = [one_line(name, 24) for name in record.collections if name in (self._known or ())] if record else []
        if record is None or not searches or not names:
            self.header.set_documents(())
            return
        ask = "?" if record.searching == ASK else ""
        what = names[0] if len(names) == 1 else f"{len(names):,}"
        self.header.set_documents((f"▤ {', '.join(names)}{ask}", f"▤ {what}{ask}", f"▤{ask}"))

    @work(exclusive=True, group="collections")
    async def _look_what_exists(self) -> None:
        try:
            self._known = frozenset(one.name for one in await self.service.documents.collections())
        except ChatError:
            self._known = frozenset()  # nothing can be searched
        if self.is_mounted:
            self.show_searching()

    # -- what the service tells

    def show_indexing(self) -> None:
        """In the status line, how far indexing is."""
        words = ""
        if self.service.documents.indexing:
            from kvchat.ui.screens.documents.rows import indexing_words

            words = indexing_words(self.service.documents.indexing)
        self.status.set_indexing(words)

    def documents_changed(self) -> None:
        """Something was indexed to the end, added or removed: a word about what took long or went wrong."""
        self.show_indexing()
        if self._known is not None:
            self._look_what_exists()
        seen, self._reported = self._reported or {}, dict(self.service.documents.reports)
        fresh = [report for name, report in self._reported.items() if seen.get(name) is not report]
        if not any(map(worth_telling, fresh)) or self.app.screen is not self:
            return
        from kvchat.ui.screens.documents.rows import other_kinds, report_words

        for report in filter(worth_telling, fresh):
            if report.trouble:
                self.say(report_words(report), "warning")
            else:
                key = self.app.key_of("documents")
                self.say(f"{report_words(report)}; {key} shows {'them' if other_kinds(report.skipped)[1] else 'it'}.")

    # -- sources

    @on(Transcript.SourcesRequested)
    def _sources_requested(self, event: Transcript.SourcesRequested) -> None:
        self.show_sources(event.node, event.numbers)

    def action_source(self, number: str = "") -> None:
        """The sources of the selected message, else of the last one; or one source by its number."""
        node = self.target()
        if node is None:
            self.say("There is no message with sources yet.")
        elif number.strip("[] ").isdecimal():
            self.show_sources(node, (int(number.strip("[] ")),))
        else:
            self.show_sources(node)

    @work(group="dialog")
    async def show_sources(self, id: str, numbers: Sequence[int] = ()) -> None:
        """One source at once; several in a list."""
        tree = self.conversation.tree
        if id not in tree:
            return
        found, words = sources_at(tree.path(id), numbers)
        if not found:
            self.say(words)
        elif len(found) == 1:
            from kvchat.ui.screens.sources import SourceScreen

            await self.ask(SourceScreen(self.service.documents, found[0][1], number=found[0][0],
                                        editor=self.service.settings.editor))
        else:
            from kvchat.ui.screens.sources import SourcesScreen

            await self.ask(SourcesScreen(self.service.documents, found, words=words,
                                         editor=self.service.settings.editor))


def sources_at(path: Sequence[Node], numbers: Sequence[int] = ()) -> tuple[Sources, str]:
    """The sources of the last message of a branch, or those with these numbers, and a sentence about them: for an
    answer what it cites, else what its question was sent with."""
    node = path[-1]
    if numbers:
        known = sources(path)
        found: Sources = [(number, known[number]) for number in numbers if number in known]
        return found, f"There is no source {numbers[0]} up to this message."
    if node.role is not Role.ASSISTANT:
        found = given(node.message.blocks)
        return found, "What the question was sent with:" if found else "No passage or file was sent with this question."
    cited: Sources = sources_of(node.text, sources(path))
    if cited:
        return cited, ""
    question = next((one for one in reversed(path) if one.role is Role.USER), None)
    found = given(question.message.blocks) if question is not None else []
    return found, ("The answer cites nothing; its question was sent with these:" if found else
                   "This answer cites no source.")


def searching_words(mode: str, names: Sequence[str]) -> str:
    """What was switched, in a sentence."""
    listed = ", ".join(one_line(name, 40) for name in names[:5]) + (" …" if len(names) > 5 else "")
    match mode:
        case "ask":
            return f"Passages of {listed} are found for each question here, and sent only if you take them."
        case "always":
            return f"The passages of {listed} that are found for a question here are sent with it."
        case _:
            return "This conversation searches in no documents. @NAME in a message still does it."


def worth_telling(report: Report) -> bool:
    """Whether the end of an indexing is worth a notice: not that a single saved file was taken in."""
    return bool(report.trouble) or report.seconds >= LONG or (report.added > 0 and not report.unchanged)
