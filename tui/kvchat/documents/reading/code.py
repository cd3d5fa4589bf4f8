"""Source code: sections by what is defined, under the names of the class and the function.

The rule: a definition is told by the look of a line and its indentation alone, so broken code is read like any other.
What stands right in front of a definition, comments and decorators, belongs to it. A function is one piece, whatever
is defined in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

from kvchat.documents.reading.content import Content, Unit
from kvchat.documents.reading.languages import BY_ENDING, BY_NAME, BY_PROGRAM, PYTHON, Language
from kvchat.documents.reading.outline import Mark, Outline, as_title, lines_of, sections

_GOES_ON = re.compile(r"[)\]}{]|(?:end|fi|done|esac|else|elif|elsif|elseif|except|finally|rescue|ensure|catch|begin|"
                      r"then)\b[^=(]*$")
"""Lines that say nothing about what ended, however little they are indented."""
_LABEL = re.compile(r"[\w \t]{1,40}:\s*$")
_TYPE = re.compile(r"[\w \t*&:<>,]{1,80}")
"""The line in front of a function's name in C that has its type."""
_STRINGS = re.compile(
    r"""\#[^\n]*+
    |\"\"\"(?:[^"\\]++|\\.|"(?!""))*+(?P<end>\"\"\"|\Z)|'''(?:[^'\\]++|\\.|'(?!''))*+(?P<end2>'''|\Z)
    |"(?:[^"\\\n]++|\\.)*+"?|'(?:[^'\\\n]++|\\.)*+'?""", re.VERBOSE | re.DOTALL)
_JSON_KEY = re.compile(r"([ \t]{1,8})\"([^\"\n]{1,80})\"[ \t]*:")
_VERSION = re.compile(r"[\d.]+$")


def reader_of(name: str) -> Callable[[str], Content] | None:
    """What reads a file of that name, in lower case; None: it says nothing."""
    ending = name.rpartition(".")[2]
    if name in BY_NAME:
        return partial(read_code, BY_NAME[name])
    if ending in ("json", "json5", "jsonc", "webmanifest"):
        return read_json
    return partial(read_code, BY_ENDING[ending]) if ending in BY_ENDING and ending != name else None


def reader_of_program(program: str) -> Callable[[str], Content] | None:
    """What reads a script for that program; None: it is not known."""
    language = BY_PROGRAM.get(_VERSION.sub("", program))
    return partial(read_code, language) if language else None


def read_code(language: Language, text: str) -> Content:
    """The sections of source code."""
    lines = lines_of(text)
    hidden = _in_strings(text, len(lines)) if language is PYTHON else None
    if not language.holders + language.functions:
        marks = []
    else:
        marks = _flat(language, lines) if language.flat else _Reading(language, lines, hidden).marks()
    return Content("", Unit.LINE, sections(lines, marks, code=True))


def read_json(text: str) -> Content:
    """The sections of JSON that is laid out in lines: its outermost keys."""
    lines, marks = lines_of(text), list[Mark]()
    indent = ""
    for at, line in enumerate(lines):
        if (found := _JSON_KEY.match(line)) and found[1] == (indent := indent or found[1]):
            marks.append(Mark(at, (as_title(found[2]),)))
    return Content("", Unit.LINE, sections(lines, marks, code=True))


def _flat(language: Language, lines: Sequence[str]) -> list[Mark]:
    """The definitions of a language in which each goes on to the next one."""
    marks, pending = list[Mark](), -1
    for at, line in enumerate(lines):
        if found := language.definition(line, False):
            marks.append(Mark(at if pending < 0 else pending, (as_title(found[0]),)))
            pending = -1
        elif not line.lstrip().startswith(language.comments):
            pending = -1
        elif pending < 0:
            pending = at
    return marks


def _in_strings(text: str, count: int) -> bytearray:
    """For each line, whether it begins inside of a string, as Python knows them."""
    hidden = bytearray(count)
    line = position = 0
    for found in _STRINGS.finditer(text):
        begin, end = found.span()
        if found[0].count("\n") == 0 or found[0][0] == "#":
            continue
        if end == len(text) and not (found["end"] or found["end2"]) and found[0][:3] in ('"""', "'''"):
            break  # never closed: this is broken code, and what follows is taken as it looks
        line += text.count("\n", position, begin)
        inside = text.count("\n", begin, end)
        hidden[line + 1:line + 1 + inside] = b"\1" * inside
        line, position = line + inside, end
    return hidden[:count]


class _Reading:
    """Going through source code by indentation."""

    def __init__(self, language: Language, lines: Sequence[str], hidden: bytearray | None) -> None:
        self._language = language
        self._lines = lines
        self._hidden = hidden
        self._outline = Outline()
        self._marks: list[Mark] = []
        self._body: int | None = None  # the indentation of the function that is being gone through
        self._braced = False  # whether its last brace has come
        self._pending: int | None = None  # where comments and decorators begin that may belong to what follows
        self._pending_indent = 0
        self._decorated: int | None = None  # the indentation of a decorator that waits for its definition
        self._header = True  # no code has come yet
        self._comment_end = ""

    def marks(self) -> list[Mark]:
        """Where the definitions begin."""
        for at, line in enumerate(self._lines):
            if self._hidden is not None and self._hidden[at]:
                continue
            bare = line.strip()
            if not bare:
                if self._header and self._decorated is None:
                    self._pending = None
                continue
            indent = len(line) - len(line.lstrip())
            if self._body is not None and indent > self._body and not self._comment_end:
                self._pending = None
            elif not self._in_comment(at, bare, indent):
                self._take(at, line, bare, indent)
        return self._marks

    def _in_comment(self, at: int, bare: str, indent: int) -> bool:
        """Whether the line is a comment, or a decorator, of what may follow."""
        begin, end = self._language.block
        if self._comment_end:
            if self._comment_end in bare:
                self._comment_end = ""
            return True
        if begin and bare.startswith(begin):
            if end not in bare[len(begin):]:
                self._comment_end = end
        elif not self._language.comments or not bare.startswith(self._language.comments):
            return False
        if self._pending is None or indent < self._pending_indent:
            self._pending, self._pending_indent = at, indent
        return True

    def _take(self, at: int, line: str, bare: str, indent: int) -> None:
        """A line of code outside of functions, or one that may end a function."""
        if self._decorated is not None and (indent > self._decorated or bare[0] in ")]}"):
            return
        start = at if self._pending is None or indent < self._pending_indent else self._pending
        if bare.startswith(self._language.attributes):
            self._ended(start, indent)
            self._pending, self._pending_indent, self._decorated, self._header = start, indent, indent, False
            return
        inside = self._outline.is_inside(indent)
        found = self._language.definition(line, inside)
        if found is None and self._goes_on(bare):
            self._braced = self._braced or bare[0] == "}"
            self._pending = None
            return
        self._pending, self._decorated, self._header = None, None, False
        if found is None:
            self._ended(start, indent)
            if self._language.calls == "everywhere" and _TYPE.fullmatch(bare):
                self._pending, self._pending_indent = start, indent
            return
        name, holds = found
        self._marks.append(Mark(start, self._outline.opened(indent, name)))
        self._body, self._braced = None if holds else indent, False

    def _goes_on(self, bare: str) -> bool:
        """Whether a line belongs to what is open, though it is not indented."""
        if not self._outline.titles:
            return False
        if _GOES_ON.match(bare[:200]):
            return True
        in_body = self._body is not None and not self._braced
        return self._language.calls == "everywhere" and bool(_LABEL.match(bare) or (bare[0] == "#" and in_body))

    def _ended(self, at: int, indent: int) -> None:
        """End what is open and not less indented."""
        if self._outline.closed(indent):
            self._marks.append(Mark(at, self._outline.titles))
            self._body = None
