"""The cache inspector: what the server had cached, turn by turn, and what is known of the server.

The rule: figures are the server's or measured by kvchat; what neither knows is shown as unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from kvchat.cache.accounting import NOISE, Totals, TurnFigures
from kvchat.chat.live import OpenConversation
from kvchat.display import one_line
from kvchat.numbers import UNKNOWN, count, counted, duration, percent
from kvchat.prompt.message import Node, Role
from kvchat.ui.screens.modal import ListModal
from kvchat.ui.screens.rows import RowList
from kvchat.ui.screens.tones import AVOIDABLE, EVALUATED, GLYPHS, MUTED, REUSED, STRONG, content, joined, shown
from kvchat.ui.widgets.header_text import HOSTS, model_name

UNREPORTED = "not reported by this server"
LABEL = 13
QUESTION = 22
"""Cells for the first words of a question, where there is room."""
GLYPH_HEADS = (("█", "reused"), ("▒", "new"), ("░", "avoid."))
OTHER_HEADS = ("first", "prefill", "decode")
"""Time to the first token, prompt tokens and answer tokens a second."""


class ServerFacts(Protocol):
    """What the inspector shows of a server: `ChatService.server`."""

    @property
    def kind(self) -> str: ...
    @property
    def base_url(self) -> str: ...
    @property
    def host_class(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def context_size(self) -> int | None: ...
    @property
    def slots(self) -> int | None: ...
    @property
    def build(self) -> str: ...
    @property
    def embedded(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn of the branch: its question, and the figures of its answer if there are any."""

    question: str
    figures: TurnFigures | None


def turns_of(path: Sequence[Node]) -> list[Turn]:
    """The turns along a branch."""
    found: list[Turn] = []
    for node in path:
        if node.role is Role.USER:
            found.append(Turn(node.text, None))
        elif node.role is Role.ASSISTANT and found:
            found[-1] = Turn(found[-1].question, node.figures)
    return found


def cells_of(figures: TurnFigures, scale: int, width: int) -> tuple[int, int, int]:
    """How many cells of a bar `width` cells wide, for `scale` tokens, are reused, new and avoidable.

    What is more than noise gets at least one cell.
    """
    cached, evaluated = figures.cached_tokens or 0, figures.evaluated_tokens or 0
    avoidable = figures.avoidable_tokens or 0
    avoidable = avoidable if avoidable > NOISE else 0
    new = evaluated - avoidable

    def cells(tokens: int) -> int:
        return max(1, round(tokens / max(1, scale) * width)) if tokens else 0

    parts = [cells(cached), cells(new), cells(avoidable)]
    while sum(parts) > width and max(parts) > 1:
        parts[parts.index(max(parts))] -= 1
    return parts[0], parts[1], parts[2]


TOTAL_HEADS = ("reuse", "hit ratio", "reused", "avoidable", "saved")
TOTAL_CELLS = (8, 11, 11, 11, 13)


def totals_line(totals: Totals, width: int) -> Content:
    """The sums over some turns, under `TOTAL_HEADS`, in `width` cells."""
    if not totals.turns:
        return content(("  no turns yet", MUTED))
    if totals.turns == totals.unknown:
        return content((f"  {counted(totals.turns, 'turn')}, {UNREPORTED}", MUTED))
    wasted = totals.avoidable_tokens > NOISE * totals.turns
    values = (percent(totals.reuse), percent(totals.hit_ratio), count(totals.cached_tokens),
              count(totals.avoidable_tokens), duration(totals.seconds_saved))
    tones = (STRONG, "", REUSED, AVOIDABLE if wasted else "", "")
    line = content(*((value.rjust(cells), tone) for value, cells, tone in zip(values, TOTAL_CELLS, tones, strict=True)))
    unknown = content((f"   {totals.unknown} of {counted(totals.turns, 'turn')} unknown", MUTED))
    return line + unknown if totals.unknown and line.cell_length + unknown.cell_length <= width else line


class InspectorScreen(ListModal[None]):
    """Per turn a bar and its numbers; the totals; the server; what identifies the prefix."""

    DEFAULT_CSS = """
    InspectorScreen RowList { margin: 0; }
    InspectorScreen #turns-head { margin-top: 1; height: 1; }
    InspectorScreen #facts { margin-top: 1; }
    """

    def __init__(self, conversation: OpenConversation, *, server: ServerFacts | None = None,
                 week: Totals | None = None) -> None:
        super().__init__(classes="-list -wide")
        self.heading = f"Cache · {one_line(conversation.record.title, 60)}"
        self.hints = (("↑↓", "scroll"), ("esc", "close"))
        self._conversation = conversation
        self._server = server
        self._week = week
        path = conversation.path()
        self._turns = turns_of(path)
        self._root = path[0] if path else None
        self._scale = max((t.figures.prompt_tokens or 0 for t in self._turns if t.figures), default=0)

    def body(self) -> Iterable[Widget]:
        yield Static(classes="words", id="totals")
        yield Static(classes="words", id="turns-head")
        yield RowList(self._draw, empty="Nothing has been asked yet.", cursor=False)
        yield Static(classes="words", id="facts")

    def on_mount(self) -> None:
        self.rows.show(len(self._turns))
        self.call_after_refresh(self._begin)

    def on_resize(self) -> None:
        self.call_after_refresh(self._fill)

    def _begin(self) -> None:
        """Fill in the words and, when the layout has settled, show the newest turn."""
        self._fill()
        self.call_after_refresh(self.rows.scroll_end, animate=False)

    def _fill(self) -> None:
        width = self.rows.room
        heads = "".join(head.rjust(cells) for head, cells in zip(TOTAL_HEADS, TOTAL_CELLS, strict=True))
        lines = [content((" " * (LABEL + 2) + heads, MUTED))]
        totals = [("conversation", self._conversation.totals())]
        if self._week is not None:
            totals.append(("last 7 days", self._week))
        lines += [content((f"  {name:<{LABEL}}", MUTED)) + totals_line(sums, width - LABEL) for name, sums in totals]
        self._put("totals", lines, width)
        self._put("turns-head", [content("  ") + self._head(width)], width)
        self._put("facts", self._facts(width), width)

    def _put(self, id: str, lines: Sequence[Content], width: int) -> None:
        cut = [line.truncate(width + 2, ellipsis=True) for line in lines]
        self.query_one(f"#{id}", Static).update(Content("\n").join(cut))

    def _head(self, width: int) -> Content:
        cells = column_cells(width)
        heads = [content(" " * max(0, wide - len(word) - 2), (glyph, GLYPHS[glyph]), (f" {word}", MUTED))
                 for (glyph, word), wide in zip(GLYPH_HEADS, cells[:3], strict=True)]
        heads += [content((word.rjust(wide), MUTED)) for word, wide in zip(OTHER_HEADS, cells[3:], strict=True)]
        return joined(content(("turn", MUTED)), content().join(heads), width)

    def _draw(self, index: int, width: int) -> Content:
        turn = self._turns[index]
        figures = turn.figures
        cells = column_cells(width)
        number = f"{index + 1:>{len(str(len(self._turns)))}} "
        room = max(0, width - len(number) - sum(cells) - 2)
        words = QUESTION if room >= QUESTION + 18 else 0
        start = content((number, MUTED))
        if words:
            start += content((shown(turn.question, words), MUTED)).truncate(words + 2, pad=True)
        numbers = content(_figures(figures, cells))
        if figures is None or figures.evaluated_tokens is None:
            why = "not reported" if figures else "no figures"
            return joined(start + content((why, MUTED)), numbers, width)
        reused, new, avoidable = cells_of(figures, self._scale, room - (words + 2 if words else 0))
        bar = content(("█" * reused, REUSED), ("▒" * new, EVALUATED), ("░" * avoidable, AVOIDABLE))
        return joined(start + bar, numbers, width)

    def _facts(self, width: int) -> list[Content]:
        server = self._server
        facts: list[tuple[str, str]]
        if server is None:
            facts = [("server", "not connected")]
        else:
            kind = "built-in engine" if server.embedded else one_line(server.kind, 40)
            where = HOSTS.get(server.host_class, one_line(server.host_class, 20))
            build = f" · build {one_line(server.build, 40)}" if server.build else ""
            facts = [
                ("server", f"{kind} · {where} · {one_line(server.base_url, 80)}"),
                ("model", (model_name(server.model) or "unknown") + build),
                ("window", f"{_told(server.context_size, 'token')} a conversation · {_told(server.slots, 'slot')}"),
            ]
        facts.append(("session", self._conversation.id))
        digest = self._root.digest.hex()[:12] if self._root else UNKNOWN
        facts.append(("prefix", f"{digest} · equal digest, equal system prompt"))
        return [content((f"  {name:<{LABEL}}", MUTED), shown(words, width - LABEL)) for name, words in facts]


def _told(number: int | None, noun: str) -> str:
    return counted(number, noun) if number is not None else f"unknown {noun}s"


def column_cells(width: int) -> tuple[int, ...]:
    """The widths of the columns of numbers on a line of `width` cells."""
    return (10, 9, 11, 11, 10, 9) if width >= 90 else (9, 7, 9, 8, 8, 7)


def _figures(figures: TurnFigures | None, cells: Sequence[int]) -> str:
    figures = figures or TurnFigures()
    tokens = (figures.cached_tokens, figures.new_tokens, figures.avoidable_tokens)
    speeds = (figures.prefill_speed, figures.decode_speed)
    values = (*map(count, tokens), _seconds(figures.ttft_ms, cells[3]), *map(_per_second, speeds))
    return "".join(value.rjust(wide) for value, wide in zip(values, cells, strict=True))


def _seconds(ms: float | None, cells: int) -> str:
    words = duration(None if ms is None else ms / 1000)
    return words if len(words) < cells or ms is None else f"{ms / 1000:.0f} s"


def _per_second(speed: float | None) -> str:
    return UNKNOWN if speed is None else f"{speed:,.0f}/s"
