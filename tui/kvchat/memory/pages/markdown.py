"""Markdown as a page has it: its list items with the lines that are each one's own, and text that says just itself.

Which lines belong to an item depends on their own indentation and not on the items around it, so that an item can be
put in or taken out while all others stay what they are. A tab goes to the next column that four divides; two columns
make a level, and what is on a deeper level below an item belongs to it, as does text that goes on directly on the next
line. `decoded` gives back every character that `encoded` was given, so that a text can never make a heading, list,
link, picture, tag or comment; backslashes count only in front of something special, so that `C:\\Users` is read as it
was typed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct, field


class PageProblem(Exception):  # noqa: N818
    """A page that cannot be read as one: where it is broken and what to do about it."""

    def __init__(self, line: int, sentence: str) -> None:
        super().__init__(sentence)
        self.line = line
        """From 1; 0 when it is the file as a whole."""
        self.sentence = sentence


_LINES = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+\Z")
_ITEM = re.compile(r"([ \t]*)([-*+]|[0-9]{1,9}[.)])(?:([ \t]+)(\[[^\]]\](?:[ \t]+|\Z))?(.*)|\Z)")
_RULE = re.compile(r"[ \t]*([-*_])(?:[ \t]*\1){2,}\Z")
_NO_TEXT = re.compile(r"[ \t]*(?:#{1,6}(?:[ \t]|\Z)|>|<!--|`{3}|~{3})")
_FENCE = re.compile(r"[ \t]*(`{3,}(?=[^`]*\Z)|~{3,})")
_CONFLICT = re.compile(r"<{7}(?: |\Z)|>{7}(?: |\Z)")


class MarkdownItem(Struct, eq=False):
    """A list item."""

    level: int
    parent: MarkdownItem | None
    indent: str
    marker: str
    box: str
    """A check box with the white space after it; empty: none."""
    lines: list[int] = field(default_factory=list)
    """Its own lines, counted from 0: not the blank ones around them, and not those of the items in it."""
    contents: list[str] = field(default_factory=list)
    """Their contents, without indentation, marker, check box and white space at the end."""


def split(text: str) -> list[str]:
    """The lines with their ends, whichever kind these are."""
    return _LINES.findall(text)


def ending(line: str) -> str:
    """The end of a line: empty where it has none."""
    return line[len(line.rstrip("\r\n")) :]


def blank(line: str) -> bool:
    """Whether the line is empty."""
    return not line.strip(" \t\r\n")


def goes_on(line: str) -> bool:
    """Whether a line is plain text, which goes on with the paragraph above it if there is one."""
    line = line.rstrip("\r\n")
    return not (blank(line) or _RULE.match(line) or _ITEM.fullmatch(line) or _NO_TEXT.match(line))


def blocks(lines: Sequence[str], first: int) -> tuple[MarkdownItem, ...]:
    """The items from line `first` on. Raises PageProblem where items cannot be recognised: in a code fence or comment
    without an end, or an unfinished merge."""
    reader = _Reader()
    for at, line in enumerate(lines[first:], start=first):
        reader.take(at, line.rstrip("\r\n"))
    reader.end()
    return tuple(reader.items)


class _Verbatim(Struct):
    """A code fence or a comment over several lines, in which nothing is an item."""

    at: int
    owner: MarkdownItem | None
    fence: str
    """Empty: it is a comment."""

    def ends(self, line: str) -> bool:
        if not self.fence:
            return "-->" in line
        line = line.strip(" \t")
        return len(line) >= len(self.fence) and not line.strip(self.fence[0])


class _Reader:
    def __init__(self) -> None:
        self.items: list[MarkdownItem] = []
        self._open: list[MarkdownItem] = []
        self._paragraph: MarkdownItem | None = None
        """The item whose text the next line goes on with, if it is text too, however it is indented."""
        self._verbatim: _Verbatim | None = None

    def take(self, at: int, line: str) -> None:
        columns = _columns(line)
        if self._within_verbatim(at, line, columns):
            return
        going_on, self._paragraph = self._paragraph, None
        if blank(line):
            return
        if _CONFLICT.match(line):
            raise PageProblem(
                at + 1,
                "Two versions of this page were merged here and not settled. Keep the lines you "
                "want and take this one out.",
            )
        if going_on is not None and columns // 2 <= going_on.level and goes_on(line):
            self._own(going_on, at, line)
            self._paragraph = going_on
            return
        while self._open and self._open[-1].level >= columns // 2:
            self._open.pop()
        item = None if _RULE.match(line) else _ITEM.fullmatch(line)
        if item is not None:
            self._begin(at, item, columns // 2)
        elif self._open:
            self._own(self._open[-1], at, line)
        if self._open and goes_on(self._open[-1].contents[-1] if item is not None else line):
            self._paragraph = self._open[-1]
        self._opens_verbatim(at, line, columns, item is not None)

    def end(self) -> None:
        if self._verbatim is not None:
            what, close = ("code fence", self._verbatim.fence) if self._verbatim.fence else ("comment", "-->")
            raise PageProblem(self._verbatim.at + 1, f"The {what} that begins here has no end. Close it: `{close}`.")

    def _within_verbatim(self, at: int, line: str, columns: int) -> bool:
        """Whether the line belongs to a fence or comment."""
        if self._verbatim is None:
            return False
        owner = self._verbatim.owner
        if owner is not None:
            if not blank(line) and columns // 2 <= owner.level:
                self.end()
            self._own(owner, at, line)
        if self._verbatim.ends(line):
            self._verbatim = None
        return True

    def _begin(self, at: int, found: re.Match[str], level: int) -> None:
        parent = self._open[-1] if self._open else None
        item = MarkdownItem(level, parent, found[1], found[2], found[4] or "", [at], [(found[5] or "").rstrip(" \t")])
        self.items.append(item)
        self._open.append(item)

    def _own(self, owner: MarkdownItem, at: int, line: str) -> None:
        owner.lines.append(at)
        owner.contents.append(line.strip(" \t"))

    def _opens_verbatim(self, at: int, line: str, columns: int, is_item: bool) -> None:
        owner = self._open[-1] if self._open else None
        if owner is None and columns > 3:
            return
        text = owner.contents[-1] if is_item and owner is not None else line
        if fence := _FENCE.match(text):
            self._verbatim = _Verbatim(at, owner, fence[1])
        elif not is_item and text.lstrip(" \t").startswith("<!--") and "-->" not in text:
            self._verbatim = _Verbatim(at, owner, "")


def _columns(line: str) -> int:
    count = 0
    for char in line:
        if char == " ":
            count += 1
        elif char == "\t":
            count += 4 - count % 4
        else:
            break
    return count


# Text that is only itself


_SPECIAL = r"<>\[\]&%$+*=_#|`~:-"
_HIDDEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u2064\u2066-\u206f"
    "\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f"
)
"""Control characters, and those that turn the reading direction or cannot be seen."""

_TO_ENCODE = re.compile(rf"(?<!\\)(\\*+)([{_SPECIAL}]|[\n{_HIDDEN}]|\A[ \t]|[ \t]\Z)")
_TO_DECODE = re.compile(rf"(?<!\\)(\\*+)(?:&#x([0-9A-Fa-f]{{1,6}});|([{_SPECIAL}]))")
_AS_NUMBER = re.compile(rf"[ \t\n{_HIDDEN}]")
_ENTITY = re.compile(r"&#x[0-9A-Fa-f]{1,6};")
_TAG = re.compile(r"<[A-Za-z/!?]")
_BLOCK = re.compile(r"[-+*](?=[ \t]|\Z)|[-*_=](?=[ \t]*[-*_=])|=\Z|#|>|\||`{3}|~{3}|:(?=[ \t]*-)")
"""What begins a block where it begins a line."""
_NUMBERED = re.compile(r"([0-9]{1,9})(\\*)([.)])(?=([ \t]|\Z)?)")
_BREAK = re.compile(r"(?<=[^\n])\n(?=[^\n])")


def encoded(text: str) -> list[str]:
    """The lines of Markdown that say `text`. None is blank, or begins or ends with white space."""
    lines = _BREAK.split(text)
    return [_line(line, alone=len(lines) == 1) for line in lines]


def decoded(line: str) -> str:
    """The text that one line of Markdown says, as far as it is escaped. Other Markdown stays as it is."""
    if "\\" not in line and "&#" not in line:
        return line
    match = _NUMBERED.match(line)
    if match and match[2]:
        line = match[1] + "\\" * (len(match[2]) // 2) + line[match.start(3) :]
    return _TO_DECODE.sub(_in, line)


def _line(text: str, alone: bool) -> str:
    def out(match: re.Match[str]) -> str:
        run, char = match.groups()
        if _AS_NUMBER.match(char):
            return run + run + f"&#x{ord(char):X};"
        special = _special(char, text, match.start(2)) or (char == "`" and not alone)
        return run + run + ("\\" if special else "") + char

    line = _TO_ENCODE.sub(out, text)
    number = _NUMBERED.match(line)
    if number is None:
        return line
    run = number[2] * 2 or ("\\" if number[4] is not None else "")
    return number[1] + run + line[number.start(3) :]


def _special(char: str, line: str, at: int) -> bool:
    """Whether a character would be more than itself."""
    match char:
        case "[":
            return True
        case "<":
            return _TAG.match(line, at) is not None
        case "&":
            return _ENTITY.match(line, at) is not None
        case "%" | "$" if char in (line[at + 1 : at + 2], line[at - 1 : at]):
            return True
    return at == 0 and _BLOCK.match(line) is not None


def _in(match: re.Match[str]) -> str:
    run, number, char = match.groups()
    kept = "\\" * (len(run) // 2)
    if number is None or len(run) % 2:
        return kept + (char if number is None else match[0][len(run) :])
    code = int(number, 16)
    said = chr(code) if code <= 0x10FFFF else ""
    return kept + (said if said and _AS_NUMBER.match(said) else match[0][len(run) :])
