"""Every setting on one filtered list, and the one under the cursor in full below, where it is changed.

A change is saved when it is made, and its error is one sentence at the field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from kvchat.commands.keys import TYPING
from kvchat.commands.setting_rows import SettingRow, given_words
from kvchat.config import ConfigError
from kvchat.config.option import OptionKind
from kvchat.ui.bindings import bindings
from kvchat.ui.runs import shown
from kvchat.ui.screens.export import ChoiceLine
from kvchat.ui.screens.kit import (
    ACCENT,
    BAD,
    MUTED,
    STRONG,
    FilterInput,
    FilterList,
    Hint,
    LongText,
    content,
    highlighted,
    joined,
    kept,
)

if TYPE_CHECKING:
    from kvchat.chat.conversations.drafts import Drafts

LONG = (OptionKind.TEXT, OptionKind.TEXTS, OptionKind.TABLE)
"""What may be long, and is kept until it is saved."""
TYPED = "typed.setting "
"""In front of a setting's path: the key of what is written and not saved."""
Change = Callable[[SettingRow, str | None], None]
"""Saves a value as it is written, or the default (None). Raises ConfigError."""

LOOKING: Sequence[Hint] = (
    ("rows.choose", "change"),
    ("settings.reset", "default"),
    ("type", "to find"),
    ("dialog.close", "close"),
)
SWITCHING: Sequence[Hint] = (("rows.choose", "switch"), *LOOKING[1:])
WRITING: Sequence[Hint] = (("entry.save", "save"), ("entry.new_line", "new line"), ("dialog.close", "cancel"))
PRESSING: Sequence[Hint] = (("entry.save", "save"), ("type", "or press it"), ("dialog.close", "cancel"))
CHOOSING: Sequence[Hint] = (
    ("choice.previous choice.next", "choose"),
    ("entry.save", "save"),
    ("dialog.close", "cancel"),
)


class KeyField(LongText):
    """Where a value is written; the keys of an action by their names, or by pressing them."""

    takes_keys = False

    async def _on_key(self, event: events.Key) -> None:
        if not self.takes_keys or event.is_printable or event.key in (*TYPING, "escape"):
            return
        event.stop()
        event.prevent_default()
        before = self.text.rstrip()  # behind a comma it is one more key
        self.text = f"{before} {event.key}" if before.endswith(",") else event.key
        self.move_cursor(self.document.end)


class ValueField(Vertical):
    """Where a value is written, or chosen from a few words."""

    DEFAULT_CSS = """
    ValueField {
        display: none; height: auto; padding: 0 0 0 2;
        &.-open { display: block; }
        & > LongText {
            height: auto; max-height: 4; padding: 0 1; background: $foreground 10%;
        }
        &:ansi > LongText { background: ansi_default; text-style: underline; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("entry", priority=True)]

    def __init__(self, save: Callable[[str], None], drafts: Drafts) -> None:
        super().__init__()
        self._save = save
        self._field = KeyField(drafts)
        self._words: tuple[str, ...] = ()

    def compose(self) -> ComposeResult:
        yield self._field
        yield ChoiceLine([""])

    @property
    def is_open(self) -> bool:
        return self.has_class("-open")

    def open(self, row: SettingRow) -> None:
        """Have the value of this setting changed."""
        area, choice = self._field, self.query_one(ChoiceLine)
        self._words = row.words
        area.display, choice.display = not row.words, bool(row.words)
        self.add_class("-open")
        if row.words:
            at = row.words.index(row.text) if row.text in row.words else 0
            choice.offer([word or "(empty)" for word in row.words], at)
            choice.focus()
        else:
            area.takes_keys = row.kind is OptionKind.KEYS
            area.begin(TYPED + row.path if row.kind in LONG else "", row.text)
            area.focus()

    @property
    def notice(self) -> str:
        return self._field.notice

    def saved(self) -> None:
        """What was written is in the file."""
        self._field.saved()

    def close(self) -> None:
        self.remove_class("-open")
        self._field.end()

    def action_save(self) -> None:
        chosen = self.query_one(ChoiceLine).chosen
        self._save(self._words[chosen] if self._words else self._field.text)

    def action_new_line(self) -> None:
        if not self._words:
            self._field.insert("\n")


class SettingsScreen(FilterList[SettingRow, None]):
    """Shows the settings and has them changed."""

    DEFAULT_CSS = """
    SettingsScreen #detail { height: auto; max-height: 8; margin: 1 0 0 2; }
    SettingsScreen #said { height: auto; margin: 0 0 0 2; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("settings")]
    heading = "Settings"
    hints = LOOKING
    placeholder = "find a setting"
    empty = "No setting has these words."
    has_detail = True

    def __init__(self, rows: Callable[[], list[SettingRow]], change: Change, drafts: Drafts, query: str = "") -> None:
        super().__init__("-list", query=query)
        self._look, self._change, self._drafts = rows, change, drafts
        self._all = rows()
        self._said = ""
        """What was saved, to be said when the list is shown again."""

    def body(self) -> Iterable[Widget]:
        yield from super().body()
        yield ValueField(self._save, self._drafts)
        yield Static(classes="words", id="said")

    # -- the list

    def find(self, query: str) -> Iterable[SettingRow]:
        """What has the words: what is called so first."""
        words = query.casefold().split()
        texts = [f"{row.path} {row.about} {row.shown} {row.found_by}".casefold() for row in self._all]
        return sorted(
            (self._all[at] for at in kept(texts, query)),
            key=lambda row: (words != [row.path], not all(word in row.path.casefold() for word in words)),
        )

    def draw(self, row: SettingRow, width: int) -> Content:
        section, dot, name = row.path.rpartition(".") if row.kind is not OptionKind.KEYS else row.path.partition(".")
        label = Content.assemble(content((section + dot, MUTED)), content(name))
        tone = BAD if row.problem else ACCENT if row.given or row.is_set else MUTED
        return joined(highlighted(label, self.query_text), content((shown(row.shown, max(8, width // 2)), tone)), width)

    def detail(self, row: SettingRow | None) -> Content:
        if row is None:
            return content()
        origin = "" if row.origin == "default" else f" · {row.origin}"
        start = " · read when kvchat starts" if row.at_start else ""
        value = "" if len(row.shown) < self.rows.room // 2 else f"{shown(row.shown, 300)}\n"
        return content(
            (row.path, STRONG),
            "  ",
            row.about,
            "\n",
            value,
            (f"default: {shown(row.default, 60)}{origin}{start}", MUTED),
        )

    def cursor_moved(self, row: SettingRow | None) -> None:
        super().cursor_moved(row)
        self.query_one("#detail").display = row is not None
        self._say(self._said)
        self._said = ""
        if row is None:
            return
        if row.given:
            self._say(given_words(row))
        elif row.problem:
            self._say(row.problem, BAD)
        self._show_keys(row)

    def _say(self, words: str = "", tone: str = MUTED) -> None:
        said = self.query_one("#said", Static)
        said.display = bool(words)
        said.update(content((words, tone)))

    def _show_keys(self, row: SettingRow) -> None:
        field = self.query_one(ValueField)
        hints = SWITCHING if row.kind is OptionKind.FLAG else LOOKING
        writing = CHOOSING if row.words else PRESSING if row.kind is OptionKind.KEYS else WRITING
        self.show_hints(writing if field.is_open else hints, fits=True)

    # -- changing

    def action_move(self, step: int) -> None:
        if not self.query_one(ValueField).is_open:
            super().action_move(step)

    def action_page(self, direction: int) -> None:
        if not self.query_one(ValueField).is_open:
            super().action_page(direction)

    def choose(self, index: int) -> None:
        row = self.current
        if row is None:
            return
        if row.given:
            self._say(given_words(row), BAD)
        elif row.secret:
            self._say("Its values are not shown. They are changed in the file.", BAD)
        elif row.kind is OptionKind.FLAG:
            self._save("false" if row.text == "true" else "true")
        else:
            field = self.query_one(ValueField)
            field.open(row)
            self._say(field.notice)
            self._show_keys(row)

    def action_reset(self) -> None:
        row = self.current
        if row is None:
            return
        if row.given:
            self._say(given_words(row), BAD)
        elif row.is_set:
            self._save(None)
        else:
            self._say("It is at its default.")

    def _save(self, text: str | None) -> None:
        row = self.current
        if row is None:
            return
        try:
            self._change(row, text)
            self._all = self._look()
        except ConfigError as error:
            self._say(str(error), BAD)
            return
        self.query_one(ValueField).saved()
        self._leave_field()
        self.fill(row=self.rows.cursor or 0)
        self._said = "Saved; read when kvchat starts." if row.at_start else "Saved."

    def _leave_field(self) -> None:
        self.query_one(ValueField).close()
        self.query_one(FilterInput).focus()

    def action_close(self) -> None:
        """Out of the field, else out of the settings."""
        if self.query_one(ValueField).is_open:
            self._leave_field()
            self.cursor_moved(self.current)
        else:
            super().action_close()
