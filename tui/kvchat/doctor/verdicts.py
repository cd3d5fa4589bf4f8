"""What an examination means: findings with what each costs, and the flag or setting that changes it.

The rule: pure. A finding rests on what was measured or read; what is not known gives no finding, and when all is well
that is said too. Of a template only a habit that costs the cache, or that kvchat has to work around, is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kvchat.backends.dialect import BackendError, HostClass, Trouble
from kvchat.backends.kinds import kind_of, title_of
from kvchat.cache.accounting import NOISE
from kvchat.cache.causes.cause import said
from kvchat.doctor import advice
from kvchat.doctor.report import Examination, Report, ReturnWay, Severity, Step, Topic, Verdict
from kvchat.doctor.reuse import Kept, fate, lost_tokens, seems_cached
from kvchat.text.doctor import Advice, Seen

SMALL_WINDOW = 4096
CLOUD_CACHES_FROM = 1024
"""Tokens of a prompt from which cloud services cache it."""
SLOW_RESTORE_S = 0.2
"""A restore faster than this is good, however fast the server reads."""
SLOW_DISK = 50e6
"""Bytes per second below which saving a conversation is felt."""

_GOOD, _NOTE, _BAD = Severity.FINE, Severity.NOTE, Severity.PROBLEM


def report(examination: Examination) -> Report:
    """The examination with its verdicts."""
    return Report(examination, tuple(verdicts(examination)))


def verdicts(found: Examination) -> list[Verdict]:
    """Every finding, the problems first, what is fine last."""
    made = [_failed(found.failure)] if found.failure is not None else []
    if found.server is not None:
        for look in LOOKS:
            made.extend(look(found))
    order = list(Severity)[::-1]
    return sorted(made, key=lambda verdict: order.index(verdict.severity))


# -- no answer ------------------------------------------------------------------------------------------------------


def _failed(failure: BackendError) -> Verdict:
    note = failure.note
    match failure.trouble:
        case Trouble.UNAUTHORIZED:
            return Verdict(Topic.KEY, _BAD, note, (said(Advice.KEY),))
        case Trouble.LOADING:
            return Verdict(Topic.LOADING, _NOTE, note, (said(Advice.WAIT),))
        case Trouble.UNREACHABLE | Trouble.DEAD:
            return Verdict(Topic.CONNECTION, _BAD, note, (said(Advice.LIST_SERVERS),))
        case Trouble.CONTEXT_OVERFLOW:
            return Verdict(Topic.WINDOW, _BAD, note)
    return Verdict(Topic.CONNECTION, _BAD, note)


def _not_probed(found: Examination) -> Iterable[Verdict]:
    if found.busy:
        yield Verdict(Topic.BUSY, _NOTE, said(Seen.BUSY), (said(Advice.WHEN_IDLE),))
    elif found.question:
        yield Verdict(Topic.NOT_PROBED, _NOTE, said(Seen.NEEDS_WORD, question=found.question), (said(Advice.AGREE),))


# -- what the cache did with a conversation -------------------------------------------------------------------------


def _reuse(found: Examination) -> Iterable[Verdict]:
    fates = [fate(found, step) for step in (Step.TWO, Step.THREE)]
    known = [kept for kept in fates if kept is not None]
    if not known:
        yield from _unreported(found)
    elif moves(found):
        pass  # that verdict has the loss
    elif Kept.LOST not in known and Kept.PARTLY not in known:
        yield from _kept(found, known)
    elif set(known) == {Kept.LOST} and not (found.replicas or 1) > 1:
        yield from _never_cached(found)
    else:
        yield from _sometimes_lost(found)


def _kept(found: Examination, known: list[Kept]) -> Iterable[Verdict]:
    last = found.turn(Step.THREE) or found.turn(Step.TWO)
    if last is None:
        return
    old = (last.prompt_tokens or 0) - (last.new_tokens or 0)
    yield Verdict(Topic.REUSE, _GOOD, said(Seen.KEPT, cached=last.cached_tokens, old=old, about=found.estimated))
    if (found.replicas or 1) > 1:
        yield Verdict(Topic.AFFINITY, _GOOD, said(Seen.STAYED, servers=found.replicas))
    if known and all(kept is Kept.BUT_ANSWER for kept in known) and not drops(found):
        tokens = lost_tokens(found, Step.THREE)
        yield Verdict(
            Topic.REUSE,
            _NOTE,
            said(Seen.ANSWER_AGAIN),
            (said(Advice.WARM_UP),),
            tokens,
            _seconds(found, tokens),
            "turn",
        )


def _never_cached(found: Examination) -> Iterable[Verdict]:
    info, tokens = found.server, lost_tokens(found, Step.THREE) or lost_tokens(found, Step.TWO)
    if info is None:
        return
    if info.host_class is HostClass.CLOUD and all(
        (turn.figures.prompt_tokens or 0) < CLOUD_CACHES_FROM for turn in found.turns
    ):
        yield Verdict(Topic.REUSE, _NOTE, said(Seen.PROBE_TOO_SMALL, tokens=CLOUD_CACHES_FROM))
        return
    yield Verdict(
        Topic.CACHING_OFF,
        _BAD,
        said(Seen.NEVER_REUSED),
        advice.caching_on(info),
        tokens,
        _seconds(found, tokens),
        "turn",
    )


def _sometimes_lost(found: Examination) -> Iterable[Verdict]:
    info = found.server
    bad = [step for step in (Step.TWO, Step.THREE) if fate(found, step) in (Kept.LOST, Kept.PARTLY)]
    tokens = max((lost_tokens(found, step) or 0 for step in bad), default=0)
    if info is None or not bad:
        return
    two, three, seconds = Step.TWO in bad, Step.THREE in bad, _seconds(found, tokens)
    if (found.replicas or 1) > 1 or not found.held:
        several = found.replicas if (found.replicas or 1) > 1 else None
        yield Verdict(
            Topic.AFFINITY,
            _BAD,
            said(Seen.NOT_HELD, two=two, three=three, servers=several),
            advice.affinity(info),
            tokens,
            seconds,
            "turn",
        )
    else:
        yield Verdict(
            Topic.REUSE,
            _BAD,
            said(Seen.PART_HELD, two=two, three=three),
            advice.keep_beside(info),
            tokens,
            seconds,
            "turn",
        )


def _unreported(found: Examination) -> Iterable[Verdict]:
    """No cached tokens: by the times alone, as far as they tell."""
    info, turns = found.server, found.turns
    if info is None or not turns:
        return
    guess = seems_cached(found)
    yield Verdict(
        Topic.FIGURES,
        _BAD if guess is False else _NOTE,
        said(Seen.NOT_REPORTED, title=title_of(info.kind), works=guess),
        advice.not_reported(info) or (advice.caching_on(info) if guess is False else ()),
    )


def _side_request(found: Examination) -> Iterable[Verdict]:
    info, tokens = found.server, lost_tokens(found, Step.AFTER_SIDE)
    kept = fate(found, Step.AFTER_SIDE)
    if info is None or kept is None or moves(found):
        return
    if kept in (Kept.ALL, Kept.BUT_ANSWER):
        yield Verdict(Topic.SIDE_REQUEST, _GOOD, said(Seen.SIDE_FREE))
    elif fate(found, Step.THREE) in (Kept.ALL, Kept.BUT_ANSWER) and not (found.replicas or 1) > 1:
        half = info.context_size // 2 if info.context_size is not None else None
        at_half = found.seconds_for(half) if half else None
        if at_half is None or at_half < 1:
            half = at_half = None
        yield Verdict(
            Topic.SIDE_REQUEST,
            _BAD,
            said(Seen.PUSHED_OUT, one_slot=info.slots == 1, half=half, half_seconds=at_half),
            advice.keep_beside(info),
            tokens,
            _seconds(found, tokens),
            "switch",
        )


def _warnings(found: Examination) -> Iterable[Verdict]:
    for warning in found.warnings:
        yield Verdict(Topic.ANSWERS, _NOTE, warning)


def _seconds(found: Examination, tokens: int | None) -> float | None:
    return found.seconds_for(tokens) if tokens else None


# -- the template ---------------------------------------------------------------------------------------------------


def moves(found: Examination) -> bool:
    """Whether the template writes earlier messages differently in each turn."""
    template = found.template
    return template is not None and (template.moves_system is True or template.keeps_prefix is False)


def drops(found: Examination) -> bool:
    return found.template is not None and found.template.drops_reasoning is True


def _system(found: Examination) -> Iterable[Verdict]:
    info, template = found.server, found.template
    if info is None or template is None:
        return
    if moves(found):
        worst = max((lost_tokens(found, step) or 0 for step in (Step.TWO, Step.THREE, Step.AFTER_SIDE)), default=0)
        seconds = found.seconds_for(worst) if worst else None
        yield Verdict(
            Topic.SYSTEM,
            _BAD,
            said(Seen.TEMPLATE_MOVES, system=template.moves_system),
            advice.system_in_place(info) if template.moves_system else (),
            worst or None,
            seconds,
            "turn",
        )
    elif template.system_role is False:
        yield Verdict(Topic.SYSTEM, _GOOD, said(Seen.NO_SYSTEM_PLACE))


def _date(found: Examination) -> Iterable[Verdict]:
    info = found.server
    if info is None or found.template is None or not found.template.date:
        return
    size = (info.context_size or 0) // 2
    seconds = found.seconds_for(size) if size else None
    yield Verdict(
        Topic.DATE,
        _NOTE,
        said(Seen.DATE, tokens=size),
        advice.without_date(info, found.date_option),
        seconds=seconds,
        per="day",
    )


def _reasoning(found: Examination) -> Iterable[Verdict]:
    info = found.server
    if info is None or not drops(found):
        return
    asked = found.keeps_reasoning_when_asked
    can = info.reasoning_option is not None if asked is None else asked
    if can:
        yield Verdict(Topic.REASONING, _NOTE, said(Seen.REASONING_UNASKED), advice.keep_reasoning(info, True))
        return
    tokens = lost_tokens(found, Step.THREE)
    yield Verdict(
        Topic.REASONING,
        _NOTE,
        said(Seen.REASONING_LEFT_OUT),
        advice.keep_reasoning(info, False),
        tokens,
        _seconds(found, tokens),
        "turn",
    )


# -- the server -----------------------------------------------------------------------------------------------------


def _window(found: Examination) -> Iterable[Verdict]:
    info = found.server
    if info is None or info.context_size is None:
        return
    size, trained = info.context_size, found.trained_context
    if size > SMALL_WINDOW or (size == SMALL_WINDOW and trained is not None and trained <= size):
        return
    if trained is not None and trained <= size:
        yield Verdict(Topic.WINDOW, _NOTE, said(Seen.WINDOW_TRAINED, size=size))
        return
    may_be_all = size == SMALL_WINDOW and trained is None and not kind_of(info.kind).small_window
    yield Verdict(
        Topic.WINDOW,
        _NOTE if may_be_all else _BAD,
        said(Seen.WINDOW_SMALL, size=size, trained=trained),
        advice.larger_window(info, trained),
    )


def _pinning(found: Examination) -> Iterable[Verdict]:
    info, pinned = found.server, found.pinned
    if info is None:
        return
    if pinned is not None and pinned.cached * 2 < pinned.tokens:
        tokens = pinned.tokens - pinned.cached
        yield Verdict(
            Topic.PINNING,
            _NOTE,
            said(Seen.PINNED, tokens=pinned.tokens),
            advice.pinning(info),
            tokens,
            _seconds(found, tokens),
            "switch",
        )


def _snapshots(found: Examination) -> Iterable[Verdict]:
    info, snapshot = found.server, found.snapshot
    if info is None or snapshot is None:
        return
    restore, read, tokens = snapshot.restore_seconds, found.seconds_for(snapshot.tokens), snapshot.tokens
    faster = (said(Advice.FASTER_DISK),)  # only the built-in engine saves slots
    if restore is None:
        yield Verdict(Topic.SNAPSHOTS, _BAD, said(Seen.NOT_RESTORED), faster)
        return
    if restore > SLOW_RESTORE_S and read is not None and restore >= read:
        yield Verdict(
            Topic.SNAPSHOTS,
            _BAD,
            said(Seen.SLOW_RESTORE, tokens=tokens, restore=restore, read=read),
            faster,
            seconds=restore - read,
            per="switch",
        )
        return
    pace = snapshot.size / snapshot.save_seconds if snapshot.save_seconds else None
    whole = (info.context_size or 0) / max(1, snapshot.tokens) * snapshot.save_seconds
    if pace is not None and pace < SLOW_DISK and whole > 10:
        yield Verdict(
            Topic.SNAPSHOTS,
            _NOTE,
            said(Seen.SLOW_SAVE, megabytes=f"{pace / 1e6:.0f}"),
            faster,
            seconds=whole,
            per="switch",
        )
        return
    yield Verdict(Topic.SNAPSHOTS, _GOOD, said(Seen.SNAPSHOTS_PAY, tokens=tokens, restore=restore))


def _returns(found: Examination) -> Iterable[Verdict]:
    for back in found.returns:
        if back.difference:
            spread = next((one.difference or 0.0 for one in found.returns if one.way is ReturnWay.SLOT), 0.0)
            if back.way is not ReturnWay.SLOT and back.difference > 2 * spread:
                yield Verdict(Topic.SNAPSHOTS, _BAD, said(Seen.RETURN_CHANGED, way=back.way.value))


def _slot_folder(found: Examination) -> Iterable[Verdict]:
    info = found.server
    if info is None or info.embedded or found.saves_slots is not False:
        return
    usual = lost_tokens(found, Step.THREE) or 0
    tokens = (lost_tokens(found, Step.AFTER_SIDE) or 0) - usual
    if tokens > NOISE:
        yield Verdict(
            Topic.SNAPSHOTS,
            _NOTE,
            said(Seen.NO_SLOT_FOLDER),
            advice.slot_folder(info),
            tokens,
            _seconds(found, tokens),
            "switch",
        )


def _sleep(found: Examination) -> Iterable[Verdict]:
    info = found.server
    if info is None or info.embedded:
        return
    if found.asleep:
        yield Verdict(Topic.SLEEP, _NOTE, said(Seen.SLEEPS), advice.stays_loaded(info))
    elif info.unloads:
        yield Verdict(
            Topic.SLEEP,
            _NOTE,
            said(Seen.UNLOADS, title=title_of(info.kind), when=info.unloads),
            advice.stays_loaded(info),
        )


LOOKS: tuple[Callable[[Examination], Iterable[Verdict]], ...] = (
    _not_probed,
    _reuse,
    _side_request,
    _warnings,
    _window,
    _system,
    _date,
    _reasoning,
    _pinning,
    _snapshots,
    _returns,
    _slot_folder,
    _sleep,
)
