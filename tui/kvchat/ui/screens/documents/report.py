"""The report of a collection: every file that is not indexed, with its reason, and what the last indexing did.

Every skipped file is listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from kvchat.documents.collection import Collection, CollectionStatus, IndexingReport, Skipped
from kvchat.sanitize import one_line
from kvchat.text.format import counted, home_path, size
from kvchat.ui.runs import ending
from kvchat.ui.screens.documents.rows import changes_words, other_kinds
from kvchat.ui.screens.kit import BAD, MUTED, FilterList, content, highlighted, joined, kept


class ReportScreen(FilterList[Skipped, None]):
    """The files that were skipped, narrowed by what is typed."""

    DEFAULT_CSS = "ReportScreen #about { margin-bottom: 1; }"
    hints = (("rows.up rows.down", "move"), ("dialog.close", "close"))

    def __init__(self, collection: Collection, status: CollectionStatus | None, report: IndexingReport | None) -> None:
        super().__init__("-list -wide")
        self.heading = f"{collection.name}: report"
        self._collection = collection
        self._status = status
        self._report = report
        skipped = status.skipped if status is not None and status.skipped else report.skipped if report else ()
        self._kinds, files = other_kinds(skipped)
        self._skipped: Sequence[Skipped] = sorted(files, key=lambda one: (one.reason, one.path))
        self._texts = [f"{one.path} {one.reason}".casefold() for one in self._skipped]
        self.placeholder = "words of a path or a reason" if files else ""
        self.empty = "No skipped file has these words." if files else "No file was skipped."

    def body(self) -> Iterable[Widget]:
        yield Static(Content("\n").join(self._about()), classes="words", id="about")
        yield from super().body()

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

    def find(self, query: str) -> Iterable[Skipped]:
        return (self._skipped[at] for at in kept(self._texts, query))

    def fill(self, under: Skipped | None = None, row: int = 0) -> None:
        super().fill(under, row)
        if self._skipped:
            many = len(self.shown)
            of = f"{many:,} of " if many != len(self._skipped) else ""
            self.query_one("#frame").border_title = Content(
                one_line(f"{self.heading} · {of}{counted(len(self._skipped), 'skipped file')}", 120)
            )

    def draw(self, row: Skipped, width: int) -> Content:
        reason = content((one_line(row.reason, max(10, width // 2)), MUTED))
        path = content(ending(one_line(row.path), max(4, width - reason.cell_length - 2)))
        return joined(highlighted(path, self.query_text), highlighted(reason, self.query_text), width)
