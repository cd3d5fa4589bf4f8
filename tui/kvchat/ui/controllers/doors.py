"""What the controllers ask of the app and of the main screen, beyond what every Textual app has: they know nothing
else of these two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from textual.app import App
    from textual.containers import Horizontal, Vertical
    from textual.geometry import Size
    from textual.timer import Timer
    from textual.widget import Widget
    from textual.widgets import Static
    from textual.worker import Worker

    from kvchat.config.layers import Layers
    from kvchat.paths import Paths
    from kvchat.ui.bindings import UserKeys
    from kvchat.ui.key_queue import KeyQueue
    from kvchat.ui.terminal import Desktop
    from kvchat.ui.themes import Themes
    from kvchat.ui.widgets.composer.widget import Composer
    from kvchat.ui.widgets.findbar import FindBar
    from kvchat.ui.widgets.question_line import QuestionLine
    from kvchat.ui.widgets.queue_lines import QueueLines
    from kvchat.ui.widgets.sidebar import Sidebar
    from kvchat.ui.widgets.statusline import Header, StatusLine
    from kvchat.ui.widgets.transcript import Transcript


class Host(Protocol):
    """The app."""

    paths: Paths
    has_begun: bool
    """Whether the service is opened."""
    keys: UserKeys
    key_queue: KeyQueue
    desktop: Desktop
    themes: Themes

    @property
    def has_terminal(self) -> bool:
        """Whether there is a terminal, and it is the app's just now."""

    def layers(self) -> Layers:
        """The settings as they are now, with where they come from. Raises ConfigError."""

    def tell_terminal(self, sequence: str) -> None:
        """Write a control sequence, which must be clean, while the terminal is the app's."""


class MainScreen(Protocol):
    """The main screen: its widgets, and where workers and timers run."""

    header: Header
    sidebar: Sidebar
    transcript: Transcript
    composer: Composer
    queue_lines: QueueLines
    question_line: QuestionLine
    findbar: FindBar
    status: StatusLine
    hello: Static
    """What an empty conversation has in place of the transcript."""
    conversation_column: Vertical
    """All of the conversation."""
    columns: Horizontal
    """The list and the conversation, side by side."""

    @property
    def app(self) -> App[Any]: ...
    @property
    def size(self) -> Size: ...
    @property
    def focused(self) -> Widget | None: ...
    @property
    def is_mounted(self) -> bool: ...
    @property
    def is_active(self) -> bool: ...

    def run_worker(
        self,
        work: Callable[[], Coroutine[Any, Any, None]],
        name: str | None = "",
        group: str = "default",
        *,
        exclusive: bool = False,
    ) -> Worker[None]: ...
    def set_timer(self, delay: float, callback: Callable[[], object]) -> Timer: ...
    def set_interval(self, interval: float, callback: Callable[[], object]) -> Timer: ...
    def set_focus(self, widget: Widget | None) -> None: ...
    def notify(
        self, message: str, *, severity: Literal["information", "warning", "error"], markup: bool, timeout: float
    ) -> None: ...

    def show_footer(self) -> None:
        """The keys of where the focus is."""

    def show_keys(self) -> None:
        """Show the user's own keys where keys are named."""

    def want_sidebar(self, wanted: bool) -> None:
        """Show the list next to the conversation where there is room, or hide it."""
