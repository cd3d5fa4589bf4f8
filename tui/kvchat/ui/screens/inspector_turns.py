"""The turns of a conversation as the cache inspector draws them: a bar and its numbers, and why tokens were read again.

The rule: figures are the server's or measured by kvchat; what neither knows is shown as unknown.
"""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content

from kvchat.cache.accounting import TurnFigures
from kvchat.cache.report import TurnReport
from kvchat.sanitize import one_line
from kvchat.text.cache import UNREPORTED, again, count_of, prediction, wasted, why
from kvchat.text.format import UNKNOWN, counted, duration
from kvchat.ui.screens.tones import AVOIDABLE, EVALUATED, GLYPHS, MUTED, REUSED, STRONG, content, joined, shown

QUESTION = 22
"""Cells for the first words of a question, where there is room."""
GLYPH_HEADS = (("█", "reused"), ("▒", "new"), ("░", "avoid."))
OTHER_HEADS = ("first", "prefill", "decode")
"""Time to the first token, prompt tokens and answer tokens a second."""


def split_cells(tokens: Sequence[int], scale: int, width: int) -> list[int]:
    """How many cells of a bar, `width` cells wide for `scale` tokens, each part gets: at least one if it is not 0."""
    parts = [max(1, round(part / max(1, scale) * width)) if part > 0 else 0 for part in tokens]
    while sum(parts) > width and max(parts) > 1:
        parts[parts.index(max(parts))] -= 1
    return parts


def cells_of(figures: TurnFigures, scale: int, width: int) -> tuple[int, int, int]:
    """How many cells of a turn's bar are reused, new and avoidable. Avoidable tokens within the noise are new."""
    avoidable = wasted(figures)
    reused, new, again = split_cells(
        (figures.cached_tokens or 0, (figures.evaluated_tokens or 0) - avoidable, avoidable), scale, width)
    return reused, new, again


def bar(reused: int, new: int, avoidable: int) -> Content:
    """A bar of so many cells of each kind."""
    return content(("█" * reused, REUSED), ("▒" * new, EVALUATED), ("░" * avoidable, AVOIDABLE))


def scale_of(turns: Sequence[TurnReport]) -> int:
    """The tokens that a bar of full width stands for."""
    return max((turn.figures.prompt_tokens or 0 for turn in turns if turn.figures), default=0)


def column_cells(width: int) -> tuple[int, ...]:
    """The widths of the columns of numbers on a line of `width` cells."""
    return (10, 9, 11, 11, 10, 9) if width >= 90 else (9, 7, 9, 8, 8, 7)


def glyph_heads(cells: Sequence[int]) -> list[Content]:
    """The heads of the columns of reused, new and avoidable tokens, with their glyphs."""
    return [content(" " * max(0, wide - len(word) - 2), (glyph, GLYPHS[glyph]), (f" {word}", MUTED))
            for (glyph, word), wide in zip(GLYPH_HEADS, cells, strict=True)]


def turns_head(width: int) -> Content:
    """The heads of the columns."""
    cells = column_cells(width)
    heads = glyph_heads(cells[:3])
    heads += [content((word.rjust(wide), MUTED)) for word, wide in zip(OTHER_HEADS, cells[3:], strict=True)]
    return joined(content(("turn", MUTED)), content().join(heads), width)


def turn_row(turns: Sequence[TurnReport], index: int, scale: int, width: int) -> Content:
    """A turn: its number, its question where there is room, its bar, its numbers."""
    turn = turns[index]
    figures = turn.figures
    cells = column_cells(width)
    number = f"{index + 1:>{len(str(len(turns)))}} "
    room = max(0, width - len(number) - sum(cells) - 2)
    words = QUESTION if room >= QUESTION + 18 else 0
    start = content((number, MUTED))
    if words:
        start += content((shown(turn.question, words), MUTED)).truncate(words + 2, pad=True)
    numbers = content(_figures(figures, cells))
    if figures is None or figures.evaluated_tokens is None:
        why_not = "not reported" if figures else "no figures"
        return joined(start + content((why_not, MUTED)), numbers, width)
    return joined(start + bar(*cells_of(figures, scale, room - (words + 2 if words else 0))), numbers, width)


def turn_words(turns: Sequence[TurnReport], index: int) -> list[Content]:
    """A turn in sentences: its avoidable tokens with their cause, what helps, and what had been predicted."""
    turn = turns[index]
    lines = [content((f"Turn {index + 1}: ", STRONG)) + _verdict(turn)]
    remedy = why(turn)[1]
    if remedy:
        lines.append(content(("→ ", AVOIDABLE), one_line(remedy)))
    if said := prediction(turn.figures):
        lines.append(content((f"{said[0].upper()}{said[1:]}.", MUTED)))
    return lines


def _verdict(turn: TurnReport) -> Content:
    figures = turn.figures
    if figures is None:
        return content(("no figures on this branch yet.", MUTED))
    if figures.avoidable_tokens is None:
        unknown = UNREPORTED if figures.cached_tokens is None else "unknown, for the turn before has no figures"
        return content((f"how much was read again is {unknown}.", MUTED))
    if figures.estimated and not wasted(figures):
        return content(("by the time it took, nothing was read again; this server does not count it.", MUTED))
    if figures.first_read:
        return content(("a first read; there was nothing of this conversation to reuse.", MUTED))
    if not wasted(figures):
        spare = f"{counted(figures.avoidable_tokens, 'token')} at the edge of the reply"
        return content((f"nothing was read again but {spare}." if figures.avoidable_tokens
                        else "nothing was read again.", MUTED))
    return content(("░ ", AVOIDABLE), again(turn))


def _figures(figures: TurnFigures | None, cells: Sequence[int]) -> str:
    figures = figures or TurnFigures()
    tokens = (figures.cached_tokens, figures.needed_tokens, figures.avoidable_tokens)
    speeds = (figures.prefill_speed, figures.decode_speed)
    values = (*(count_of(figures, number) for number in tokens), _seconds(figures.ttft_ms, cells[3]),
              *map(_per_second, speeds))
    return "".join(value.rjust(wide) for value, wide in zip(values, cells, strict=True))


def _seconds(ms: float | None, cells: int) -> str:
    words = duration(None if ms is None else ms / 1000)
    return words if len(words) < cells or ms is None else f"{ms / 1000:.0f} s"


def _per_second(speed: float | None) -> str:
    return UNKNOWN if speed is None else f"{speed:,.0f}/s"
