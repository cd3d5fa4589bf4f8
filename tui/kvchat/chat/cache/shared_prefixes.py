"""What is warm on a server that shares prefixes among all conversations and does not let its cache be tracked.

The rule: prompts are stood for by their messages' digests and estimated lengths, so what is told here is an estimate.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvchat.backends.dialect import ServerInfo
from kvchat.backends.kinds import kind_of
from kvchat.cache.prefix_trie import PrefixTrie, TrieRules, estimated
from kvchat.cache.tokens import Tokens
from kvchat.cache.warmth import UNKNOWN, Warmth
from kvchat.prompt.message import Node

BYTES_PER_TOKEN = 4
ROOM = 500_000
"""Tokens that are remembered, 4 bytes each: about what a large server's cache holds."""
HELD_S = 300.0
"""After so long without use such servers may have unloaded the model (Ollama: 5 min): what is held is unknown."""


class SharedPrefixes:
    """The prefixes that were sent to one server."""

    def __init__(self, server: ServerInfo) -> None:
        self.server = server
        self._trie = PrefixTrie(TrieRules(room=ROOM, exact=False))
        self._last = 0.0
        self._path: Sequence[Node] = ()
        self._owner = ""

    def sent(self, path: Sequence[Node], owner: str, at: float) -> None:
        """A request with the messages of `path` was sent at `at` (seconds since the epoch)."""
        if kind_of(self.server.kind).keeps_one:
            self._trie.forget()
        self._trie.begin(_stand_in(path), owner, at)
        self._path, self._owner, self._last = path, owner, at

    def read(self, path: Sequence[Node], owner: str, at: float) -> None:
        """The messages of `path` were read ahead."""
        self.sent(path, owner, at)
        self._trie.end(_stand_in(()))

    def answered(self, answer: Node, at: float) -> None:
        """It was answered. A report of much less reuse than was expected says that nothing else is held any more."""
        figures = answer.figures
        if figures is not None and (figures.wasted_tokens or 0) > (figures.prompt_tokens or 0) // 4:
            self._trie.forget()
            self._trie.begin(_stand_in(self._path), self._owner, at)
        self._trie.end(_stand_in([answer]))
        self._last = at

    def warmth(self, path: Sequence[Node], owner: str, now: float) -> Warmth:
        """What the server holds of a branch, as far as can be told."""
        if now - self._last > HELD_S or len(path) < 2:
            return UNKNOWN
        return self._trie.warmth(_stand_in(path), owner)


def _stand_in(path: Sequence[Node]) -> Tokens:
    return estimated((node.digest, len(node.wire) // BYTES_PER_TOKEN + 1) for node in path)
