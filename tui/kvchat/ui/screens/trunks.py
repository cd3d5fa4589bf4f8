"""Choosing the trunk that a new conversation begins with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from textual import on
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Static

from kvchat.documents.trunks import Trunk
from kvchat.sanitize import one_line
from kvchat.text.format import counted, day_time
from kvchat.ui.screens.modal import ListModal
from kvchat.ui.screens.rows import FilterLine, RowList, highlighted, kept
from kvchat.ui.screens.tones import MUTED, content, joined, shown


class TrunkScreen(ListModal[str]):
    """The trunks by name, the files of the one under the cursor below. Result: its name."""

    DEFAULT_CSS = "TrunkScreen #files { height: auto; max-height: 6; margin: 1 0 0 2; }"

    def __init__(self, trunks: Sequence[Trunk]) -> None:
        super().__init__(classes="-list")
        self.heading = "New conversation with a trunk"
        self.hints = (("rows.choose", "begin"), ("type", "to find"), ("dialog.close", "close"))
        self._trunks = trunks
        self._query = ""
        self._kept: list[int] = []

    def body(self) -> Iterable[Widget]:
        yield FilterLine("find a trunk")
        yield RowList(self._draw, empty="No trunk has these words." if self._trunks else "No trunks yet.")
        yield Static(classes="words", id="files")

    def on_mount(self) -> None:
        self.query_one(Input).focus()
        self._find()

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        if event.value != self._query:
            self._query = event.value
            self._find()

    def _find(self) -> None:
        self._kept = kept([f"{one.name} {_files(one)}".casefold() for one in self._trunks], self._query)
        self.rows.show(len(self._kept))

    def _draw(self, index: int, width: int) -> Content:
        one = self._trunks[self._kept[index]]
        name = highlighted(content(shown(one.name, 40)), self._query)
        about = f"{counted(len(one.files), 'file')}, {day_time(one.created)}"
        return joined(name, content((shown(about, max(10, width - name.cell_length - 4)), MUTED)), width)

    @on(RowList.Moved)
    def _tell(self) -> None:
        files = self.query_one("#files", Static)
        if not self._trunks:
            files.update(content(("A trunk is a set of files that the server prefills once; conversations that begin "
                                  "with it are warm. To make one: /trunk add NAME PATH", MUTED)))
        elif self.rows.cursor is not None and self.rows.cursor < len(self._kept):
            files.update(content((shown(_files(self._trunks[self._kept[self.rows.cursor]]), 400), MUTED)))
        else:
            files.update("")

    def choose(self, index: int) -> None:
        self.finish(self._trunks[self._kept[index]].name)


def _files(trunk: Trunk) -> str:
    return ", ".join(one_line(block.source, 200) for block in trunk.files)
