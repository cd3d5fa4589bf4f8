"""Token ids that servers give: of growing prompts, and which texts a server would read as its special tokens.

What was tokenised once is not sent again. A prompt is cut only in front of a special token, where tokenisers
start afresh, so that the pieces' ids joined are the ids of the whole. A question waits for its special tokens only so
long; what was learnt stays for the next one, and so does what is still to be asked.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import pairwise
from typing import Protocol, runtime_checkable
from weakref import WeakKeyDictionary

from kvchat.backends.dialect import Backend, BackendError
from kvchat.cache import Tokens
from kvchat.prompt.context import broken

# -- of growing prompts -----------------------------------------------------------------------------------------------


MOST_TOKENS = 2_000_000
"""Token ids that are kept, 4 bytes each."""
BRIDGED = 64
"""Characters of known pieces that are sent again, so that what is to be asked on both sides goes in one request."""
ENTRY = 32
"""What keeping a piece costs in addition to its ids, counted in ids."""


class PieceTokens:
    """Tokenises through `ask(text, is_start)`, which gives the ids of a text; `is_start`: it begins a prompt."""

    def __init__(
        self,
        ask: Callable[[str, bool], Awaitable[Sequence[int]]],
        ask_pieces: Callable[[str, bool], Awaitable[Sequence[tuple[int, str]]]],
        specials: Sequence[str],
    ) -> None:
        """`ask_pieces`: as `ask`, with the text of each id."""
        self._ask = ask
        self._ask_pieces = ask_pieces
        marks = sorted({mark for mark in specials if mark}, key=len, reverse=True)
        self._cut = re.compile("(?=" + "|".join(map(re.escape, marks)) + ")") if marks else None
        self._ids: dict[str, int] = {}
        """The id of each special token, once a text had it; -1: it is not one token."""
        self._marks = marks
        self._known: OrderedDict[bytes, Tokens] = OrderedDict()
        self._held = 0

    async def tokens(self, text: str, *, is_start: bool = True, then: str = "") -> Tokens:
        """The ids of `text`. `is_start`: it begins a prompt. `then`: the ids of `text` with this behind it are asked
        for next, and come with the same request where its last piece does not begin it."""
        if then and len(pieces := self._cut_up(text)) > 1:
            await self.tokens(text + pieces[-1] + then, is_start=is_start)
        pieces = self._cut_up(text)
        keys = [_key(piece, is_start and at == 0) for at, piece in enumerate(pieces)]
        found = [self._known.get(key) for key in keys]
        at = 0
        while at < len(pieces):
            if found[at] is not None:
                if keys[at] in self._known:  # another call may have let go of it meanwhile
                    self._known.move_to_end(keys[at])
                at += 1
                continue
            end = at + 1
            for later in range(end, len(pieces)):
                if sum(map(len, pieces[end:later])) > BRIDGED:
                    break
                if found[later] is None:
                    end = later + 1
            read = await self._read(pieces[at:end], is_start and at == 0)
            if len(read) == end - at:
                found[at:end] = read
                for key, tokens in zip(keys[at:end], read, strict=True):
                    self._keep(key, tokens)
            else:
                found[at:end] = [*read, *([Tokens()] * (end - at - len(read)))]
            at = end
        return Tokens.joined([tokens for tokens in found if tokens is not None])

    def _cut_up(self, text: str) -> list[str]:
        return [piece for piece in self._cut.split(text) if piece] if self._cut else [text]

    async def _read(self, pieces: Sequence[str], is_start: bool) -> list[Tokens]:
        """The ids of each of some neighbouring pieces; of all in one where they cannot be separated."""
        text = "".join(pieces)
        marks = {self._mark(piece) for piece in pieces[1:]}
        if marks <= self._ids.keys():
            ids = list(await self._ask(text, is_start))
        else:  # costs more than the ids alone, once
            found = await self._ask_pieces(text, is_start)
            ids = [id for id, _ in found]
            for mark in marks:
                alone = {id for id, piece in found if piece == mark}
                self._ids[mark] = alone.pop() if len(alone) == 1 else -1
        if len(pieces) == 1:
            return [Tokens(ids)]
        firsts = {self._ids[mark] for mark in marks}
        starts = [at for at, id in enumerate(ids) if at and id in firsts]
        if len(starts) != len(pieces) - 1:
            return [Tokens(ids)]
        bounds = [0, *starts, len(ids)]
        return [Tokens(ids[a:b]) for a, b in pairwise(bounds)]

    def _mark(self, piece: str) -> str:
        """The special token that `piece` begins with."""
        return next(mark for mark in self._marks if piece.startswith(mark))

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


# -- special tokens in foreign text -----------------------------------------------------------------------------------


WAIT_S = 0.5
"""How long a question waits for it."""
PART = 16 * 1024
"""Characters that are asked about at a time."""
LONG_RUN, OVERLAP = 2048, 256
"""Characters of a run that is cut in pieces, and of what two of these share: no special token is longer."""
MOST_RUNS, MOST_SPECIALS = 50_000, 2_000
MOST_CANDIDATES = 256
ROUNDS = 8

_RUN = re.compile(r"\S+")
_MARKED = re.compile(r"[^\w\s.,;:!?()'\"“”‘’„…。，、；：！？（）「」*#=+–—-]")
"""What no plain words have: these need not be asked about."""

log = logging.getLogger(__name__)


@runtime_checkable
class SpecialTokenAccess(Protocol):
    """A backend whose server tells how it reads a text. Both raise BackendError when it does not after all."""

    async def ids_of(self, text: str, *, specials: bool) -> Sequence[int]:
        """The token ids of a part of a prompt; `specials`: special tokens in it are read as such."""

    async def pieces_of(self, text: str) -> Sequence[tuple[int, str]]:
        """The token ids of a part of a prompt, special tokens read as such, each with its text."""


class _Verdicts:
    """What is known of one model on one server."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.specials: dict[str, None] = {}
        self.plain: set[str] = set()
        """Texts that were taken for special tokens, and are none."""
        self.asked: dict[bytes, None] = {}
        """The digests of the runs of characters that hold no special token but those known."""

    def keep(self, runs: Sequence[str]) -> None:
        self.asked |= dict.fromkeys(map(_digest, runs))
        for digest in list(self.asked)[: max(0, len(self.asked) - MOST_RUNS)]:
            del self.asked[digest]


_known: WeakKeyDictionary[Backend, _Verdicts] = WeakKeyDictionary()


async def special_texts(backend: Backend, text: str) -> frozenset[str]:
    """The texts in `text` that this server would read as special tokens; none where it cannot be asked. What it does
    not tell in time is left out. Never raises but CancelledError."""
    if not isinstance(backend, SpecialTokenAccess):
        return frozenset()
    model = f"{backend.info.place} {backend.info.model} {backend.info.build}"
    verdicts = _known.get(backend)
    if verdicts is None or verdicts.model != model:
        verdicts = _known[backend] = _Verdicts(model)
    try:
        async with asyncio.timeout(WAIT_S):
            for runs in _parts(text, verdicts):
                await _judge(backend, runs, verdicts)
    except (TimeoutError, BackendError) as error:
        log.info("not all special tokens of the server are known: %s", error or "it takes too long")
    return frozenset(special for special in verdicts.specials if special in text)


def _parts(text: str, verdicts: _Verdicts) -> Iterator[list[str]]:
    """The runs of characters without white space that are still to be asked about, some at a time."""
    part: list[str] = []
    size = 0
    for run in dict.fromkeys(piece for match in _RUN.finditer(text) for piece in _pieces(match[0])):
        if not _MARKED.search(run) or _digest(run) in verdicts.asked:
            continue
        part.append(run)
        size += len(run)
        if size >= PART:
            yield part
            part, size = [], 0
    if part:
        yield part


def _pieces(run: str) -> list[str]:
    if len(run) <= LONG_RUN:
        return [run]
    return [run[at : at + LONG_RUN] for at in range(0, len(run) - OVERLAP, LONG_RUN - OVERLAP)]


def _digest(run: str) -> bytes:
    return hashlib.blake2b(run.encode("utf-8", "surrogatepass"), digest_size=12).digest()


async def _judge(server: SpecialTokenAccess, runs: Sequence[str], verdicts: _Verdicts) -> None:
    """Learn all special tokens in these runs. Breaking one may bring another to light, so it is asked again."""
    text = broken("\n".join(runs), verdicts.specials)
    for _ in range(ROUNDS):
        ids = await server.ids_of(text, specials=False)
        if await server.ids_of(text, specials=True) == ids:
            break
        found = await _specials_of(server, await _candidates(server, text, frozenset(ids), verdicts), verdicts)
        if not found or len(verdicts.specials) > MOST_SPECIALS:
            break
        verdicts.specials |= dict.fromkeys(found)
        text = broken(text, found)
    else:
        return
    verdicts.keep(runs)


async def _candidates(server: SpecialTokenAccess, text: str, plain: frozenset[int], verdicts: _Verdicts) -> list[str]:
    """What may be the special tokens of a text: those that it has only when they are read as such."""
    texts: dict[str, None] = {}
    for id, piece in await server.pieces_of(text):
        if id not in plain:
            texts[_text_of(piece)] = None
    known = verdicts.specials.keys() | verdicts.plain
    found = [one for one in texts if len(one) > 1 and not re.search(r"\s", one) and one in text and one not in known]
    return sorted(found, key=lambda one: not _MARKED.search(one))[:MOST_CANDIDATES]


async def _specials_of(server: SpecialTokenAccess, texts: Sequence[str], verdicts: _Verdicts) -> list[str]:
    """Those of these texts that are special tokens: alone in a line too, each is one token and one of letters else."""
    listed = "\n".join(texts)
    plain = frozenset(await server.ids_of(listed, specials=False))
    alone = {_text_of(piece) for id, piece in await server.pieces_of(listed) if id not in plain} if texts else set()
    found = [text for text in texts if text in alone and (_MARKED.search(text) or await _is_one(server, text))]
    if len(verdicts.plain) < MOST_RUNS:
        verdicts.plain.update(text for text in texts if text not in found)
    return found


async def _is_one(server: SpecialTokenAccess, text: str) -> bool:
    ids = await server.ids_of(text, specials=True)
    return len(ids) == 1 and ids != await server.ids_of(text, specials=False)


def _text_of(piece: str) -> str:
    """The text of a token in a prompt: some tokenisers have a mark for the blank that it begins with."""
    return f"▁{piece[1:]}" if piece.startswith(" ") else piece
