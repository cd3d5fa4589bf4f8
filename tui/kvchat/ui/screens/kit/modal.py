"""What all modal screens share: one frame, the title in its top edge, the keys in its bottom edge, escape closes. It is
on a sheet as wide as the terminal, so that each row behind it is hidden or whole.

A modal answers once. Whatever is pressed or clicked after that is too late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, TypeVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Input

from kvchat.commands.actions import BY_ID
from kvchat.sanitize import one_line
from kvchat.ui.bindings import bindings, users_keys
from kvchat.ui.screens.kit.rows import RowList
from kvchat.ui.screens.kit.tones import TONE_CLASSES, TONE_CSS

if TYPE_CHECKING:
    from kvchat.chat.events import EventBus, Listener, ServiceEvent

T = TypeVar("T")
Hint = tuple[str, str]
"""An action of the table, or several (`rows.up rows.down`), and what it does in a word. What is no action is shown as
it is: `type`."""


class Modal(ModalScreen[T | None]):
    """A framed modal screen. Subclasses compose their `body` and call `finish` with the result."""

    DEFAULT_CSS = (
        """
    Modal {
        align: center middle; overflow: hidden;
        & > #sheet { height: auto; max-height: 96%; align: center middle; background: $background; }
        &.-list > #sheet { height: 100%; max-height: 100%; }
        & #frame {
            width: 96%; max-width: 96; height: auto; max-height: 100%;
            background: $surface; padding: 1 2; border: round $foreground 35%;
            border-title-color: $foreground; border-title-style: bold;
            border-subtitle-color: $foreground 60%; border-subtitle-align: left;
        }
        &.-list #frame { height: 92%; max-height: 40; }
        &.-wide #frame { max-width: 128; max-height: 46; }
        &.-small #frame { max-width: 76; }
        &.-narrow #frame { width: 100%; max-width: 100%; }
        &.-narrow.-list #frame { height: 100%; max-height: 100%; }
        & Toast { display: none; }
        & .words { width: 1fr; height: auto; background: transparent; }
        & RowList, & VerticalScroll {
            scrollbar-size-vertical: 1; scrollbar-color: $foreground 20%; scrollbar-color-hover: $foreground 35%;
            scrollbar-color-active: $foreground 45%; scrollbar-background: $surface;
            scrollbar-background-hover: $surface; scrollbar-background-active: $surface;
        }
        & Input {
            border: none; padding: 0; height: 1; background: transparent;
            &:focus { border: none; background-tint: transparent; }
        }
        & .line {
            height: 2; border-bottom: solid $foreground 20%;
            & Label { width: auto; color: $accent; }
        }
        &:ansi > #sheet { background: ansi_default; }
        &:ansi #frame { background: ansi_default; border: round ansi_bright_black; border-title-color: ansi_default;
                          border-subtitle-color: ansi_default; }
        &:ansi .line { border-bottom: solid ansi_bright_black; & Label { color: ansi_cyan; } }
    """
        + TONE_CSS
        + "}"
    )
    COMPONENT_CLASSES: ClassVar[set[str]] = set(TONE_CLASSES)
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("dialog")]
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (90, "-broad")]  # noqa: RUF012  Screen's own is no ClassVar

    heading: str = ""
    hints: Sequence[Hint] = (("dialog.close", "close"),)
    _deafen: Callable[[], None] | None = None

    @property
    def is_up(self) -> bool:
        """Whether it was not dismissed yet. A dismissed one exists for a moment longer, while its widgets go one after
        the other."""
        return self in self.app.screen_stack

    def hear(self, events: EventBus, listener: Listener) -> None:
        """Have `listener` called with what the service tells while the modal is up."""

        def heard(event: ServiceEvent) -> None:
            if self.is_up:
                listener(event)

        self._deafen = events.subscribe(heard)

    def on_unmount(self) -> None:
        if self._deafen is not None:
            self._deafen()

    def compose(self) -> ComposeResult:
        with Vertical(id="sheet"), Vertical(id="frame") as frame:
            frame.border_title = Content(one_line(self.heading, 80))
            frame.border_subtitle = self.hint_line(self.hints)
            yield from self.body()

    def body(self) -> Iterable[Widget]:
        """The widgets inside the frame."""
        return ()

    def key(self, id: str) -> str:
        """The first key of an action, as a sentence names it."""
        return users_keys(self.app).key_of(id)

    def hint_line(self, hints: Iterable[Hint]) -> Content:
        """Some keys, each with what it does."""
        bound = users_keys(self.app)

        def shown(what: str) -> str:
            return "".join(bound.hint(id) if id in BY_ID else id for id in what.split())

        return Content.assemble(
            *(
                Content.assemble("  " if index else "", (shown(what), "bold"), f" {word}")
                for index, (what, word) in enumerate(hints)
            )
        )

    def show_hints(self, hints: Sequence[Hint], *, fits: bool = False) -> None:
        """Have these keys stand in the bottom edge. `fits`: those in the middle give way when there is no room."""
        frame, kept = self.query_one("#frame"), [*hints]
        while fits and len(kept) > 2 and self.hint_line(kept).cell_length > frame.size.width - 4:
            del kept[-3]
        frame.border_subtitle = self.hint_line(kept)

    def finish(self, result: T | None) -> None:
        """Close with this result. Only the first call counts. What still looks something up for the modal ends here,
        and what was opened over it, as the palette, is left unanswered.
        """
        if self.is_up:
            while isinstance(above := self.app.screen, Modal) and above is not self:
                above.finish(None)
            self.workers.cancel_node(self)
            self.dismiss(result)

    def action_close(self) -> None:
        self.finish(None)


class ListModal(Modal[T]):
    """A modal around one `RowList`, whose cursor moves with the arrow keys wherever the focus is."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("rows")]

    @property
    def rows(self) -> RowList:
        return self.query_one(RowList)

    def choose(self, index: int) -> None:
        """The user chose the row with this index."""

    def action_move(self, step: int) -> None:
        self.rows.move(step)

    def action_page(self, direction: int) -> None:
        self.rows.page(direction)

    def action_choose(self) -> None:
        if self.rows.cursor is not None:
            self.choose(self.rows.cursor)

    @on(RowList.Chosen)
    def _clicked(self, event: RowList.Chosen) -> None:
        if event.index == event.rows.cursor:  # the list may have become another one since
            self.choose(event.index)

    @on(Input.Submitted)
    def _entered(self) -> None:
        self.action_choose()
