"""What a user typed into the search box, as words to look for; and the line to show around a match.

Any text is a valid query. Words are quoted for FTS5, so nothing a user types is an operator.

Chinese, Japanese, Thai and the like are written without spaces: both the indexed text and the query are cut into pairs
of neighbouring characters, so that a word of two characters is found anywhere.
"""

from __future__ import annotations

import re
import unicodedata

from msgspec import Struct

from kvchat.patterns import compiled_later
from kvchat.prompt.tags import TERM, is_term
from kvchat.prompt.wire import whole_characters
from kvchat.store.fulltext.index import INVISIBLE, LINE_END, UNSPACED, bare, indexed, pairs, visible

LONGEST_QUERY = 1000
MOST_WORDS = 32
SNIPPET = 160
"""Characters of a snippet, at most."""
BEFORE = 40
"""Characters of a snippet in front of its first match, at most."""

_TOKEN = re.compile(r"[^\W_]+")
_WORD = re.compile(r'"([^"]*)"?|([^\s"]+)')
_SEGMENT = compiled_later(f"(?P<run>[{UNSPACED}]+)|[^\\W_{UNSPACED}]+(?:[\\W_]+[^\\W_{UNSPACED}]+)*")
_MARKS = f"[\u0300-\u036f{INVISIBLE}]*"
_BETWEEN = f"{_MARKS}(?:{LINE_END})?"
"""What may stand between two letters of a word: marks, what is invisible, the end of a line that cuts it."""


def folded(text: str) -> str:
    """`text` without case and accents, character for character: positions stay the same."""
    if text.isascii():
        return text.lower()
    return text.translate({ord(char): _folded(char) for char in set(text)})


def _folded(char: str) -> str:
    if "\uac00" <= char <= "\ud7a3":
        return char
    return unicodedata.normalize("NFD", char)[0].lower()[0]


class Word(Struct, frozen=True):
    """One thing to look for: tokens that follow each other, or a literal string."""

    text: str
    """As typed."""
    phrases: tuple[str, ...]
    """Tokens for the index, none if the word holds no letter or digit."""
    literal: bool
    """Whether the text must also occur letter by letter: `C++` is not every word that begins with c."""
    pattern: re.Pattern[str]
    """Finds the word in `folded` text."""


class Query(Struct, frozen=True):
    words: tuple[Word, ...]
    tags: tuple[str, ...] = ()
    """What follows each `tag:`."""

    @property
    def match(self) -> str:
        """The FTS5 expression; empty when there is nothing the index could find."""
        return " AND ".join(phrase for word in self.words for phrase in word.phrases)

    def fits(self, text: str) -> bool:
        """Whether `text` holds every word."""
        text = folded(text)
        return all(word.pattern.search(text) for word in self.words)

    def snippet(self, text: str) -> str | None:
        """One line of `text` around its first match, with \\x02 and \\x03 around each; None without a match."""
        found = sorted(match.span() for word in self.words for match in word.pattern.finditer(folded(text)))
        return _marked(text, found) if found else None


def parsed(text: str, *, whole: bool = False) -> Query:
    """The query a user typed. Text in double quotes is one phrase; the last word is a prefix until it ends, or with
    `whole` never; `tag:NAME` asks for a tag."""
    text = visible(unicodedata.normalize("NFC", whole_characters(text[:LONGEST_QUERY]).replace("\x00", " ")))
    found, tags = list[str](), list[str]()
    for match in _WORD.finditer(text):
        if match[2] and is_term(match[2]):
            tags.append(match[2][len(TERM) :])
        else:
            found.append((match[1] if match[1] is not None else match[2]).strip())
    typed = [word for word in found if word][:MOST_WORDS]
    open_end = (
        not whole and bool(text) and not text[-1].isspace() and not (text[-1] == '"' and text.count('"') % 2 == 0)
    )
    last = len(typed) - 1
    return Query(tuple(_word(word, open_end and i == last) for i, word in enumerate(typed)), tuple(tags[:MOST_WORDS]))


def _word(text: str, prefix: bool) -> Word:
    segments = list(_SEGMENT.finditer(text))
    phrases, patterns = [], []
    for segment in segments:
        open_end = prefix and segment is segments[-1]
        if segment["run"]:
            if run := bare(segment[0]):
                phrases.append(f'"{pairs(run)}"' if len(run) > 1 else f'"{run}" *')
            patterns.append(re.escape(folded(segment[0])))
        else:
            tokens = _TOKEN.findall(segment[0])
            spelled = [*map(indexed, tokens[:-1]), tokens[-1] if open_end else indexed(tokens[-1])]
            phrases.append(f'"{" ".join(spelled)}"' + (" *" if open_end else ""))
            patterns.append(_token_pattern(tokens, open_end))
    letters = sum(char.isalnum() for char in text)
    literal = letters <= 1 and letters < len(text)
    pattern = re.escape(folded(text)) if literal or not patterns else r"\s*".join(patterns)
    return Word(text, tuple(phrases), literal, re.compile(pattern))


def _token_pattern(tokens: list[str], prefix: bool) -> str:
    spelled = [_BETWEEN.join(re.escape(char) for char in folded(token)) + _MARKS for token in tokens]
    end = "" if prefix else rf"(?![^\W_{UNSPACED}])"
    begin = r"(?<!\d)" if tokens[0][0].isdigit() else rf"(?<![^\W_{UNSPACED}])"
    return begin + r"[\W_]+".join(spelled) + end


def _marked(text: str, spans: list[tuple[int, int]]) -> str:
    start = max(0, spans[0][0] - BEFORE)
    if start and (space := text.find(" ", start, spans[0][0])) >= 0:
        start = space + 1
    end = min(len(text), start + SNIPPET)
    parts, at = [], start
    for begin, stop in spans:
        if begin < at or begin >= end:
            continue
        stop = min(stop, end)
        parts += [_one_line(text[at:begin]), "\x02", _one_line(text[begin:stop]), "\x03"]
        at = stop
    parts.append(_one_line(text[at:end]))
    return ("…" if start else "") + "".join(parts).strip() + ("…" if end < len(text) else "")


_BLANK = re.compile(r"[\s\x02\x03]+")


def _one_line(text: str) -> str:
    return _BLANK.sub(" ", text)


def beginning(text: str) -> str:
    """The first line of a snippet's length, for a message whose match cannot be shown."""
    line = _one_line(text[: 4 * SNIPPET]).strip()
    return line if len(line) <= SNIPPET else line[: SNIPPET - 1] + "…"
