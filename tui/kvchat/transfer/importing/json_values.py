"""The values of a JSON file, one at a time, however large it is.

A damaged value costs only itself. Brackets and strings show where a value begins and ends before it is parsed; one that
is too large, nested too deeply or no JSON becomes a NotTaken, and the next one follows.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import IO

from kvchat.transfer.exact_json import loads
from kvchat.transfer.importing.thread import DEEPEST, LONGEST, ImportRefusal, NotTaken

CHUNK, LARGEST_CHUNK = 2**18, 2**22
"""Octets that are read at once: the more, the more of one value is there already."""

# To the next bracket, over whole strings; a quote whose string does not end in what was read; or the end of that.
_BRACKET = re.compile(r'(?:[^"\[\]{}]++|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+([\[\]{}"]|\Z)', re.DOTALL)
_STRING_END = re.compile(r'[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_WRAPPER = re.compile(r'"conversations"\s*+:\s*+\Z')
_NOTHING = re.compile(r"[\s,\ufeff]*+")


class JsonValues:
    """The values of a file: the elements of its array, those of the array `conversations` in its object, or values one
    after the other as in JSONL. A value that cannot be read is a NotTaken."""

    def __init__(self, file: IO[bytes], encoding: str = "utf-8") -> None:
        self.header: dict[str, object] = {}
        """The fields before `conversations`."""
        self.length = 0
        """Characters of the value that came last."""
        self._file = file
        self._decoder = codecs.getincrementaldecoder(encoding)("replace")
        self._text = ""
        """What was read and is not done with."""
        self._ended = False
        self._at = 0
        """Where in the text it is looked next."""
        self._begin: int | None = 0
        """Where the value begins, or the text between two; None: it was longer than LONGEST and was dropped."""

    def __iter__(self) -> Iterator[object | NotTaken]:
        """Raises what reading the file raises."""
        depth = deepest = base = 0
        in_wrapper = False
        while (mark := self._bracket()) is not None:
            before = self._at - 1
            if mark in "[{":
                if depth == base:
                    yield from self._stray(before)
                    self._begin = before
                depth += 1
                deepest = max(deepest, depth - base)
                if base == 0 and mark == "[" and (depth == 1 or (depth == 2 and self._wraps(before))):
                    base, in_wrapper, self._begin, deepest = depth, depth == 2, self._at, 0
            elif depth == base:  # the array is over; or a bracket closes nothing
                if not (depth == 0 and in_wrapper):
                    yield from self._stray(before)
                base, depth, self._begin = 0, max(depth - 1, 0), self._at
            else:
                depth -= 1
                if depth == base:
                    if not (depth == 0 and in_wrapper):
                        yield self._value(deepest)
                    in_wrapper, self._begin, deepest = in_wrapper and depth > 0, self._at, 0
        if depth:
            yield NotTaken(ImportRefusal.CUT_OFF)
        else:
            yield from self._stray(len(self._text))

    def _value(self, deepest: int) -> object | NotTaken:
        if self._begin is None:
            return NotTaken(ImportRefusal.TOO_LARGE, limit=LONGEST)
        if deepest > DEEPEST:
            return NotTaken(ImportRefusal.TOO_DEEP, limit=DEEPEST)
        self.length = self._at - self._begin
        try:
            return loads(self._text[self._begin : self._at], lenient=True)
        except ValueError:
            return NotTaken(ImportRefusal.NOT_JSON)

    def _stray(self, end: int) -> Iterator[NotTaken]:
        """A NotTaken for the text between two values, where there is more than blanks and commas."""
        if self._begin is None or not _NOTHING.fullmatch(self._text, self._begin, end):
            yield NotTaken(ImportRefusal.NOT_ONE)

    def _wraps(self, before: int) -> bool:
        """Whether the array that begins here is the one of the conversations."""
        if self._begin is None or not _WRAPPER.search(self._text, max(self._begin, before - 100), before):
            return False
        try:
            header = loads(f"{self._text[self._begin : before]}[]}}", lenient=True)
        except ValueError:
            return False
        self.header = header if isinstance(header, dict) else {}
        return True

    def _bracket(self) -> str | None:
        """The next bracket outside of strings, with `_at` behind it; None: there is none any more."""
        while True:
            found = _BRACKET.match(self._text, self._at)
            assert found is not None  # it finds the end at least
            if found[1] and found[1] != '"':
                self._at = found.end()
                return found[1]
            if self._ended:
                self._at = len(self._text)
                return None
            self._at = found.start(1)
            if self._begin is not None and len(self._text) - self._begin > LONGEST:
                self._begin = None
            done = self._at if self._begin is None else self._begin
            self._text, self._at = self._text[done:], self._at - done
            if self._begin is not None:
                self._begin = 0
            if found[1] and self._begin is None:
                self._pass_string()
            else:
                self._more()

    def _pass_string(self) -> None:
        """Go behind the string that begins here; nothing of it is kept."""
        self._text, self._at = self._text[self._at + 1 :], 0
        while not (found := _STRING_END.match(self._text)):
            if self._ended:
                self._at = len(self._text)
                return
            escapes = len(self._text) - len(self._text.rstrip("\\"))
            self._text = "\\" * (escapes % 2)
            self._more()
        self._at = found.end()

    def _more(self) -> None:
        octets = self._file.read(min(max(CHUNK, len(self._text)), LARGEST_CHUNK))
        self._ended = not octets
        self._text += self._decoder.decode(octets, self._ended)
