"""Choose what a new conversation begins with: a persona or a trunk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from textual import on
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Static

from kvchat.config.personas import Persona
from kvchat.documents.trunks import Trunk
from kvchat.sanitize import one_line
from kvchat.text.format import counted, day_time
from kvchat.ui.screens.modal import ListModal
from kvchat.ui.screens.rows import FilterLine, RowList, highlighted, kept
from kvchat.ui.screens.tones import MUTED, content, joined, shown


class Beginning(NamedTuple):
    """One of what can be chosen."""

    name: str
    about: str
    """The text next to its name."""
    whole: Content
    """The text below the list while the cursor is on it."""
    words: str
    """In these it is found."""


class BeginningScreen(ListModal[str]):
    """Beginnings by name, the one under the cursor in full below. Result: its name."""

    DEFAULT_CSS = "BeginningScreen #whole { height: auto; max-height: 6; margin: 1 0 0 2; }"

    def __init__(self, noun: str, beginnings: Sequence[Beginning], how: str) -> None:
        """`noun`: what they are, `persona`. `how`: how one is made, shown where there is none."""
        super().__init__(classes="-list")
        self.heading = f"New conversation with a {noun}"
        self.hints = (("rows.choose", "begin"), ("type", "to find"), ("dialog.close", "close"))
        self._noun = noun
        self._beginnings = beginnings
        self._how = how
        self._texts = [one.words.casefold() for one in beginnings]
        self._query = ""
        self._kept: list[Beginning] = []

    def body(self) -> Iterable[Widget]:
        yield FilterLine(f"find a {self._noun}")
        yield RowList(
            self._draw, empty=f"No {self._noun} has these words." if self._beginnings else f"No {self._noun}s yet."
        )
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
        self._kept = [self._beginnings[index] for index in kept(self._texts, self._query)]
        self.rows.show(len(self._kept))

    def _draw(self, index: int, width: int) -> Content:
        one = self._kept[index]
        name = highlighted(content(shown(one.name, 40)), self._query)
        return joined(name, content((shown(one.about, max(10, width - name.cell_length - 4)), MUTED)), width)

    @on(RowList.Moved)
    def _tell(self) -> None:
        whole = self.query_one("#whole", Static)
        if not self._beginnings:
            whole.update(content((self._how, MUTED)))
        elif self.rows.cursor is not None and self.rows.cursor < len(self._kept):
            whole.update(self._kept[self.rows.cursor].whole)
        else:
            whole.update("")

    def choose(self, index: int) -> None:
        self.finish(self._kept[index].name)


def persona_screen(personas: Sequence[Persona], folder: str) -> BeginningScreen:
    """`folder`: where their files are."""
    return BeginningScreen(
        "persona",
        [_persona(one) for one in personas],
        (
            f"A persona is a TOML file in {one_line(folder)}: system_prompt, profile, model, first_message, "
            "[parameters]. A system prompt that is saved in the library is one too."
        ),
    )


def _persona(one: Persona) -> Beginning:
    where = " · ".join(filter(None, (one.profile, one.model)))
    return Beginning(
        one.name,
        one.about or one.system_prompt or one.first_message,
        content(shown(one.system_prompt, 400), (f"  {where}" if where else "", MUTED)),
        f"{one.name} {one.about} {one.system_prompt}",
    )


def trunk_screen(trunks: Sequence[Trunk]) -> BeginningScreen:
    return BeginningScreen(
        "trunk",
        [_trunk(one) for one in trunks],
        (
            "A trunk is a set of files that the server prefills once; conversations that begin with it are "
            "warm. To make one: /trunk add NAME PATH"
        ),
    )


def _trunk(one: Trunk) -> Beginning:
    files = ", ".join(one_line(block.source, 200) for block in one.files)
    return Beginning(
        one.name,
        f"{counted(len(one.files), 'file')}, {day_time(one.root.created)}",
        content((shown(files, 400), MUTED)),
        f"{one.name} {files}",
    )
