"""The messages of a conversation as the cache inspector draws them: what the last request did with each.

The rule: a message whose share is not known has no bar; lengths that are estimates are marked with ~.
"""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content

from kvchat.cache.accounting import NOISE
from kvchat.cache.causes.cause import Divergence
from kvchat.cache.report import CacheReport, MessageCells
from kvchat.sanitize import one_line
from kvchat.text.cache import accuracy, prediction, reuse_percent, spark_values, warmth_words, wasted
from kvchat.text.format import UNKNOWN, count, counted
from kvchat.ui.screens.inspector_turns import bar, cells_of, glyph_heads, split_cells
from kvchat.ui.screens.tones import AVOIDABLE, EVALUATED, MARK_TONES, MUTED, REUSED, STRONG, content, joined, shown
from kvchat.ui.widgets.pieces import sparkline
from kvchat.ui.widgets.sidebar_rows import GLYPHS, MARKS

ROLES = {"user": "you", "assistant": "answer"}
WIDE = 90
"""Cells of a line from which on there are columns for each kind of tokens."""
SPARK = 20
"""Turns in the sparkline."""


def headline(report: CacheReport, width: int, now: float) -> list[Content]:
    """Three lines: how warm the conversation is and its reuse by turn, the last request's prefix, the prediction."""
    figures = report.turns[-1].figures if report.turns else None
    mark = MARKS[report.warmth.heat]
    percent = reuse_percent(figures) if figures else None
    spark = sparkline(spark_values([turn.figures for turn in report.turns]), SPARK)
    reuse = content((spark.strip(), REUSED), ("  ", ""), (f"{UNKNOWN if percent is None else percent} %", STRONG))
    warm = content((GLYPHS[mark], MARK_TONES[mark]), f" {warmth_words(report.warmth, now)}")
    label = content(("reuse by turn ", MUTED))
    if warm.cell_length + label.cell_length + reuse.cell_length + 2 <= width:
        reuse = label + reuse
    lines = [joined(warm, reuse if report.turns else content(), width), _prefix(report, width)]
    about = "" if report.exact else "~"
    said = " · ".join(filter(None, (prediction(figures, about), accuracy(report), about and "~ estimated")))
    return [*lines, content((said, MUTED))]


def _prefix(report: CacheReport, width: int) -> Content:
    """The last request as one bar: what was reused, what was read again, what was new."""
    figures = report.turns[-1].figures if report.turns else None
    if figures is None or figures.evaluated_tokens is None:
        return content(("the last request's figures are not known" if report.turns else "nothing read yet", MUTED))
    again = wasted(figures)
    words = content((count(figures.cached_tokens), REUSED), (" reused · ", MUTED),
                    (count(figures.evaluated_tokens - again), STRONG), (" new", MUTED),
                    (" · ", MUTED), (f"{again:,} avoidable" if again else "0 avoidable", AVOIDABLE if again else MUTED))
    if figures.new_tokens is None:
        words = content((count(figures.cached_tokens), REUSED), (" reused · ", MUTED),
                        (count(figures.evaluated_tokens), STRONG), (" read", MUTED))
    room = max(8, width - words.cell_length - 4)
    reused, new, avoidable = cells_of(figures, figures.prompt_tokens or 0, room)
    whole = content(("▕", MUTED), ("█" * reused, REUSED), ("░" * avoidable, AVOIDABLE), ("▒" * new, EVALUATED))
    return whole.truncate(room + 1, pad=True) + content(("▏ ", MUTED)) + words


def tokens_scale(messages: Sequence[MessageCells]) -> int:
    """The tokens that a bar of full width stands for."""
    return max((message.tokens or 0 for message in messages), default=0)


def messages_head(width: int) -> Content:
    """The heads of the columns."""
    heads = glyph_heads((10, 9, 11)) if width >= WIDE else []
    return joined(content(("message", MUTED)), content().join([content(("tokens", MUTED)), *heads]), width)


def message_row(report: CacheReport, index: int, scale: int, width: int) -> Content:
    """A message: who, its first words, its bar, its tokens; ≠ where the prompt parts from what the server held."""
    message = report.messages[index]
    parted = divergence(report)
    mark = content(("≠ ", AVOIDABLE)) if parted is not None and parted.message == index else content("  ")
    number = f"{index:>{len(str(len(report.messages)))}} "
    start = mark + content((number, MUTED), f"{ROLES.get(message.role, one_line(message.role, 8)):<8}")
    right = content(f"{_tokens(message.tokens, report.exact):>9}")
    if width >= WIDE:
        parts = (message.reused, message.new, message.avoidable)
        right += content("".join(count(part).rjust(wide) for part, wide in zip(parts, (10, 9, 11), strict=True)))
    room = max(0, width - start.cell_length - right.cell_length - 2)
    words = room * 2 // 5
    start += content((shown(message.text, words), MUTED)).truncate(words, pad=True) + content("  ")
    room -= words + 2
    if message.reused is None:
        reply = index == len(report.messages) - 1 and message.role == "assistant"
        return joined(start + content(("the reply" if reply else "not known", MUTED)), right, width)
    again = message.avoidable if message.avoidable and message.avoidable > NOISE else 0
    read = max(0, (message.tokens or 0) - message.reused - again)
    reused, new, avoidable = split_cells((message.reused, read, again), scale, room)
    return joined(start + bar(reused, new, avoidable), right, width)


def message_words(report: CacheReport, index: int) -> list[Content]:
    """What is worth saying about a message: whether the prompt parts from what the server held here, else where."""
    parted = divergence(report)
    if parted is None:
        figures = report.turns[-1].figures if report.turns else None
        if figures is None or figures.cached_tokens is None:
            return [content(("How much of it the server reused is not known.", MUTED))]
        return [content(("The last request begins with all the server held; nothing differs.", MUTED)
                        if not wasted(figures) else ("Where the prompts part is not known.", MUTED))]
    place = f"in message {parted.message}" if parted.message is not None else "in a message that is not known"
    here = "here" if parted.message == index else place
    lines = [content(("≠ ", AVOIDABLE), (f"The prompt parts {here} from what the server held, ", ""),
                     (f"after {counted(parted.token, 'token')}.", ""))]
    if parted.held or parted.sent:
        lines.append(content(("held ", MUTED), f"“{one_line(parted.held, 80)}”", ("   sent ", MUTED),
                             f"“{one_line(parted.sent, 80)}”"))
    return lines


def divergence(report: CacheReport) -> Divergence | None:
    """Where the last request parts from what the server held, if it does."""
    finding = report.turns[-1].finding if report.turns else None
    return finding.divergence if finding else None


def _tokens(tokens: int | None, exact: bool) -> str:
    return UNKNOWN if tokens is None else f"{'' if exact else '~'}{tokens:,}"
