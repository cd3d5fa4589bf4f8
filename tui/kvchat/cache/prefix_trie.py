"""The simulator of a server that shares prefixes among all requests and has no slots: a compressed prefix trie.

vLLM, SGLang, Ollama's MLX runner and mlx-lm keep their caches this way. The rule: the structure (splits, merges, pins)
decides what is evicted together and never what a prompt reuses. An edge is a range of a whole sequence, so nothing is
ever copied: splitting and merging only move ends. Pure: no I/O, no clock. Where a server gives no token ids, prompts
are made with `estimated` and the trie has `exact=False`: lengths are then guesses, and it says so.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from kvchat.cache.accounting import NOISE
from kvchat.cache.tokens import Tokens
from kvchat.cache.warmth import Heat, Warmth


@dataclass(frozen=True, slots=True)
class Mark:
    """How far an owner's last request went on this branch, and when (seconds since the epoch)."""

    end: int
    at: float


class Node:
    """The tokens from the end of `parent` to `end`."""

    __slots__ = ("children", "end", "marks", "parent", "path", "pinned", "used")

    def __init__(self, path: Tokens, end: int, parent: Node | None) -> None:
        self.path = path
        """A sequence whose first `end` tokens lead here; it may be longer."""
        self.end = end
        self.parent = parent
        self.children: list[Node] = []
        self.used = 0
        """When a request last went through it, on the trie's count."""
        self.pinned = False
        self.marks: dict[str, Mark] = {}

    @property
    def length(self) -> int:
        """Tokens of the edge."""
        return self.end - (self.parent.end if self.parent else 0)

    def up(self) -> Iterator[Node]:
        """This node and those above it, the root last."""
        node: Node | None = self
        while node is not None:
            yield node
            node = node.parent

    def walk(self) -> Iterator[Node]:
        """This node and all below it."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children)

    def copied(self) -> dict[int, Node]:
        """Copies of this node and all below it, by the id of the original."""
        copies: dict[int, Node] = {}
        for node in self.walk():
            parent = copies.get(id(node.parent))
            copy = copies[id(node)] = Node(node.path, node.end, parent)
            copy.used, copy.pinned, copy.marks = node.used, node.pinned, dict(node.marks)
        for node in self.walk():
            copies[id(node)].children = [copies[id(child)] for child in node.children]
        return copies

    def come_first(self) -> None:
        """Be the first among its siblings: what was used last is looked at first."""
        if self.parent is not None and self.parent.children[0] is not self:
            self.parent.children.remove(self)
            self.parent.children.insert(0, self)

    def split(self, end: int) -> Node:
        """A new node above this one that ends at `end`, which lies inside the edge."""
        parent = self.parent
        assert parent is not None and parent.end < end < self.end
        upper = Node(self.path, end, parent)
        upper.children, upper.used = [self], self.used
        parent.children[parent.children.index(self)] = upper
        upper.marks = {owner: mark for owner, mark in self.marks.items() if mark.end <= end}
        self.marks = {owner: mark for owner, mark in self.marks.items() if mark.end > end}
        self.parent = upper
        return upper

    def merge_into(self, child: Node) -> None:
        """The single `child` takes this node's place and its edge."""
        parent = self.parent
        assert parent is not None and self.children == [child]
        parent.children[parent.children.index(self)] = child
        child.parent = parent
        child.used = max(child.used, self.used)
        for owner, mark in self.marks.items():
            child.receive(owner, mark)

    def shorten(self, end: int) -> None:
        """Forget what follows `end`, which lies inside the edge; only for a node without children."""
        self.end = end
        marks, self.marks = self.marks, {}
        for owner, mark in marks.items():
            self.receive(owner, mark)

    def drop(self) -> Node:
        """Take this node without children out; its parent. What its owners had is held as far as the parent."""
        parent = self.parent
        assert parent is not None and not self.children
        parent.children.remove(self)
        for owner, mark in self.marks.items():
            parent.receive(owner, mark)
        return parent

    def receive(self, owner: str, mark: Mark) -> None:
        """Take over a mark, as far as this node goes; of two on one path the longer and the later count."""
        old = self.marks.get(owner, mark)
        if self.end:
            self.marks[owner] = Mark(min(max(old.end, mark.end), self.end), max(old.at, mark.at))


_PARTLY = 0.5
"""A conversation of which less than this share is held is called cold."""


@dataclass(frozen=True, slots=True)
class TrieRules:
    """The constants a shared prefix cache depends on."""

    block: int = 1
    """Hits are multiples of this: 16 for vLLM, 8192 for Ollama's MLX runner."""
    room: int | None = None
    """Tokens that fit; None: not known, nothing is evicted for size."""
    states: int | None = None
    """Sequences kept at most (mlx-lm: 10); None: no limit."""
    piecewise: bool = False
    """Eviction frees only as many blocks as it needs (vLLM), not the whole end of a sequence."""
    exact: bool = True
    """Whether prompts are the server's own token ids; otherwise they are made with `estimated`."""

    def __post_init__(self) -> None:
        if self.block < 1:
            raise ValueError(f"The block size of a cache is at least 1 token, not {self.block}.")


def estimated(messages: Iterable[tuple[bytes, int]]) -> Tokens:
    """A stand-in for a prompt whose ids are not known, from each message's digest and estimated tokens.

    Equal digests are equal text from the first message on, so two stand-ins part where the messages do."""
    ids = array("i")
    for digest, length in messages:
        ids.extend(array("i", (int.from_bytes(digest[:4], "big") >> 1,)) * max(0, length))
    return Tokens(ids)


@dataclass(frozen=True, slots=True)
class TriePrediction:
    """What the server will reuse of a prompt."""

    cached: int
    """Tokens it reuses: whole blocks, and never the last token of the prompt."""
    common: int
    """The longest prefix that is held, before blocks and the last token cut it."""
    exact: bool
    """Whether the figures rest on the server's own token ids."""


@dataclass(frozen=True, slots=True)
class OwnedState:
    """What is held of the last request of an owner on one branch."""

    owner: str
    tokens: int
    at: float
    """When it was last used, in seconds since the epoch, as given by the caller."""


@dataclass(frozen=True, slots=True)
class _Request:
    prompt: Tokens
    at: float


@dataclass(slots=True)
class _State:
    """What changes in a trie."""

    root: Node
    active: Node | None = None
    """None: the root."""
    total: int = 0
    clock: int = 0
    busy: Mapping[str, _Request] = field(default_factory=dict)


class PrefixTrie:
    """All the sequences that a server holds. The last one used is the active path, which is never evicted."""

    def __init__(self, rules: TrieRules | None = None, state: _State | None = None) -> None:
        self.rules = rules or TrieRules()
        self._go_on(state or _State(Node(Tokens(), 0, None)))

    def _go_on(self, state: _State) -> None:
        copies = state.root.copied()
        self._root, self._active = copies[id(state.root)], copies[id(state.active or state.root)]
        self._total, self._clock, self._busy = state.total, state.clock, dict(state.busy)

    @property
    def total(self) -> int:
        """Tokens held; a shared prefix counts once."""
        return self._total

    @property
    def node_count(self) -> int:
        """Nodes of the trie, without its root."""
        return sum(1 for _ in self._root.walk()) - 1

    def copy(self) -> PrefixTrie:
        """The same state in another object, to try something out."""
        return PrefixTrie(self.rules, _State(self._root, self._active, self._total, self._clock, self._busy))

    def predict(self, prompt: Tokens) -> TriePrediction:
        """What `begin` would return; changes nothing. Raises ValueError for an empty prompt."""
        return self._predicted(prompt)[1]

    def _predicted(self, prompt: Tokens) -> tuple[Node, TriePrediction]:
        if not prompt:
            raise ValueError("A prompt needs at least one token.")
        node, common = self._match(prompt)
        cached = self._whole(min(common, len(prompt) - 1))
        return node, TriePrediction(cached, common, self.rules.exact)

    def begin(self, prompt: Tokens, owner: str = "", at: float = 0.0) -> TriePrediction:
        """The request of `owner` is sent at `at` (seconds since the epoch). Owners may have requests at the same time.
        Raises ValueError for an empty prompt."""
        node, prediction = self._predicted(prompt)
        self._busy.pop(owner, None)
        self._busy[owner] = _Request(prompt, at)
        self._touch(node.parent if prediction.common < node.end and node.parent else node)
        return prediction

    def end(self, sampled: Tokens, owner: str | None = None) -> None:
        """The request of `owner` (None: the one begun last) is done. `sampled` are all sampled tokens: the last one
        is never decoded. Without token ids: the reply's stand-in."""
        found = self._release(owner)
        if found:
            request, owner = found
            kept = len(sampled) - 1 if self.rules.exact else len(sampled)
            self._hold(request.prompt + sampled.first(kept), owner, request.at)

    def cut(self, processed: int, owner: str | None = None) -> None:
        """The request of `owner` (None: the one begun last) was cancelled when `processed` tokens of its prompt, cached
        ones included, were in."""
        found = self._release(owner)
        if found:
            request, owner = found
            self._hold(request.prompt.first(max(processed, self.predict(request.prompt).cached)), owner, request.at)

    def forget(self) -> None:
        """The server was started anew: nothing is held."""
        self._go_on(_State(Node(Tokens(), 0, None)))

    def pin(self, prefix: Tokens) -> bool:
        """Make the end of `prefix` a restore point, which is not merged into what follows. False: it is not held."""
        node, common = self._match(prefix)
        end = self._whole(len(prefix))
        if not end or self._whole(common) < end:
            return False
        self._boundary(node, end).pinned = True
        return True

    def unpin(self, prefix: Tokens) -> bool:
        """Take the restore point at the end of `prefix` back; False: there is none."""
        node, _ = self._match(prefix)
        if not node.pinned or node.end != self._whole(len(prefix)):
            return False
        node.pinned = False
        self._merge(node)
        return True

    def restore_points(self) -> list[int]:
        """The positions of the pinned nodes, ascending."""
        return sorted(node.end for node in self._root.walk() if node.pinned)

    def states(self) -> list[OwnedState]:
        """What is held by whom, the last used first. An owner is there once per branch it left."""
        marks = [(owner, mark) for node in self._root.walk() for owner, mark in node.marks.items()]
        found = [OwnedState(owner, mark.end, mark.at) for owner, mark in marks]
        return sorted(found, key=lambda state: (-state.at, state.owner, -state.tokens))

    def held(self, owner: str) -> OwnedState | None:
        """The last used state of `owner`; None: nothing is held."""
        return next((state for state in self.states() if state.owner == owner), None)

    def warmth(self, prompt: Tokens, owner: str = "") -> Warmth:
        """How warm a conversation with this prompt is. A shared prefix of another one counts as held."""
        if not prompt:
            return Warmth(Heat.COLD, 0, 0)
        held = self._whole(self._match(prompt)[1])
        state = self.held(owner) if owner else None
        if held >= len(prompt) - max(NOISE, self.rules.block):
            heat = Heat.WARM
        else:
            heat = Heat.PARKED if held >= _PARTLY * len(prompt) else Heat.COLD
        return Warmth(heat, held, len(prompt) - held, state.at if state else None)

    def _whole(self, tokens: int) -> int:
        return tokens // self.rules.block * self.rules.block

    def _release(self, owner: str | None) -> tuple[_Request, str] | None:
        if owner is None:
            owner = next(reversed(self._busy), "")
        request = self._busy.pop(owner, None)
        return (request, owner) if request else None

    def _match(self, prompt: Tokens) -> tuple[Node, int]:
        """The deepest node that shares a block with `prompt` beyond its parent, and how many tokens are common."""
        node, common = self._root, 0
        known: dict[int, int] = {}
        while common == node.end:
            following = None
            for child in node.children:
                if id(child.path) not in known:
                    known[id(child.path)] = child.path.common(prompt)
                shared = min(known[id(child.path)], child.end)
                common = max(common, shared)
                if self._whole(shared) > node.end:
                    following, common = child, shared
                    break
            if following is None:
                break
            node = following
        return node, common

    def _hold(self, sequence: Tokens, owner: str, at: float) -> None:
        """Insert a sequence as the active path; what follows a token of unknown id cannot be found again."""
        sequence = sequence.first(self._whole(sequence.common(sequence)))
        node, common = self._match(sequence)
        node = self._boundary(node, self._whole(common))
        if node.end < len(sequence):
            leaf = Node(sequence, len(sequence), node)
            node.children.append(leaf)
            self._total += leaf.length
            node = leaf
        for above in node.up():
            above.path = sequence
            above.marks.pop(owner, None)
        if node is not self._root:
            node.marks[owner] = Mark(node.end, at)
        self._touch(node)
        self._active = node
        self._evict()

    def _touch(self, node: Node) -> None:
        self._clock += 1
        for above in node.up():
            above.used = self._clock
            above.come_first()

    def _boundary(self, node: Node, end: int) -> Node:
        """The node that ends at `end` on the way to `node`: `node`, its parent, or a new one from a split."""
        if end >= node.end or node.parent is None:
            return node
        return node.split(end) if end > node.parent.end else node.parent

    def _merge(self, node: Node) -> None:
        """A node with a single child becomes one with it, unless it is pinned or the active path ends there."""
        if node is not self._root and node is not self._active and not node.pinned and len(node.children) == 1:
            node.merge_into(node.children[0])

    def _excess(self, leaves: int) -> int:
        """Tokens to free, at least one when there are too many sequences; 0 or less: everything fits."""
        if self.rules.states is not None and leaves > self.rules.states:
            return self._total
        return self._total - self.rules.room if self.rules.room is not None else 0

    def _evict(self) -> None:
        """Free the least recently used ends until everything fits; the active path and what requests on their way
        use stay."""
        if self.rules.states is None and (self.rules.room is None or self._total <= self.rules.room):
            return
        used_now = [self._active, *(self._match(request.prompt)[0] for request in self._busy.values())]
        active = {id(node) for end in used_now for node in end.up()}
        ends = [node for node in self._root.walk() if not node.children and node is not self._root]
        leaves = len(ends)
        heap = [_entry(node) for node in ends if id(node) not in active]
        heapq.heapify(heap)
        while heap and (excess := self._excess(leaves)) > 0:
            used, _, _, node = heapq.heappop(heap)
            if used != node.used:
                heapq.heappush(heap, _entry(node))
                continue
            blocks = -(-excess // self.rules.block) * self.rules.block
            if self.rules.piecewise and blocks < node.length:
                node.shorten(node.end - blocks)
                self._total -= blocks
                continue
            self._total -= node.length
            parent = node.drop()
            if parent.children or parent is self._root:
                leaves -= 1
                self._merge(parent)
            elif id(parent) not in active:
                heapq.heappush(heap, _entry(parent))


def _entry(node: Node) -> tuple[int, int, int, Node]:
    return node.used, -node.end, id(node), node
