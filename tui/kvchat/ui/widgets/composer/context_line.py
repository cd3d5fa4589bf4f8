"""The line over the composer: how much goes with the message that is being written, and what is wrong with it.

It is drawn on the rule above the composer, in exactly its width, so that nothing moves when it comes, changes or goes.
What goes is counted, not named: the dialog that its key opens names each, and what is left out there stays out until
the message is sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.widget import Widget

from kvchat.sanitize import one_line
from kvchat.text.format import home_path
from kvchat.ui.runs import Run, Runs, ending, fit, width_of
from kvchat.ui.tones import ThemeStyles
from kvchat.ui.widgets.composer.context_items import FILE, MEMORY, PASSAGE, ContextItems, Item

GLYPHS = {MEMORY: "◆", FILE: "▥", PASSAGE: "▤"}
EMPTY = {MEMORY: "◇", PASSAGE: "▢"}
NOUNS = {MEMORY: ("memory", "memories"), FILE: ("file", "files"), PASSAGE: ("passage", "passages")}
NARROWEST = 14
"""Cells of a note; with less of them there is none."""
SEARCHING = "searching…"
PLAIN = (" is plain text · {key} on it attaches it", " is text · {key} attaches")
NEEDS = " needs your y"
_BETWEEN = " · "


class Shown(NamedTuple):
    """What the line has to say."""

    items: ContextItems
    key: str = ""
    """The key that chooses, as the user reads it; empty: none is shown."""
    searching: bool = False
    problems: Sequence[str] = ()
    pasted: Sequence[str] = ()
    """Mentions that are only text, without their `@`."""
    complete: str = "Tab"
    """The key that makes a mention of one, as the user reads it."""
    nothing: str = ""
    """That nothing comes from a place that is mentioned."""


def line_runs(shown: Shown, width: int) -> list[Run]:
    """The line in exactly `width` cells, the rule's own character where it is empty."""
    tail = _tail(shown, width)
    aside = cell_len(tail) + 3 if tail else 0
    found = _heads(shown.items, width - aside)
    room = width - aside - width_of(found) - 2
    before = _BETWEEN if found else " "
    if note := _note(shown, room - len(before)):
        found += [Run(before, "quiet"), note]
    if found:
        found.append(Run(" ", "quiet"))
    used = width_of(found)
    if used + cell_len(tail) + 3 > width:
        tail = ""
    gap = max(0, width - used - (cell_len(tail) + 2 if tail else 0))
    filled = gap - 1 if tail and gap else gap
    tail = f" {tail} " if tail else ""
    found += [Run("─" * filled, "line"), Run(tail, "quiet"), Run("─" * (gap - filled), "line")]
    return list(_cut(found, width))


def _cut(runs: Runs, width: int) -> Iterator[Run]:
    """The runs in at most `width` cells."""
    for run in runs:
        text = fit(run.text, width)
        width -= cell_len(text)
        yield Run(text, run.tone)


def _tail(shown: Shown, width: int) -> str:
    """The text at the right end: the longest that leaves room."""
    key = shown.key
    if shown.searching:
        wordings, most = [SEARCHING], width
    elif shown.items.is_offer and key:
        wordings, most = [f"{key} takes them", f"{key} takes"], width // 2
    else:
        wordings, most = [key if shown.items.all else ""], width // 4
    return next((words for words in wordings if cell_len(words) <= most), "")


def _heads(items: ContextItems, width: int) -> list[Run]:
    """How many of each kind; in few words where many leave no room for a note."""
    found: list[Run] = []
    for brief in (False, True):
        found = []
        for kind in (MEMORY, FILE, PASSAGE):
            if items.of(kind):
                offered = kind == PASSAGE and items.is_offer
                found += [
                    Run(_BETWEEN if found else " ", "quiet"),
                    Run(_head(items, kind, brief), "quiet" if offered else "accent"),
                ]
        if width_of(found) + NARROWEST + 4 <= width:
            break
    return found


def _head(items: ContextItems, kind: str, brief: bool) -> str:
    found, kept = items.of(kind), items.kept(kind)
    noun = NOUNS[kind][len(found) != 1]
    if kind == PASSAGE and items.is_offer:
        return f"{GLYPHS[kind]} {len(found)}{'' if brief else f' {noun}'} found"
    if not kept and kind in EMPTY:
        return f"{EMPTY[kind]} no{'' if brief else f' {NOUNS[kind][1]}'}"
    number = f"{len(kept)}" if len(kept) == len(found) else f"{len(kept)} of {len(found)}"
    tokens, about = sum(item.tokens for item in kept), "≤" if any(item.is_image for item in kept) else "~"
    return " ".join(
        filter(
            None,
            (
                GLYPHS[kind],
                number,
                "" if brief else noun,
                f"{about}{tokens:,}{'' if brief else ' tok'}" if tokens else "",
            ),
        )
    )


def _note(shown: Shown, room: int) -> Run | None:
    """The first thing that is wrong, else that nothing comes of a mention, else that one is only text."""
    if room < NARROWEST:
        return None
    asking = [item for item in shown.items.all if shown.items.needs_yes(item)]
    if wrong := len(asking) + len(shown.problems):
        more = f" (+{wrong - 1})" if wrong > 1 else ""
        room -= len(more) + 2
        words = _asking(asking[0], room) if asking else fit(one_line(shown.problems[0], 300), room)
        return Run(f"! {words}{more}", "problem")
    if shown.nothing:
        return Run(fit(shown.nothing, room), "quiet")
    if shown.pasted:
        for words in (plain.format(key=shown.complete) for plain in PLAIN):
            if (cells := room - len(words)) >= NARROWEST - 4:
                return Run(fit(f"@{one_line(shown.pasted[0], 300)}", cells) + words, "quiet")
    return None


def _asking(item: Item, room: int) -> str:
    """That a file from outside needs a yes; of its path the end is shown."""
    return ending(one_line(home_path(item.outside), 200), max(1, room - len(NEEDS))) + NEEDS


class ContextLine(Widget):
    """One line over the text. A click on it does what its key does."""

    DEFAULT_CSS = """
    ContextLine {
        overlay: screen; display: none; offset: 0 -1;
        height: 1; width: 1fr; background: $background;
        &:ansi { background: ansi_default; }
    }
    """
    ALLOW_SELECT = False

    def __init__(self) -> None:
        super().__init__()
        self.key_shown = ""
        """The key that chooses, as the user reads it; empty: none is shown."""
        self.complete_shown = "Tab"
        """The key that makes a mention of pasted text."""
        self.items = ContextItems()
        self.searching = False
        """Whether the documents are being searched for so long that it is worth a word."""
        self.sending = False
        """Whether they still are for a message that is on its way."""
        self.problems: Sequence[str] = ()
        """What is wrong with mentions."""
        self.pasted: Sequence[str] = ()
        """What is no mention because it was pasted."""
        self.nothing = ""
        """That nothing comes from a place that is mentioned."""
        self._tones = ThemeStyles(self)

    def put(self, kind: str, items: Sequence[Item]) -> None:
        """Show these of a kind. Those that were left out stay so."""
        if self.items.put(kind, items):
            self.redraw()

    def redraw(self) -> None:
        """What it shows has changed."""
        notes = self.problems or self.nothing or self.pasted
        self.display = bool(self.items.all or notes or self.searching or self.sending)
        self.refresh()

    async def on_click(self, event: events.Click) -> None:
        event.stop()
        await self.run_action("screen.do('memories')")

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._tones.clear()

    def render(self) -> Content:
        return self._tones.content(self._runs(self.content_size.width))

    def _runs(self, width: int) -> list[Run]:
        searching = self.searching or self.sending
        shown = Shown(
            self.items, self.key_shown, searching, self.problems, self.pasted, self.complete_shown, self.nothing
        )
        return line_runs(shown, width)
