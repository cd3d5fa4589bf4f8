"""Text as Markdown that says just this text: it makes no heading, list, link, picture, tag or comment of its own.

The rule: `decoded` gives back every character that `encoded` was given, so that a text can never be more than itself.
Little is escaped: what is not special where it stands stays as it is, and backslashes count only in front of
something special, so that `C:\\Users` is read as it was typed.
"""

from __future__ import annotations

import re

_SPECIAL = r"<>\[\]&%$+*=_#|`~:-"
_HIDDEN = ("\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u2064\u2066-\u206f"
           "\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f")
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
        line = match[1] + "\\" * (len(match[2]) // 2) + line[match.start(3):]
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
    return number[1] + run + line[number.start(3):]


def _special(char: str, line: str, at: int) -> bool:
    """Whether a character would be more than itself."""
    match char:
        case "[":
            return True
        case "<":
            return _TAG.match(line, at) is not None
        case "&":
            return _ENTITY.match(line, at) is not None
        case "%" | "$" if char in (line[at + 1:at + 2], line[at - 1:at]):
            return True
    return at == 0 and _BLOCK.match(line) is not None


def _in(match: re.Match[str]) -> str:
    run, number, char = match.groups()
    kept = "\\" * (len(run) // 2)
    if number is None or len(run) % 2:
        return kept + (char if number is None else match[0][len(run):])
    code = int(number, 16)
    said = chr(code) if code <= 0x10FFFF else ""
    return kept + (said if said and _AS_NUMBER.match(said) else match[0][len(run):])
