"""Choose what a new conversation begins with: a persona or a trunk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from textual.content import Content

from kvchat.config.personas import Persona
from kvchat.documents.trunks import Trunk
from kvchat.sanitize import one_line
from kvchat.text.format import counted, day_time
from kvchat.ui.runs import shown
from kvchat.ui.screens.kit import MUTED, FilterList, content, highlighted, joined, kept


class Beginning(NamedTuple):
    """One of what can be chosen."""

    name: str
    about: str
    """The text next to its name."""
    whole: Content
    """The text below the list while the cursor is on it."""
    words: str
    """In these it is found."""


class BeginningScreen(FilterList[Beginning, str]):
    """Beginnings by name, the one under the cursor in full below. Result: its name."""

    DEFAULT_CSS = "BeginningScreen #detail { height: auto; max-height: 6; margin: 1 0 0 2; }"
    has_detail = True

    def __init__(self, noun: str, beginnings: Sequence[Beginning], how: str) -> None:
        """`noun`: what they are, `persona`. `how`: how one is made, shown where there is none."""
        super().__init__("-list")
        self.heading = f"New conversation with a {noun}"
        self.hints = (("rows.choose", "begin"), ("type", "to find"), ("dialog.close", "close"))
        self.placeholder = f"find a {noun}"
        self.empty = f"No {noun} has these words." if beginnings else f"No {noun}s yet."
        self._beginnings = beginnings
        self._how = how
        self._texts = [one.words.casefold() for one in beginnings]

    def find(self, query: str) -> Iterable[Beginning]:
        return (self._beginnings[at] for at in kept(self._texts, query))

    def draw(self, row: Beginning, width: int) -> Content:
        name = highlighted(content(shown(row.name, 40)), self.query_text)
        return joined(name, content((shown(row.about, max(10, width - name.cell_length - 4)), MUTED)), width)

    def detail(self, row: Beginning | None) -> Content:
        return row.whole if row is not None else content(("" if self._beginnings else self._how, MUTED))

    def result(self, row: Beginning) -> str:
        return row.name


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
