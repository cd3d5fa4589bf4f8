"""The system prompt of a conversation, and the library of saved ones.

The rule: the price of a change stands beside the text as long as there is one, and nothing is changed before it is
applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, Protocol

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Label, Static, TextArea

from kvchat.cache.accounting import NOISE
from kvchat.cache.price import Price
from kvchat.prompt.conversation import SavedPrompt
from kvchat.prompt.message import DEFAULT_INSTRUCTIONS
from kvchat.sanitize import clean, one_line
from kvchat.text.format import about, counted
from kvchat.ui.screens.filtering import FilterLine
from kvchat.ui.screens.modal import Modal
from kvchat.ui.screens.rows import RowList
from kvchat.ui.screens.tones import AVOIDABLE, BAD, MUTED, STRONG, content, shown


class Library(Protocol):
    """Where saved prompts live: `Options`."""

    def prompts(self) -> Sequence[SavedPrompt]: ...
    async def save_prompt(self, prompt: SavedPrompt) -> None: ...
    async def delete_prompt(self, name: str) -> None: ...


def change_price(price: Price) -> str:
    """What changing the system prompt costs, in a line."""
    if price.tokens is None:
        return "░ re-reads the whole conversation, how much is unknown; the old branch stays"
    if price.tokens <= NOISE:
        return "free: nothing has been read yet"
    time = about(price.seconds)
    return f"░ re-reads {counted(price.tokens, 'token')}{', ' + time if time else ''}; the old branch stays"


class PromptList(RowList, can_focus=True):
    """The saved prompts, with keys of their own when they have the focus."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "step(-1)", "Up", show=False),
        Binding("down", "step(1)", "Down", show=False),
    ]
    DEFAULT_CSS = """
    PromptList { & > .row-list--cursor { background: transparent; text-style: none; } }
    PromptList:focus > .row-list--cursor { background: $foreground 10%; text-style: bold; }
    """

    def action_step(self, step: int) -> None:
        self.move(step)


class SystemPromptScreen(Modal[str]):
    """Edits the instructions. Result: the new text, None when nothing was changed."""

    DEFAULT_CSS = """
    SystemPromptScreen > #frame { height: 88%; max-height: 34; max-width: 112; }
    SystemPromptScreen {
        & #both { height: 1fr; }
        & TextArea {
            border: none; padding: 0; background: transparent; width: 1fr;
            & .text-area--cursor-line { background: transparent; }
            &:focus { border: none; }
        }
        & #library { width: 30; margin-left: 2; padding-left: 1; border-left: solid $foreground 20%; }
        & #library .head { height: 1; }
        & FilterLine { border: none; height: 1; }
        & #price { margin-top: 1; }
        &:ansi #library { border-left: solid ansi_bright_black; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "apply", "Apply", show=False, priority=True),
        Binding("enter", "load", "Load", show=False),
        Binding("delete", "delete", "Delete", show=False),
    ]

    def __init__(self, instructions: str, price: Price, library: Library) -> None:
        super().__init__()
        self.heading = "System prompt"
        self.hints = (("^S", "apply"), ("tab", "library"), ("enter", "load"), ("del", "delete"), ("esc", "cancel"))
        self._before = clean(instructions)
        self._price = price
        self._library = library
        self._prompts: list[SavedPrompt] = []

    def body(self) -> Iterable[Widget]:
        with Horizontal(id="both"):
            yield TextArea(self._before, compact=True, placeholder=f"Empty: “{DEFAULT_INSTRUCTIONS}”")
            with Vertical(id="library"):
                yield Label(content(("Library", STRONG)), classes="head")
                yield PromptList(self._draw, empty="nothing saved yet")
                yield FilterLine("save as …")
        yield Static(classes="words", id="price")

    def on_mount(self) -> None:
        self._list()
        self._say_price()
        text = self.query_one(TextArea)
        text.focus()
        text.move_cursor(text.document.end)

    def _list(self) -> None:
        self._prompts = sorted(self._library.prompts(), key=lambda prompt: prompt.name.casefold())
        rows = self.query_one(PromptList)
        rows.show(len(self._prompts), cursor=rows.cursor or 0)

    def _draw(self, index: int, width: int) -> Content:
        return content(shown(self._prompts[index].name, width))

    @on(TextArea.Changed)
    def _say_price(self) -> None:
        line = self.query_one("#price", Static)
        if self._text() == self._before.strip():
            line.update(content(("Unchanged: nothing is read again.", MUTED)))
        else:
            price = change_price(self._price)
            line.update(content((price[0], AVOIDABLE), price[1:]) if price.startswith("░") else content(price))

    def _text(self) -> str:
        return self.query_one(TextArea).text.strip()

    # The library.

    @on(RowList.Chosen)
    def _clicked(self) -> None:
        self.action_load()

    def action_load(self) -> None:
        """Put the saved prompt under the cursor into the text; undo brings the text back."""
        rows = self.query_one(PromptList)
        if rows.cursor is not None:
            text = self.query_one(TextArea)
            text.replace(clean(self._prompts[rows.cursor].text), (0, 0), text.document.end)
            text.focus()

    async def action_delete(self) -> None:
        rows = self.query_one(PromptList)
        if rows.has_focus and rows.cursor is not None:
            await self._library.delete_prompt(self._prompts[rows.cursor].name)
            self._list()

    @on(Input.Submitted)
    async def _save(self, event: Input.Submitted) -> None:
        name = one_line(event.value, 60)
        line = self.query_one("#price", Static)
        if not name or not self._text():
            line.update(content((
                "Write the name to save it under." if not name else "There is no text to save.", BAD)))
            return
        await self._library.save_prompt(SavedPrompt(name, self._text()))
        event.input.value = ""
        self._list()
        line.update(content(f"Saved as “{name}”."))

    def action_apply(self) -> None:
        text = self._text()
        self.finish(text if text != self._before.strip() else None)
