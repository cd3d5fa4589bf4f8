"""Edit what a conversation is asked with: the sampling parameters, and the system prompt with the library of saved
ones.

An empty field leaves the server's default alone, and parameters never touch the prefix. The price of another system
prompt is shown next to the text, and nothing is changed before it is applied.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct
from msgspec.structs import replace
from textual import on
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Label, Static, TextArea

from kvchat.cache import Price
from kvchat.chat.errors import ChatError
from kvchat.config.option import OptionKind, Spec, UnfitError, from_text, json_table
from kvchat.config.settings import PARAMETERS
from kvchat.config.toml import TomlUnreadableError, parsed
from kvchat.prompt.conversation import SavedPrompt
from kvchat.prompt.message import DEFAULT_INSTRUCTIONS
from kvchat.prompt.request import Parameters
from kvchat.sanitize import clean, one_line
from kvchat.text.options import reserved_words
from kvchat.text.prices import FREE, change_price
from kvchat.ui.bindings import bindings
from kvchat.ui.screens.long_text import LongText
from kvchat.ui.screens.modal import Modal
from kvchat.ui.screens.rows import FilterLine, RowList
from kvchat.ui.screens.tones import BAD, MUTED, STRONG, content, shown

if TYPE_CHECKING:
    from kvchat.chat.conversations.drafts import Drafts
    from kvchat.chat.conversations.personas import Personas


def parsed_number(spec: Spec, text: str) -> float | int | None:
    """The value of a field that `text` says, within the bounds that the setting has; None for an empty one. Raises
    ValueError with a sentence."""
    text = text.strip()
    if not text:
        return None
    try:
        value = from_text(spec, text.replace(",", ".") if spec.kind is OptionKind.NUMBER else text)
    except UnfitError:
        raise ValueError(f"{spec.kind.value.capitalize()} from {spec.low:g} to {spec.high:,.10g}.") from None
    assert isinstance(value, int | float)
    return value


NUMBERS = {
    "temperature": ("temperature", "0 = predictable, 1 = creative"),
    "top_p": ("top p", "tokens that make up this share: 0.95"),
    "top_k": ("top k", "only the best so many tokens: 40"),
    "min_p": ("min p", "drop tokens below this share of the best"),
    "max_tokens": ("max tokens", "longest answer, in tokens"),
    "seed": ("seed", "same seed, same answer"),
    "presence_penalty": ("presence penalty", "discourages any repeat"),
    "frequency_penalty": ("frequency penalty", "discourages frequent repeats"),
    "repeat_penalty": ("repeat penalty", "discourages repetition; 1 = off"),
}
"""Parameters that are numbers: what each is called, and what it does, in few words."""
STOP_DOES = "texts that end an answer, | between"
FORMAT_DOES = 'text, json, or {"type": …}'
EXTRA_DOES = 'sent as they are: mirostat = 2, or {"mirostat": 2}'
FORMATS = {"text": {"type": "text"}, "json": {"type": "json_object"}}


def parsed_stop(text: str) -> tuple[str, ...]:
    r"""The stop texts, separated by |; \n is a newline, \| a bar, \\ a backslash."""
    found, current, escaped = [], "", False
    for char in text:
        if escaped:
            current += {"n": "\n", "t": "\t"}.get(char, char)
            escaped = False
        elif char == "\\":
            escaped = True
        elif char == "|":
            found.append(current)
            current = ""
        else:
            current += char
    return tuple(part for part in [*found, current + "\\" * escaped] if part)


def written_stop(stop: Iterable[str]) -> str:
    """Stop texts as `parsed_stop` reads them."""
    escapes = {"\\": "\\\\", "|": "\\|", "\n": "\\n", "\t": "\\t"}
    return "|".join("".join(escapes.get(char, char) for char in text) for text in stop)


def parsed_table(text: str) -> dict[str, object]:
    """The fields that one line of TOML or JSON says. Raises ValueError with a sentence."""
    text = text.strip()
    try:
        table = json.loads(text) if text.startswith("{") else None
    except (ValueError, RecursionError):
        table = None
    try:
        return json_table(table if table is not None else _toml_table(text))
    except TomlUnreadableError:
        raise ValueError('Fields are written as name = value, or as JSON: {"name": value}.') from None
    except UnfitError as unfit:
        raise ValueError(f"The fields {unfit}.") from None


def _toml_table(text: str) -> dict[object, object]:
    line = text if text.startswith("{") else f"{{{text}}}"
    found = parsed(f"table = {line}")["table"]
    return found if isinstance(found, dict) else {}


def parsed_extra(text: str) -> dict[str, object]:
    """The further fields that a line says. Raises ValueError with a sentence."""
    extra = parsed_table(text)
    for name in extra:
        if why := reserved_words(name):
            raise ValueError(f"{one_line(name, 30)} {why}.")
    return extra


def parsed_format(text: str) -> Mapping[str, object] | None:
    """The response format that a word or a table says; None for nothing. Raises ValueError with a sentence."""
    text = text.strip()
    if text.startswith("{"):
        return parsed_table(text) or None
    if text and text.lower() not in FORMATS:
        raise ValueError('text, json, or a table {"type": …}.')
    return FORMATS.get(text.lower())


def written_table(table: Mapping[str, object] | None) -> str:
    """A table as `parsed_table` reads it."""
    return json.dumps(dict(table), ensure_ascii=False) if table else ""


def written_format(table: Mapping[str, object] | None) -> str:
    """A response format as `parsed_format` reads it."""
    return next((word for word, known in FORMATS.items() if known == table), written_table(table))


def _written_number(value: float | None) -> str:
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


class Row(Struct, frozen=True):
    """A line of the screen."""

    name: str
    label: str
    does: str
    parsed: Callable[[str], Any]
    """The value of a text. Raises ValueError with a sentence."""
    written: Callable[[Any], str]


ROWS = (
    *(
        Row(name, label, does, partial(parsed_number, PARAMETERS[name]), _written_number)
        for name, (label, does) in NUMBERS.items()
    ),
    Row("stop", "stop", STOP_DOES, parsed_stop, written_stop),
    Row("response_format", "response format", FORMAT_DOES, parsed_format, written_format),
    Row("extra", "more fields", EXTRA_DOES, parsed_extra, written_table),
)


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
        self._shown = {row.name: one_line(row.written(getattr(parameters, row.name))) for row in ROWS}

    def body(self) -> Iterable[Widget]:
        yield Static(content((f"Empty: the server's default. {FREE}", MUTED)), classes="words")
        with VerticalScroll(can_focus=False):
            for row in ROWS:
                yield self._line(row, self._shown[row.name])

    @staticmethod
    def _line(row: Row, value: str) -> Horizontal:
        label = Label(Content(row.label))
        field = Input(value, placeholder="default", id=row.name, select_on_focus=False)
        says = Static(content((row.does, MUTED)), id=f"{row.name}-says", classes="says")
        if row.name != "extra":
            return Horizontal(label, field, says, classes="field")
        return Horizontal(label, Vertical(field, says), classes="field wide")

    def on_mount(self) -> None:
        self.query_one("#temperature", Input).focus()

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        with suppress(ValueError):
            self._value(next(row for row in ROWS if row.name == event.input.id))

    def _value(self, row: Row) -> object:
        """The value of a line; the error of a wrong one is shown next to it. An untouched value stays as it was, to the
        last digit. Raises ValueError."""
        says = self.query_one(f"#{row.name}-says", Static)
        text = self.query_one(f"#{row.name}", Input).value
        try:
            value = getattr(self._parameters, row.name) if text == self._shown[row.name] else row.parsed(text)
        except ValueError as error:
            says.update(content((str(error), BAD)))
            raise
        says.update(content((row.does, MUTED)))
        return value

    @on(Input.Submitted)
    def _entered(self) -> None:
        self.action_apply()

    def action_apply(self) -> None:
        values: dict[str, Any] = {}
        for row in ROWS:
            try:
                values[row.name] = self._value(row)
            except ValueError:
                self.query_one(f"#{row.name}", Input).focus()
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
        changed, told = self._field.is_changed, self._field.told
        price = change_price(self._price if changed else None)
        words = content((f"{told}\n" if told else "", MUTED), (price, "" if changed else MUTED))
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
