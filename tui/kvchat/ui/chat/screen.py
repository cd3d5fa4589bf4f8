"""The main screen: what the service tells goes to the widgets, what the widgets ask goes to the service.

The rule: nothing is decided here that a test of the service could not see; the screen shows and asks.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.getters import query_one
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Static

from kvchat.cache.accounting import NOISE
from kvchat.display import one_line
from kvchat.numbers import counted, duration
from kvchat.prompt.message import Role, State
from kvchat.text.cache import cost_words, to_read
from kvchat.ui import actions
from kvchat.ui.chat.collecting import CollectingActs
from kvchat.ui.chat.compacting import CompactingActs
from kvchat.ui.chat.conversations import ConversationActs
from kvchat.ui.chat.elsewhere import Elsewhere
from kvchat.ui.chat.findbar import FindBar
from kvchat.ui.chat.live_row import live_row
from kvchat.ui.chat.writing import WritingActs
from kvchat.ui.items import item_of, sidebar_rows
from kvchat.ui.widgets.composer import Composer
from kvchat.ui.widgets.sidebar import Sidebar
from kvchat.ui.widgets.sidebar_rows import MARKS, Mark
from kvchat.ui.widgets.statusline import Header, KeyBar, StatusLine, live_of
from kvchat.ui.widgets.transcript import Transcript

if TYPE_CHECKING:
    from kvchat.chat.events import ServiceEvent
    from kvchat.chat.service import ChatService
    from kvchat.ui.chat.elsewhere import ElsewhereEvent

TICK = 0.25
"""Seconds between looks at a running answer's clock."""
LOOK = 2.0
"""Seconds between looks whether another kvchat changed the store."""
WIDE = 100
"""Columns from which on there is room for the sidebar."""


class ChatScreen(ConversationActs, CompactingActs, CollectingActs, WritingActs):
    """The list, the conversation, the composer."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *actions.bindings("app"),
        # The composer leaves these to the conversation, so that one can read back while writing.
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("ctrl+c", "interrupt", "Copy or stop", show=False),
    ]
    findbar = query_one(FindBar)

    def __init__(self, service: ChatService, *, show_sidebar: bool = True) -> None:
        super().__init__(service)
        self.show_sidebar = show_sidebar
        self._wide = False
        self._ticking: Timer | None = None
        self._elsewhere = Elsewhere(
            service, say=self.say, show_waiting=lambda words: self.status.set_waiting(words),
            deleted=self.deleted_elsewhere, undo_key=lambda: self.app.key_of("undo"))

    def compose(self) -> ComposeResult:
        settings = self.service.settings
        yield Header()
        with Horizontal(id="middle"):
            yield Sidebar(clock=lambda: self.now().timestamp(), warmth=lambda id: self.service.tracker.warmth(id))
            with Vertical(id="conversation"):
                yield Static(id="hello", markup=False)
                yield Transcript(unfold_reasoning=settings.show_reasoning)
                yield Static(id="trouble", markup=False)
                yield FindBar()
                yield Composer(enter_sends=settings.enter_sends)
        yield StatusLine()
        yield KeyBar()

    @property
    def focus_chain(self) -> list[Widget]:
        """Tab goes from the composer to the conversation, then to the list."""
        ranks = (self.composer, self.transcript, self.sidebar)
        chain = super().focus_chain
        return sorted(chain, key=lambda w: next((n for n, top in enumerate(ranks) if top in w.ancestors_with_self), 3))

    def on_mount(self) -> None:
        self.composer.set_commands(actions.slash_commands())
        self.keybar.set_keys(self.app.footer_keys())
        self.status.why_key = self.app.key_of("inspector")
        self.composer.set_memories_key(self.app.key_of("memories"))
        self._wide = self.size.width >= WIDE
        self.sidebar.display = self.show_sidebar and self._wide
        self.composer.focus()

    def begin(self) -> None:
        """After the first paint: what comes from the service, which is opened by this. Raises ChatError."""
        self.service.servers.consent.asks_before_leaving = True
        self.service.events.subscribe(self._on_service)
        self.show_server()
        self.show_list()
        self.set_interval(LOOK, self.service.refresh)

    def on_resize(self, event: events.Resize) -> None:
        """A terminal that becomes narrow has no room for the list; one that becomes wide again has."""
        wide = event.size.width >= WIDE
        if wide is not self._wide:
            self._wide = wide
            self.set_sidebar(wide and self.show_sidebar)

    def on_descendant_focus(self) -> None:
        """The line of keys tells what can be done where the focus is; the conversation shows which message is meant."""
        inside = self.focused is self.transcript
        self.keybar.set_keys(self.app.footer_keys("transcript" if inside else ""))
        if inside and self.transcript.selected is None and self.transcript.items:
            self.transcript.select(self.transcript.items[-1].node_id, show=False)

    # -- what the service tells

    def _on_service(self, event: ServiceEvent) -> None:
        from kvchat.chat.events import (
            AnswerEnded,
            AnswerProgressed,
            AnswerStarted,
            CompactionChanged,
            ConversationChanged,
            ConversationsChanged,
            DeletedElsewhere,
            DocumentsChanged,
            FallbackChosen,
            HeadAwaited,
            IndexingProgressed,
            MemoriesNoted,
            MemoryBegins,
            Noticed,
            QuestionRefused,
            ServerChanged,
            StorageChanged,
            WarmthChanged,
            WrittenElsewhere,
        )

        if not self.app.is_running:
            return  # the widgets are being taken down; the answer is kept without them
        match event:
            case AnswerProgressed(conversation=id):
                if self.current is not None and id == self.current.id:
                    self._show_progress()
            case AnswerStarted(conversation=id):
                self._begin_ticking()
                self.show_list()
            case AnswerEnded(conversation=id, node=node):
                self._ended(id, node)
            case QuestionRefused():
                self.question_refused(event)
            case ConversationChanged(conversation=id):
                if self.current is not None and id == self.current.id:
                    self.show_conversation()
            case CompactionChanged(conversation=id):
                self._compaction_changed(id)
            case WrittenElsewhere() | DeletedElsewhere() | HeadAwaited():
                if self.current is not None and event.conversation == self.current.id:
                    self._told_elsewhere(event)
            case ConversationsChanged():
                self.show_list()
            case ServerChanged():
                self.server_changed()
            case FallbackChosen():
                self.fallback_chosen(event)
            case WarmthChanged():
                self.sidebar.refresh_marks()
                if self.current is not None:
                    self.show_aside()
            case MemoryBegins():
                self.memory_begins()
            case MemoriesNoted():
                self.memories_noted(event)
            case IndexingProgressed():
                self.show_indexing()
            case DocumentsChanged():
                self.documents_changed()
            case StorageChanged(trouble):
                self._show_trouble(trouble)
            case Noticed(text, severity):
                self.say(text, severity)

    def _told_elsewhere(self, event: ElsewhereEvent) -> None:
        from kvchat.chat.events import HeadAwaited

        if isinstance(event, HeadAwaited):
            self.waits_for_another_window()
        self._elsewhere.tell(event)

    def _show_progress(self) -> None:
        conversation = self.conversation
        live = conversation.live
        if live is None:
            return
        if live.text or live.reasoning:
            self.transcript.stream_text(live.node, live.text, live.reasoning)
        # Tokens are counted by the clock's tick; what is shown at once is the prompt's progress and its end.
        news = (live.progress, live.waiting, live.first_token_at)
        if news != self._told_news:
            self._told_news = news
            self._tick()

    def _compaction_changed(self, id: str) -> None:
        running = self.service.compactor.running is not None
        if running is not self._summarising:
            self._summarising = running
            self.forget_refusal(id)
            self.show_list()
            if self.current is not None and id == self.current.id:
                self.show_conversation()
        if running:
            self._begin_ticking()
            self.show_compacting()

    _summarising = False
    _told_news: tuple[object, ...] = ()

    def _begin_ticking(self) -> None:
        if self._ticking is None:
            self._ticking = self.set_interval(TICK, self._tick)

    def _tick(self) -> None:
        """The clock of a running answer, in the live row and the status line."""
        if not self.service.conversations.streaming() and self._ticking is not None:
            self._ticking.stop()
            self._ticking = None
        self.show_compacting()
        conversation = self.current
        live = conversation.live if conversation is not None else None
        if conversation is None or live is None:
            return
        from kvchat.chat.answering import previous_figures

        now = time.monotonic()
        speed = self.service.tracker.prefill_speed(conversation.id)
        before = previous_figures(conversation.tree.path(conversation.tree[live.node].parent))
        self.transcript.set_live(self.offline_row(live, now) or live_row(live, now, speed, before))
        self.status.set_live(live_of(live, now))
        progress, reported = live.progress, live.reported
        prompt = reported.prompt_tokens or (progress.total if progress else None)
        if prompt is not None:
            self.show_context(prompt + (reported.predicted_tokens or 0))

    def _ended(self, id: str, node: str) -> None:
        conversation = self.service.conversations.get(id)
        if conversation is None or node not in conversation.tree:
            return
        answer = conversation.tree[node]
        here = self.current is not None and id == self.current.id
        if here:
            self.transcript.end_stream(item_of(conversation.tree, answer, None, self.model(), self.now()))
            self.offer_compaction()
        elif answer.state is State.ERROR:
            self.say(f"{one_line(conversation.record.title, 40)}: {answer.note}", "error")
        if self.service.settings.notify and not (here and self.app.app_focus):
            self.app.bell()
        self.show_list()

    def _show_trouble(self, trouble: str) -> None:
        """The banner that stays while the disk refuses."""
        banner = self.query_one("#trouble", Static)
        banner.display = bool(trouble)
        unsaved = " What is said is kept in memory and tried again every 10 s." if trouble else ""
        banner.update(Content(one_line(trouble) + unsaved))

    # -- showing

    def show_list(self) -> None:
        self.sidebar.set_rows(sidebar_rows(self.service.conversations.all(), self.service.conversations.streaming()))
        if self.current is not None:
            self.sidebar.set_open(self.current.id)

    def mark(self, id: str) -> Mark:
        streams = id in self.service.conversations.streaming()
        return "streaming" if streams else MARKS[self.service.tracker.warmth(id).heat]

    async def open_conversation(self, id: str, node: str | None = None) -> None:
        if self.current is not None and self.current.id != id:
            self.composer.flush()
            self.stop_editing()
        await self.keep_draft()  # of the same conversation: what was typed since the draft was last kept
        self.current = conversation = await self.service.conversations.open(id)
        if node is not None and node in conversation.tree and node not in {n.id for n in conversation.path()}:
            await self.attempt(self.service.branches.select(id, node))
        if self.findbar.is_open:
            self.findbar.action_close()
        self.composer.load(self.draft_of(conversation), id)
        self.show_looking_up()
        self.show_attached()
        self.show_conversation()
        self.sidebar.set_open(id)
        if node is not None:
            self.transcript.select(node)
            self.transcript.focus()
        else:
            self.composer.focus()

    def show_conversation(self) -> None:
        from kvchat.chat.mentioning import counted_in

        conversation = self.conversation
        self.transcript.set_items(self.items())
        asked = [node for node in reversed(conversation.path()) if node.role is Role.USER]
        self.composer.set_history([node.text for node in asked],
                                  lambda at: counted_in(asked[at].text, asked[at].message.blocks))
        self.status.set_live(None)
        self.transcript.set_live(None)
        last = next((n for n in reversed(conversation.path()) if n.role is Role.ASSISTANT), None)
        figures = conversation.figures()
        self.status.speed = self.service.tracker.speed_in(conversation.path())
        self.status.set_turns(figures, state=last.state if last else State.DONE)
        self.show_refusal()
        self._elsewhere.show(conversation.id)
        self.show_aside()
        self.show_searching()
        self.show_context(conversation.context_used if conversation.record.turns else None)
        self.app.set_window_title(conversation.record.title if conversation.record.turns else "")
        self.show_welcome()
        self.show_hello()
        if conversation.id in self.service.conversations.streaming():
            self._tick()

    def show_aside(self) -> None:
        """At the right of the status line: how far the conversation is read ahead, and how full its window is, what its
        next turn would read, or what was saved."""
        conversation = self.conversation
        ahead = self.service.tracker.warming == conversation.id
        self.status.set_reading_ahead(ahead, self.service.tracker.warmup_progress if ahead else None)
        totals, warmth = conversation.totals(self.status.speed), self.service.tracker.warmth(conversation.id)
        words = ""
        if offer := self.compaction_offer():
            words = offer
        elif (tokens := to_read(warmth)) and tokens > NOISE:
            seconds = self.service.prices.estimate(conversation.id, "open").seconds
            words = f"{warmth.heat}: {cost_words(tokens, seconds)} to read"
        elif totals.seconds_saved and totals.cached_tokens > NOISE and totals.turns > 1:
            words = f"{counted(totals.turns, 'turn')}: {duration(totals.seconds_saved)} saved in all"
        self.status.set_aside(words)

    def show_hello(self) -> None:
        """A few words in an empty conversation: what to do, and where the keys are."""
        hello = self.query_one("#hello", Static)
        empty = len(self.conversation.path()) < 2
        hello.display = empty and self.service.servers.connection.phase != "none"
        self.transcript.display = not empty
        if not hello.display:
            return
        keys, server = self.app.key_of, self.service.servers.info
        lines = ["Write below. Enter sends, Esc stops, Tab goes to the conversation.",
                 f"{keys('help')} shows every key, {keys('palette')} finds any action.",
                 f"{keys('model')} chooses the model and the server."]
        if server and server.embedded and "SmolLM2-135M" in server.model:
            lines.append("This small model came along for a first look.")
        hello.update(Content("\n").join(Content(line) for line in lines))

    def show_context(self, used: int | None) -> None:
        server = self.service.servers.info
        self.header.set_context(used, server.context_size if server else None)

    # -- stopping, finding, moving

    async def action_stop(self) -> None:
        """Esc: out of what was begun last: a dialog that is not there yet, looking up what goes with a message,
        editing, finding, the running answer, the transcript."""
        if self.app.key_queue.give_up() or self.stop_looking_up():
            return
        if self.editing is not None:
            self.stop_editing()
        elif self.findbar.is_open:
            self.findbar.action_close()
        elif not await self._stopped():
            self.composer.focus()

    def action_page(self, step: int) -> None:
        self.transcript.action_page(step)

    def action_find(self, query: str = "") -> None:
        self.findbar.open(query)

    @on(FindBar.Queried)
    def _queried(self, event: FindBar.Queried) -> None:
        found = self.transcript.find(event.query)
        self.findbar.show_count(self.transcript.find_next(0) if found else 0, found)
        self._found = found

    @on(FindBar.Stepped)
    def _find_stepped(self, event: FindBar.Stepped) -> None:
        at = self.transcript.find_next(event.step)
        self.findbar.show_count(at, self._found)

    @on(FindBar.Closed)
    def _find_closed(self) -> None:
        self.transcript.find("")
        self.composer.focus()

    _found = 0

    @on(Transcript.TypeThrough)
    def _type_through(self, event: Transcript.TypeThrough) -> None:
        self.composer.focus()
        self.composer.type(event.character)

    @on(Sidebar.Opened)
    async def _opened(self, event: Sidebar.Opened) -> None:
        await self.open_conversation(event.id)

    @on(Sidebar.RenameRequested)
    def _rename_requested(self, event: Sidebar.RenameRequested) -> None:
        self.action_rename(id=event.id)

    @on(Sidebar.MenuRequested)
    def _menu_requested(self, event: Sidebar.MenuRequested) -> None:
        self.action_menu(event.id)

    # -- looking

    def action_inspector(self) -> None:
        from kvchat.ui.screens.inspector import InspectorScreen

        self.status.acknowledge()
        service = self.service
        self.app.push_screen(InspectorScreen(self.conversation, service.cache_reports, service.servers, service.events,
                                             service.clock))

    def action_help(self) -> None:
        from kvchat.ui.screens.help import HelpScreen

        self.app.push_screen(HelpScreen(actions.help_rows(self.app.keys, enter_sends=self.composer.enter_sends)))

    def action_command_palette(self) -> None:
        self.app.action_command_palette()

    async def action_quit(self) -> None:
        await self.app.action_quit()
