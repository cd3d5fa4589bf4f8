"""The app: its start, its terminal, what is typed in it, and the life of the main screen."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from rich.console import RenderableType
from textual import events
from textual._compositor import CompositorUpdate
from textual.actions import SkipAction
from textual.app import App
from textual.binding import BindingType
from textual.driver import Driver
from textual.filter import LineFilter, Monochrome
from textual.messages import ExitApp
from textual.screen import Screen

from kvchat.chat.errors import ChatError
from kvchat.config.themes import variable_defaults
from kvchat.paths import Paths, is_missing
from kvchat.ui.bindings import UserKeys, binding
from kvchat.ui.chat_screen import ChatScreen
from kvchat.ui.ending import Ending
from kvchat.ui.key_queue import KeyQueue
from kvchat.ui.sweeper import EVERY, Sweeper
from kvchat.ui.terminal import Background, ControlFilter, Desktop, Frame, TerminalInput
from kvchat.ui.themes import Themes

if TYPE_CHECKING:
    from kvchat.chat.service import ChatService
    from kvchat.config.layers import Layers

TYPED_AHEAD_SECONDS = 0.5
"""After the first frame: who typed blind has seen it by then."""
NOTICES = 6
"""Sentences that the start shows at once."""
HOUSEKEEPING_SECONDS = 20.0
"""After the start, when the first answer is likely on its way."""
HOUSEKEEPING_EVERY = 3600.0
"""Seconds: a kvchat that stays open for days makes a backup every day."""


class KvchatApp(App[int]):
    """kvchat in the terminal."""

    TITLE = "kvchat"
    CSS_PATH = "kvchat.tcss"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        binding("palette", "command_palette", priority=True),
        binding("suspend", "suspend_process", priority=True),
    ]

    def __init__(
        self,
        service: ChatService,
        paths: Paths,
        *,
        notices: Iterable[str] = (),
        continue_: bool = False,
        conversation: str | None = None,
        layers: Callable[[], Layers] | None = None,
        persona: str | None = None,
        trunk: str | None = None,
    ) -> None:
        """`layers`: the settings as they are now, with where they come from; None: of the file and the environment."""
        self.sweeper = Sweeper(lambda: bool(service.conversations.streaming()))
        super().__init__()
        self.no_color = bool(os.environ.get("NO_COLOR"))  # Textual takes an empty one for a wish too
        self.service = service
        self.ending = Ending(self, service, paths)
        self.typed_ahead_until = math.inf
        """By the monotonic clock: while kvchat starts, a read may hold what was typed over seconds."""
        self.key_queue = KeyQueue(self, super().on_event)
        self.paths = paths
        self._layers = layers
        self.has_begun = False
        """Whether the service is opened."""
        self._notices = list(notices)
        self._continue = continue_
        self._first = conversation
        self._persona = persona
        self._trunk = trunk
        self.desktop = Desktop(self.tell_terminal, os.environ)
        self._guard = ControlFilter()
        self._frame = Frame()
        self.themes = Themes(self, paths.themes, self.tell_terminal)
        self._notices += self.themes.begin(service.settings.theme)
        self.keys = UserKeys(self)
        self._notices += map(str, self.keys.take(service.settings, paths.config))

    # -- start and end

    def get_driver_class(self) -> type[Driver]:
        driver = super().get_driver_class()
        if driver.__name__ == "LinuxDriver":
            from kvchat.ui.terminal import TerminalDriver

            return TerminalDriver
        if (module := sys.modules.get("textual.drivers.web_driver")) is not None:
            vars(module)["XTermParser"] = TerminalInput

            class PageDriver(driver):  # type: ignore[misc, valid-type]
                def run_input_thread(self) -> None:
                    super().run_input_thread()
                    self._app.post_message(ExitApp())  # the server of the page is gone

            return PageDriver
        return driver

    def get_default_screen(self) -> Screen[Any]:
        return ChatScreen(self, self.service, show_sidebar=self.service.settings.sidebar)

    async def on_mount(self) -> None:
        self.ending.listen()
        self.app_suspend_signal.subscribe(self, lambda _: self._frame.forget())
        self.app_resume_signal.subscribe(self, lambda _: self._repaint())
        self.call_after_refresh(self._list)

    def _repaint(self) -> None:
        """Another program had the terminal: nothing of what was painted is there."""
        self.desktop.repaint()
        self._frame.forget()
        self.screen.refresh(layout=True)

    def _handle_exception(self, error: Exception) -> None:
        """Textual's own would print a traceback."""
        self._return_code = 1
        if self._exception is None:
            self._exception = error
            self._exception_event.set()
            try:
                self.ending.crash(error)
            finally:
                self._close_messages_no_wait()

    def _list(self) -> None:
        """After the first paint: the list."""
        self.typed_ahead_until = time.monotonic() + TYPED_AHEAD_SECONDS
        try:
            if self.chat.sidebar.display:
                self.chat.list_conversations()
        except ChatError as error:  # no store
            self.ending.fail(str(error))
            return
        self.call_after_refresh(self._begin)

    async def _begin(self) -> None:
        """After the list: the conversation and the notices."""
        screen = self.chat
        try:
            screen.begin()
            self.has_begun = True
            await self._open_first(screen)
        except ChatError as error:  # no store, or not even an empty conversation can be made
            self.ending.fail(str(error))
            return
        self.key_queue.begin()
        self._notices += [*self.themes.load(), *screen.load_snippets(), *self._load_personas()]
        at_start = [*self.service.store.notices, *self._notices]
        if at_start:  # where the conversations are, and what else is to be read to its end
            more = [f"And {len(at_start) - NOTICES} more."] if len(at_start) > NOTICES else []
            seconds = 60 if self.service.store.notices or len(at_start) > 1 else 0
            screen.workspace.say("\n".join([*at_start[:NOTICES], *more]), "warning", seconds)
        self.themes.ask_terminal()
        self.call_after_refresh(self._connect)
        self.call_after_refresh(self._settle)

    def _load_personas(self) -> list[str]:
        """What is wrong with some of them."""
        if is_missing(self.paths.personas):
            return []
        from kvchat.config.personas import load_personas

        return [str(problem) for problem in load_personas(self.paths.personas)[1]]

    async def _open_first(self, screen: ChatScreen) -> None:
        try:
            if self._persona:
                await screen.acts.conversations.new_with_persona(self._persona)
            elif self._trunk:
                await screen.acts.conversations.begin_with_trunk(self._trunk)
            else:
                await screen.conversations.open(await self._first_conversation())
        except ChatError as error:
            self._notices.append(str(error))
            await screen.conversations.open((await self.service.new_conversations.create()).id)

    def _connect(self) -> None:
        """Look for the server when the conversation can be read: it imports HTTP, which would hold up the paint."""
        self.run_worker(self.service.servers.meet(), group="connect", exit_on_error=False)

    def _settle(self) -> None:
        self.sweeper.begin()
        self.set_interval(EVERY, self.sweeper.look)
        self.service.begin_background()
        self.set_timer(HOUSEKEEPING_SECONDS, self._keep_house)
        self.set_interval(HOUSEKEEPING_EVERY, self._keep_house)

    def _keep_house(self) -> None:
        """In a task of its own: keys go through the app, which a timer's callback would hold up."""
        if self.is_running:  # a callback may come when the service has ended
            self.service.core.in_background(self.service.housekeeping.run())

    async def _first_conversation(self) -> str:
        if self._first:
            return self.service.conversations.find(self._first).id
        if self._continue and (latest := self.service.conversations.to_continue()) is not None:
            return latest.id
        return (await self.service.new_conversations.create()).id

    @property
    def chat(self) -> ChatScreen:
        """The main screen."""
        screen = self.screen_stack[0]
        assert isinstance(screen, ChatScreen)
        return screen

    async def action_quit(self) -> None:
        """Leave; where something is not saved, ask the user first."""
        unsaved = []
        if self.has_begun:
            await self.service.drafts.keep()
            unsaved = await self.service.conversations.unsaved.retry()
        if not unsaved:
            self.ending.leave()
            return
        from kvchat.ui.controllers.leaving import leave_unsaved

        self.run_worker(leave_unsaved(self.chat.workspace, self.ending, unsaved), group="dialog")

    def hang_up(self) -> None:
        """The terminal is gone."""
        self.ending.hang_up()

    async def on_unmount(self) -> None:
        self.sweeper.end()
        self.desktop.progress.remove()
        await self.ending.close_service()

    async def on_event(self, event: events.Event) -> None:
        if self.has_begun and isinstance(event, events.Key | events.Paste):
            self.service.jobs.typed()
            self.service.drafts.typed()
            self.sweeper.typed()
            self.chat.transcript.make_way()
            if not event.is_forwarded:
                self.chat.workspace.questions.typed(event)
        if isinstance(event, events.Key):
            event.key = self.keys.meant(event.key)
        if isinstance(event, events.Key | events.Paste) and not event.is_forwarded:
            await self.key_queue.take(event)
        else:
            await super().on_event(event)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A field that takes keys takes those too that work everywhere."""
        if action in ("command_palette", "suspend_process") and getattr(self.focused, "takes_keys", False):
            return False
        return super().check_action(action, parameters)

    def action_suspend_process(self) -> None:
        """The key of `stop_for_shell`. A page has no shell: it is a text field's there."""
        if not hasattr(self._driver, "suspend"):
            raise SkipAction()
        self.stop_for_shell()

    def stop_for_shell(self) -> None:
        """Stop, and give the terminal to the shell that kvchat was started from, until that has it go on."""
        suspend = getattr(self._driver, "suspend", None)
        if suspend is None or not suspend():
            self.chat.workspace.say("There is no shell that could have kvchat go on.", "warning")

    # -- the table of actions

    def action_command_palette(self) -> None:
        """Find an action by its name, and do it; over a dialog too."""
        if self.has_begun:
            self.chat.palette()

    # -- appearance

    def on_resize(self) -> None:
        self._frame.forget()

    def on_app_focus(self) -> None:
        self._frame.forget()  # another program may have written to the terminal meanwhile

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        if isinstance(renderable, CompositorUpdate):
            if screen._compositor.size != self.size:
                return  # the window was resized since: the screen is laid out again, and all of it shown
            renderable = self._frame.update(renderable, self.size)
        super()._display(screen, renderable)

    def get_line_filters(self) -> list[LineFilter]:
        if not self.no_color:
            others = [found for found in super().get_line_filters() if not isinstance(found, Monochrome)]
            return [self._guard, *others]
        from kvchat.ui.terminal import COLOURLESS

        return [self._guard, COLOURLESS]

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return variable_defaults(self.current_theme)

    def on_background(self, message: Background) -> None:
        self.themes.answered(message.colour)

    def layers(self) -> Layers:
        """The settings as they are now, with where they come from."""
        from kvchat.config.layers import layered

        return self._layers() if self._layers else layered(self.paths.config)

    def copy_to_clipboard(self, text: str) -> None:
        """Whatever copies: by every way there is."""
        from kvchat.ui.terminal import copy

        copy(self, text)

    def tell_terminal(self, sequence: str) -> None:
        """Write a control sequence, which must be clean, while the terminal is the app's."""
        if self._driver is not None and self.has_terminal:
            self._driver.write(sequence)

    @property
    def wants_keyboard(self) -> bool:
        """Whether the user has kitty's protocol of the keyboard used where the terminal knows it."""
        return self.service.settings.keyboard_protocol

    @property
    def has_terminal(self) -> bool:
        """Whether there is a terminal, and it is the app's just now: not an editor's."""
        return not self.is_headless and getattr(self._driver, "has_terminal", True)
