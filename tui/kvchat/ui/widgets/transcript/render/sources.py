"""Draw sources: what an answer cites, marked in its text and listed below it, and what a question was sent with.

Only a number that the branch has is a citation. What is drawn was sent with the question; no file is read for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from functools import lru_cache

from msgspec.structs import replace
from rich.cells import cell_len

from kvchat.prompt.citations import citations, cited, name_of, number_of
from kvchat.prompt.context import FILE, PASSAGE, ContextBlock
from kvchat.sanitize import one_line
from kvchat.ui.runs import Run, ending
from kvchat.ui.widgets.transcript.render.rows import GAP, Row

Source = tuple[int, ContextBlock]
"""A number, and what it means."""
CITE = "cite"
"""The style of a number that leads to its source."""
ACTION = "sources"
"""The action of a row that is about sources."""
MOST = 12
"""Sources that are listed below an answer."""

_LABEL = "Sources  "
_DOT = " · "
_NO_LINKS = frozenset({"code", "code-inline", "link", "url"})


# -- which


def sources_of(text: str, known: Mapping[int, ContextBlock]) -> tuple[Source, ...]:
    """The sources that an answer cites, of those that its branch has, in the order in which it names them."""
    if not known or "[" not in text:
        return ()
    return tuple((number, known[number]) for number in _cited(text) if number in known)


@lru_cache(maxsize=2048)
def _cited(text: str) -> tuple[int, ...]:
    """The numbers that an answer cites, found once for each answer."""
    return tuple(cited(text))


def given(blocks: Iterable[ContextBlock]) -> list[tuple[int | None, ContextBlock]]:
    """The passages and files that a question was sent with, and their numbers."""
    return [(number_of(block), block) for block in blocks if block.kind in (FILE, PASSAGE)]


def title_of(block: ContextBlock) -> str:
    """What a block is from, and its place there: `handbook/guide/setup.md:12-40`."""
    return _parts(block)[0]


def headings_of(block: ContextBlock) -> str:
    """The headings above a passage; empty where there are none."""
    return _parts(block)[1]


def _parts(block: ContextBlock) -> tuple[str, str]:
    name = one_line(name_of(block))
    if block.kind == PASSAGE and block.ref:
        from kvchat.documents.collection import place_of

        title = one_line(place_of(block.ref).title)
        if name == title or name.startswith(f"{title}, "):
            return title, name[len(title) + 2 :]
    return name, ""


def origin_of(blocks: Sequence[ContextBlock]) -> str:
    """Where passages or files come from, in a few words: the one file, else the one collection, else their number."""
    names = {_file_of(block) for block in blocks}
    if len(names) == 1:
        return names.pop()
    collections = {name.partition("/")[0] for name in names if "/" in name.lstrip("/")}
    if len(collections) == 1 and all("/" in name for name in names) and (one := collections.pop()):
        return one
    return f"{len(names):,} sources"


def _file_of(block: ContextBlock) -> str:
    """The file of a block, without the place in it."""
    title = title_of(block)
    if block.kind == PASSAGE and block.ref:
        from kvchat.documents.collection import place_of

        place = place_of(block.ref)
        name = one_line(f"{place.collection}/{place.path}" if place.collection else place.path)
        return name if title.startswith(name) else title
    return title


# -- in an answer's text


def linked(rows: Sequence[Row], numbers: Set[int]) -> list[Row]:
    """The rows of an answer with the citations of these numbers marked. Code and links stay as they are."""
    return [_linked(row, numbers) if "[" in row.text else row for row in rows]


def _linked(row: Row, numbers: Set[int]) -> Row:
    runs: list[Run] = []
    for run in row.runs:
        if "[" not in run.text or run.source is not None or not _NO_LINKS.isdisjoint(run.tone.split()):
            runs.append(run)
            continue
        end = 0
        for start, stop, named in citations(run.text):
            if not numbers.isdisjoint(named):
                runs.append(Run(run.text[end:start], run.tone))
                runs.append(Run(run.text[start:stop], f"{run.tone} {CITE}".strip()))
                end = stop
        runs.append(Run(run.text[end:], run.tone, run.source))
    return replace(row, runs=tuple(run for run in runs if run.text or run.source))


def numbers_at(row: Row, cell: int) -> tuple[int, ...]:
    """The numbers that a click on this cell of a row means: those of the citation there; in a row that is about sources
    those of the nearest one in front of it too."""
    position, nearest = 0, ""
    for run in row.runs:
        is_link = CITE in run.tone.split()
        nearest = run.text if is_link else nearest
        position += cell_len(run.text)
        if cell < position:
            return tuple(cited(nearest)) if is_link or row.action == ACTION else ()
    return ()


# -- below an answer


def source_rows(sources: Sequence[Source], width: int, *, selected: bool = False, key: str = "o") -> list[Row]:
    """What an answer cites, dimmed: on one row, or on one for each where that is too long; with the `key` that opens it
    where the message is selected and there is room."""
    rows = _listed(sources, width, key)
    hint = (Run(f"  {key}", "key", ""), Run(" open", "muted", ""))
    if selected and cell_len(f"{rows[-1].text}  {key} open") <= width:
        rows[-1] = replace(rows[-1], runs=(*rows[-1].runs, *hint))
    return [GAP, *rows]


def _listed(sources: Sequence[Source], width: int, key: str) -> list[Row]:
    titles = [(f"[{number}]", title_of(block)) for number, block in sources]
    whole = len(_LABEL) + sum(cell_len(f"{number} {title}") for number, title in titles) + len(_DOT) * (len(titles) - 1)
    label = Run(_LABEL, "fold")
    if whole <= width:
        runs = [label]
        for index, (number, title) in enumerate(titles):
            runs += [Run(_DOT, "fold")] * bool(index) + [Run(number, CITE), Run(f" {title}", "fold")]
        return [Row(tuple(runs), action=ACTION)]
    shown = titles if len(titles) <= MOST else titles[: MOST - 1]
    cells = max(len(number) for number, _ in titles)
    room = max(8, width - len(_LABEL) - cells - 1)
    rows = [
        Row(
            (
                label if not index else Run(" " * len(_LABEL), "", ""),
                Run(" " * (cells - len(number)), "", ""),
                Run(number, CITE),
                Run(f" {ending(title, room)}", "fold"),
            ),
            action=ACTION,
        )
        for index, (number, title) in enumerate(shown)
    ]
    if len(shown) < len(titles):
        more = f"and {len(titles) - len(shown):,} more: {key} shows all"
        rows.append(Row((Run(" " * len(_LABEL), "", ""), Run(more, "fold", ""))))
    return rows


def given_rows(block: ContextBlock, width: int, first: Sequence[Run]) -> list[Row]:
    """A numbered passage or file of a question: its number and its title, with the headings where there is room."""
    mark = f"[{number_of(block)}] "
    room = max(8, width - sum(cell_len(run.text) for run in first) - len(mark))
    title = ending(title_of(block), room)
    left = room - cell_len(title) - 2
    headings = one_line(headings_of(block), left) if left >= 8 else ""
    runs = (Run(mark.rstrip(), CITE), Run(" ", "", ""))
    tail = [Run(f"  {headings}", "reasoning", "")] if headings and cell_len(headings) <= left else []
    return [Row((*first, *runs, Run(title, "fold"), *tail), action=ACTION)]
