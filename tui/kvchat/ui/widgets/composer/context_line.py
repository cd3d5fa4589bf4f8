"""The line over the composer: what goes with the message that is being written, and what is left out of it.

It is drawn on the rule above the composer, in exactly its width, so that nothing moves when it comes, changes or goes.
What has no room is counted, not named; what the user left out stays out until the message is sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.cells import cell_len
from textual import events
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from kvchat.sanitize import one_line
from kvchat.ui.widgets.composer.context_items import FILE, MEMORY, PASSAGE, ContextItems, Item
from kvchat.ui.widgets.pieces import fit
from kvchat.ui.widgets.theme_styles import StyleTable, ThemeStyles

GLYPHS = {MEMORY: "◆", FILE: "▥", PASSAGE: "▤"}
EMPTY = {MEMORY: "◇", PASSAGE: "▢"}
NOUNS = {MEMORY: ("memory", "memories"), FILE: ("file", "files"), PASSAGE: ("passage", "passages")}
NARROWEST = 14
"""Cells of a name; where there is less for each, only the first ones are named."""
SEARCHING = "searching…"
PLAIN = (" is plain text · {key} on it attaches it", " is text · {key} attaches")
NEEDS = " needs your y"
_BETWEEN = " · "
_WHERE = re.compile(r"(?::[\d¶-]+| p\. [\d-]+)\Z")


class Part(NamedTuple):
    """A run of text in one style."""

    text: str
    style: str
    at: int = -1
    """The place of the item that it names, from 0; -1: none."""
    kind: str = ""
    """The kind of items that it counts."""


class Shown(NamedTuple):
    """What the line has to say."""

    items: ContextItems
    cursor: int | None = None
    """The place of the item that is being chosen; None: the keys belong to the text."""
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


def parts(shown: Shown, width: int) -> list[Part]:
    """The line in exactly `width` cells, the rule's own character where it is empty."""
    tail = _tail(shown, width)
    aside = cell_len(tail) + 3 if tail else 0
    heads = _heads(shown, width - aside)
    room = width - aside - _length(heads) - 2
    notes = (say(shown, bool(heads), room) for say in (_problem, _nothing, _pasted))
    found = [*heads, *next(filter(None, notes), ())]
    room -= _length(found[len(heads) :])
    found += [*_names(shown, room), Part(" ", "quiet")] if found else []
    used = _length(found)
    if used + cell_len(tail) + 3 > width:
        tail = ""
    gap = max(0, width - used - (cell_len(tail) + 2 if tail else 0))
    filled = gap - 1 if tail and gap else gap
    tail = f" {tail} " if tail else ""
    found += [Part("─" * filled, "line"), Part(tail, "quiet"), Part("─" * (gap - filled), "line")]
    return list(_cut(found, width))


def _length(parts: Sequence[Part]) -> int:
    return sum(cell_len(part.text) for part in parts)


def _cut(parts: Sequence[Part], width: int) -> Iterator[Part]:
    """The parts in at most `width` cells."""
    for part in parts:
        text = fit(part.text, width)
        width -= cell_len(text)
        yield Part(text, part.style, part.at, part.kind)


def _tail(shown: Shown, width: int) -> str:
    """The text at the right end: the key, or the keys during a choice; the longest that leaves room."""
    key = shown.key
    if shown.cursor is not None and shown.items.needs_yes(shown.items.all[shown.cursor]):
        wordings, most = ["y sends it · Enter shows it · Esc", "y sends it · Esc"], width // 2
    elif shown.cursor is not None:
        everything = f"{key} all · " if key else ""
        wordings = [f"←→ · Enter shows · Del · {everything}Esc", f"←→ Enter Del · {everything}Esc", "←→ Del · Esc"]
        most = width // 2
    elif shown.searching:
        wordings, most = [SEARCHING], width
    elif shown.items.is_offer and key:
        wordings, most = [f"{key} takes them", f"{key} takes"], width // 2
    else:
        wordings, most = [key if shown.items.all else ""], width // 4
    return next((words for words in wordings if cell_len(words) <= most), "")


# How many.


def _heads(shown: Shown, width: int) -> list[Part]:
    """How many of each kind; in few words where many leave no room for a name."""
    kinds = [kind for kind in (MEMORY, FILE, PASSAGE) if shown.items.of(kind)]
    found: list[Part] = []
    for brief in (False, True):
        found = []
        for kind in kinds:
            before = _BETWEEN if found else " "
            offered = kind == PASSAGE and shown.items.is_offer
            found += [
                Part(before, "quiet"),
                Part(_head(shown.items, kind, brief), "quiet" if offered else "mark", kind=kind),
            ]
        if _length(found) + NARROWEST + 4 <= width:
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


def _problem(shown: Shown, follows: bool, room: int) -> list[Part]:
    """The first thing that is wrong with a mention."""
    if not shown.problems or room < NARROWEST:
        return []
    more = f" (+{len(shown.problems) - 1})" if len(shown.problems) > 1 else ""
    before = _BETWEEN if follows else " "
    words = fit(one_line(shown.problems[0], 300), (room if not follows else room // 2) - len(before) - len(more) - 2)
    return [Part(before, "quiet"), Part(f"! {words}{more}", "problem")]


def _nothing(shown: Shown, follows: bool, room: int) -> list[Part]:
    """That a place which is mentioned brings nothing."""
    if not shown.nothing or room < NARROWEST:
        return []
    before = _BETWEEN if follows else " "
    room = (room // 2 if follows else room) - len(before)
    return [Part(before, "quiet"), Part(fit(shown.nothing, room), "quiet")]


def _pasted(shown: Shown, follows: bool, room: int) -> list[Part]:
    """That the first mention that was pasted is only text."""
    before = _BETWEEN if follows else " "
    room = (room // 2 if follows else room) - len(before)
    if not shown.pasted:
        return []
    for words in (plain.format(key=shown.complete) for plain in PLAIN):
        if (cells := room - len(words)) >= NARROWEST - 4:
            return [Part(before, "quiet"), Part(fit(f"@{one_line(shown.pasted[0], 300)}", cells) + words, "quiet")]
    return []


# Which.


def _names(shown: Shown, room: int) -> list[Part]:
    """The items in at most `room` cells. Those that are left out are named only while one chooses, and where some need
    a yes, only these."""
    items, choosing = shown.items, shown.cursor is not None
    every = items.all
    named = [at for at, item in enumerate(every) if choosing or items.needs_yes(item)] or [
        at for at, item in enumerate(every) if not items.is_out(item) or _is_offered(items, item)
    ]
    labels = {at: one_line(every[at].label, 200) for at in named}
    while len(named) > 1 and (room - 2) // len(named) - len(_BETWEEN) < NARROWEST:
        named.pop(0 if choosing and shown.cursor == named[-1] else -1)
    found: list[Part] = []
    for number, at in enumerate(named):
        item, out = every[at], items.is_out(every[at])
        before = _BETWEEN if found else ": "
        needed = items.needs_yes(item)
        sign = "" if item.is_fixed else " +" if out else " ×"
        if needed and at != shown.cursor:
            sign = NEEDS
        label = _fitted(labels[at], item, room // (len(named) - number) - len(before) - len(sign))
        if not label:
            break
        style = "problem" if needed else "out" if out and not _is_offered(items, item) else "quiet"
        found += [
            Part(before, "quiet"),
            Part(label, "cursor" if at == shown.cursor else style, at),
            Part(sign, "problem" if needed else "quiet", at),
        ]
        room -= len(before) + cell_len(label) + len(sign)
    return found


def _fitted(label: str, item: Item, cells: int) -> str:
    """The label in at most `cells` cells. A passage keeps its place, since several may be of one file; a path its
    end."""
    if item.outside and cell_len(label) > cells > 1:
        while cell_len(label) >= cells:
            label = label[1:]
        return f"…{label}"
    where = _WHERE.search(label) if item.kind == PASSAGE and cell_len(label) > cells else None
    name = fit(label[: where.start()], cells - cell_len(where[0])) if where else ""
    return name + where[0] if where and name else fit(label, cells)


def _is_offered(items: ContextItems, item: Item) -> bool:
    return item.kind == PASSAGE and items.is_offer


STYLES: StyleTable = {
    "line": "$rule",
    "mark": "$text-accent",
    "problem": ("$text-warning", "ansi_yellow"),
    "quiet": ("$text-muted", "dim ansi_default"),
    "out": ("strike $text-muted", "dim strike ansi_default"),
    "cursor": "bold $block-cursor-foreground on $block-cursor-background",
}


class ContextLine(Widget):
    """One line over the text. It has the focus only while items are being chosen by keys."""

    DEFAULT_CSS = """
    ContextLine {
        overlay: screen; display: none; offset: 0 -1;
        height: 1; width: 1fr; background: $background;
        &:ansi { background: ansi_default; }
    }
    """
    ALLOW_SELECT = False

    class Left(Message):
        """The keys belong to the text again. `character`: one that was typed and belongs there."""

        def __init__(self, character: str = "") -> None:
            super().__init__()
            self.character = character

    class Looked(Message):
        """The user wants to see an item whole."""

        def __init__(self, id: str) -> None:
            super().__init__()
            self.id = id

    class Changed(Message):
        """Something was left out or taken along."""

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
        self._cursor = 0
        self._choosing = False
        """Whether the keys are its own; the focus follows a little later."""
        self._tones = ThemeStyles(self, STYLES)

    # What goes with the message.

    def put(self, kind: str, items: Sequence[Item]) -> None:
        """Show these of a kind. Those that were left out stay so."""
        if self.items.put(kind, items):
            self._cursor = min(self._cursor, max(0, len(self.items.all) - 1))
            self.draw_anew()

    def draw_anew(self) -> None:
        """What it shows has changed."""
        if not self.items.all:
            self.leave()
        notes = self.problems or self.nothing or self.pasted
        self.display = bool(self.items.all or notes or self.searching or self.sending)
        self.refresh()

    def toggle(self, at: int) -> None:
        """Leave out the item at this place, or take it along again."""
        if 0 <= at < len(self.items.all):
            self.items.toggle(self.items.all[at])
            self._decided()

    def agree(self, path: str) -> None:
        """Send the file from outside at this path too."""
        self.items.agreed.add(path)
        self._decided()

    def _decided(self) -> None:
        self.draw_anew()
        self.post_message(self.Changed())

    # Choosing by keys.

    def choose(self) -> bool:
        """Take what is offered; else take the keys: arrows choose, Delete leaves out, Enter shows. A second time: leave
        out all. False: there is nothing."""
        if not self.items.all:
            return False
        if self._choosing:
            self.items.toggle_all()
            self.leave()
            self._decided()
        elif self.items.is_offer:
            self.items.take_all()
            self._decided()
        else:
            self._cursor, self._choosing = 0, True
            self.can_focus = True  # only now: otherwise Tab would stop here
            self.screen.set_focus(self)
            self.refresh()
        return True

    def leave(self, character: str = "") -> None:
        """Give the keys back, and a character that was typed meanwhile."""
        if self._choosing or character:
            self._choosing = False
            self.post_message(self.Left(character))
            self.refresh()

    def on_blur(self) -> None:
        self.can_focus = self._choosing = False
        self.refresh()

    def on_key(self, event: events.Key) -> None:
        every = self.items.all
        match event.key:
            case "left" | "right":
                step = 1 if event.key == "right" else -1
                self._cursor = (self._cursor + step) % max(1, len(every))
                self.refresh()
            case "y" if self._cursor < len(every) and self.items.needs_yes(every[self._cursor]):
                self.agree(every[self._cursor].outside)
            case "delete" | "backspace" | "space":
                self.toggle(self._cursor)
            case "enter":
                self.leave()
                if self._cursor < len(every):
                    self.post_message(self.Looked(every[self._cursor].id))
            case "escape" | "up" | "down" | "tab" | "shift+tab":
                self.leave()
            case _ if event.is_printable and event.character:
                self.leave(event.character)
            case _:
                return  # a key of the app
        event.stop()
        event.prevent_default()

    def on_click(self, event: events.Click) -> None:
        event.stop()
        offset = event.get_content_offset(self)
        at = 0
        for part in self._parts(self.content_size.width):
            at += cell_len(part.text)
            if offset is not None and offset.x < at:
                if part.at >= 0:
                    self.toggle(part.at)
                elif part.kind:
                    self.items.toggle_all((part.kind,))
                    self._decided()
                return

    # Drawing.

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._tones.clear()

    def render(self) -> Content:
        return Content.assemble(
            *((part.text, self._tones.style(part.style)) for part in self._parts(self.content_size.width) if part.text)
        )

    def _parts(self, width: int) -> list[Part]:
        cursor = self._cursor if self._choosing else None
        searching = self.searching or self.sending
        shown = Shown(
            self.items,
            cursor,
            self.key_shown,
            searching,
            self.problems,
            self.pasted,
            self.complete_shown,
            self.nothing,
        )
        return parts(shown, width)
