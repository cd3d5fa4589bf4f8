"""The report on the cache that the inspector and `kvchat cache` show.

Figures are the server's or the simulator's; what neither knows is None.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kvchat.cache import Finding, Held
from kvchat.cache.tracking import DETOUR
from kvchat.chat.cache.server_cache import ServerCache
from kvchat.chat.cache.states.kept_states import KeptStates
from kvchat.chat.core import Core
from kvchat.figures.accounting import TurnFigures, misses, totals
from kvchat.figures.cause import Cause
from kvchat.figures.stats import Day
from kvchat.prompt.citations import name_of
from kvchat.prompt.extents import extents
from kvchat.prompt.message import Node, Role, instructions_of
from kvchat.reports.cache_report import (
    CacheReport,
    HeldState,
    Holdings,
    Ledger,
    MessageCells,
    TrunkBeginning,
    TurnReport,
)
from kvchat.store import StoreError
from kvchat.store.stats import cache_stats
from kvchat.text.cache import cache_rules
from kvchat.text.tools import shown_call


class CacheReports:
    """Reports on the cache."""

    def __init__(self, core: Core, kept: KeptStates) -> None:
        self._core = core
        self._kept = kept

    async def report(self, id: str) -> CacheReport:
        """All that is known of the cache, seen from a conversation. Raises ChatError."""
        from kvchat.prompt.lint import lint  # its patterns take a while to compile

        record = self._core.conversations.find(id)
        opened = self._core.conversations.loaded.get(record.id)
        tree = opened.tree if opened is not None else self._core.store.tree(record.id)
        path = tree.path(record.head)
        figures = [node.figures for node in path if node.figures is not None]
        steps = sum(bool(node.message.calls) for node in path if node.figures is not None)
        cache = self._core.servers.link(record.id).cache
        week, days = self._week()
        return CacheReport(
            conversation=record.id,
            title=record.title,
            warmth=self._core.tracker.warmth(record.id),
            beginning=self.beginning(path),
            messages=tuple(_messages(path)),
            turns=tuple(_turns(path, opened.findings if opened is not None else {})),
            states=tuple(self._states(cache)) if cache is not None else None,
            exact=cache is not None and cache.simulated.predictions > 0 and cache.simulated.is_sure,
            predictions=cache.simulated.predictions if cache else 0,
            exact_predictions=cache.simulated.exact if cache else 0,
            shown=cache.simulated.trust.shown_by(cache.server.build) if cache else None,
            plan=cache.plan if cache else None,
            speed=self._core.speeds.fit(record.id),
            rules=cache_rules(cache.simulated.best.shape, self._core.branch_requests.known_ids(record.id, path))
            if cache
            else "",
            here=Ledger(
                totals(figures, self._core.speeds.on(path), steps),
                misses(figures),
                self._core.store.warmups(0.0, record.id),
                self._core.store.side_requests.totals(0.0, record.id),
            ),
            week=week,
            days=days,
            kept=await self._kept.room(),
            warnings=lint(instructions_of(path[0].text)) if path else (),
        )

    def beginning(self, path: Sequence[Node]) -> TrunkBeginning | None:
        """The files that a branch begins with, and the trunk that they are of. Raises StoreError."""
        files = tuple(name_of(block) for block in path[0].message.blocks if block.ref) if path else ()
        return TrunkBeginning(self._core.store.kept.trunk_at(path[0].id), files) if files else None

    def holdings(self, id: str) -> Holdings:
        """What changes while an open conversation is looked at. The store is not asked."""
        conversation, link = self._core.conversations.loaded[id], self._core.servers.link(id)
        cache, info = link.cache, link.connector.info
        return Holdings(
            slots=len(cache.simulated.best.slots) if cache is not None else None,
            window=info.context_size if info is not None else None,
            states=tuple(self._states(cache)),
            turns=tuple(turn for turn in _turns(conversation.path(), {}) if turn.figures is not None),
            speed=self._core.speeds.fit(id),
        )

    def _week(self) -> tuple[Ledger, tuple[Day, ...]]:
        """The sums of the last days, and those of each of them if there was an answer."""
        try:
            found = cache_stats(self._core.store, self._core.timestamp(), speed=self._core.speeds.at)
        except StoreError:
            return Ledger(), ()
        week = Ledger(found.totals, found.misses, found.warmup, found.memory)
        return week, found.days if found.totals.turns else ()

    def _owner(self, held: Held) -> str:
        """Whose state it is, as the screen says it; empty: not one of ours."""
        own = not held.owner and len(held.tokens) <= len(DETOUR)
        return "kvchat's detour" if own else self._core.conversations.title(held.owner)

    def _states(self, cache: ServerCache | None) -> Iterable[HeldState]:
        if cache is None:
            return
        simulator = cache.simulated.best
        for index, held in enumerate(simulator.slots):
            if held is not None:
                yield HeldState(f"slot {index}", self._owner(held), len(held.tokens), held.at or None, held.owner)
        for held in reversed(simulator.parked):
            yield HeldState("parked", self._owner(held), len(held.tokens), held.at or None, held.owner)


def _turns(path: Sequence[Node], findings: Mapping[str, Finding]) -> Iterable[TurnReport]:
    question, goes_on = "", False
    for node in path:
        if node.role is Role.USER:
            question, goes_on = node.text, False
        elif node.role is Role.TOOL:
            question, goes_on = f"↳ {shown_call(node.message.call)}", True
        elif node.role is Role.ASSISTANT:
            stored, found = _finding(node.figures), findings.get(node.id)
            same = stored is not None and found is not None and found.evidence == stored.evidence
            yield TurnReport(question, node.figures, found if same else stored, goes_on)


def _finding(figures: TurnFigures | None) -> Finding | None:
    if figures is None or figures.cause is None or figures.evidence is None:
        return None
    try:
        cause = Cause(figures.cause)
    except ValueError:  # of a later version
        cause = Cause.UNKNOWN
    return Finding(cause, figures.wasted_tokens or 0, figures.evidence, figures.remedy)


def _messages(path: Sequence[Node]) -> Iterable[MessageCells]:
    """The branch's messages with their tokens, as far as the figures tell, and what the last request did with each."""
    last = next((node.figures for node in reversed(path) if node.figures and node.figures.prompt_tokens), None)
    cached = last.cached_tokens if last else None
    new_from = last.prompt_tokens - last.new_tokens if last and last.prompt_tokens and last.new_tokens else None
    prompt = last.prompt_tokens if last else None
    for node, (start, end) in zip(path, extents(path), strict=True):
        tokens = end - start if start is not None and end is not None else None
        cells = MessageCells(node.id, node.role.value, node.text[:200], tokens)
        if start is None or end is None or cached is None or prompt is None or start >= prompt:
            yield cells
            continue
        end = min(end, prompt)
        kept = max(0, min(end, cached) - start)
        new = max(0, end - max(start, cached, new_from)) if new_from is not None else None
        wasted = end - start - kept - new if new is not None else None
        yield MessageCells(node.id, node.role.value, node.text[:200], tokens, kept, new, wasted)
