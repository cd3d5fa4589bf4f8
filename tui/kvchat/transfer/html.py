"""HTML: a conversation as one page to read, share and print.

The rule: one file that fetches nothing and runs nothing. No script, a content security policy that forbids both, and
every text from outside escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from kvchat.cache.accounting import TurnFigures
from kvchat.prompt.context import ContextBlock
from kvchat.prompt.message import Node, Role
from kvchat.sanitize import clean
from kvchat.transfer import outline as shape
from kvchat.transfer.html_style import BAR_CELLS, STYLE
from kvchat.transfer.html_text import to_html
from kvchat.transfer.source import Source, Sources

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def pieces(sources: Sources, *, all_branches: bool = False) -> Iterator[str]:
    """The conversations as one page; with `all_branches` the branches not in use stand behind the one in use."""
    many = len(sources)
    title = shape.title(next(iter(sources)).conversation) if many == 1 else f"{many} conversations"
    yield (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{escape(title)}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n"
    )
    for source in sources:
        yield "".join(_conversation(source, all_branches))
    yield "</main>\n</body>\n</html>\n"


def _conversation(source: Source, all_branches: bool) -> Iterator[str]:
    yield f'<section class="conversation">\n<header>\n<h1>{escape(shape.title(source.conversation))}</h1>\n'
    yield _line("facts", [shape.times(source), shape.models(source)])
    yield _line("sums", shape.totals_words(shape.branch_totals(source)))
    yield "</header>\n"
    for branch in shape.outline(source, all_branches):
        if branch.title:
            yield f'<h2 class="branch">{escape(branch.title)}</h2>\n'
        elif not any(entry.node.role is not Role.SYSTEM for entry in branch.entries):
            yield '<p class="state">There are no messages yet.</p>\n'
        for entry in branch.entries:
            yield from _entry(entry, source)
    yield "</section>\n"


def _entry(entry: shape.Entry, source: Source) -> Iterator[str]:
    node = entry.node
    if node.role is Role.SYSTEM:
        yield _folded("system", shape.author(node), _markdown(node.text))
        return
    yield f'<article class="{node.role.value}">\n<h2>{escape(shape.author(node))}'
    if mark := shape.version_mark(entry):
        yield f' <span class="version">{escape(mark)}</span>'
    yield f' <span class="time">{escape(shape.time_of(entry, source))}</span></h2>\n'
    for block in node.message.blocks:
        yield _block(block)
    if node.message.reasoning.strip():
        yield _folded("reasoning", "Reasoning", _markdown(node.message.reasoning))
    if node.text.strip():
        yield _markdown(node.text)
    if sentence := shape.state_sentence(node):
        yield f'<p class="state">{escape(sentence)}</p>\n'
    yield _figures(node)
    yield "</article>\n"


def _markdown(text: str) -> str:
    return f'<div class="text" dir="auto">\n{to_html(text)}</div>\n'


def _folded(name: str, summary: str, body: str) -> str:
    return f'<details class="{name}">\n<summary>{escape(summary)}</summary>\n{body}</details>\n'


def _block(block: ContextBlock) -> str:
    heading = shape.block_title(block)
    if block.kind in shape.LINES:
        return f'<p class="stamp">{escape(heading)}</p>\n'
    text = clean(block.text).strip("\n")
    return _folded("context", heading, f'<pre class="quoted" dir="auto">{escape(text)}</pre>\n')


def _line(name: str, words: Sequence[str]) -> str:
    words = [word for word in words if word]
    return f'<p class="{name}">{escape(" · ".join(words))}</p>\n' if words else ""


def _figures(node: Node) -> str:
    words = shape.figures_words(node.figures)
    if node.figures is None or not words:
        return ""
    return f'<p class="figures">{_bar(node.figures)}{escape(" · ".join(words))}</p>\n'


def _bar(figures: TurnFigures) -> str:
    """How the prompt was read, drawn: reused, new, avoidable. A part that exists is at least one cell wide."""
    evaluated, avoidable = figures.evaluated_tokens, figures.avoidable_tokens
    if not figures.prompt_tokens or figures.cached_tokens is None or evaluated is None:
        return ""
    wasted = avoidable if shape.shows_avoidable(figures) and avoidable else 0
    cells = {"wasted": _cells(wasted, figures.prompt_tokens),
             "new": _cells(evaluated - wasted, figures.prompt_tokens)}
    cells = {"reused": max(0, BAR_CELLS - sum(cells.values())) if figures.cached_tokens else 0, **cells}
    if not figures.cached_tokens:
        cells["new"] = BAR_CELLS - cells["wasted"]
    order = ("reused", "new", "wasted")
    parts = "".join(f'<span class="{name} w{cells[name]}"></span>' for name in order if cells[name] > 0)
    return f'<span class="bar">{parts}</span>'


def _cells(part: int, whole: int) -> int:
    return max(1, min(BAR_CELLS - 1, round(part / whole * BAR_CELLS))) if part > 0 else 0
