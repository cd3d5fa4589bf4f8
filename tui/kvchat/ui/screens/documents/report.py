"""The report of a collection: every file that is not indexed, with its reason, and what the last indexing did.

Every skipped file is listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from textual import on
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Static

from kvchat.documents.collection import Collection, CollectionStatus, IndexingReport, Skipped
from kvchat.sanitize import one_line
from kvchat.text.format import counted, size
from kvchat.ui.render.sources import ending
from kvchat.ui.screens.documents.rows import changes_words, other_kinds
from kvchat.ui.screens.modal import ListModal
from kvchat.ui.screens.rows import FilterLine, RowList, highlighted, kept
from kvchat.ui.screens.tones import BAD, MUTED, content, home_path, joined


class ReportScreen(ListModal[None]):
    """The files that were skipped, narrowed by what is typed."""

    DEFAULT_CSS = "ReportScreen #about { margin-bottom: 1; }"

    def __init__(self, collection: Collection, status: CollectionStatus | None, report: IndexingReport | None) -> None:
        super().__init__(classes="-list -wide")
        self.heading = f"{collection.name}: report"
        self.hints = (("rows.up rows.down", "move"), ("dialog.close", "close"))
        self._collection = collection
        self._status = status
        self._report = report
        skipped = status.skipped if status is not None and status.skipped else report.skipped if report else ()
        self._kinds, files = other_kinds(skipped)
        self._skipped: Sequence[Skipped] = sorted(files, key=lambda one: (one.reason, one.path))
        self._texts = [f"{one.path} {one.reason}".casefold() for one in self._skipped]
        self._shown = list(range(len(self._skipped)))
        self._query = ""

    def body(self) -> Iterable[Widget]:
        yield Static(Content("\n").join(self._about()), classes="words", id="about")
        if self._skipped:
            yield FilterLine("words of a path or a reason")
        yield RowList(self._draw)

    def on_mount(self) -> None:
        self.rows.empty = "No file was skipped." if not self._skipped else "No skipped file has these words."
        self.rows.show(len(self._shown))
        self._title()

    def _about(self) -> list[Content]:
        lines = [content((home_path(self._collection.root), MUTED))]
        if (status := self._status) is not None:
            lines.append(
                content(f"{counted(status.files, 'file')}, {counted(status.chunks, 'chunk')}, {size(status.bytes)}.")
            )
        if self._report is not None:
            lines.append(content((f"Last time: {changes_words(self._report)}.", MUTED)))
        if self._kinds is not None:
            lines.append(
                content(
                    (one_line(f"{counted(self._kinds.files, 'file')} of other kinds: {self._kinds.named}.", 400), MUTED)
                )
            )
        trouble = (self._status.trouble if self._status else "") or (self._report.trouble if self._report else "")
        if trouble:
            lines.append(content((one_line(trouble, 300), BAD)))
        return lines

    def _title(self) -> None:
        if self._skipped:
            many = len(self._shown)
            of = f"{many:,} of " if many != len(self._skipped) else ""
            self.query_one("#frame").border_title = Content(
                one_line(f"{self.heading} · {of}{counted(len(self._skipped), 'skipped file')}", 120)
            )

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        self._query = event.value
        self._shown = kept(self._texts, self._query)
        self.rows.show(len(self._shown))
        self._title()

    def _draw(self, index: int, width: int) -> Content:
        one = self._skipped[self._shown[index]]
        reason = content((one_line(one.reason, max(10, width // 2)), MUTED))
        path = content(ending(one_line(one.path), max(4, width - reason.cell_length - 2)))
        return joined(highlighted(path, self._query), highlighted(reason, self._query), width)
