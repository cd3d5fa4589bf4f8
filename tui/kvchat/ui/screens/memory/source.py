"""The memory in the manager: what is remembered and what is pending approval, the queue and the history.

It acts only through the service, on one look at a time, and never touches files or tables. Whatever is done here can be
undone here.

In the order in which they are called:

1. `MemorySource`: has the look that all pages draw (`look`, `search`), and the acts that its keys name.
2. `MemoriesPage`, `Queue`, `History`: the rows of a page (`arrange`, `row`), and what is said of one (`detail`).
3. `choose`: Enter on a row goes back to an act of the source.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from msgspec.structs import replace
from textual.content import Content
from textual.widget import Widget

from kvchat.chat.background.extraction import QUEUE_PAGE, QueueRow
from kvchat.chat.background.memory_service import MemoryOverview
from kvchat.chat.events import JobsChanged, MemoriesChanged, MemoriesNoted, ServiceEvent
from kvchat.commands.editor import opened
from kvchat.memory.entry import PROFILE, Act, Change, Entry, Kind, Status
from kvchat.memory.history import TOUCHED
from kvchat.text.cache import side_work_words
from kvchat.text.format import count, counted, moment
from kvchat.text.memory import WHY_OFF
from kvchat.ui.screens.kit import (
    ACCENT,
    BAD,
    MATCH,
    MUTED,
    STRONG,
    Choice,
    ConfirmScreen,
    Due,
    Hint,
    Jump,
    ManagerSource,
    Page,
    content,
    joined,
)
from kvchat.ui.screens.memory import rows as words
from kvchat.ui.screens.memory.editor import EntryEditor, line_of
from kvchat.ui.screens.memory.rows import MemoryRowData, quoted
from kvchat.ui.screens.sources import handed_over

if TYPE_CHECKING:
    from kvchat.chat.service import ChatService

EXTRACTION = "extraction"
"""The kind of the jobs that go through a conversation."""
WRITING: Sequence[Hint] = (
    ("entry.save", "save"),
    ("entry.new_line", "new line"),
    ("manager.next_page", "another kind"),
    ("dialog.close", "leave it"),
)
CHANGING: Sequence[Hint] = (*WRITING[:2], WRITING[3])


class MemorySource(ManagerSource):
    """What is remembered, and the extractions that feed it."""

    heading: ClassVar[str] = "Memory"
    context: ClassVar[str] = "memory"

    def __init__(
        self,
        service: ChatService,
        conversation: str = "",
        *,
        query: str = "",
        fresh: Collection[str] = (),
        add: bool = False,
    ) -> None:
        """`conversation`: the open one; `fresh`: the ids of what was noted since the user looked last; `add`: begin
        with a new memory."""
        self.memory, self.extraction, self.jobs = service.memory, service.extraction, service.jobs
        self.conversations, self._now = service.conversations, service.clock
        self.conversation = conversation
        self.query = query
        self.overview: MemoryOverview | None = None
        self.found: Sequence[str] = ()
        """The ids that the index found for the query, best first."""
        self.kind: Kind | None = None
        """The only one that is shown; None: all are."""
        self.only_here = False
        """Whether only what was noted in the open conversation is shown."""
        self.queue: Sequence[QueueRow] = ()
        self.data = MemoryRowData(self._now(), lambda id: self.screen.key(id), fresh=fresh)
        self.memories, self.history = MemoriesPage(self), History(self)
        self.pages = (self.memories, Queue(self), self.history)
        self.editor = EntryEditor(self._save, service.drafts)
        self.acts = {
            "kind": lambda: self._next_kind(1),
            "kind_back": lambda: self._next_kind(-1),
            "here": self._here,
            "edit": self._edit,
            "delete": self._delete,
            "accept": self._accept,
            "profile": self._profile,
            "source": self._go_to_source,
            "editor": self._open_editor,
            "undo": self._undo,
            "take_back": self._take_back,
            "retry": self.retry,
            "switch": self._switch,
        }
        self.begins_with_adding = add
        self._command = service.settings.editor
        self._opened_at: int | None = None
        """The number of the newest change when the screen was opened."""

    # What is shown.

    @property
    def is_ready(self) -> bool:
        return self.overview is not None

    @property
    def is_writing(self) -> bool:
        return self.editor.is_open

    @property
    def welcome(self) -> Sequence[str]:
        known = self.overview
        return () if known is None or known.entries or known.proposals else words.welcome(self.screen.key)

    @property
    def changes(self) -> Sequence[Change]:
        return self.overview.changes if self.overview is not None else ()

    @property
    def entry(self) -> Entry | None:
        """The memory under the cursor."""
        at = self.screen.at
        return self.memories.entry(at) if at is not None and self.screen.page is self.memories else None

    @property
    def change(self) -> Change | None:
        """The change under the cursor."""
        at = self.screen.at
        return self.changes[at] if at is not None and self.screen.page is self.history else None

    @property
    def queued(self) -> QueueRow | None:
        """The line of the queue under the cursor."""
        at = self.screen.at
        return self.queue[at] if at is not None and isinstance(self.screen.page, Queue) else None

    def widgets(self) -> Iterable[Widget]:
        return (self.editor,)

    def hints(self) -> Sequence[Hint]:
        return () if not self.is_writing else WRITING if self.editor.adds else CHANGING

    def lines(self, page: Page, width: int) -> Mapping[str, Content]:
        """The pages with how many rows each has; at the right whether the open conversation has memory, and what that
        cost lately."""
        known, key = self.overview, self.screen.key
        if known is None:
            return {}
        many = [
            count(len(known.entries) + len(known.proposals)),
            count(QUEUE_PAGE) + "+" if len(self.queue) > QUEUE_PAGE else count(len(self.queue)),
            "0",
        ]
        names = [
            content((f"{name} {size}" if size != "0" else name, MATCH if one is page else MUTED))
            for one, name, size in zip(self.pages, ("Memories", "Queue", "History"), many, strict=True)
        ]
        on = content()
        if self.conversation:
            why = self.memory.why_off(self.conversation)
            there = "with the demo model" if why == "demo" else "in this conversation"
            on = content((f"{'off' if why else 'on'} {there} ", BAD if why else MUTED), (key("memory.switch"), STRONG))
        cost = (
            [content("  ") + joined(content(), content((side_work_words(known.side_work), MUTED)), width)]
            if known.side_work.count
            else []
        )
        kind = (str(self.kind), ACCENT) if self.kind else ("every kind", MUTED)
        where = ("noted here", ACCENT) if self.only_here else ("everywhere", MUTED)
        return {
            "views": Content("\n").join([content("  ") + joined(content("   ").join(names), on, width), *cost]),
            "filters": content((f"{key('memory.kind')} ", STRONG), kind, (f"  {key('memory.here')} ", STRONG), where),
            "problems": Content("\n").join(
                [content("  ") + line for line in words.problems_words(known.problems, width)]
            ),
        }

    def note(self, width: int) -> Content:
        return words.folder_words(self.overview.folder, width) if self.overview is not None else content()

    # Looking.

    def due(self, event: ServiceEvent) -> Due:
        return "look" if isinstance(event, MemoriesChanged | MemoriesNoted | JobsChanged) else ""

    async def look(self) -> AsyncIterator[None]:
        query = self.query or ""
        self.overview = known = await self.memory.overview(query)
        if query == self.query:
            self.found = known.found
        if self._opened_at is None:
            self._opened_at = max((change.seq for change in known.changes), default=0)
        why = {change.after.id: change.why for change in known.changes if change.act is Act.PROPOSED}
        titles = {one.id: one.title for one in self.conversations.all()}
        self.data = replace(self.data, now=self._now(), titles=titles, why=why)
        self.memories.arrange()
        yield
        tasks = [QueueRow("", "", 0, job) for job in self.jobs.all() if job.kind != EXTRACTION]
        self.queue = [*tasks, *await self.extraction.queue()]
        yield

    async def search(self) -> bool:
        query = self.query or ""
        found = await self.memory.search(query)
        if query != self.query:
            return False
        self.found = found
        self.memories.arrange()
        return True

    def _next_kind(self, step: int) -> None:
        """Show another kind, or all of them again."""
        if self.overview is not None and self.screen.page is self.memories:
            there = {entry.kind for entry in (*self.overview.proposals, *self.overview.entries)}
            kinds = [None, *(kind for kind in Kind if kind in there)]
            at = kinds.index(self.kind) if self.kind in kinds else 0
            self.kind = kinds[(at + step) % len(kinds)]
            self._narrow()

    def _here(self) -> None:
        """Only what was noted in the open conversation, or everything."""
        if self.screen.page is self.memories and self.conversation:
            self.only_here = not self.only_here
            self._narrow()

    def _narrow(self) -> None:
        self.memories.arrange()
        self.screen.show_rows()

    # Writing.

    def add(self) -> None:
        if self.screen.page is self.memories:
            self._write(None)

    def _edit(self) -> None:
        if self.entry is not None:
            self._write(self.entry)

    def _write(self, entry: Entry | None) -> None:
        self.screen.add_class("-editing")
        self.editor.open(entry)

    def turn(self, step: int) -> bool:
        if self.is_writing:
            self.editor.next_kind(step)
        return self.is_writing

    def leave(self) -> bool:
        if not self.is_writing or (self.begins_with_adding and self.editor.is_empty):
            return False
        self._end_writing()
        return True

    def _end_writing(self) -> None:
        self.begins_with_adding = False
        self.screen.remove_class("-editing")
        self.editor.close()
        self.screen.rows.focus()

    async def _save(self, entry: Entry | None, text: str, kind: Kind) -> None:
        if not text:
            self._end_writing()
            self.screen.tell("" if entry is None else "Nothing was changed.")
            return
        with self.screen.telling():  # when it fails the text stays in the field
            if entry is None:
                saved, is_new = await self.memory.add(text, kind)
                said = f"Remembered, in {saved.page}" if is_new else "It is remembered already"
            else:
                saved = await self.memory.edit(entry, text)
                said = "Taken" if entry.status is Status.PENDING else "Changed"
            self.editor.saved()
            self._end_writing()
            await self.screen.look_again(at=saved.id)
            self.screen.tell(f"{said}: {quoted(saved.text)}")

    def _open_editor(self) -> None:
        """Open the page in the user's editor, at the line of the memory under the cursor."""
        entry, known = self.entry, self.overview
        if entry is not None and entry.status is Status.PENDING:
            self.screen.tell(f"It is in no file before you take it ({self.screen.key('memory.accept')}).")
        elif entry is not None and known is not None:
            self.screen.run_worker(self._edited_outside(known, entry), group="editor")

    async def _edited_outside(self, known: MemoryOverview, entry: Entry) -> None:
        path, line = await asyncio.to_thread(line_of, known.folder, entry)
        trouble = await handed_over(self.screen.app, opened(path, line, self._command))
        await self.screen.look_again()
        self.screen.tell(trouble, bad=True)

    # Deciding.

    async def _delete(self) -> None:
        if (entry := self.entry) is not None:
            said = "Discarded" if entry.status is Status.PENDING else "Deleted"
            undo = self.screen.key("memory.undo")
            await self.screen.act(
                self.memory.delete(entry.id),
                lambda _: f"{said}, and not noted again ({undo} brings it back): {quoted(entry.text)}",
            )

    async def _accept(self) -> None:
        entry = self.entry
        if entry is not None and entry.status is not Status.PENDING:
            self.screen.tell("It is remembered already; only proposals can be accepted.")
        elif entry is not None:
            await self.screen.act(
                self.memory.accept(entry.id),
                at=self.memories.after_taking(entry),
                said=lambda now: f"Taken, into {now.page}: {quoted(now.text)}",
            )

    async def _profile(self) -> None:
        """Have every new conversation begin with it."""
        entry = self.entry
        if entry is not None and entry.page == PROFILE and entry.status is Status.LIVE:
            self.screen.tell("It is in the profile already: every new conversation begins with it.")
        elif entry is not None:
            await self.screen.act(
                self.memory.put_into_profile(entry),
                at=self.memories.after_taking(entry),
                said=lambda now: f"In the profile now; every new conversation begins with it: {quoted(now.text)}",
            )

    async def _undo(self) -> None:
        """The change under the cursor of the history, else the last one."""
        change = self.change if self.screen.page is self.history else self._last_change()
        if self.overview is None:
            return
        if change is None:
            self.screen.tell("There is nothing to undo.")
        elif change.undone:
            self.screen.tell("It is undone already.")
        else:
            said = words.undone(change)
            await self.screen.act(self.memory.undo(change.seq), lambda _: said)

    def _last_change(self) -> Change | None:
        """The user's last change here, else the newest change of all."""
        left = [change for change in self.changes if not change.undone and change.act is not Act.RESTORED]
        yours = [
            change for change in left if change.seq > (self._opened_at or 0) and change.act in TOUCHED | {Act.DELETED}
        ]
        return next(iter(yours or left), None)

    async def _take_back(self) -> None:
        """Take back all that kvchat did by itself, in its last session or from this conversation."""
        with self.screen.telling():
            session, from_here = await self.memory.own_changes(self.conversation)
            if session or from_here:
                self.screen.run_worker(self._ask_back(session, from_here), group="dialog")
            else:
                self.screen.tell("kvchat has noted nothing by itself that is still in force.")

    async def _ask_back(self, session: Sequence[Change], from_here: Sequence[Change]) -> None:
        choices: list[Choice[bool | None]] = []
        if session:
            since = moment(session[-1].at, self._now())
            choices.append(("s", f"All of the last session, since {since}: {words.did(session)}", True))
        if from_here:
            choices.append(("c", f"All from this conversation: {words.did(from_here)}", False))
        choices.append(("n", "Cancel", None))
        of_session = await self.screen.app.push_screen_wait(
            ConfirmScreen[bool | None](
                "Take back what kvchat noted?",
                [
                    f"This takes back {counted(len(session or from_here), 'change')} that kvchat made to your "
                    "memory by itself.",
                    "What you wrote, accepted or edited yourself stays. The history keeps all of it; "
                    f"{self.screen.key('memory.undo')} there brings one back.",
                ],
                choices,
            )
        )
        if of_session is not None:
            taking = (
                self.memory.take_back(session=session[0].session)
                if of_session
                else self.memory.take_back(conversation=self.conversation)
            )
            await self.screen.act(
                taking,
                lambda done: (
                    f"Took back {counted(done[0], 'change')}."
                    + (f" {done[1]:,} stay as you have changed them since." if done[1] else " The history has them.")
                ),
            )

    # The queue, this conversation, and where something came from.

    async def retry(self) -> None:
        """Try again what was given up, or go through now what waits."""
        line = self.queued
        if line is None:
            return
        act: Awaitable[None]
        if (state := words.state_of(line)) == "running":
            self.screen.tell("It is under way.")
            return
        if state != "paused" and line.conversation:
            act = self.extraction.request(line.conversation)
        elif line.job is not None and line.job.kind != EXTRACTION:
            act = self.jobs.retry(line.job.kind, line.job.subject)
        else:
            act = self.extraction.retry(line.job.subject if line.job is not None else line.conversation)
        await self.screen.act(act, lambda _: "It is done as soon as nothing else runs.")

    async def _switch(self) -> None:
        """Memory on or off in the open conversation."""
        if id := self.conversation:
            await self.screen.act(
                self.extraction.set_memory(id, not self.memory.recalls(id)), lambda _: WHY_OFF[self.memory.why_off(id)]
            )

    def _go_to_source(self) -> None:
        """Go to the message that the row under the cursor came from."""
        line, entry = self.queued, self.entry or (self.change.after if self.change is not None else None)
        if line is None and entry is None:
            return
        conversation = line.conversation if line is not None else entry.conversation if entry is not None else ""
        if not conversation:
            self.screen.tell(
                "There is no conversation behind this."
                if line is not None
                else "You wrote this yourself; there is no conversation behind it."
            )
        elif all(known.id != conversation for known in self.conversations.all()):
            self.screen.tell("The conversation it came from is deleted.")
        else:
            self.screen.finish(Jump(conversation, entry.nodes[0] if entry is not None and entry.nodes else None))


class MemoriesPage(Page):
    """What is pending approval, then what is remembered."""

    has_search: ClassVar[bool] = True
    hints = (
        ("manager.search", "search"),
        ("manager.add", "add"),
        ("memory.undo", "undo"),
        ("memory.take_back", "take back"),
        ("manager.next_page", "queue"),
        ("dialog.close", "close"),
    )

    def __init__(self, source: MemorySource) -> None:
        self._source = source
        self._rows: list[Entry | str] = []
        """Entries, and headings above them."""
        self._folded: tuple[MemoryOverview | None, Mapping[str, str]] = (None, {})
        """The texts of an overview as they are compared, by id."""

    def arrange(self) -> None:
        """The rows for what is wanted: a search shows what the index found, best first, then what merely has the
        letters."""
        source, known = self._source, self._source.overview
        if known is None:
            return
        source.data = replace(source.data, query=source.query or "")
        sought = (source.query or "").casefold().split()
        if sought and self._folded[0] is not known:
            self._folded = (
                known,
                {one.id: f"{one.text} {one.kind} {one.page}".casefold() for one in (*known.proposals, *known.entries)},
            )
        texts = self._folded[1]

        def has_words(entry: Entry) -> bool:
            return all(word in texts[entry.id] for word in sought)

        def is_wanted(entry: Entry) -> bool:
            return (source.kind is None or entry.kind is source.kind) and (
                not source.only_here or entry.conversation == source.conversation
            )

        proposals = [one for one in known.proposals if is_wanted(one) and has_words(one)]
        entries = [one for one in known.entries if is_wanted(one)]
        if sought:
            ranks = {id: rank for rank, id in enumerate(source.found)}
            entries = [
                *sorted((one for one in entries if one.id in ranks), key=lambda one: ranks[one.id]),
                *(one for one in entries if one.id not in ranks and has_words(one)),
            ]
        if proposals:
            self._rows = [f"Pending approval · {counted(len(proposals), 'proposal')}", *proposals]
            if entries:
                self._rows += ["", "Remembered", *entries]
        else:
            self._rows = [*entries]

    def entry(self, index: int) -> Entry | None:
        """The memory in a row; None: a heading."""
        row = self._rows[index] if index < len(self._rows) else ""
        return row if isinstance(row, Entry) else None

    def after_taking(self, entry: Entry) -> str | None:
        """The row that the cursor goes to when a proposal is taken: the next proposal."""
        waits = [row.id for row in self._rows if isinstance(row, Entry) and row.status is Status.PENDING]
        if entry.id not in waits:
            return None
        at = waits.index(entry.id)
        return next(iter((*waits[at + 1 :], *reversed(waits[:at]))), None)

    @property
    def keys(self) -> Sequence[object]:
        return [row.id if isinstance(row, Entry) else None for row in self._rows]

    @property
    def empty(self) -> str:
        source, key = self._source, self._source.screen.key
        if (source.kind is not None or source.only_here) and not (source.query or "").strip():
            return f"Nothing of this kind here. {key('memory.kind')} and {key('memory.here')} change what is shown."
        return f"Nothing remembered has these words. {key('dialog.close')} shows all."

    def row(self, index: int, width: int) -> Content:
        row = self._rows[index]
        return content((row, STRONG)) if isinstance(row, str) else words.entry_row(row, self._source.data, width)

    def detail(self, index: int, width: int) -> Sequence[Content]:
        entry = self.entry(index)
        return words.entry_words(entry, self._source.data, width) if entry is not None else ()

    def acts(self, index: int) -> Sequence[Hint]:
        entry = self.entry(index)
        if entry is not None and entry.status is Status.PENDING:
            return (
                ("memory.accept", "take it"),
                ("memory.delete", "discard"),
                ("memory.edit", "edit and take"),
                ("memory.source", "source"),
            )
        return (
            ("memory.edit", "edit"),
            ("memory.delete", "delete"),
            ("memory.profile", "to the profile"),
            ("memory.source", "source"),
            ("memory.editor", "editor"),
        )

    def choose(self, index: int) -> None:
        self._source.acts["edit"]()


class Queue(Page):
    """What waits for an extraction."""

    hints = (
        ("memory.retry", "do it now"),
        ("memory.source", "open"),
        ("memory.switch", "on/off here"),
        ("manager.next_page", "history"),
        ("dialog.close", "close"),
    )
    empty = "Nothing waits: every message has been gone through."

    def __init__(self, source: MemorySource) -> None:
        self._source = source

    @property
    def keys(self) -> Sequence[object]:
        return [
            (row.job.kind, row.job.subject) if row.job else (EXTRACTION, row.conversation) for row in self._source.queue
        ]

    def row(self, index: int, width: int) -> Content:
        return words.queue_row(self._source.queue[index], self._source.data, width)

    def detail(self, index: int, width: int) -> Sequence[Content]:
        return words.queue_words(self._source.queue[index], self._source.data, width)

    def choose(self, index: int) -> Awaitable[None]:
        return self._source.retry()


class History(Page):
    """What was changed."""

    hints = (
        ("memory.undo", "undo this"),
        ("memory.source", "source"),
        ("memory.take_back", "take back"),
        ("manager.next_page", "memories"),
        ("dialog.close", "close"),
    )
    empty = "Nothing has changed yet. Every change can be undone here."

    def __init__(self, source: MemorySource) -> None:
        self._source = source

    @property
    def keys(self) -> Sequence[object]:
        return [change.seq for change in self._source.changes]

    def row(self, index: int, width: int) -> Content:
        return words.change_row(self._source.changes[index], self._source.data, width)

    def detail(self, index: int, width: int) -> Sequence[Content]:
        known = self._source.overview
        texts = {one.id: one.text for one in (*known.proposals, *known.entries)} if known is not None else {}
        return words.change_words(self._source.changes[index], texts, self._source.data, width)

    def choose(self, index: int) -> None:
        """Nothing is to be chosen here."""
