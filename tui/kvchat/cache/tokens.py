"""Token ids as one compact value, made for finding where two prompts part.

The rule: comparing costs microseconds for a prompt of 100,000 tokens; it happens for every state at every turn.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Iterator

_WIDTH = array("i").itemsize
_STEP = 1 << 14
"""Bytes compared at one go."""
_SIGN = _WIDTH - 1 if sys.byteorder == "little" else 0
"""Which byte of an id has its sign."""


class Tokens:
    """An immutable sequence of token ids. Negative ids stand for tokens whose id is not known: each is unlike all."""

    __slots__ = ("_data", "_known")

    def __init__(self, ids: Iterable[int] = ()) -> None:
        self._data = array("i", ids).tobytes()
        self._known = _known(self._data)

    @classmethod
    def _of(cls, data: bytes, known: int) -> Tokens:
        new = cls.__new__(cls)
        new._data = data
        new._known = min(known, len(data))
        return new

    @classmethod
    def unknown(cls, count: int, mark: int = 1) -> Tokens:
        """`count` tokens of which only their number is known. With another `mark`, from 1 on, they are the beginning
        of no others."""
        return cls._of(array("i", [-mark]).tobytes() * max(0, count), 0)

    @classmethod
    def joined(cls, parts: Iterable[Tokens]) -> Tokens:
        """The parts one after the other."""
        data = b"".join(part._data for part in parts)
        return cls._of(data, _known(data))

    def __len__(self) -> int:
        return len(self._data) // _WIDTH

    def __iter__(self) -> Iterator[int]:
        return iter(array("i", self._data))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tokens) and self._data == other._data

    def __hash__(self) -> int:
        return hash(self._data)

    def __add__(self, other: Tokens) -> Tokens:
        whole = len(self._data)
        known = self._known if self._known < whole else whole + other._known
        return Tokens._of(self._data + other._data, known)

    def __repr__(self) -> str:
        return f"Tokens({len(self)})"

    @property
    def known(self) -> int:
        """How many tokens there are before the first one whose id is not known."""
        return self._known // _WIDTH

    def first(self, count: int) -> Tokens:
        """The first `count` tokens (all, if there are fewer)."""
        return self if count >= len(self) else Tokens._of(self._data[: max(0, count) * _WIDTH], self._known)

    def after(self, count: int) -> Tokens:
        """What follows the first `count` tokens."""
        data = self._data[max(0, count) * _WIDTH:]
        return Tokens._of(data, _known(data))

    def starts_with(self, other: Tokens) -> bool:
        """Whether `other` is the beginning of this, byte for byte: a token of unknown id is like itself here."""
        return self._data.startswith(other._data)

    def places_of(self, part: Tokens) -> Iterator[int]:
        """Where `part` stands in this, from left to right, without overlaps."""
        wanted, at = part._data, self._data.find(part._data) if part else -1
        while at >= 0:
            if at % _WIDTH == 0:
                yield at // _WIDTH
            at = self._data.find(wanted, at + (len(wanted) if at % _WIDTH == 0 else 1))

    def common(self, other: Tokens) -> int:
        """How many tokens both begin with."""
        a, b = self._data, other._data
        end = min(self._known, other._known)
        at = 0
        while at < end and b.startswith(a[at:min(at + _STEP, end)], at):
            at += _STEP
        if at >= end:
            return end // _WIDTH
        low, high = at, min(at + _STEP, end)  # they part in [low, high)
        while high - low > _WIDTH:
            middle = (low + high) // (2 * _WIDTH) * _WIDTH
            if a[low:middle] == b[low:middle]:
                low = middle
            else:
                high = middle
        return low // _WIDTH


def _known(data: bytes) -> int:
    """How many bytes there are before the first negative id."""
    signs = data[_SIGN::_WIDTH]
    if signs.isascii():
        return len(data)
    return next(at for at, sign in enumerate(signs) if sign > 127) * _WIDTH


NO_TOKENS = Tokens()
