"""Edit what a conversation is asked with: the sampling parameters, and the system prompt with the library of saved
ones.

An empty field leaves the server's default alone, and parameters never touch the prefix. The price of another system
prompt is shown next to the text, and nothing is changed before it is applied.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec.structs import replace
from textual import on
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Label, Static, TextArea

from kvchat.cache import Price
from kvchat.chat.errors import ChatError
from kvchat.config.option import OptionKind, Spec, UnfitError, as_text, from_text, wrong_entries
from kvchat.config.settings import PARAMETERS
from kvchat.prompt.conversation import SavedPrompt
from kvchat.prompt.message import DEFAULT_INSTRUCTIONS
from kvchat.prompt.request import Parameters
from kvchat.sanitize import clean, one_line
from kvchat.text.prices import FREE, change_price
from kvchat.ui.bindings import bindings
from kvchat.ui.runs import shown
from kvchat.ui.screens.kit import BAD, MUTED, STRONG, FilterLine, LongText, Modal, RowList, content

if TYPE_CHECKING:
    from kvchat.chat.conversations.drafts import Drafts
    from kvchat.chat.conversations.personas import Personas


LABELS = {name: "more fields" if name == "extra" else name.replace("_", " ") for name in PARAMETERS}
"""What the form calls each parameter."""


def parsed(name: str, text: str) -> object:
    """The value of a parameter that a field says, where it is empty that of one that is not set. Raises UnfitError."""
    spec, text, none = PARAMETERS[name], text.strip(), getattr(Parameters(), name)
    if not text:
        return none
    value = from_text(spec, text.replace(",", ".") if spec.kind is OptionKind.NUMBER else text)
    if isinstance(value, dict) and (wrong := wrong_entries(spec, value)):
        entry, why = next(iter(wrong.items()))
        raise UnfitError(f"{one_line(entry, 30)} {why}")
    return value if value != {} else none


class ParametersScreen(Modal[Parameters]):
    """One line a parameter. Result: the new parameters, None when nothing was changed."""

    DEFAULT_CSS = """
    ParametersScreen VerticalScroll { height: auto; max-height: 100%; margin-top: 1; }
    ParametersScreen .field {
        height: 1;
        & Label { width: 18; }
        & Input { width: 14; background: $foreground 8%; padding: 0 1; &:focus { background: $foreground 16%; } }
        & .says { width: 1fr; height: 1; margin-left: 2; text-wrap: nowrap; text-overflow: ellipsis; }
        &:ansi Input { text-style: underline; background: ansi_default; }
        &.wide {
            height: auto;
            & Vertical { height: auto; }
            & Input { width: 1fr; }
            & .says { height: auto; max-height: 3; margin-left: 0; text-wrap: wrap; }
        }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("fields")]

    def __init__(self, parameters: Parameters) -> None:
        super().__init__()
        self.heading = "Sampling parameters"
        self.hints = (("fields.previous fields.next", "field"), ("fields.apply", "apply"), ("dialog.close", "cancel"))
        self._parameters = parameters
        self._shown = {name: one_line(as_text(spec, getattr(parameters, name))) for name, spec in PARAMETERS.items()}

    def body(self) -> Iterable[Widget]:
        yield Static(content((f"Empty: the server's default. {FREE}", MUTED)), classes="words")
        with VerticalScroll(can_focus=False):
            for name, spec in PARAMETERS.items():
                yield self._line(name, spec)

    def _line(self, name: str, spec: Spec) -> Horizontal:
        label = Label(Content(LABELS[name]))
        field = Input(self._shown[name], placeholder="default", id=name, select_on_focus=False)
        says = Static(content((spec.brief, MUTED)), id=f"{name}-says", classes="says")
        if name != "extra":
            return Horizontal(label, field, says, classes="field")
        return Horizontal(label, Vertical(field, says), classes="field wide")

    def on_mount(self) -> None:
        self.query_one("#temperature", Input).focus()

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        with suppress(UnfitError):
            self._value(event.input.id or "")

    def _value(self, name: str) -> object:
        """The value of a field; what is wrong with it is shown next to it. An untouched value stays as it was, to the
        last digit. Raises UnfitError."""
        says, text = self.query_one(f"#{name}-says", Static), self.query_one(f"#{name}", Input).value
        try:
            value = getattr(self._parameters, name) if text == self._shown[name] else parsed(name, text)
        except UnfitError as unfit:
            says.update(content((f"{unfit}.", BAD)))
            raise
        says.update(content((PARAMETERS[name].brief, MUTED)))
        return value

    @on(Input.Submitted)
    def _entered(self) -> None:
        self.action_apply()

    def action_apply(self) -> None:
        values: dict[str, Any] = {}
        for name in PARAMETERS:
            try:
                values[name] = self._value(name)
            except UnfitError:
                self.query_one(f"#{name}", Input).focus()
                return
        changed = replace(self._parameters, **values)
        self.finish(changed if changed != self._parameters else None)


class PromptList(RowList, can_focus=True):
    """The saved prompts, with keys of their own when they have the focus."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("rows")]
    DEFAULT_CSS = """
    PromptList { & > .row-list--cursor { background: transparent; text-style: none; } }
    PromptList:focus > .row-list--cursor { background: $foreground 10%; text-style: bold; }
    """

    def action_move(self, step: int) -> None:
        self.move(step)

    def action_page(self, direction: int) -> None:
        self.page(direction)

    def action_choose(self) -> None:
        if self.cursor is not None:
            self.post_message(self.Chosen(self, self.cursor))


class SystemPromptScreen(Modal[str]):
    """Edits the instructions. Result: the new text, None when nothing was changed."""

    DEFAULT_CSS = """
    SystemPromptScreen #frame { height: 88vh; max-height: 34; max-width: 112; }
    SystemPromptScreen {
        & #both { height: 1fr; }
        & LongText { width: 1fr; }
        & #library { width: 30; margin-left: 2; padding-left: 1; border-left: solid $foreground 20%; }
        & #library .head { height: 1; }
        & FilterLine { border: none; height: 1; }
        & #price { margin-top: 1; }
        &:ansi #library { border-left: solid ansi_bright_black; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("prompt")]

    def __init__(self, instructions: str, price: Price, library: Personas, drafts: Drafts, key: str) -> None:
        """`key`: under which `drafts` keep what is written."""
        super().__init__()
        self.heading = "System prompt"
        self.hints = (
            ("prompt.apply", "apply"),
            ("tab", "library"),
            ("rows.choose", "load"),
            ("prompt.delete", "delete"),
            ("dialog.close", "cancel"),
        )
        self._before = instructions
        self._field = LongText(drafts, placeholder=f"Empty: “{DEFAULT_INSTRUCTIONS}”")
        self._key = key
        self._price = price
        self._library = library
        self._prompts: list[SavedPrompt] = []

    def body(self) -> Iterable[Widget]:
        with Horizontal(id="both"):
            yield self._field
            with Vertical(id="library"):
                yield Label(content(("Library", STRONG)), classes="head")
                yield PromptList(self._draw, empty="nothing saved yet")
                yield FilterLine("save as …")
        yield Static(classes="words", id="price")

    def on_mount(self) -> None:
        self._list()
        self._field.begin(self._key, self._before)
        self._say_price()
        self._field.focus()

    def _list(self) -> None:
        self._prompts = sorted(self._library.prompts(), key=lambda prompt: prompt.name.casefold())
        rows = self.query_one(PromptList)
        rows.show(len(self._prompts), cursor=rows.cursor or 0)

    def _draw(self, index: int, width: int) -> Content:
        return content(shown(self._prompts[index].name, width))

    @on(TextArea.Changed)
    def _say_price(self) -> None:
        changed, notice = self._field.is_changed, self._field.notice
        price = change_price(self._price if changed else None)
        words = content((f"{notice}\n" if notice else "", MUTED), (price, "" if changed else MUTED))
        self.query_one("#price", Static).update(words)

    def _text(self) -> str:
        return self._field.text.strip()

    # The library.

    @on(RowList.Chosen)
    def _clicked(self) -> None:
        self.action_load()

    def action_load(self) -> None:
        """Put the saved prompt under the cursor into the text; undo brings the text back."""
        rows = self.query_one(PromptList)
        if rows.cursor is not None:
            self._field.replace(clean(self._prompts[rows.cursor].text), (0, 0), self._field.document.end)
            self._field.focus()

    async def action_delete(self) -> None:
        rows = self.query_one(PromptList)
        if rows.has_focus and rows.cursor is not None:
            try:
                await self._library.delete_prompt(self._prompts[rows.cursor].name)
            except ChatError as error:
                self.query_one("#price", Static).update(content((str(error), BAD)))
            self._list()

    @on(Input.Submitted)
    async def _save(self, event: Input.Submitted) -> None:
        name = one_line(event.value, 60)
        line = self.query_one("#price", Static)
        if not name or not self._text():
            line.update(content(("Write the name to save it under." if not name else "There is no text to save.", BAD)))
            return
        try:
            await self._library.save_prompt(SavedPrompt(name, self._text()))
        except ChatError as error:
            line.update(content((str(error), BAD)))
            return
        event.input.value = ""
        self._list()
        line.update(content(f"Saved as “{name}”."))

    def action_apply(self) -> None:
        self.finish(self._text() if self._field.is_changed else None)
