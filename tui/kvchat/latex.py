r"""LaTeX in Markdown: what is between `$…$`, `$$…$$`, `\(…\)` and `\[…\]` is left as it came.

To Markdown `\\` and `\,` are escapes, `_` and `*` emphasis, and a line that begins with `-` or `=` ends a paragraph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvchat.patterns import compiled_later

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline

MATH = "math"
"""The type of an inline token that holds a formula with its delimiters."""
FORMULA = (
    r"(?<!\\)(?:\$\$(?!\$)(?:[^$\\]|\\[\s\S]|\$(?!\$))++\$\$"
    # No sums of money, no names of a shell: no space inside, and no word behind.
    r"|(?<!\$)\$(?![\s$])(?:[^$`\\]|\\[\s\S])++(?<!\s)\$(?!\w)"
    r"|\\\((?:(?!\\\))[\s\S])*+\\\)|\\\[(?:(?!\\\])[\s\S])*+\\\])"
)
"""A pattern for a formula within a paragraph."""
_FORMULA = compiled_later(FORMULA)
_CLOSERS = {"$$": "$$", r"\[": r"\]", r"\(": r"\)"}


def keep_latex(parser: MarkdownIt) -> MarkdownIt:
    """Have a parser take formulas as they are: within a paragraph as a `MATH` token; one that begins a line and goes on
    below it as a paragraph, to its end or an empty line."""
    parser.inline.ruler.before("escape", MATH, _inline)
    parser.block.ruler.before("table", MATH, _block, {"alt": ["paragraph"]})
    return parser


def _inline(state: StateInline, silent: bool) -> bool:
    opener = state.src[state.pos : state.pos + 2]
    if opener[:1] not in ("$", "\\"):
        return False
    if found := _FORMULA.match(state.src, state.pos, state.posMax):
        end = found.end()
    elif opener in (r"\(", r"\[") or (opener == "$$" and state.pos == 0 and not state.src.startswith("$$$")):
        end = state.posMax  # it is being written
    else:
        return False
    if not silent:
        state.push(MATH, "", 0).content = state.src[state.pos : end]
    state.pos = end
    return True


def _block(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    first = _line(state, start)
    closer = _CLOSERS.get(first[:2], "")
    if state.is_code_block(start) or not closer or first.startswith("$$$") or closer in first[2:]:
        return False
    if silent:
        return True
    line = start + 1
    while line < end and not state.isEmpty(line) and state.sCount[line] >= state.blkIndent:
        line += 1
        if closer in _line(state, line - 1):
            break
    state.line = line
    state.push("paragraph_open", "p", 1).map = [start, line]
    token = state.push("inline", "", 0)
    token.map, token.children = [start, line], []
    token.content = state.getLines(start, line, state.blkIndent, False).strip()
    state.push("paragraph_close", "p", -1)
    return True


def _line(state: StateBlock, line: int) -> str:
    return state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]].rstrip()
