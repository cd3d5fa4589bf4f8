"""Emphasis, code, links and images: the text of one paragraph as styled runs.

What is not drawn, such as the asterisks of emphasis, is kept as undrawn markers, so that a copy gives the source.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from kvchat.commonmark import References, inline_tokens
from kvchat.sanitize import clean
from kvchat.ui.runs import Run
from kvchat.ui.widgets.transcript.render.rows import CLOSE, OPEN
from kvchat.ui.widgets.transcript.render.wrap import untabbed

if TYPE_CHECKING:
    from markdown_it.token import Token

Lines = tuple[tuple[Run, ...], ...]
"""The runs of every line of a paragraph; a line break in the source is a line break on the screen."""

BREAK = "break"
"""The style of the undrawn last run of a line that a tag ends, not a line end of the source."""
_SCRIPTS = {
    "sub": ("_", str.maketrans("0123456789+-=()aehijklmnoprstuvx", "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓ")),
    "sup": (
        "^",
        str.maketrans("0123456789+-=()abcdefghijklmnoprstuvwxyz", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖʳˢᵗᵘᵛʷˣʸᶻ"),
    ),
}
"""The characters that Unicode has lowered and raised, and what other text is put behind."""
_LONG_SCRIPT = 12
_CACHED_LENGTH = 600
_KEEP_BACKSLASH = frozenset("()[]")
"""Escapes that are drawn as written: they delimit mathematics."""


def inline_lines(text: str, style: str = "", references: References = ()) -> Lines:
    """The runs of the clean `text` of one paragraph, line by line, on top of `style`. `references`: what its links may
    refer to."""
    if "[" not in text:
        references = ()
    return _cached(text, style, references) if len(text) <= _CACHED_LENGTH else _lines(text, style, references)


@lru_cache(maxsize=4096)
def _cached(text: str, style: str, references: References) -> Lines:
    return _lines(text, style, references)


def _lines(text: str, style: str, references: References) -> Lines:
    tokens = inline_tokens(text, references)
    if tokens is None:
        return tuple(tuple(untabbed(line, style)) for line in text.split("\n"))
    builder = _Builder(style)
    for token in tokens:
        builder.add(token)
    return builder.lines()


def line_end(line: tuple[Run, ...]) -> str:
    """What a copy has after the line."""
    return "" if line and line[-1].tone == BREAK else "\n"


def _in_script(name: str, text: str) -> str:
    """`text` lowered or raised, where Unicode has all of its characters so, else as it is written in plain text."""
    sign, table = _SCRIPTS[name]
    text = text.replace("\n", " ").replace("\t", " ")
    if all(ord(character) in table for character in text):
        return text.translate(table)
    if len(text) > _LONG_SCRIPT:  # small print
        return text
    return sign + (text if len(text) == 1 else f"({text})")


class _Builder:
    """Collects runs from inline tokens; styles nest."""

    def __init__(self, style: str) -> None:
        self._done: list[tuple[Run, ...]] = []
        self._line: list[Run] = []
        self._styles = [style] if style else []
        self._links: list[Token] = []
        self._link_text = ""

    def lines(self) -> Lines:
        if self._done and not self._line:  # a tag ends the paragraph, which needs no line end more
            return tuple(self._done)
        return (*self._done, tuple(self._line))

    @property
    def _style(self) -> str:
        return " ".join(self._styles)

    def add(self, token: Token) -> None:
        match token.type:
            case "text":
                self._write(token.content)
            case "math":
                first, *more = token.content.split("\n")
                self._write(first)
                for line in more:
                    self._break("")
                    self._write(line)
            case "text_special":
                self._special(token)
            case "softbreak":
                self._break("")
            case "hardbreak":
                self._break("  ")
            case "code_inline":
                self._line.append(Run("", OPEN, token.markup))
                self._write(token.content, "code-inline")
                self._line.append(Run("", CLOSE, token.markup))
            case "em_open" | "strong_open" | "s_open":
                self._line.append(Run("", OPEN, token.markup))
                self._styles.append(token.tag)
            case "em_close" | "strong_close" | "s_close":
                self._styles.pop()
                self._line.append(Run("", CLOSE, token.markup))
            case "tag_open":
                self._styles.append("code-inline" if token.tag == "kbd" else token.tag)
                fold = token.markup.lower() == "<summary>"
                self._line.append(Run("▾ ", self._style, token.markup) if fold else Run("", OPEN, token.markup))
            case "tag_close":
                self._styles.pop()
                self._line.append(Run("", "" if token.markup.lower() == "</summary>" else CLOSE, token.markup))
            case "tag_hidden":
                self._line.append(Run("", "", token.markup))
            case "footnote":
                self._line.append(Run(_in_script("sup", token.content), f"{self._style} link".strip(), token.markup))
            case "tag_break":
                self._tag_break(token.markup)
            case "reference":
                self._write(token.content, "link")
            case "link_open":
                self._link_opens(token)
            case "link_close":
                self._link_closes()
            case "image":
                self._image(token)
            case _:
                self._write(token.content)

    def _write(self, text: str, style: str = "") -> None:
        if self._links:
            self._link_text += text
        name = f"{self._style} {style}".strip() if style else self._style
        if script := next((s for s in reversed(self._styles) if s in _SCRIPTS), ""):
            self._line.append(Run(_in_script(script, text), name, text))
            return
        self._line.extend(untabbed(text.replace("\n", " "), name))

    def _special(self, token: Token) -> None:
        """An escaped character or an entity: drawn as what it means, copied as it was written."""
        drawn = clean(token.content).replace("\n", " ").replace("\t", " ")
        if token.content in _KEEP_BACKSLASH or not drawn:
            drawn = token.markup
        self._line.append(Run(drawn, self._style, token.markup))

    def _break(self, source: str) -> None:
        if source:
            self._line.append(Run("", "", source))
        self._done.append(tuple(self._line))
        self._line = []

    def _tag_break(self, source: str) -> None:
        """A line end that a tag writes. A copy has the tag, and the source's own line end where that follows."""
        tag, newline, _ = source.partition("\n")
        self._line.append(Run("", "" if newline else BREAK, tag))
        self._done.append(tuple(self._line))
        self._line = []

    def _link_opens(self, token: Token) -> None:
        self._links.append(token)
        self._link_text = ""
        self._line.append(Run("", OPEN, "<" if token.info == "auto" else "["))
        self._styles.append("link")

    def _link_closes(self) -> None:
        self._styles.pop()
        token = self._links.pop()
        if token.info == "auto":
            self._line.append(Run("", CLOSE, ">"))
        else:
            written = token.markup if token.info == "reference" else None
            self._address(str(token.attrs.get("href", "")), str(token.attrs.get("title") or ""), written)

    def _address(self, address: str, title: str, written: str | None = None) -> None:
        """The address after a link's text, dimmed; only once when the text is the address. `written`: what a copy has
        of it; None: the address."""
        address, title = clean(address), clean(title).replace("\n", " ").replace("\t", " ")
        tail = f' "{title}"' if title else ""
        source = f"({address}{tail})" if written is None else written
        self._line.append(Run("", CLOSE, "]"))
        if self._link_text == address and not title:
            self._line.append(Run("", "", source))
        else:
            self._line.append(Run(f" ({address}{tail})" if address or tail else " ()", "url", source))

    def _image(self, token: Token) -> None:
        alt = clean(token.content).replace("\n", " ").replace("\t", " ")
        self._link_text = ""
        self._line.append(Run("", OPEN, "!["))
        self._line.append(Run(f"image: {alt}" if alt else "image", f"{self._style} link".strip(), alt))
        self._address(str(token.attrs.get("src", "")), str(token.attrs.get("title") or ""))
