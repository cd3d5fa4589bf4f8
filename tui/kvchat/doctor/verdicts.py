"""What an examination means: findings with what each costs, and the flag or setting that changes it.

The rule: pure. A finding rests on what was measured or read; what is not known gives no finding, and when all is well
that is said too. Of a template only a habit that costs the cache, or that kvchat has to work around, is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kvchat.backends.dialect import HostClass, Trouble
from kvchat.backends.kinds import kind_of, title_of
from kvchat.cache.causes import remedies
from kvchat.doctor import advice
from kvchat.doctor.report import Examination, Failure, Report, Severity, Step, Topic, Verdict
from kvchat.doctor.reuse import Kept, fate, lost_tokens, seems_cached
from kvchat.text.findings import remedy_sentence
from kvchat.text.format import count, counted, duration

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


def _failed(failure: Failure) -> Verdict:
    match failure.trouble:
        case Trouble.UNAUTHORIZED:
            return Verdict(Topic.KEY, _BAD, failure.sentence,
                           "Put the key that the server was started with (llama-server and vLLM: --api-key) into a "
                           "variable, and name that with --api-key-env or the setting server.api_key_env.")
        case Trouble.LOADING:
            return Verdict(Topic.LOADING, _NOTE, failure.sentence, "Wait until it has, then run the doctor again.")
        case Trouble.UNREACHABLE | Trouble.DEAD:
            return Verdict(Topic.CONNECTION, _BAD, failure.sentence,
                           "The command kvchat backends lists the servers that run on this machine.")
        case Trouble.CONTEXT_OVERFLOW:
            return Verdict(Topic.WINDOW, _BAD, failure.sentence)
    return Verdict(Topic.CONNECTION, _BAD, failure.sentence)


def _not_probed(found: Examination) -> Iterable[Verdict]:
    if found.busy:
        yield Verdict(Topic.BUSY, _NOTE, "The server is answering somebody just now, so nothing was tried out.",
                      "Run the doctor again when it is idle.")
    elif found.question:
        yield Verdict(Topic.NOT_PROBED, _NOTE, f"Nothing was tried out, because it needs your word. {found.question}",
                      "Agree to it, or run: kvchat doctor --yes")


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
    about = "about " if found.estimated else ""
    yield Verdict(Topic.REUSE, _GOOD, "A conversation is read once: its last turn reused "
                  f"{about}{count(last.cached_tokens)} of {counted(old, 'token')} that were there before.")
    if (found.replicas or 1) > 1:
        yield Verdict(Topic.AFFINITY, _GOOD, f"{found.replicas} servers answer at this address, and the conversation "
                      "stayed on its own.")
    if known and all(kept is Kept.BUT_ANSWER for kept in known) and not drops(found):
        tokens = lost_tokens(found, Step.THREE)
        yield Verdict(Topic.REUSE, _NOTE, "Each turn reads the answer before it again: it comes back to the server in "
                      "other tokens than it was written in.",
                      "The setting cache.warm_up prefills it again ahead of time.",
                      tokens, _seconds(found, tokens), "turn")


def _never_cached(found: Examination) -> Iterable[Verdict]:
    info, tokens = found.server, lost_tokens(found, Step.THREE) or lost_tokens(found, Step.TWO)
    if info is None:
        return
    if info.host_class is HostClass.CLOUD and all((turn.figures.prompt_tokens or 0) < CLOUD_CACHES_FROM
                                                  for turn in found.turns):
        yield Verdict(Topic.REUSE, _NOTE, "Nothing was reused, but services like this one cache only prompts of "
                      f"{count(CLOUD_CACHES_FROM)} tokens and more, and the probe is smaller.")
        return
    yield Verdict(Topic.CACHING_OFF, _BAD, "Nothing of a conversation is reused: every turn prefills all of it again"
                  f"{_cost(found, tokens)}.", advice.caching_on(info), tokens, _seconds(found, tokens), "turn")


def _sometimes_lost(found: Examination) -> Iterable[Verdict]:
    info = found.server
    bad = [step for step in (Step.TWO, Step.THREE) if fate(found, step) in (Kept.LOST, Kept.PARTLY)]
    tokens = max((lost_tokens(found, step) or 0 for step in bad), default=0)
    if info is None or not bad:
        return
    where = " and ".join(bad)
    if (found.replicas or 1) > 1 or not found.held:
        several = f"{found.replicas} servers answer at this address, and " if (found.replicas or 1) > 1 else ""
        sentence = (f"{several}a conversation does not stay where its cache is: {where} found little of the turn "
                    f"before{_cost(found, tokens)}.")
        yield Verdict(Topic.AFFINITY, _BAD, sentence[:1].upper() + sentence[1:], advice.affinity(info), tokens,
                      _seconds(found, tokens), "turn")
    else:
        yield Verdict(Topic.REUSE, _BAD, f"{where.capitalize()} found only a part of the turn before"
                      f"{_cost(found, tokens)}: another program may have used the server meanwhile.",
                      advice.keep_beside(info), tokens, _seconds(found, tokens), "turn")


def _unreported(found: Examination) -> Iterable[Verdict]:
    """No cached tokens: by the times alone, as far as they tell."""
    info, turns = found.server, found.turns
    if info is None or not turns:
        return
    remedy = remedy_sentence(remedies.not_reported(info.kind, advice.flags_of(info)))
    guess = seems_cached(found)
    seen = {True: " By the time to the first token the cache works.",
            False: " By the time to the first token nothing is reused."}.get(guess, "") if guess is not None else ""
    severity = _BAD if guess is False else _NOTE
    yield Verdict(Topic.FIGURES, severity, f"{title_of(info.kind)} does not report what came from its cache here, so "
                  f"its reuse is unknown.{seen}", remedy or (advice.caching_on(info) if guess is False else ""))


def _side_request(found: Examination) -> Iterable[Verdict]:
    info, tokens = found.server, lost_tokens(found, Step.AFTER_SIDE)
    kept = fate(found, Step.AFTER_SIDE)
    if info is None or kept is None or moves(found):
        return
    if kept in (Kept.ALL, Kept.BUT_ANSWER):
        yield Verdict(Topic.SIDE_REQUEST, _GOOD, "A side request, such as one for a title, costs the conversation "
                      "nothing.")
    elif fate(found, Step.THREE) in (Kept.ALL, Kept.BUT_ANSWER) and not (found.replicas or 1) > 1:
        one = "The server has one slot and parks nothing: a" if info.slots == 1 else "A"
        yield Verdict(Topic.SIDE_REQUEST, _BAD, f"{one} side request, or another conversation, pushes a conversation "
                      f"out of the cache{_cost(found, tokens)}.{_at_full(found)}", advice.keep_beside(info), tokens,
                      _seconds(found, tokens), "switch")


def _warnings(found: Examination) -> Iterable[Verdict]:
    for warning in found.warnings:
        yield Verdict(Topic.ANSWERS, _NOTE, warning)


def _cost(found: Examination, tokens: int | None) -> str:
    """`: 412 tokens were read again (1.2 s)`."""
    if not tokens:
        return ""
    many = f"{counted(tokens, 'token')} {'were' if tokens != 1 else 'was'}"
    return f": {many} prefilled again{_took(found.seconds_for(tokens))}"


def _at_full(found: Examination) -> str:
    """What the same costs a conversation that fills half the window."""
    window = found.server.context_size if found.server else None
    seconds = found.seconds_for(window // 2) if window else None
    if window is None or seconds is None or seconds < 1:
        return ""
    return f" With {count(window // 2)} tokens that is about {duration(seconds)}, each time."


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
        what = "the system message in front of the newest question" if template.moves_system \
            else "earlier messages differently in each turn"
        read = f": {counted(worst, 'token')} were prefilled again{_took(seconds)}" if worst else ""
        yield Verdict(Topic.SYSTEM, _BAD, f"The chat template writes {what}, so that the prompt changes from there on"
                      f"{read}.", advice.system_in_place(info) if template.moves_system else "", worst or None, seconds,
                      "turn")
    elif template.system_role is False:
        yield Verdict(Topic.SYSTEM, _GOOD, "The chat template has no place for a system message: it goes in "
                      "the first question, and costs nothing there.")


def _date(found: Examination) -> Iterable[Verdict]:
    info = found.server
    if info is None or found.template is None or not found.template.date:
        return
    size = (info.context_size or 0) // 2
    seconds = found.seconds_for(size) if size else None
    cost = f" ({duration(seconds)} for {count(size)} tokens)" if seconds and seconds >= 1 else ""
    yield Verdict(Topic.DATE, _NOTE, "The chat template puts today's date into the prompt: after midnight each "
                  f"conversation is prefilled again as a whole, once{cost}.",
                  advice.without_date(info, found.date_option), seconds=seconds, per="day")


def _reasoning(found: Examination) -> Iterable[Verdict]:
    info = found.server
    if info is None or not drops(found):
        return
    asked = found.keeps_reasoning_when_asked
    can = info.preserves_reasoning if asked is None else asked
    if can:
        yield Verdict(Topic.REASONING, _NOTE, "The chat template leaves earlier reasoning out unless it is asked to "
                      "keep it; left out, each turn reads the answer before it again.",
                      advice.keep_reasoning(info, True))
        return
    tokens = lost_tokens(found, Step.THREE)
    seconds = found.seconds_for(tokens) if tokens else None
    read = f" Here that was {counted(tokens, 'token')}{_took(seconds)} of a short one." if tokens else ""
    yield Verdict(Topic.REASONING, _NOTE, "The chat template leaves earlier reasoning out of the prompt: each turn "
                  f"reads the answer before it again.{read}", advice.keep_reasoning(info, False), tokens, seconds,
                  "turn")


def _took(seconds: float | None) -> str:
    return f" ({duration(seconds)})" if seconds is not None else ""


# -- the server -----------------------------------------------------------------------------------------------------


def _window(found: Examination) -> Iterable[Verdict]:
    info = found.server
    if info is None or info.context_size is None:
        return
    size, trained = info.context_size, found.trained_context
    if size > SMALL_WINDOW or (size == SMALL_WINDOW and trained is not None and trained <= size):
        return
    said = f"The window holds {counted(size, 'token')}"
    if trained is not None and trained <= size:
        yield Verdict(Topic.WINDOW, _NOTE, f"{said}, all that the model was trained for: longer conversations need "
                      "another model.")
        return
    more = f" of the {count(trained)} that the model was trained for" if trained else ""
    may_be_all = size == SMALL_WINDOW and trained is None and not kind_of(info.kind).small_window
    yield Verdict(Topic.WINDOW, _NOTE if may_be_all else _BAD, f"{said}{more}: a conversation is full after a few "
                  "long answers, and what is compacted or dropped then has to be prefilled again.",
                  advice.larger_window(info, trained))


def _pinning(found: Examination) -> Iterable[Verdict]:
    info, pinned = found.server, found.pinned
    if info is None:
        return
    if pinned is not None and pinned.cached * 2 < pinned.tokens:
        tokens = pinned.tokens - pinned.cached
        yield Verdict(Topic.PINNING, _NOTE, "Requests that name their slot lose the cache: all slots share one KV "
                      f"cache, and {tokens} of {counted(pinned.tokens, 'token')} were prefilled again. kvchat does not "
                      "pin; other programs may.", advice.pinning(info), tokens, _seconds(found, tokens), "switch")


def _snapshots(found: Examination) -> Iterable[Verdict]:
    info, snapshot = found.server, found.snapshot
    if info is None or snapshot is None:
        return
    restore, read = snapshot.restore_seconds, found.seconds_for(snapshot.tokens)
    if restore is None:
        yield Verdict(Topic.SNAPSHOTS, _BAD, "What was saved to disk could not be restored.", advice.SNAPSHOTS)
        return
    what = counted(snapshot.tokens, "token")
    if restore > SLOW_RESTORE_S and read is not None and restore >= read:
        yield Verdict(Topic.SNAPSHOTS, _BAD, f"The disk is slower than reading again: restoring {what} took "
                      f"{duration(restore)}, reading them takes {duration(read)}.", advice.SNAPSHOTS,
                      seconds=restore - read, per="switch")
        return
    pace = snapshot.size / snapshot.save_seconds if snapshot.save_seconds else None
    whole = (info.context_size or 0) / max(1, snapshot.tokens) * snapshot.save_seconds
    if pace is not None and pace < SLOW_DISK and whole > 10:
        yield Verdict(Topic.SNAPSHOTS, _NOTE, f"Saving to disk is slow ({pace / 1e6:.0f} MB/s): a full conversation "
                      f"takes about {duration(whole)}.", advice.SNAPSHOTS, seconds=whole, per="switch")
        return
    yield Verdict(Topic.SNAPSHOTS, _GOOD, f"Snapshots pay: restoring {what} took {duration(restore)}.")


def _sleep(found: Examination) -> Iterable[Verdict]:
    info = found.server
    if info is None or info.embedded:
        return
    if found.asleep:
        yield Verdict(Topic.SLEEP, _NOTE, "The model sleeps after a while without a request, and what it held is lost "
                      "then.", advice.stays_loaded(info))
    elif info.unloads:
        yield Verdict(Topic.SLEEP, _NOTE, f"{title_of(info.kind)} unloads the model {info.unloads}, and what it held "
                      "is lost then.", advice.stays_loaded(info))


LOOKS: tuple[Callable[[Examination], Iterable[Verdict]], ...] = (
    _not_probed, _reuse, _side_request, _warnings, _window, _system, _date, _reasoning, _pinning, _snapshots, _sleep)
