"""The cache told: the report that the inspector and `kvchat cache` show.

The rule: figures are the server's or the simulator's; what neither knows is None.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kvchat.cache.accounting import NOISE, TurnFigures, totals
from kvchat.cache.causes.cause import Cause, Finding
from kvchat.cache.llamacpp.cache_config import Rewind, Shape
from kvchat.cache.llamacpp.planner import DETOUR
from kvchat.cache.llamacpp.slot_state import Held
from kvchat.cache.report import CacheReport, HeldState, Ledger, MessageCells, TurnReport
from kvchat.chat.cache.following import Following
from kvchat.chat.cache.tracker import CacheTracker
from kvchat.chat.conversations import Conversations
from kvchat.chat.ground import Ground
from kvchat.chat.server.servers import Servers
from kvchat.prompt.message import Node, Role, instructions_of
from kvchat.store import StoreError

WEEK = 7 * 86400


class CacheReports:
    """Reports on the cache."""

    def __init__(self, ground: Ground, conversations: Conversations, servers: Servers, tracker: CacheTracker) -> None:
        self._ground = ground
        self._conversations = conversations
        self._servers = servers
        self._tracker = tracker

    async def report(self, id: str) -> CacheReport:
        """All that is known of the cache, seen from a conversation. Raises ChatError."""
        from kvchat.prompt.lint import lint  # its patterns take a while to compile

        record = self._conversations.find(id)
        opened = self._conversations.loaded.get(record.id)
        tree = opened.tree if opened is not None else self._ground.store.tree(record.id)
        path = tree.path(record.head)
        figures = [node.figures for node in path if node.figures is not None]
        following = self._servers.link(record.id).following
        since = self._ground.timestamp() - WEEK
        return CacheReport(
            conversation=record.id, title=record.title, warmth=self._tracker.warmth(record.id),
            messages=tuple(_messages(path)), turns=tuple(_turns(path, opened.findings if opened is not None else {})),
            states=tuple(self._states(following)),
            exact=following is not None and following.predictions > 0,
            predictions=following.predictions if following else 0,
            exact_predictions=following.exact if following else 0,
            plan=following.plan if following else None, speed=self._tracker.speed_fit(record.id),
            rules=_rules(following.simulator.best.shape) if following else "",
            here=Ledger(totals(figures, self._tracker.speed_in(path)), _misses(figures),
                        self._ground.store.warmups(0.0, record.id),
                        self._ground.store.side_requests.totals(0.0, record.id)),
            week=self._week(since, path),
            warnings=lint(instructions_of(path[0].text)) if path else (),
        )

    def _week(self, since: float, path: Sequence[Node]) -> Ledger:
        try:
            figures = self._ground.store.figures(since)
            return Ledger(totals(figures, self._tracker.speed_in(path)), _misses(figures),
                          self._ground.store.warmups(since), self._ground.store.side_requests.totals(since))
        except StoreError:
            return Ledger()

    def _owner(self, held: Held) -> str:
        """Whose state it is, as the screen says it; empty: not one of ours."""
        own = not held.owner and len(held.tokens) <= len(DETOUR)
        return "kvchat's detour" if own else self._conversations.title(held.owner)

    def _states(self, following: Following | None) -> Iterable[HeldState]:
        if following is None:
            return
        simulator = following.simulator.best
        for index, held in enumerate(simulator.slots):
            if held is not None:
                yield HeldState(f"slot {index}", self._owner(held), len(held.tokens), held.at or None)
        for held in reversed(simulator.parked):
            yield HeldState("parked", self._owner(held), len(held.tokens), held.at or None)


def _turns(path: Sequence[Node], findings: Mapping[str, Finding]) -> Iterable[TurnReport]:
    question = ""
    for node in path:
        if node.role is Role.USER:
            question = node.text
        elif node.role is Role.ASSISTANT:
            stored, found = _finding(node.figures), findings.get(node.id)
            same = stored is not None and found is not None and found.evidence == stored.evidence
            yield TurnReport(question, node.figures, found if same else stored)


def _finding(figures: TurnFigures | None) -> Finding | None:
    if figures is None or figures.cause is None:
        return None
    try:
        cause = Cause(figures.cause)
    except ValueError:  # of a later version
        cause = Cause.UNKNOWN
    return Finding(cause, figures.avoidable_tokens or 0, figures.evidence or "", figures.remedy)


def _misses(turns: Iterable[TurnFigures]) -> dict[str, tuple[int, int]]:
    """By cause: turns and avoidable tokens. A miss that was never explained counts as unknown."""
    found: dict[str, tuple[int, int]] = {}
    for figures in turns:
        avoidable = figures.avoidable_tokens or 0
        if avoidable > NOISE and not figures.first_read:
            cause = figures.cause or Cause.UNKNOWN.value
            count, tokens = found.get(cause, (0, 0))
            found[cause] = count + 1, tokens + avoidable
    return found


def _messages(path: Sequence[Node]) -> Iterable[MessageCells]:
    """The branch's messages with their tokens, as far as the figures tell, and what the last request did with each."""
    last = next((node.figures for node in reversed(path) if node.figures and node.figures.prompt_tokens), None)
    cached = last.cached_tokens if last else None
    new_from = last.prompt_tokens - last.new_tokens if last and last.prompt_tokens and last.new_tokens else None
    prompt = last.prompt_tokens if last else None
    for node, (start, end) in zip(path, _extents(path), strict=True):
        tokens = end - start if start is not None and end is not None else None
        cells = MessageCells(node.id, node.role.value, node.text[:200], tokens)
        if start is None or end is None or cached is None or prompt is None or start >= prompt:
            yield cells
            continue
        end = min(end, prompt)
        reused = max(0, min(end, cached) - start)
        new = max(0, end - max(start, cached, new_from)) if new_from is not None else None
        avoidable = end - start - reused - new if new is not None else None
        yield MessageCells(node.id, node.role.value, node.text[:200], tokens, reused, new, avoidable)


def _extents(path: Sequence[Node]) -> list[tuple[int | None, int | None]]:
    """Where each message begins and ends, in tokens of the prompt. The first question's tokens go with the system
    message's where nobody counted them apart."""
    ends: list[int | None] = []
    for at, node in enumerate(path):
        answer = path[at + 1] if node.role is Role.USER and at + 1 < len(path) else node
        figures = answer.figures
        if node.role is Role.USER:
            ends.append(figures.prompt_tokens if figures else None)
        elif node.role is Role.ASSISTANT:
            ends.append(figures.context_used if figures else None)
        else:
            ends.append(None)
    if len(ends) > 1 and ends[0] is None and ends[1] is not None:
        sizes = [len(node.wire) for node in path[:2]]
        ends[0] = ends[1] * sizes[0] // max(1, sum(sizes))
    return list(zip([0, *ends[:-1]], ends, strict=True))


def _rules(shape: Shape) -> str:
    """What is known of the server's cache, in one sentence."""
    slots = "1 slot" if shape.slots == 1 else f"{shape.slots} slots"
    parts = [slots + (", one cache for all" if shape.unified else "")]
    parts.append("no memory for parked states" if shape.ram_bytes == 0 else "parks states in memory")
    parts.append({Rewind.ANYWHERE: "can go back anywhere", Rewind.WINDOW: "goes back to checkpoints (sliding window)",
                  Rewind.NOWHERE: "goes back to checkpoints only (recurrent layers)"}[shape.rewind])
    return "; ".join(parts)
