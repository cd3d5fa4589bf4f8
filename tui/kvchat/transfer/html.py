"""HTML: a conversation as one page to read, share and print.

One file that fetches nothing and runs nothing. No script, a content security policy that forbids both, and
every text from outside escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kvchat.figures.accounting import TurnFigures
from kvchat.latex import MATH, keep_latex
from kvchat.prompt.context import ContextBlock
from kvchat.prompt.images import sha256_of
from kvchat.prompt.message import Node, Role
from kvchat.prompt.tags import in_words
from kvchat.sanitize import clean, one_line
from kvchat.text.cache import figures_words, share_words
from kvchat.transfer import outline as shape
from kvchat.transfer.formats import Format, Source, Sources
from kvchat.transfer.markdown import is_heavy

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token
    from pygments.lexer import Lexer


# -- Markdown ---------------------------------------------------------------------------------------------------------


LINK_SCHEMES = frozenset({"http", "https", "mailto"})
_HOST = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?")
_LANGUAGE_LENGTH = 24


def to_html(text: str) -> str:
    """Markdown `text` as HTML. A line end is a line end, as in the chat it comes from."""
    text = clean(text).strip("\n")
    if is_heavy(text):
        return code_block(text)
    parser = _parser()
    tokens = parser.parse(text)
    for number, token in enumerate(tokens):
        if token.type == "paragraph_open" and number and tokens[number - 1].type == "paragraph_close":
            token.hidden = tokens[number + 2].hidden = False  # a formula below the words of a list's item
        elif token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1]) + 2)}"  # below the headings of the page
        elif token.type in ("th_open", "td_open"):
            align = str(token.attrs.pop("style", "")).removeprefix("text-align:")
            if align in ("right", "center"):
                token.attrs["class"] = align
    return str(parser.renderer.render(tokens, parser.options, {}))


def code_block(code: str, language: str = "") -> str:
    """`code` as a block, with the language's name if there is one."""
    label = f'<span class="lang">{escape(language)}</span>' if language else ""
    return f'<div class="code">{label}<pre><code>{highlighted(code, language)}</code></pre></div>\n'


def link_allowed(url: str) -> bool:
    """Whether a link may stand in the page: a scheme that only opens a page or a letter, and no disguised host."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    if parts.scheme not in LINK_SCHEMES or not all("!" <= char <= "~" for char in url):
        return False
    return parts.scheme == "mailto" or _HOST.fullmatch(parts.netloc) is not None


Tokens = Sequence["Token"]


def _fence(renderer: object, tokens: Tokens, index: int, options: object, env: object) -> str:
    language = tokens[index].info.strip().split(" ", 1)[0]
    return code_block(tokens[index].content.removesuffix("\n"), language[:_LANGUAGE_LENGTH])


def _image(renderer: object, tokens: Tokens, index: int, options: object, env: object) -> str:
    source = f"![{tokens[index].content}]({tokens[index].attrs.get('src', '')})"
    return f'<code class="image">{escape(source)}</code>'


def _math(renderer: object, tokens: Tokens, index: int, options: object, env: object) -> str:
    return escape(tokens[index].content).replace("\n", "<br>\n")


def _link_open(renderer: object, tokens: Tokens, index: int, options: object, env: object) -> str:
    url = str(tokens[index].attrs.get("href", ""))
    if not link_allowed(url):  # the parser checks every address but an empty one
        return "<span>"
    return f'<a href="{escape(url)}" rel="noreferrer noopener">'


def _link_close(renderer: object, tokens: Tokens, index: int, options: object, env: object) -> str:
    opened = next(token for token in reversed(tokens[:index]) if token.type == "link_open")
    return "</a>" if link_allowed(str(opened.attrs.get("href", ""))) else "</span>"


def _table_open(renderer: object, tokens: Tokens, index: int, options: object, env: object) -> str:
    return '<div class="table"><table>\n'


def _table_close(renderer: object, tokens: Tokens, index: int, options: object, env: object) -> str:
    return "</table></div>\n"


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    from kvchat.markup import TAG_HIDDEN, as_models_write

    parser = keep_latex(as_models_write(MarkdownIt("commonmark", {"html": False, "breaks": True})))
    parser.enable(["table", "strikethrough"])
    parser.validateLink = link_allowed  # type: ignore[method-assign]
    rules: dict[str, Any] = {
        "fence": _fence,
        "code_block": _fence,
        "image": _image,
        MATH: _math,
        TAG_HIDDEN: lambda *_: "",
        "link_open": _link_open,
        "link_close": _link_close,
        "table_open": _table_open,
        "table_close": _table_close,
    }
    for name, rule in rules.items():
        parser.add_render_rule(name, rule)
    return parser


# -- code in colours --------------------------------------------------------------------------------------------------


LONGEST = 100_000
"""Characters of code that are worth colouring; longer blocks stay plain."""

# The class of a span, by the kind of token; a kind without an entry takes that of its parent kind.
_CLASSES = {
    "Comment": "c",
    "Keyword": "k",
    "Operator.Word": "k",
    "Comment.Preproc": "k",
    "Literal.String": "s",
    "Literal.String.Escape": "n",
    "Literal.String.Interpol": "",
    "Literal.Number": "n",
    "Keyword.Constant": "n",
    "Name.Constant": "n",
    "Name.Function": "f",
    "Name.Class": "f",
    "Name.Namespace": "f",
    "Name.Builtin": "b",
    "Name.Tag": "b",
    "Name.Decorator": "b",
    "Name.Attribute": "b",
    "Name.Exception": "b",
    "Generic.Inserted": "i",
    "Generic.Deleted": "d",
    "Generic.Heading": "k",
    "Generic.Subheading": "f",
    "Generic.Prompt": "c",
    "Generic.Output": "c",
}


@lru_cache(maxsize=64)
def _lexer(language: str) -> Lexer | None:
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


@lru_cache(maxsize=512)
def _class(kind: str) -> str:
    while kind:
        if kind in _CLASSES:
            return _CLASSES[kind]
        kind = kind.rpartition(".")[0]
    return ""


def highlighted(code: str, language: str) -> str:
    """`code` as escaped HTML with `<span class=...>` around what is not plain."""
    lexer = _lexer(language.lower()) if language and len(code) <= LONGEST else None
    if lexer is None:
        return escape(code)
    try:
        # Many lexers know a line only by its end.
        tokens = [(str(kind).removeprefix("Token."), text) for kind, text in lexer.get_tokens(code + "\n")]
    except Exception:  # a highlighter's own defect on odd code must not cost the export
        return escape(code)
    if "".join(text for _, text in tokens) != code + "\n":
        return escape(code)
    tokens[-1] = (tokens[-1][0], tokens[-1][1][:-1])
    return "".join(_span(_class(kind), text) for kind, text in tokens)


def _span(name: str, text: str) -> str:
    return f'<span class="{name}">{escape(text)}</span>' if name and text.strip() else escape(text)


# -- the style --------------------------------------------------------------------------------------------------------


BAR_CELLS = 24
"""Cells in the bar that shows how a prompt was read."""

_LIGHT = """
--paper: #fcfbf9; --ink: #24221f; --soft: #6d6861; --line: #e5e0d8; --tint: #f3f0ea; --accent: #1f6f68;
--cached: #2f8f86; --new: #d19a45; --wasted: #c0573f;
--c: #7d776d; --k: #8a3b78; --s: #3d6f2f; --n: #a4551e; --f: #2a5ba0; --b: #1f6f68; --i: #2f6b2a; --d: #a83a32;
"""
_DARK = """
--paper: #171719; --ink: #e3e0da; --soft: #9b968d; --line: #313034; --tint: #202023; --accent: #7cc4bb;
--cached: #4da79d; --new: #d9a85c; --wasted: #d9745b;
--c: #8d877d; --k: #d59cc6; --s: #a3c48b; --n: #e0a878; --f: #8fb5ea; --b: #7cc4bb; --i: #97c98c; --d: #e58f85;
"""

_PAGE = """
*, *::before, *::after { box-sizing: border-box; }
html { background: var(--paper); color: var(--ink); -webkit-text-size-adjust: 100%; }
body {
  margin: 0;
  font: 1.0625rem/1.62 "Source Serif 4", Charter, "Bitstream Charter", "Iowan Old Style", "Noto Serif", Georgia, serif;
  font-kerning: normal; text-rendering: optimizeLegibility; overflow-wrap: break-word;
}
main { max-width: 45rem; margin: 0 auto; padding: 4.5rem 1.5rem 6rem; }
h1, h2, h3, h4, h5, h6 { line-height: 1.25; text-wrap: balance; }
h1 { margin: 0 0 .6rem; font-size: 2.1rem; font-weight: 600; letter-spacing: -.015em; }
.conversation + .conversation { margin-top: 6rem; padding-top: 4rem; border-top: 1px solid var(--line); }
.conversation > header { margin-bottom: 2.75rem; }
.facts, .sums, .figures, .state, .stamp, .version, .time, .lang, summary, article > h2, .branch {
  font-family: system-ui, -apple-system, "Segoe UI", "Noto Sans", "DejaVu Sans", sans-serif;
  font-size: .8125rem; line-height: 1.5; color: var(--soft); font-variant-numeric: tabular-nums;
}
.facts, .sums { margin: 0; }
.sums { color: var(--accent); }
article { margin: 0 0 2.5rem; }
article > h2 {
  display: flex; align-items: baseline; gap: .75em;
  margin: 0 0 .6rem; font-weight: 600; color: var(--ink);
}
.version { font-weight: 400; }
.time { margin-left: auto; font-weight: 400; }
.user { padding: 1rem 1.25rem 1.1rem; border-radius: .75rem; background: var(--tint); }
.user > h2 { color: var(--accent); }
.stamp { margin: 0 0 .5rem; }
.picture { margin: 0 0 .8rem; }
.picture img { display: block; max-width: 100%; max-height: 32rem; border-radius: .4rem; }
.branch {
  margin: 4rem 0 2rem; padding-top: 1rem; border-top: 1px solid var(--line);
  font-weight: 600; color: var(--ink);
}
.state { margin: .9rem 0 0; padding-left: .8rem; border-left: 3px solid var(--new); color: var(--ink); }
.figures { display: flex; flex-wrap: wrap; align-items: center; gap: .2rem .75rem; margin: .9rem 0 0; }
.bar { display: inline-flex; height: .5rem; border-radius: .25rem; overflow: hidden; }
.bar > span { display: block; }
.cached { background: var(--cached); }
.new { background: repeating-linear-gradient(90deg, var(--new) 0 2px, transparent 2px 3px); }
.wasted { background: repeating-linear-gradient(90deg, var(--wasted) 0 1px, transparent 1px 3px); }
details { margin: 0 0 .8rem; }
summary { width: fit-content; cursor: pointer; border-radius: .25rem; }
summary:hover { color: var(--ink); }
summary:focus-visible, a:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
details > .text, .quoted {
  margin: .6rem 0 0; padding-left: 1rem;
  border-left: 2px solid var(--line); color: var(--soft);
}
details > .text { font-size: .9375rem; }
details.system { margin-bottom: 2rem; }
"""

_TEXT = """
.text > :first-child { margin-top: 0; }
.text > :last-child { margin-bottom: 0; }
.text p, .text ul, .text ol, .text blockquote, .text .code, .text .table { margin: .9em 0; }
.text h3, .text h4, .text h5, .text h6 { margin: 1.7em 0 .5em; font-weight: 600; }
.text h3 { font-size: 1.35rem; }
.text h4 { font-size: 1.15rem; }
.text h5, .text h6 { font-size: 1.0625rem; }
.text ul, .text ol { padding-inline-start: 1.6em; }
.text li { margin: .25em 0; }
.text li > ul, .text li > ol { margin: .25em 0; }
.text li::marker { color: var(--soft); }
.text blockquote {
  margin-inline: 0; padding-inline-start: 1rem;
  border-inline-start: 3px solid var(--line); color: var(--soft);
}
.text hr { margin: 2em 0; border: 0; border-top: 1px solid var(--line); }
a { color: var(--accent); text-decoration-thickness: 1px; text-underline-offset: .18em; }
code, pre { font-family: ui-monospace, "SF Mono", "JetBrains Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
code { padding: .1em .3em; border-radius: .3em; background: var(--tint); font-size: .85em; }
.user code { background: var(--paper); }
.code { position: relative; }
pre {
  margin: 0; overflow-x: auto; font-size: .84375rem; line-height: 1.55;
  tab-size: 4; direction: ltr; text-align: left;
}
.code pre { padding: .9rem 1.1rem; border: 1px solid var(--line); border-radius: .5rem; background: var(--tint); }
.user .code pre { background: var(--paper); }
pre code { padding: 0; background: none; font-size: inherit; }
.user pre code { background: none; }
.lang {
  position: absolute; top: 1px; right: 1px; padding: .3rem .7rem; border-radius: .5rem; font-size: .6875rem;
  background: var(--tint);
}
.user .lang { background: var(--paper); }
.quoted { white-space: pre-wrap; overflow-wrap: anywhere; max-height: 30rem; overflow-y: auto; font-size: .8125rem; }
.table { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9375rem; font-variant-numeric: tabular-nums; }
th, td { padding: .4rem .9rem .4rem 0; border-bottom: 1px solid var(--line); text-align: start; vertical-align: top; }
th { font-weight: 600; }
.right { text-align: right; }
.center { text-align: center; }
.c { color: var(--c); font-style: italic; }
"""

_PRINT = """
@media print {
  @page { margin: 2cm; }
  :root { --paper: #fff; font-size: 10pt; }
  main { max-width: none; padding: 0; }
  article > h2, .text h3, .text h4, .figures, tr { break-inside: avoid; }
  article > h2, .text h3, .text h4 { break-after: avoid; }
  .conversation + .conversation { break-before: page; margin: 0; padding: 0; border: 0; }
  .user, .code pre, code, .lang, .user .lang { background: none; }
  .code { break-inside: avoid; }
  .user { padding: 0 0 0 1rem; border-left: 2px solid var(--line); border-radius: 0; }
  pre, .quoted { white-space: pre-wrap; max-height: none; }
  details::details-content { display: block; content-visibility: visible; height: auto; }
  .bar { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  .text a::after { content: " (" attr(href) ")"; color: var(--soft); font-size: .85em; overflow-wrap: anywhere; }
}
"""

_WORDS = "".join(f".{name} {{ color: var(--{name}); }}\n" for name in "ksnfbid")
_WIDTHS = "".join(f".w{cells} {{ width: {cells * 4}px; }}\n" for cells in range(1, BAR_CELLS + 1))

STYLE = (
    f":root {{ color-scheme: light dark; {_LIGHT}}}\n"
    f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {_DARK}}} }}\n"
    f"{_PAGE}{_TEXT}{_WORDS}{_WIDTHS}{_PRINT}"
)


# -- the page ---------------------------------------------------------------------------------------------------------


POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def pieces(sources: Sources, all_branches: bool) -> Iterator[str]:
    """The conversations as one page; with `all_branches` the branches not in use stand behind the one in use."""
    many = len(sources)
    title = shape.title(next(iter(sources)).conversation) if many == 1 else f"{many} conversations"
    yield (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="generator" content="kvchat">\n'
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
    yield _line("facts", [shape.times(source), shape.models(source), in_words(source.conversation.tags)])
    yield _line("sums", share_words(shape.branch_totals(source)))
    yield "</header>\n"
    for branch in shape.outline(source, all_branches):
        if branch.title:
            yield f'<h2 class="branch">{escape(branch.title)}</h2>\n'
        elif not any(entry.node.role is not Role.SYSTEM for entry in branch.entries):
            yield '<p class="state">There are no messages yet.</p>\n'
        for entry in branch.entries:
            yield from _entry(entry, source)
    yield "</section>\n"


def _entry(entry: shape.OutlineMessage, source: Source) -> Iterator[str]:
    node = entry.node
    if node.role is Role.SYSTEM:
        sources = "".join(map(_block, node.message.blocks))
        yield _folded("system", shape.author(node), sources + _markdown(node.text))
        return
    yield f'<article class="{node.role.value}">\n<h2>{escape(shape.author(node))}'
    if mark := shape.version_mark(entry):
        yield f' <span class="version">{escape(mark)}</span>'
    yield f' <span class="time">{escape(shape.time_of(entry, source))}</span></h2>\n'
    for block in node.message.blocks:
        yield _image_of(block, source) or _block(block)
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


def _image_of(block: ContextBlock, source: Source) -> str:
    """An image, there on the page; empty: the block is none, or its image is gone."""
    url = source.images.get(sha256_of(block), b"").decode()
    name = escape(f"{shape.source_name(block.source)} {one_line(block.text)}")
    return f'<p class="picture"><img src="{escape(url)}" alt="{name}" title="{name}"></p>\n' if url else ""


def _line(name: str, words: Sequence[str]) -> str:
    words = [word for word in words if word]
    return f'<p class="{name}">{escape(" · ".join(words))}</p>\n' if words else ""


def _figures(node: Node) -> str:
    words = figures_words(node.figures)
    if node.figures is None or not words:
        return ""
    return f'<p class="figures">{_bar(node.figures)}{escape(" · ".join(words))}</p>\n'


def _bar(figures: TurnFigures) -> str:
    """How the prompt was read, drawn: reused, new, wasted. A part that exists is at least one cell wide."""
    evaluated, again = figures.evaluated_tokens, figures.notable_waste
    if not figures.prompt_tokens or figures.cached_tokens is None or evaluated is None:
        return ""
    cells = {"wasted": _cells(again, figures.prompt_tokens), "new": _cells(evaluated - again, figures.prompt_tokens)}
    cells = {"cached": max(0, BAR_CELLS - sum(cells.values())) if figures.cached_tokens else 0, **cells}
    if not figures.cached_tokens:
        cells["new"] = BAR_CELLS - cells["wasted"]
    order = ("cached", "new", "wasted")
    parts = "".join(f'<span class="{name} w{cells[name]}"></span>' for name in order if cells[name] > 0)
    return f'<span class="bar">{parts}</span>'


def _cells(part: int, whole: int) -> int:
    return max(1, min(BAR_CELLS - 1, round(part / whole * BAR_CELLS))) if part > 0 else 0


FORMAT = Format("HTML", "A web page, to read and print; it cannot be imported again", pieces)
