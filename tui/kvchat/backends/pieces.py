"""Token ids of growing prompts: what was tokenised once is not sent again.

The rule: a prompt is cut only in front of a special token, where tokenisers start afresh, so that the pieces' ids
joined are the ids of the whole.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise

from kvchat.cache.tokens import Tokens

MOST_TOKENS = 2_000_000
"""Token ids that are kept, 4 bytes each."""
ENTRY = 32
"""What keeping a piece costs beside its ids, in the room of ids."""


class PieceTokens:
    """Tokenises through `ask(text, is_start)`, which gives the ids of a text; `is_start`: it begins a prompt."""

    def __init__(self, ask: Callable[[str, bool], Awaitable[Sequence[int]]], specials: Sequence[str]) -> None:
        self._ask = ask
        marks = sorted({mark for mark in specials if mark}, key=len, reverse=True)
        self._cut = re.compile("(?=" + "|".join(map(re.escape, marks)) + ")") if marks else None
        self._ids: dict[str, int] = {}
        """The id of each special token, once it was seen alone."""
        self._marks = marks
        self._known: OrderedDict[bytes, Tokens] = OrderedDict()
        self._held = 0

    async def tokens(self, text: str) -> Tokens:
        """The ids of `text`, which begins a prompt."""
        pieces = [piece for piece in self._cut.split(text) if piece] if self._cut else [text]
        keys = [_key(piece, at == 0) for at, piece in enumerate(pieces)]
        found = [self._known.get(key) for key in keys]
        at = 0
        while at < len(pieces):
            if found[at] is not None:
                if keys[at] in self._known:  # another call may have let go of it meanwhile
                    self._known.move_to_end(keys[at])
                at += 1
                continue
            end = at + 1
            while end < len(pieces) and found[end] is None:
                end += 1
            read = await self._read(pieces[at:end], at == 0)
            if len(read) == end - at:
                found[at:end] = read
                for key, tokens in zip(keys[at:end], read, strict=True):
                    self._keep(key, tokens)
            else:
                found[at:end] = [*read, *([Tokens()] * (end - at - len(read)))]
            at = end
        return Tokens.joined([tokens for tokens in found if tokens is not None])

    async def _read(self, pieces: Sequence[str], is_start: bool) -> list[Tokens]:
        """The ids of each of some neighbouring pieces; of all in one where they cannot be told apart."""
        ids = list(await self._ask("".join(pieces), is_start))
        if len(pieces) == 1:
            return [Tokens(ids)]
        firsts = {await self._special(piece) for piece in pieces[1:]}
        starts = [at for at, id in enumerate(ids) if at and id in firsts]
        if len(starts) != len(pieces) - 1:
            return [Tokens(ids)]
        bounds = [0, *starts, len(ids)]
        return [Tokens(ids[a:b]) for a, b in pairwise(bounds)]

    async def _special(self, piece: str) -> int:
        """The id of the special token that `piece` begins with; -1 if it is not one token."""
        mark = next(mark for mark in self._marks if piece.startswith(mark))
        if mark not in self._ids:
            ids = await self._ask(mark, False)
            self._ids[mark] = ids[0] if len(ids) == 1 else -1
        return self._ids[mark]

    def _keep(self, key: bytes, tokens: Tokens) -> None:
        if key in self._known:
            return
        self._known[key] = tokens
        self._held += len(tokens) + ENTRY
        while self._held > MOST_TOKENS:
            _, dropped = self._known.popitem(last=False)
            self._held -= len(dropped) + ENTRY


def _key(piece: str, is_start: bool) -> bytes:
    kind = b"start" if is_start else b""
    return hashlib.blake2b(piece.encode("utf-8", "surrogatepass"), digest_size=16, key=kind).digest()
