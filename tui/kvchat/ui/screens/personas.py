"""Choosing the persona that a new conversation begins with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from textual import on
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Static

from kvchat.config.personas import Persona
from kvchat.sanitize import one_line
from kvchat.ui.screens.modal import ListModal
from kvchat.ui.screens.rows import FilterLine, RowList, highlighted, kept
from kvchat.ui.screens.tones import MUTED, content, joined, shown


class PersonaScreen(ListModal[str]):
    """The personas by name, the one under the cursor in full below. Result: its name."""

    DEFAULT_CSS = "PersonaScreen #whole { height: auto; max-height: 6; margin: 1 0 0 2; }"

    def __init__(self, personas: Sequence[Persona], folder: str) -> None:
        super().__init__(classes="-list")
        self.heading = "New conversation with a persona"
        self.hints = (("rows.choose", "begin"), ("type", "to find"), ("dialog.close", "close"))
        self._personas = personas
        self._folder = folder
        self._query = ""
        self._kept: list[int] = []

    def body(self) -> Iterable[Widget]:
        yield FilterLine("find a persona")
        yield RowList(self._draw, empty="No persona has these words." if self._personas else "No personas yet.")
        yield Static(classes="words", id="whole")

    def on_mount(self) -> None:
        self.query_one(Input).focus()
        self._find()

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        if event.value != self._query:
            self._query = event.value
            self._find()

    def _find(self) -> None:
        texts = [f"{one.name} {one.about} {one.system_prompt}".casefold() for one in self._personas]
        self._kept = kept(texts, self._query)
        self.rows.show(len(self._kept))

    def _draw(self, index: int, width: int) -> Content:
        one = self._personas[self._kept[index]]
        about = one.about or one.system_prompt or one.first_message
        name = highlighted(content(shown(one.name, 40)), self._query)
        return joined(name, content((shown(about, max(10, width - name.cell_length - 4)), MUTED)), width)

    @on(RowList.Moved)
    def _tell(self) -> None:
        whole = self.query_one("#whole", Static)
        if not self._personas:
            whole.update(content((
                f"A persona is a TOML file in {one_line(self._folder)}: system_prompt, profile, model, first_message, "
                "[parameters]. A system prompt that is saved in the library is one too.", MUTED)))
        elif self.rows.cursor is not None and self.rows.cursor < len(self._kept):
            one = self._personas[self._kept[self.rows.cursor]]
            where = " · ".join(filter(None, (one.profile, one.model)))
            whole.update(content(shown(one.system_prompt, 400), (f"  {where}" if where else "", MUTED)))
        else:
            whole.update("")

    def choose(self, index: int) -> None:
        self.finish(self._personas[self._kept[index]].name)
