"""What an examination means: findings with what each costs, and the flag or setting that changes it.

A finding rests on what was measured or read; what is not known gives no finding, and when all is well that is said too.
Of a template only a habit that costs the cache, or that kvchat has to work around, is a finding.
"""

from __future__ import annotations

from kvchat.backends.dialect import BackendError, HostClass, ServerInfo, TemplateFacts, Trouble
from kvchat.backends.kinds import kind_of
from kvchat.doctor.advice import Advised, Advisor
from kvchat.doctor.report import HELD, DoctorReport, Examination, Kept, ReturnWay, Severity, Step, Topic, Verdict
from kvchat.figures.accounting import NOISE
from kvchat.text.doctor import Advice, Seen
from kvchat.values import Statement, said

SMALL_WINDOW = 4096
CLOUD_CACHES_FROM = 1024
"""Tokens of a prompt from which cloud services cache it."""
SLOW_RESTORE_S = 0.2
"""A restore faster than this is good, however fast the server prefills."""
SLOW_DISK = 50e6
"""Bytes per second below which saving a conversation is felt."""

_GOOD, _NOTE, _BAD = Severity.FINE, Severity.NOTE, Severity.PROBLEM


def report(examination: Examination) -> DoctorReport:
    """The examination with its verdicts."""
    return DoctorReport(examination, verdicts(examination))


def verdicts(found: Examination) -> list[Verdict]:
    """Every finding, the problems first, what is fine last."""
    made = [_failed(found.failure)] if found.failure is not None else []
    if found.server is not None:
        made += _Diagnosis(found, found.server).verdicts()
    order = list(Severity)[::-1]
    return sorted(made, key=lambda verdict: order.index(verdict.severity))


def _failed(failure: BackendError) -> Verdict:
    match failure.trouble:
        case Trouble.UNAUTHORIZED:
            return Verdict(Topic.KEY, _BAD, failure.note, (said(Advice.KEY),))
        case Trouble.LOADING:
            return Verdict(Topic.LOADING, _NOTE, failure.note, (said(Advice.WAIT),))
        case Trouble.UNREACHABLE | Trouble.DEAD:
            return Verdict(Topic.CONNECTION, _BAD, failure.note, (said(Advice.LIST_SERVERS),))
    topic = Topic.WINDOW if failure.trouble is Trouble.CONTEXT_OVERFLOW else Topic.CONNECTION
    return Verdict(topic, _BAD, failure.note)


class _Diagnosis:
    """The findings about a server that was reached."""

    def __init__(self, found: Examination, info: ServerInfo) -> None:
        self._found = found
        self._info = info
        self._template = found.template or TemplateFacts()
        self._moves = self._template.moves_system is True or self._template.keeps_prefix is False
        """Whether the template writes earlier messages differently in each turn."""
        self._advisor = Advisor(info, found.unified)
        self._made: list[Verdict] = []

    def verdicts(self) -> list[Verdict]:
        for look in (
            self._not_probed,
            self._reuse,
            self._side_request,
            self._warnings,
            self._window,
            self._system,
            self._date,
            self._reasoning,
            self._pinning,
            self._snapshots,
            self._returns,
            self._slot_folder,
            self._sleep,
        ):
            look()
        return self._made

    def _find(
        self,
        topic: Topic,
        severity: Severity,
        seen: Statement,
        remedies: Advised = (),
        tokens: int | None = None,
        per: str = "",
        *,
        seconds: float | None = None,
    ) -> None:
        """A finding; `seconds`: where they are not what prefilling its tokens takes."""
        seconds = self._found.seconds_for(tokens) if seconds is None else seconds
        self._made.append(Verdict(topic, severity, seen, remedies, tokens, seconds, per))

    def _not_probed(self) -> None:
        if self._found.busy:
            self._find(Topic.BUSY, _NOTE, said(Seen.BUSY), (said(Advice.WHEN_IDLE),))
        elif question := self._found.question:
            self._find(Topic.NOT_PROBED, _NOTE, said(Seen.NEEDS_WORD, question=question), (said(Advice.AGREE),))

    # -- what the cache did with a conversation -------------------------------------------------------------------

    def _reuse(self) -> None:
        fates = {step: kept for step in (Step.TWO, Step.THREE) if (kept := self._found.fate(step)) is not None}
        bad = [step for step, kept in fates.items() if kept not in HELD]
        if not fates:
            self._unreported()
        elif self._moves:
            pass  # that finding has the loss
        elif not bad:
            self._kept(all(kept is Kept.BUT_ANSWER for kept in fates.values()))
        elif {*fates.values()} == {Kept.LOST} and not self._found.servers:
            self._never_cached()
        else:
            self._sometimes_lost(bad)

    def _kept(self, but_answers: bool) -> None:
        found = self._found
        last = [turn.figures for turn in found.turns if turn.step in (Step.TWO, Step.THREE)][-1]
        old = (last.prompt_tokens or 0) - (last.new_tokens or 0)
        about = any(turn.estimated for turn in found.turns)
        self._find(Topic.REUSE, _GOOD, said(Seen.KEPT, cached=last.cached_tokens, old=old, about=about))
        if found.servers:
            self._find(Topic.AFFINITY, _GOOD, said(Seen.STAYED, servers=found.servers))
        if but_answers and self._template.drops_reasoning is not True:
            lost = found.lost(Step.THREE)
            self._find(Topic.REUSE, _NOTE, said(Seen.ANSWER_AGAIN), (said(Advice.WARM_UP),), lost, "turn")

    def _never_cached(self) -> None:
        turns, tokens = self._found.turns, self._found.lost(Step.THREE) or self._found.lost(Step.TWO)
        small = all((turn.figures.prompt_tokens or 0) < CLOUD_CACHES_FROM for turn in turns)
        if small and self._info.host_class is HostClass.CLOUD:
            self._find(Topic.REUSE, _NOTE, said(Seen.PROBE_TOO_SMALL, tokens=CLOUD_CACHES_FROM))
        else:
            self._find(Topic.CACHING_OFF, _BAD, said(Seen.NEVER_REUSED), self._advisor.caching_on(), tokens, "turn")

    def _sometimes_lost(self, bad: list[Step]) -> None:
        found, two, three = self._found, Step.TWO in bad, Step.THREE in bad
        tokens = max(found.lost(step) or 0 for step in bad)
        if found.servers or not found.held:
            seen = said(Seen.NOT_HELD, two=two, three=three, servers=found.servers)
            self._find(Topic.AFFINITY, _BAD, seen, self._advisor.affinity(), tokens, "turn")
        else:
            seen = said(Seen.PART_HELD, two=two, three=three)
            self._find(Topic.REUSE, _BAD, seen, self._advisor.keep_more(), tokens, "turn")

    def _unreported(self) -> None:
        """No cached tokens: by the times alone, as far as they tell."""
        if self._found.turns:
            works, advisor = self._found.seems_cached, self._advisor
            self._find(
                Topic.FIGURES,
                _BAD if works is False else _NOTE,
                said(Seen.NOT_REPORTED, title=advisor.title, works=works),
                advisor.not_reported() or (advisor.caching_on() if works is False else ()),
            )

    def _side_request(self) -> None:
        found, kept = self._found, self._found.fate(Step.AFTER_SIDE)
        if kept is None or self._moves:
            return
        if kept in HELD:
            self._find(Topic.SIDE_REQUEST, _GOOD, said(Seen.SIDE_FREE))
        elif found.fate(Step.THREE) in HELD and not found.servers:
            half: int | None = (found.window or 0) // 2
            at_half = found.seconds_for(half)
            if at_half is None or at_half < 1:
                half = at_half = None
            seen = said(Seen.PUSHED_OUT, one_slot=self._info.slots == 1, half=half, half_seconds=at_half)
            advice = self._advisor.keep_more()
            self._find(Topic.SIDE_REQUEST, _BAD, seen, advice, found.lost(Step.AFTER_SIDE), "switch")

    def _warnings(self) -> None:
        for warning in self._found.warnings:
            self._find(Topic.ANSWERS, _NOTE, warning)

    # -- the template -----------------------------------------------------------------------------------------------

    def _system(self) -> None:
        moves_system = self._template.moves_system
        if self._moves:
            self._find(
                Topic.SYSTEM,
                _BAD,
                said(Seen.TEMPLATE_MOVES, system=moves_system),
                self._advisor.system_in_place() if moves_system else (),
                max(self._found.lost(step) or 0 for step in (Step.TWO, Step.THREE, Step.AFTER_SIDE)) or None,
                "turn",
            )
        elif self._template.system_role is False:
            self._find(Topic.SYSTEM, _GOOD, said(Seen.NO_SYSTEM_PLACE))

    def _date(self) -> None:
        if self._template.date:
            size, advice = (self._found.window or 0) // 2, self._advisor.without_date(self._found.date_option)
            seconds = self._found.seconds_for(size)
            self._find(Topic.DATE, _NOTE, said(Seen.DATE, tokens=size), advice, per="day", seconds=seconds)

    def _reasoning(self) -> None:
        if self._template.drops_reasoning is not True:
            return
        asked = self._found.keeps_reasoning_when_asked
        can = self._info.reasoning_option is not None if asked is None else asked
        advice = self._advisor.keep_reasoning(can)
        if can:
            self._find(Topic.REASONING, _NOTE, said(Seen.REASONING_UNASKED), advice)
        else:
            lost = self._found.lost(Step.THREE)
            self._find(Topic.REASONING, _NOTE, said(Seen.REASONING_LEFT_OUT), advice, lost, "turn")

    # -- the server -------------------------------------------------------------------------------------------------

    def _window(self) -> None:
        size, trained = self._found.window, self._found.trained_context
        if size is None or size > SMALL_WINDOW:
            return
        if trained is not None and trained <= size:
            if size < SMALL_WINDOW:
                self._find(Topic.WINDOW, _NOTE, said(Seen.WINDOW_TRAINED, size=size))
            return
        may_be_all = size == SMALL_WINDOW and trained is None and not kind_of(self._info.kind).small_window
        seen, advice = said(Seen.WINDOW_SMALL, size=size, trained=trained), self._advisor.larger_window(trained)
        self._find(Topic.WINDOW, _NOTE if may_be_all else _BAD, seen, advice)

    def _pinning(self) -> None:
        pinned = self._found.pinned
        if pinned is not None and pinned.cached * 2 < pinned.tokens:
            advice = self._advisor.start(Advice.UNPINNED, self._advisor.flags.pinning)
            lost = pinned.tokens - pinned.cached
            self._find(Topic.PINNING, _NOTE, said(Seen.PINNED, tokens=pinned.tokens), advice, lost, "switch")

    def _snapshots(self) -> None:
        snapshot = self._found.snapshot
        if snapshot is None:
            return
        restore, read, tokens = snapshot.restore_seconds, self._found.seconds_for(snapshot.tokens), snapshot.tokens
        save, whole = snapshot.save_seconds, (self._found.window or 0) / max(1, tokens) * snapshot.save_seconds
        faster = (said(Advice.FASTER_DISK),)  # only the built-in engine saves slots
        if restore is None:
            self._find(Topic.SNAPSHOTS, _BAD, said(Seen.NOT_RESTORED), faster)
        elif restore > SLOW_RESTORE_S and read is not None and restore >= read:
            seen = said(Seen.SLOW_RESTORE, tokens=tokens, restore=restore, read=read)
            self._find(Topic.SNAPSHOTS, _BAD, seen, faster, per="switch", seconds=restore - read)
        elif save and snapshot.size / save < SLOW_DISK and whole > 10:
            seen = said(Seen.SLOW_SAVE, megabytes=f"{snapshot.size / save / 1e6:.0f}")
            self._find(Topic.SNAPSHOTS, _NOTE, seen, faster, per="switch", seconds=whole)
        else:
            self._find(Topic.SNAPSHOTS, _GOOD, said(Seen.SNAPSHOTS_PAY, tokens=tokens, restore=restore))

    def _returns(self) -> None:
        returns = self._found.returns
        spread = next((back.difference or 0.0 for back in returns if back.way is ReturnWay.SLOT), 0.0)
        for back in returns:
            if back.way is not ReturnWay.SLOT and (back.difference or 0.0) > 2 * spread:
                self._find(Topic.SNAPSHOTS, _BAD, said(Seen.RETURN_CHANGED, way=back.way.value))

    def _slot_folder(self) -> None:
        found = self._found
        if found.saves_slots is False and not self._info.embedded:
            lost = (found.lost(Step.AFTER_SIDE) or 0) - (found.lost(Step.THREE) or 0)
            if lost > NOISE:
                advice = self._advisor.start(Advice.START_PROGRAM, self._advisor.flags.slot_folder)
                self._find(Topic.SNAPSHOTS, _NOTE, said(Seen.NO_SLOT_FOLDER), advice, lost, "switch")

    def _sleep(self) -> None:
        asleep, unloads = self._found.asleep, self._info.unloads
        if not self._info.embedded and (asleep or unloads):
            seen = said(Seen.SLEEPS) if asleep else said(Seen.UNLOADS, title=self._advisor.title, when=unloads)
            self._find(Topic.SLEEP, _NOTE, seen, self._advisor.stays_loaded(bool(asleep)))
