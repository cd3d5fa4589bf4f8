"""A collection in words: its row, its progress and its sentences. Pure functions of what is known and the width.

Names and paths are data: they are cleaned here, shown as they are, and never read as markup.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from msgspec import Struct, field
from rich.cells import cell_len
from textual.content import Content

from kvchat.documents.collection import Collection, CollectionStatus, IndexingProgress, IndexingReport, Skipped
from kvchat.prompt.conversation import ALWAYS, ASK, OFF
from kvchat.sanitize import one_line
from kvchat.text.format import UNKNOWN, age, count, counted, duration, home_path, moment, percent, size
from kvchat.ui.runs import ending, shown
from kvchat.ui.screens.kit import ACCENT, BAD, MUTED, Part, content, joined

WIDE = 84
"""From this many cells on, a row shows the folder too."""
BAR = 8
_FIGURES = (("files", 8), ("chunks", 9), ("size", 8), ("indexed", 12))
_HERE = 6
"""Cells of the column of this conversation."""
_MARKS = {ASK: ("ask", ACCENT), ALWAYS: ("always", ACCENT)}

_OTHERS = re.compile(r"holds ([\d,]+) files? of other kinds: (.*)", re.DOTALL)
_BEGINNINGS = ("It", "Its", "The", "There", "No")


class RetrievalChoice(Struct, frozen=True):
    """What a conversation searches by itself."""

    mode: str = OFF
    collections: tuple[str, ...] = ()

    def of(self, name: str) -> str:
        """The mode of one collection."""
        return self.mode if name in self.collections else OFF

    def cycled(self, name: str) -> RetrievalChoice:
        """With the next mode for a collection: off, ask, always, off. There is one mode for all that are searched, so
        that one which joins others gets theirs."""
        others = self.without(name).collections
        match self.of(name):
            case "off":
                return RetrievalChoice(self.mode if others and self.mode != OFF else ASK, (*others, name))
            case "ask":
                return RetrievalChoice(ALWAYS, self.collections)
            case _:
                return self.without(name)

    def without(self, name: str) -> RetrievalChoice:
        """With a collection switched off."""
        others = tuple(one for one in self.collections if one != name)
        return RetrievalChoice(self.mode if others else OFF, others)


class DocumentRowData(Struct, frozen=True):
    """What the rows are drawn from."""

    now: datetime
    key: Callable[[str], str]
    """The key of an action, as a sentence names it."""
    statuses: Mapping[str, CollectionStatus] = field(default_factory=dict)
    indexing: Mapping[str, IndexingProgress] = field(default_factory=dict)
    reports: Mapping[str, IndexingReport] = field(default_factory=dict)
    choice: RetrievalChoice = field(default_factory=RetrievalChoice)
    has_conversation: bool = True
    longest: int = 20
    """Cells of the longest name."""


def welcome(key: Callable[[str], str]) -> Sequence[str]:
    """The text shown when there are no collections."""
    return (
        "No documents yet.",
        "",
        "Point kvchat at folders of notes, code, web pages and PDFs. It finds the passages that belong to a question, "
        "sends them along with it, and the answer says which of them it relies on.",
        "",
        "The files stay where they are and are never changed; only an index of them is kept on this disk, and what of "
        "it goes to a model is shown before you send.",
        "",
        f"{key('manager.add')} adds a folder, or a single file.",
    )


def _cells(longest: int, width: int) -> tuple[int, int]:
    """Cells of the name and of what is between it and the figures: the folder, where there is room for it."""
    left = width - sum(cells for _, cells in _FIGURES) - _HERE - 4
    name = max(8, min(longest, left if width < WIDE else left // 2))
    return name, max(0, left - name)


def heading_row(data: DocumentRowData, width: int) -> Content:
    """The headings of the columns."""
    name, between = _cells(data.longest, width)
    left = "name".ljust(name) + (f"  {'folder' if width >= WIDE else ''}".ljust(between))
    right = "".join(word.rjust(cells) for word, cells in _FIGURES)
    return content((f"{left}{right}  {'  here' if data.has_conversation else ''}", MUTED))


def row(one: Collection, data: DocumentRowData, width: int) -> Content:
    """Name and folder, what is in it or how far its indexing is, and what this conversation does with it."""
    name_cells, between = _cells(data.longest, width)
    name = content(_padded(shown(one.name, name_cells), name_cells))
    mark, tone = _MARKS.get(data.choice.of(one.name), ("·", MUTED))
    here = content("  ", (f"{mark if data.has_conversation else '':>{_HERE}}", tone))
    room = width - name_cells - here.cell_length - 2
    status = data.statuses.get(one.name)
    if (progress := data.indexing.get(one.name)) is not None:
        return joined(name + content("  ") + progress_words(progress, room), here, width)
    trouble = trouble_of(one, data)
    if trouble:
        return joined(name + content("  ", (shown(trouble, room), BAD)), here, width)
    where = ending(home_path(one.root), between - 3) if width >= WIDE and between > 6 else ""
    folder = content((_padded(f"  {where}", between), MUTED))
    if status is None:
        figures = ("…", "…", "…", "…")
    else:
        when = f"{age(data.now.timestamp() - one.indexed)} ago" if one.indexed is not None else "never"
        figures = (count(status.files), count(status.chunks), size(status.bytes), when)
    parts: list[Part] = [(text.rjust(cells), MUTED) for text, (_, cells) in zip(figures, _FIGURES, strict=True)]
    return joined(name + folder + content(*parts), here, width)


def _padded(text: str, cells: int) -> str:
    return text + " " * max(0, cells - cell_len(text))


def trouble_of(one: Collection, data: DocumentRowData) -> str:
    """What is wrong with a collection, in a sentence; empty: nothing."""
    report, status = data.reports.get(one.name), data.statuses.get(one.name)
    return (status.trouble if status else "") or (report.trouble if report else "")


def progress_bar(progress: IndexingProgress, cells: int = BAR) -> str:
    """`▓▓▓▓▓░░░`"""
    full = round(cells * progress.share) if not progress.counting else 0
    return "▓" * full + "░" * (cells - full)


def progress_words(progress: IndexingProgress, width: int) -> Content:
    """`▓▓▓▓▓░░░ 1,204 of 5,310 files · 18,220 chunks · 40 s left`; what does not fit is left out from the end."""
    if not progress.all_files:
        return content((fitted(["counting files …", "counting …"], width), MUTED))
    files = f"{count(progress.files)} of {count(progress.all_files)}{'+' if progress.counting else ''}"
    left = progress.seconds_left
    time = f" · {duration(left)} left" if left is not None and left >= 1 else ""
    chunks = f" · {count(progress.chunks)} chunks"
    room = width - BAR - 1
    words = fitted([f"{files} files{chunks}{time}", f"{files} files{time}", f"{files}{time}", files], room)
    return content((progress_bar(progress), ACCENT), " ", words)


def fitted(choices: list[str], width: int) -> str:
    """The first of the choices that fits, else the last one, cut."""
    return next((words for words in choices if cell_len(words) <= width), shown(choices[-1], width))


def about(one: Collection, data: DocumentRowData, width: int) -> list[Content]:
    """The collection under the cursor, in four lines."""
    lines = [content((ending(home_path(one.root), width), MUTED))]
    progress, status = data.indexing.get(one.name), data.statuses.get(one.name)
    trouble = trouble_of(one, data)
    if progress is not None:
        lines.append(progress_words(progress, width))
        lines.append(content((ending(one_line(progress.path), width), MUTED)))
    elif trouble:
        lines += [line.rstrip() for line in content((one_line(trouble, 2 * width), BAD)).wrap(width)][:2]
    elif status is not None:
        when = "not gone through to the end yet"
        if one.indexed is not None:
            when = f"indexed {moment(one.indexed, data.now)}"
        lines.append(
            content(
                shown(
                    f"{counted(status.files, 'file')}, {counted(status.chunks, 'chunk')}, {size(status.bytes)}; {when}",
                    width,
                )
            )
        )
        if status.skipped:
            more = f"{skipped_words(status.skipped)}; {data.key('rows.choose')} shows more"
            lines.append(content((shown(more, width), MUTED)))
    if data.has_conversation and len(lines) < 4:
        lines.append(content((shown(here_words(one.name, data.choice), width), MUTED)))
    return lines


def here_words(name: str, choice: RetrievalChoice) -> str:
    """What this conversation does with a collection."""
    match choice.of(name):
        case "ask":
            return "Here: its passages are offered with each question, for you to take."
        case "always":
            return "Here: the passages found for a question are sent with it."
        case _:
            return f"Here: searched only where a question says @{one_line(name, 40)}."


def indexing_words(indexing: Mapping[str, IndexingProgress]) -> str:
    """`indexing handbook 43 %` for the status line; empty where nothing is indexed."""
    if not indexing:
        return ""
    running = next((one for one in indexing.values() if one.all_files), next(iter(indexing.values())))
    share = "" if running.counting or not running.all_files else f" {percent(running.share)}"
    more = f" +{len(indexing) - 1}" if len(indexing) > 1 else ""
    return f"indexing {one_line(running.collection, 24)}{share}{more}"


class OtherKinds(Struct, frozen=True):
    """The files of a folder that are of no kind that is read: they are counted, not skipped one by one."""

    files: int
    named: str
    """`.png 150, .pyc 40`"""


def other_kinds(skipped: Sequence[Skipped]) -> tuple[OtherKinds | None, list[Skipped]]:
    """How many files are of other kinds, which the scan tells of the folder itself, and the files that were skipped."""
    files = [one for one in skipped if not (one.path == "" and _OTHERS.fullmatch(one.reason))]
    others = next((found for one in skipped if one.path == "" and (found := _OTHERS.fullmatch(one.reason))), None)
    return (OtherKinds(int(others[1].replace(",", "")), others[2]) if others is not None else None), files


def skipped_words(skipped: Sequence[Skipped]) -> str:
    """`6 skipped files, 212 of other kinds`; empty where there are none."""
    kinds, files = other_kinds(skipped)
    if kinds is None:
        return counted(len(files), "skipped file") if files else ""
    if not files:
        return f"{counted(kinds.files, 'file')} of other kinds"
    return f"{counted(len(files), 'skipped file')}, {count(kinds.files)} of other kinds"


def report_words(report: IndexingReport) -> str:
    """`handbook: 1,204 files, 3 skipped`; where something is wrong, a sentence of it."""
    name = one_line(report.collection, 40)
    if report.trouble:
        first, blank, rest = one_line(report.trouble, 300).partition(" ")
        return f"{name}: {first.lower() if first in _BEGINNINGS else first}{blank}{rest.rstrip('.')}."
    files = report.added + report.changed + report.unchanged
    left = other_kinds(report.skipped)[1]
    skipped = f", {count(len(left))} skipped" if left else ""
    return f"{name}: {counted(files, 'file')}{skipped}"


def changes_words(report: IndexingReport) -> str:
    """What an indexing did: `12 new, 3 changed, 1 gone, 1,188 as they were, in 4.1 s`."""
    parts = [
        f"{count(number)} {word}"
        for number, word in (
            (report.added, "new"),
            (report.changed, "changed"),
            (report.removed, "gone"),
            (report.unchanged, "as they were"),
        )
        if number
    ]
    return f"{', '.join(parts) or 'no files'}, in {duration(report.seconds) if report.seconds else UNKNOWN}"
