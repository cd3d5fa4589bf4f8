"""Limit a search to documents by the beginnings of their names, and by their dates.

A scope that ends with `/`, and a document named by `exactly`, are tokens of the full-text index, so that looking there
costs no more than another word.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from msgspec import Struct

from kvchat.prompt.wire import whole_characters

Scope = str | Sequence[str]
"""The beginning of names of documents, or several; empty: all documents; an empty list: none."""

_END = "\0"
"""Behind the name of a document: that one alone."""
_HIGHEST = "\U0010ffff"


def exactly(doc: str) -> str:
    """The scope of one document, by its whole name."""
    return doc + _END


def places(doc: str) -> str:
    """The tokens of a document: of all folders that it is in, and of itself."""
    return " ".join(map(_place, (*(doc[: at + 1] for at, char in enumerate(doc) if char == "/"), exactly(doc))))


def _place(scope: str) -> str:
    """A scope as a token of the index. Digits: no word ending is taken from them."""
    return str(int.from_bytes(hashlib.blake2b(whole_characters(scope).encode(), digest_size=8).digest()))


class Within(Struct, frozen=True):
    """The documents that are looked at."""

    scopes: tuple[str, ...] = ("",)
    since: float | None = None
    """Documents of this date or later, in seconds since the epoch; one without a date is of no time."""
    until: float | None = None
    """Documents before this date."""

    @classmethod
    def of(cls, scope: Scope, since: float | None = None, until: float | None = None) -> Within:
        given = [scope] if isinstance(scope, str) else scope
        scopes = tuple(dict.fromkeys(map(whole_characters, given)))
        return cls(("",) if "" in scopes else scopes, since, until)

    @property
    def is_dated(self) -> bool:
        return self.since is not None or self.until is not None

    @property
    def undated(self) -> Within:
        """The same scopes, at all times."""
        return Within(self.scopes)

    @property
    def tokens(self) -> str | None:
        """The scopes as an expression of the index for its column `place`; None where a token cannot say it."""
        if self.scopes and all(scope.endswith(("/", _END)) for scope in self.scopes):
            return " OR ".join(f'"{_place(scope)}"' for scope in self.scopes)
        return None

    @property
    def ranges(self) -> list[tuple[str, str]]:
        """For each scope the first name in it, and the first one behind it."""
        return [(scope[:-1], scope) if scope.endswith(_END) else (scope, scope + _HIGHEST) for scope in self.scopes]

    @property
    def named(self) -> tuple[str, tuple[object, ...]]:
        """The condition on `doc.name`, and its values."""
        if "" in self.scopes:
            return "1", ()
        each = " OR ".join("doc.name >= ? AND doc.name < ?" for _ in self.scopes)
        return f"({each or '0'})", tuple(name for ends in self.ranges for name in ends)

    @property
    def dated(self) -> tuple[str, tuple[object, ...]]:
        """The condition on `doc.date`, and its values."""
        bounds = [("doc.date >= ?", self.since), ("doc.date < ?", self.until)]
        known = [(sql, value) for sql, value in bounds if value is not None]
        return " AND ".join(sql for sql, _ in known) or "1", tuple(value for _, value in known)

    @property
    def condition(self) -> tuple[str, tuple[object, ...]]:
        """The condition on `doc`, and its values."""
        (named, names), (dated, dates) = self.named, self.dated
        return f"{named} AND {dated}", names + dates


ALL = Within()
