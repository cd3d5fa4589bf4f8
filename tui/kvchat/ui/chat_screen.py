"""The main screen: lays out the list, the conversation and the composer, and routes the user's acts and the service's
events to their controllers.

It decides nothing. The controllers come with the service, after the first frame.

In the order in which they are called:

1. `compose`: lays out the widgets; the first frame has them all, and nothing of the service.
2. `list_conversations`, then `begin`: opens the store for the list, the service for the controllers, and builds those.
3. `action_do`, `do`: an act of the table, by a key, the palette or a slash command; it names a controller's method.
   Below `_opened`, each message of a widget is handed to its controller.
4. `_on_service`: the same for each event of the service.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from inspect import iscoroutine
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from kvchat.commands import keys, slash
from kvchat.commands.actions import ACTIONS, BY_ID, Action
from kvchat.commands.keymap import help_rows
from kvchat.paths import is_missing
from kvchat.prompt.tags import listed
from kvchat.reports.warmth import UNKNOWN, Warmth
from kvchat.sanitize import one_line
from kvchat.ui.bindings import binding, bindings
from kvchat.ui.footer import footer_keys
from kvchat.ui.widgets.composer.widget import Composer
from kvchat.ui.widgets.findbar import FindBar
from kvchat.ui.widgets.jump import JumpLetters
from kvchat.ui.widgets.question_line import QuestionLine
from kvchat.ui.widgets.queue_lines import QueueLines
from kvchat.ui.widgets.sidebar import Sidebar
from kvchat.ui.widgets.sidebar_rows import rows_of
from kvchat.ui.widgets.statusline import Header, KeyBar, StatusLine
from kvchat.ui.widgets.transcript import Transcript

if TYPE_CHECKING:
    from kvchat.chat.events import ServiceEvent
    from kvchat.chat.service import ChatService
    from kvchat.config.problem import Problem
    from kvchat.prompt.conversation import Conversation
    from kvchat.ui.controllers.alternatives import AlternativesController
    from kvchat.ui.controllers.doors import Host
    from kvchat.ui.controllers.empty import EmptyConversation
    from kvchat.ui.controllers.settings import SettingsController
    from kvchat.ui.controllers.tools import ToolController
    from kvchat.ui.screens.servers import WelcomePanel

LOOK = 2.0
"""Seconds between looks whether another kvchat changed the store."""
WIDE = 100
"""Columns from which on there is room for the sidebar."""


class ChatScreen(Screen[None]):
    """The list, the conversation, the composer."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings("app"),
        # The composer leaves these to the conversation, so that one can read back while writing.
        binding("transcript.page_up", "page(-1)"),
        binding("transcript.page_down", "page(1)"),
        binding("composer.interrupt", "interrupt"),
    ]

    VERTICAL_BREAKPOINTS = [(0, "-short"), (Composer.LOW, "-tall")]  # noqa: RUF012  Screen's own is no ClassVar

    def __init__(self, host: Host, service: ChatService, *, show_sidebar: bool = True) -> None:
        super().__init__()
        settings = service.settings
        self.host = host
        self.service = service
        self.show_sidebar = show_sidebar
        """Whether the list is shown next to the conversation where there is room for it."""
        self._wide = False
        self.empty: EmptyConversation | None = None
        """The contents of an empty conversation; None until the controllers are there."""
        self._first_list: tuple[list[Conversation], int] | None = None
        """As `Conversations.take_list`: what the list shows until they are."""
        self.header = Header()
        self.sidebar = Sidebar(clock=lambda: service.clock().timestamp(), warmth=self._warmth)
        self.transcript = Transcript(unfold_reasoning=settings.show_reasoning)
        self.composer = Composer(enter_sends=settings.enter_sends)
        self.queue_lines = QueueLines()
        self.question_line = QuestionLine()
        self.findbar = FindBar(self.transcript, self.composer)
        self.jump = JumpLetters(self.transcript, self.sidebar)
        self.status = StatusLine()
        self.keybar = KeyBar()
        self.hello = Static(id="hello", markup=False)
        self._trouble = Static(id="trouble", markup=False)
        self.conversation_column = Vertical(
            self.hello,
            self.transcript,
            self._trouble,
            Vertical(self.findbar, self.queue_lines, self.question_line, self.composer, id="below"),
            id="conversation",
        )
        self.columns = Horizontal(self.sidebar, self.conversation_column, id="middle")

    def compose(self) -> ComposeResult:
        yield self.header
        yield self.columns
        yield self.jump
        yield self.status
        yield self.keybar

    @property
    def focus_chain(self) -> list[Widget]:
        """Tab goes from the composer to a question that waits, to the conversation, then to the list."""
        ranks = (self.composer, self.question_line, self.transcript, self.sidebar)
        chain = [widget for widget in super().focus_chain if widget is not self.jump]
        return sorted(chain, key=lambda w: next((n for n, top in enumerate(ranks) if top in w.ancestors_with_self), 4))

    def on_mount(self) -> None:
        self.composer.set_commands(slash.slash_commands())
        self.composer.is_first = self._is_first
        self.show_keys()
        self._wide = self.size.width >= WIDE
        self.sidebar.display = self.show_sidebar and self._wide
        self.composer.focus()

    def show_keys(self) -> None:
        """Show the user's own keys where keys are named."""
        self.show_footer()
        bound = self.host.keys
        self.status.why_key = bound.key_of("inspector")
        self.composer.set_keys(
            bound.key_of("memories"), bound.key_of("composer.messages"), *map(keys.hinted, bound.send_keys)
        )
        self.transcript.name_keys(bound.key_of)

    def _is_first(self, sign: str) -> bool:
        key, core = f"told {sign}", self.service.core
        if core.setting(key):
            return False
        core.in_background(core.keep_setting(key, "yes"))
        return True

    def _warmth(self, id: str) -> Warmth:
        return self.service.tracker.warmth(id) if self.empty is not None else UNKNOWN

    def list_conversations(self) -> None:
        """After the first paint: the list, for which the store is opened. Raises ChatError."""
        store = self.service.store
        version, rows = store.data_version(), store.conversations()
        self._first_list = rows, version
        self.sidebar.set_rows(rows_of(listed(rows), frozenset()))

    def begin(self) -> None:
        """After that: the controllers, on the service, which is opened by this. Raises ChatError."""
        from kvchat.chat.conversations.personas import Personas
        from kvchat.commands.acts import Acts
        from kvchat.ui.controllers.cache_panel import CachePanelController
        from kvchat.ui.controllers.compaction import CompactionController
        from kvchat.ui.controllers.context import ContextController
        from kvchat.ui.controllers.conversations import ConversationController
        from kvchat.ui.controllers.costs import CostQuestions
        from kvchat.ui.controllers.documents import DocumentController
        from kvchat.ui.controllers.drafts import DraftController
        from kvchat.ui.controllers.empty import EmptyConversation
        from kvchat.ui.controllers.memory import MemoryController
        from kvchat.ui.controllers.messages import MessageController
        from kvchat.ui.controllers.options import OptionController
        from kvchat.ui.controllers.queue import QueueController
        from kvchat.ui.controllers.sending import SendingController
        from kvchat.ui.controllers.server import ServerController
        from kvchat.ui.controllers.surface import ScreenSurface
        from kvchat.ui.controllers.too_long import TooLongMessages
        from kvchat.ui.controllers.view import ConversationView
        from kvchat.ui.controllers.workspace import Workspace

        service = self.service
        if self._first_list is not None:
            service.conversations.take_list(*self._first_list)
        personas = Personas(self.host.paths.personas, service.options)
        self.workspace = workspace = Workspace(self, self.host, service)
        self.costs = costs = CostQuestions(workspace)
        self.empty = empty = EmptyConversation(workspace)
        self.server = server = ServerController(workspace, costs, empty)
        self.compaction = compaction = CompactionController(workspace)
        self.context = context = ContextController(workspace)
        too_long = TooLongMessages(workspace)
        self.drafts = drafts = DraftController(workspace, too_long)
        self.sending = sending = SendingController(workspace, drafts, context, compaction, too_long)
        self.queue = queue = QueueController(workspace, drafts, sending)
        self.documents = documents = DocumentController(workspace)
        self.panel = panel = CachePanelController(workspace)
        self.view = view = ConversationView(workspace, server, compaction, too_long, documents, empty, panel, queue)
        self.conversations = ConversationController(workspace, view, drafts, sending, context)
        self.messages = MessageController(workspace, costs, drafts)
        self.options = OptionController(workspace)
        self.memory = MemoryController(workspace, self.conversations)
        self.acts = workspace.acts = Acts(
            ScreenSurface(workspace, personas, costs, self.conversations, self.memory, server)
        )
        self.composer.commands.arguments = {"tag": self.conversations.known_tags}
        service.events.subscribe(self._on_service)
        service.tools.can_ask = True
        self.server.show()
        self.view.show_list()
        if trouble := service.writer.trouble:
            self._show_trouble(trouble)
        panel.fit()
        self.set_interval(LOOK, service.refresh)
        self.watch(self.app, "app_focus", self._window_focused, init=False)

    @cached_property
    def alternatives(self) -> AlternativesController:
        from kvchat.ui.controllers.alternatives import AlternativesController

        return AlternativesController(self.workspace, self.costs, self.drafts, self.sending)

    @cached_property
    def tools(self) -> ToolController:
        from kvchat.ui.controllers.tools import ToolController

        return ToolController(self.workspace)

    @cached_property
    def settings(self) -> SettingsController:
        from kvchat.ui.controllers.settings import SettingsController

        return SettingsController(self.workspace, self.panel)

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        event.refresh_styles = event.refresh_styles and self.host.has_begun  # all has its styles since it was mounted
        if self.host.has_begun:
            self.workspace.say_what_waits()
            self.workspace.questions.look()

    def on_resize(self, event: events.Resize) -> None:
        """A terminal that becomes narrow has no room for the list; one that becomes wide again has."""
        self.jump.leave()
        wide = event.size.width >= WIDE
        if wide is not self._wide:
            self._wide = wide
            self._set_sidebar(wide and self.show_sidebar)
        if self.empty is not None:
            self.panel.fit()
            self.call_after_refresh(self.empty.show)

    def on_screen_suspend(self) -> None:
        self.jump.leave()

    def want_sidebar(self, wanted: bool) -> None:
        """Show the list next to the conversation where there is room, or hide it."""
        self.show_sidebar = wanted
        self._set_sidebar(wanted and self._wide)

    def _set_sidebar(self, shown: bool) -> None:
        if not shown and self.focused is self.sidebar:
            self.composer.focus()
        self.sidebar.display = shown

    def on_descendant_focus(self) -> None:
        self.show_footer()

    def show_footer(self) -> None:
        """The line of keys tells what can be done where the focus is; the conversation shows which message is meant."""
        inside = self.focused is self.transcript
        writing = bool(self.transcript.items) and self.focused is not None and self.composer in self.focused.ancestors
        place = "transcript" if inside else "jump" if self.focused is self.jump else "composer" if writing else ""
        if self.composer.has_question and place in ("composer", ""):
            place = "question"
        self.keybar.set_keys(footer_keys(self.host.keys.changed, place, self.transcript.can if inside else ()))
        if inside and self.transcript.selected is None and self.transcript.items:
            self.transcript.select(self.transcript.items[-1].node_id, show=False)

    def _window_focused(self, focused: bool) -> None:
        if focused:
            self.context.look_for_changes()
            if self.workspace.current is not None:
                self.service.rail.look_again(self.workspace.open_id)

    # -- what the user does: actions of the table

    async def action_do(self, id: str, argument: str = "") -> None:
        """Do what a key means. One of the list is about the row under its cursor; one of a message about the selected
        one, and waits until that is in view."""
        action, row = BY_ID[id], self.sidebar.cursor_id
        if action.context == "sidebar":
            if self.host.has_begun and row is not None:
                await self.do(action, id=row)
        elif action.context != "transcript" or self.transcript.shows_selected():
            await self.do(action, argument)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """The key that continues is a letter like any other where there is nothing to continue."""
        if parameters == ("transcript.continue",) and not self.transcript.selected_is_cut:
            return False
        return super().check_action(action, parameters)

    async def action_sibling(self, step: int) -> None:
        if self.transcript.shows_selected():
            await self.messages.show_sibling(step)

    async def action_find_here(self) -> None:
        await self.findbar.open(comes_back=True)

    async def action_match(self, step: int) -> None:
        await self.findbar.go_on(step)

    async def do(self, action: Action, argument: str = "", **about: str) -> None:
        """Do an action of the table, with the argument of its slash command. `about`: what it is about, if not what is
        open: `id` of a conversation."""
        act = attrgetter(action.method)(self)
        work = partial(act, argument) if argument and action.argument else partial(act, **about)
        if action.asks or (action.waits and argument):
            self.run_worker(self._carry_out(work), name=action.id, group="dialog")
        else:
            await self._carry_out(work)

    async def _carry_out(self, work: Callable[[], object]) -> None:
        result = work()
        if iscoroutine(result):
            await self.workspace.attempt(result)

    async def do_instead(self, action: Action, argument: str = "") -> None:
        """Do an action in place of the dialogs that are open: these are left unanswered."""
        from kvchat.ui.screens.kit import Modal

        while isinstance(dialog := self.app.screen, Modal):
            dialog.finish(None)
        await self.do(action, argument)

    async def stop(self) -> None:
        """Esc: out of what was begun last: a dialog that is not there yet, the messages, a question that waits, looking
        up what goes with a message, editing, finding, the running answer."""
        if self.host.key_queue.give_up():
            return
        if self.focused is self.transcript and not self.findbar.comes_back:
            self.leave_messages()
        elif self.focused is self.transcript:
            self.findbar.action_close()
        elif self.workspace.questions.give_up() or self.sending.stop_looking_up() or self.drafts.stop_editing():
            return
        elif self.findbar.is_open:
            self.findbar.action_close()
        elif not await self.sending.stop():
            self.leave_messages()

    def leave_messages(self) -> None:
        """Back to the composer; no message is marked any more."""
        if self.findbar.is_open:
            self.findbar.action_close()
        self.transcript.select(None)
        self.composer.focus()

    async def action_interrupt(self) -> None:
        """Ctrl+C: copy what is selected, else stop the answer, else leave what waits for a word or is on its way. It
        never quits."""
        if selected := self.get_selected_text():
            self.messages.copy(selected, "Selection")
            self.clear_selection()
        elif not (await self.sending.stop() or self.host.key_queue.give_up() or self.workspace.questions.give_up()):
            self.workspace.say(f"Nothing is running · {self.host.keys.key_of('quit')} quits")

    def action_page(self, step: int) -> None:
        self.transcript.action_page(step)

    def toggle_sidebar(self) -> None:
        self.show_sidebar = not self.sidebar.display
        self._set_sidebar(self.show_sidebar)

    def inspect(self) -> None:
        """What the server had cached of the open conversation."""
        from kvchat.ui.screens.inspector import InspectorScreen

        self.status.acknowledge()
        service = self.service
        self.app.push_screen(
            InspectorScreen(
                self.workspace.conversation,
                service.cache_reports,
                service.servers,
                service.events,
                service.clock,
                pin=self.panel.toggle,
                can_pin=self.panel.has_room,
            )
        )

    def show_help(self) -> None:
        from kvchat.ui.screens.help import HelpScreen

        self.app.push_screen(HelpScreen(help_rows(self.host.keys.changed, enter_sends=self.composer.enter_sends)))

    def palette(self) -> None:
        self.run_worker(self._palette(), group="dialog")

    async def _palette(self) -> None:
        from kvchat.ui.screens.palette import PaletteEntry, PaletteScreen

        costs = self.costs.in_brief()
        entries = [
            PaletteEntry(action, self.host.keys.key_of(action.id), costs.get(action.id, ""))
            for action in ACTIONS
            if action.palette
        ]
        chosen = await self.workspace.ask(PaletteScreen(entries))
        if chosen is not None:
            await self.do_instead(chosen)

    # -- what the user does: in the widgets

    @on(Sidebar.Opened)
    async def _opened(self, event: Sidebar.Opened) -> None:
        if self.host.has_begun:
            await self.conversations.open(event.id)

    @on(Transcript.Selected)
    def _selected(self) -> None:
        self.show_footer()

    @on(Transcript.CodeCopyRequested)
    def _code_requested(self, event: Transcript.CodeCopyRequested) -> None:
        self.messages.copied_code(event.number, event.text)

    @on(Transcript.BranchesRequested)
    def _branches_requested(self, event: Transcript.BranchesRequested) -> None:
        self.messages.tree(event.node)

    @on(Transcript.SourcesRequested)
    def _sources_requested(self, event: Transcript.SourcesRequested) -> None:
        self.documents.show_sources(event.node, event.numbers)

    @on(Transcript.TypeThrough)
    def _type_through(self, event: Transcript.TypeThrough) -> None:
        self.composer.focus()
        self.composer.type(event.character)

    def on_paste(self, event: events.Paste) -> None:
        """What is pasted where nothing takes it is meant for the composer."""
        self.composer.focus()
        self.composer.paste(event.text)

    @on(JumpLetters.NothingThere)
    def _nothing_to_jump_to(self) -> None:
        self.workspace.say("Nothing to jump to here")

    @on(QuestionLine.Wanted)
    @on(Composer.QuestionWanted)
    def _question_wanted(self) -> None:
        self.workspace.questions.go()

    @on(Composer.Submitted)
    def _submitted(self, event: Composer.Submitted) -> None:
        self.sending.submit(event)

    @on(Composer.NextRequested)
    async def _next_requested(self) -> None:
        await self.queue.send_next()

    @on(Composer.TakeBackRequested)
    async def _take_back_requested(self) -> None:
        await self.queue.take_back()

    @on(Composer.SlashCommand)
    async def _slash(self, event: Composer.SlashCommand) -> None:
        action = slash.by_slash(event.name)
        if action is not None:
            await self.do_instead(action, event.argument)
        else:
            self._put_snippet(event.name, event.argument)

    def load_snippets(self) -> list[str]:
        """Offer the user's snippets as commands; return what is wrong with some."""
        offered: list[tuple[str, str]] = []
        problems: list[Problem] = []
        if not is_missing(self.host.paths.snippets):
            found, problems = slash.snippets(self.host.paths.snippets)
            offered = [(name, one.about or one_line(one.text, 60)) for name, one in found.items()]
        self.composer.set_commands([*slash.slash_commands(), *offered])
        return list(map(str, problems))

    def _put_snippet(self, name: str, argument: str) -> None:
        """Put a snippet into the composer, as its file has it now."""
        from kvchat.prompt.drafts import filled

        found, problems = slash.snippets(self.host.paths.snippets)
        if name in found:
            self.composer.fill(filled(found[name].text, argument))
        else:
            why = next((str(problem) for problem in problems if problem.file and problem.file.stem == name), "")
            self.workspace.say(why or f"There is no snippet {name} any more.", "warning")

    @on(Composer.DraftChanged)
    async def _draft_changed(self, event: Composer.DraftChanged) -> None:
        self.context.show_attached()
        await self.drafts.changed(event)

    @on(Composer.Rested)
    def _rested(self, event: Composer.Rested) -> None:
        self.context.typing_rests(event)

    @on(Composer.Mentioning)
    def _mentioning(self, event: Composer.Mentioning) -> None:
        self.context.suggest(event.beginning)

    @on(Composer.ContextChanged)
    def _context_changed(self) -> None:
        self.context.show_attached()

    @on(Composer.PathPasted)
    def _path_pasted(self, event: Composer.PathPasted) -> None:
        self.context.offer_to_attach(event)

    @on(Composer.PasteRequested)
    def _paste_requested(self, event: Composer.PasteRequested) -> None:
        self.context.paste(event.text)

    @on(Composer.Loaded)
    def _loaded(self) -> None:
        self.context.look_for_changes()

    @on(Composer.Notice)
    def _composer_notice(self, event: Composer.Notice) -> None:
        self.workspace.say(event.text, "warning")

    def on_welcome_panel_way_chosen(self, event: WelcomePanel.WayChosen) -> None:
        if event.way == 0:
            self.service.core.in_background(self.service.servers.connect())
        elif event.way in (1, 2):
            self.server.choose_again()

    # -- what the service tells

    def _on_service(self, event: ServiceEvent) -> None:
        from kvchat.chat import events as chat_events

        if not self.app.is_running:
            return  # the widgets are being taken down; the answer is kept without them
        match event:
            case chat_events.AnswerProgressed(conversation=id) if self.workspace.shows(id):
                self.view.show_progress()
            case chat_events.AnswerStarted():
                self.view.answer_began()
            case chat_events.AnswerEnded(conversation=id, node=node):
                self.view.answer_ended(id, node)
                self.show_footer()
            case chat_events.QuestionRefused():
                self.sending.refused(event)
            case chat_events.QueueChanged(conversation=id):
                self.view.show_list()
                if self.workspace.shows(id):
                    self.queue.show()
            case chat_events.ConversationChanged(conversation=id) if self.workspace.shows(id):
                self.view.show()
                self.server.show()
            case chat_events.ToolAsked(conversation=id):
                self.tools.asked(id)
                self.view.tool_asked(id)
            case chat_events.CompactionChanged(conversation=id):
                self.view.compaction_changed(id)
            case chat_events.SummaryPrepared(conversation=id) if self.workspace.shows(id):
                self.view.summary_prepared()
            case chat_events.WrittenElsewhere() | chat_events.DeletedElsewhere() | chat_events.HeadAwaited() if (
                self.workspace.shows(event.conversation)
            ):
                self.view.tell_elsewhere(event)
            case chat_events.ConversationsChanged():
                self.view.show_list()
            case chat_events.ServerChanged():
                self.server.changed()
                self.view.server_changed()
            case chat_events.FallbackChosen():
                self.server.fell_back(event)
            case chat_events.WarmthChanged():
                self.view.warmth_changed()
            case chat_events.MemoryBegins():
                self.memory.begins()
            case chat_events.MemoriesNoted():
                self.memory.noted(event)
            case chat_events.IndexingProgressed():
                self.documents.show_indexing()
            case chat_events.DocumentsChanged():
                self.documents.changed()
            case chat_events.StorageChanged(trouble):
                self._show_trouble(trouble)
            case chat_events.Noticed(text, severity):
                self.workspace.say(text, severity)

    def _show_trouble(self, trouble: str) -> None:
        """The banner that stays while the disk refuses."""
        self._trouble.display = bool(trouble)
        unsaved = " Messages stay in memory; kvchat retries every 10 s." if trouble else ""
        self._trouble.update(Content(one_line(trouble) + unsaved))
