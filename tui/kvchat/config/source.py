"""The place of each key in a TOML text. tomllib gives values without places; this gives places without values.

It is used only on text that tomllib has accepted, and it fails on no text.
"""

from __future__ import annotations

import re

from msgspec import Struct

Key = tuple[str, ...]
DEPTH = 16
"""Tables inside each other whose places are noted."""

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_PART = re.compile(r"""[A-Za-z0-9_-]+|"(?:\\.|[^"\\\n])*"|'[^'\n]*'""")
_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?""""{0,2}' r"|'''.*?''''{0,2}" r'|"(?:\\.|[^"\\\n])*"' r"|'[^'\n]*'" r"|#[^\n]*|[\[\]{}\n]",
    re.DOTALL,
)


class TomlStatement(Struct, frozen=True):
    """One statement: a key with its value, or the header of a section."""

    start: int
    """Offset of the key."""
    value: int
    """Offset of the value; the end of the line for a header."""
    end: int
    """Offset behind the value."""
    header: bool = False


class TomlSource:
    """A TOML text and the places of its keys; of a key that occurs twice, the first."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.entries: dict[Key, TomlStatement] = {}
        self._scan()

    def place(self, key: Key) -> tuple[int, int]:
        """Line and column, from 1, of `key`, else of the nearest table around it, else of the file's beginning."""
        for length in range(len(key), 0, -1):
            if entry := self.entries.get(key[:length]):
                return self.position(entry.start)
        return 1, 1

    def position(self, offset: int) -> tuple[int, int]:
        return self.text.count("\n", 0, offset) + 1, offset - self.text.rfind("\n", 0, offset)

    def _scan(self) -> None:
        section: Key = ()
        position = 0
        while (position := _end(_BLANK, self.text, position)) < len(self.text):
            start = position
            header = self.text.startswith("[", position)
            key, position = self._key(position + 2 if self.text.startswith("[[", position) else position + header)
            if header:
                section, position = key, self._line_end(position)
                self._around((), key, start)
                self._enter(key, TomlStatement(start, position, position, header=True))
            else:
                value = _end(_SPACE, self.text, position + 1)
                position = self._value_end(value)
                self._around(section, key, start)
                self._enter(section + key, TomlStatement(start, value, position))
            position = max(position, start + 1)

    def _enter(self, key: Key, entry: TomlStatement) -> None:
        known = self.entries.get(key)
        if known is None or (entry.header and not known.header and known.end == known.start):
            self.entries[key] = entry

    def _around(self, section: Key, key: Key, start: int) -> None:
        """Note the tables that `a.b.c` makes without a header of their own."""
        for length in range(1, min(len(key), DEPTH)):
            self._enter(section + key[:length], TomlStatement(start, start, start))

    def _key(self, position: int) -> tuple[Key, int]:
        parts: list[str] = []
        while part := _PART.match(self.text, position := _end(_SPACE, self.text, position)):
            parts.append(_plain(part[0]))
            position = _end(_SPACE, self.text, part.end())
            if not self.text.startswith(".", position):
                break
            position += 1
        return tuple(parts), position

    def _line_end(self, position: int) -> int:
        end = self.text.find("\n", position)
        return len(self.text) if end < 0 else end

    def _value_end(self, position: int) -> int:
        """The offset behind the value that begins at `position`: arrays and inline tables may span lines."""
        depth, end = 0, position
        while token := _TOKEN.search(self.text, end):
            end = token.end()
            match token[0][0]:
                case "[" | "{":
                    depth += 1
                case "]" | "}":
                    depth -= 1
                case "\n" | "#" if depth <= 0:
                    return len(self.text[: token.start()].rstrip())
        return len(self.text.rstrip())


def _end(pattern: re.Pattern[str], text: str, position: int) -> int:
    found = pattern.match(text, position)
    return found.end() if found else position


def _plain(part: str) -> str:
    """A key part without its quotes. Escapes in keys are rare enough to be asked of tomllib itself."""
    if part.startswith("'"):
        return part[1:-1]
    if not part.startswith('"'):
        return part
    if "\\" not in part:
        return part[1:-1]
    import tomllib

    try:
        return str(tomllib.loads(f"key = {part}")["key"])
    except ValueError:
        return part[1:-1]
