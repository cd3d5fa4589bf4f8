"""What is warm on a server that shares prefixes among all conversations and does not let its cache be tracked.

A message's digest identifies the whole prefix up to it, and its length is estimated. Nothing finer than a message is
known here: an estimate is off by more than the blocks that such servers keep, and none of them takes a
state to hold from a client.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from kvchat.backends.dialect import ServerInfo
from kvchat.backends.kinds import Figures, kind_of
from kvchat.figures.accounting import NOISE
from kvchat.prompt.message import Node, Role, State
from kvchat.reports.warmth import UNKNOWN, Heat, Warmth

BYTES_PER_TOKEN = 4
ROOM = 500_000
"""Tokens that are remembered: about what a large server's cache holds."""
HELD_S = 300.0
"""After so long without use such servers may have unloaded the model (Ollama: 5 min): what is held is unknown."""
PARTLY = 0.5
"""A conversation of which less than this share is held is called cold."""


class SharedPrefixes:
    """The prefixes that were sent to one server."""

    def __init__(self, server: ServerInfo) -> None:
        self.server = server
        self._held: OrderedDict[bytes, tuple[int, float]] = OrderedDict()
        """By digest: the message's tokens, and when it was used; used last at the end."""
        self._tokens = 0
        """In all of them."""
        self._last = 0.0
        self._sent: Sequence[Node] = ()
        self._told = server.figures is not Figures.NONE
        """Whether it reports what came from its cache."""

    def sent(self, path: Sequence[Node], at: float) -> None:
        """A request with the messages of `path` was sent at `at` (seconds since the epoch)."""
        if kind_of(self.server.kind).keeps_one:
            self._forget()
        self._sent, self._last = path, at

    def read(self, path: Sequence[Node], at: float) -> None:
        """The messages of `path` were read ahead."""
        self.sent(path, at)
        self._hold(path, at)

    def answered(self, answer: Node, at: float) -> None:
        """It was answered. Where much less was reused than was held before the last answer, which may read back as
        other tokens, nothing else is held any more either."""
        if answer.state is State.DONE:
            self._told = answer.figures is not None and answer.figures.cached_tokens is not None
        figures, replied = answer.figures, self._sent[-2:-1] and self._sent[-2].role is Role.ASSISTANT
        held, _ = self._of(self._sent[: -2 if replied else -1])
        wasted = (figures.wasted_tokens or 0) > (figures.prompt_tokens or 0) // 4 if figures is not None else False
        if wasted and figures is not None and (figures.cached_tokens or 0) < held // 2:
            self._forget()
        self._hold([*self._sent, answer], at)
        self._last = at

    def warmth(self, path: Sequence[Node], now: float) -> Warmth:
        """What the server holds of a branch, as far as is known."""
        kind = kind_of(self.server.kind)
        silent = not (self._told or kind.keeps_one or kind.keeps_many) and (self.server.slots or 1) == 1
        if silent or now - self._last > HELD_S or len(path) < 2:
            return UNKNOWN  # one that may have a single slot, and tells nothing, may hold any of what was sent
        held, since = self._of(path)
        whole = sum(map(_tokens, path))
        heat = Heat.WARM if held >= whole - NOISE else Heat.PARKED if held >= PARTLY * whole else Heat.COLD
        return Warmth(heat, held, whole - held, since)

    def _of(self, path: Sequence[Node]) -> tuple[int, float | None]:
        """How many tokens of `path` are held, and when the last of these were used."""
        held, since = 0, None
        for node in path:
            if (found := self._held.get(node.digest)) is None:
                break
            held, since = held + found[0], found[1]
        return held, since

    def _forget(self) -> None:
        self._held.clear()
        self._tokens = 0

    def _hold(self, path: Sequence[Node], at: float) -> None:
        """The server has these messages: what was not used for longest goes, the ends of branches first."""
        for node in reversed(path):
            before, _ = self._held.pop(node.digest, (0, 0.0))
            self._held[node.digest] = size, _ = _tokens(node), at
            self._tokens += size - before
        while self._tokens > ROOM:
            self._tokens -= self._held.popitem(last=False)[1][0]


def _tokens(node: Node) -> int:
    return len(node.wire) // BYTES_PER_TOKEN + 1
