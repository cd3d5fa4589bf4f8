"""A report in words and as JSON, the same on the screen and on the command line.

The rule: what is not known is left out or said to be unknown. Names from a server are raw here: who shows them makes
them fit to show.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

from kvchat.aliases import with_old_names
from kvchat.backends.dialect import HostClass, TemplateFacts
from kvchat.backends.kinds import title_of
from kvchat.doctor.report import Examination, ProbeTurn, Report, Severity, Step, Verdict
from kvchat.doctor.reuse import BEFORE, Kept, fate, reuse_seen
from kvchat.text.format import count, counted, duration, size, speed

GLYPHS: dict[Severity, str] = {Severity.PROBLEM: "✗", Severity.NOTE: "!", Severity.FINE: "✓"}
PLACES: dict[HostClass, str] = {
    HostClass.LOOPBACK: "on this machine", HostClass.LAN: "on the local network", HostClass.TAILNET: "on the tailnet",
    HostClass.CLOUD: "on the internet",
}
SECOND = 1.0
"""A gain below this many seconds is told in tokens alone."""


def headline(report: Report) -> str:
    """The whole report in one sentence."""
    problems, notes = len(report.of(Severity.PROBLEM)), len(report.of(Severity.NOTE))
    if problems:
        return f"{counted(problems, 'problem')}." if not notes else \
            f"{counted(problems, 'problem')}, and {counted(notes, 'thing')} to know."
    if not report.well:
        return "It cannot be told whether all is well."
    said = "All is well" if reuse_seen(report.examination) else "Nothing wrong was found"
    return f"{said}; {counted(notes, 'thing')} to know." if notes else f"{said}."


def gain(verdict: Verdict) -> str:
    """What following the advice saves: `saves 412 tokens (1.2 s) per turn`; empty where nothing was measured."""
    if not verdict.advice or not verdict.per:
        return ""
    seconds = duration(verdict.seconds) if verdict.seconds is not None else ""
    if verdict.tokens:
        return f"saves {counted(verdict.tokens, 'token')}{f' ({seconds})' if seconds else ''} per {verdict.per}"
    return f"saves {seconds} per {verdict.per}" if (verdict.seconds or 0) >= SECOND else ""


def model_name(model: str) -> str:
    """A model's name to show: of a path the file's name, without .gguf."""
    name = model.replace("\\", "/").rstrip("/").rpartition("/")[2] or model
    return name[:-5] if name.lower().endswith(".gguf") else name


def facts(found: Examination) -> list[tuple[str, str]]:
    """What was found out, as names and words."""
    return [(name, words) for name, words in _facts(found) if words]


def _facts(found: Examination) -> Iterable[tuple[str, str]]:
    info = found.server
    if info is None:
        yield "server", found.url
        return
    build = f" {info.build}" if info.build else ""
    place = "the built-in engine" if info.embedded else f"{info.base_url}, {PLACES[info.host_class]}"
    yield "server", f"{title_of(info.kind)}{build} · {place}"
    elsewhere = info.remote_of(info.model)
    yield "model", f"{model_name(info.model) or 'not named'}{f', answered by {elsewhere}' if elsewhere else ''}"
    trained = f" (the model was trained for {count(found.trained_context)})" if found.trained_context else ""
    yield "window", f"{counted(info.context_size, 'token')}{trained}" if info.context_size else "not told"
    yield "slots", _slots(found)
    yield "cache hits", f"{info.figures}" if info.figures != "not reported" else "not reported by this server"
    yield "speed", _speeds(found)
    yield "template", template_words(found.template)
    for turn in found.turns:
        yield str(turn.step), turn_words(found, turn)
    if found.pinned is not None:
        yield "pinned slots", f"{count(found.pinned.cached)} of {counted(found.pinned.tokens, 'token')} cached"
    if found.snapshot is not None:
        yield "snapshot", (f"{counted(found.snapshot.tokens, 'token')}, {size(found.snapshot.size)}: saved in "
                           f"{duration(found.snapshot.save_seconds)}, restored in "
                           f"{duration(found.snapshot.restore_seconds)}")
    if found.turns:
        most = "at most " if any(turn.figures.evaluated_tokens is None for turn in found.turns) else ""
        yield "spent", f"{most}{counted(found.spent_tokens, 'token')} of the server's time, {duration(found.seconds)}"
    if pushed := _pushed_out(found):
        yield "pushed out", pushed
    for skipped in found.skipped:
        yield "left out", skipped


def _slots(found: Examination) -> str:
    info = found.server
    if info is None or info.slots is None:
        return "not told"
    shared = {True: ", one KV cache for all", False: ", each with its own KV cache"}
    return f"{info.slots}{shared[found.unified] if found.unified is not None else ''}"


def _pushed_out(found: Examination) -> str:
    """What became of the conversation in the one slot that the probe took; empty where it took none."""
    if not found.turns or found.held is None or len(found.held) != 1 or not found.held[0]:
        return ""
    tokens, seconds = found.held[0], found.seconds_for(found.held[0])
    if fate(found, Step.AFTER_SIDE) in (Kept.ALL, Kept.BUT_ANSWER):
        return f"the {counted(tokens, 'token')} that the slot held are parked by the server"
    took = f", about {duration(seconds)}" if seconds is not None else ""
    return f"the {counted(tokens, 'token')} that the slot held are prefilled again when they are used next{took}"


def _speeds(found: Examination) -> str:
    prefill, decode = found.prefill_speed, found.decode_speed
    if prefill is None and decode is None:
        return ""
    return f"prefill {speed(prefill)} · decode {speed(decode)}"


def template_words(template: TemplateFacts | None) -> str:
    """What the chat template does, as far as it is known."""
    if template is None:
        return "not known"
    said = (
        (template.date, "puts in today's date", "no date"),
        (template.drops_reasoning, "leaves earlier reasoning out", "drops no reasoning"),
        (template.moves_system, "moves the system message", ""),
        (template.system_role, "" if template.moves_system else "system message first", "no system message"),
        (template.alternates, "roles must alternate", ""),
        (template.keeps_prefix, "", "changes earlier messages"),
    )
    words = [yes if value else no for value, yes, no in said if value is not None]
    return " · ".join(filter(None, words)) or "not known"


def turn_words(found: Examination, turn: ProbeTurn) -> str:
    """`395 tokens: 346 reused, 49 read in 0.14 s; 16 written`."""
    figures = turn.figures
    if figures.prompt_tokens is None:
        return f"first token after {duration(figures.ttft_ms / 1000)}" if figures.ttft_ms else "answered"
    about = "about " if turn.estimated else ""
    total = counted(figures.prompt_tokens, "token")
    took = duration(figures.prompt_ms / 1000) if figures.prompt_ms is not None else \
        f"{duration(figures.ttft_ms / 1000)} to the first token" if figures.ttft_ms is not None else ""
    if figures.cached_tokens is None:
        return f"{total}, reuse not reported{f', {took}' if took else ''}"
    took = f" in {took}" if took and figures.prompt_ms is not None else f", {took}" if took else ""
    wasted = figures.wasted_tokens or 0
    again = f", {count(wasted)} of them again" if turn.step in BEFORE and wasted else ""
    return (f"{total}: {about}{count(figures.cached_tokens)} cached, {about}{count(figures.evaluated_tokens)} "
            f"read{took}{again}")


def as_json(report: Report) -> dict[str, object]:
    """The report as one JSON object. What is not known is null."""
    found, info = report.examination, report.examination.server
    return {
        "url": (info.base_url if info is not None else found.url) or None,
        "well": report.well,
        "headline": headline(report),
        "verdicts": [asdict(verdict) for verdict in report.verdicts],
        "server": None if info is None else {
            "kind": info.kind, "build": info.build or None, "model": info.model or None, "place": info.host_class,
            "passed_on_to": info.remote_of(info.model) or None,
            "embedded": info.embedded, "context_size": info.context_size, "trained_context": found.trained_context,
            "slots": info.slots, "unified_kv": found.unified, "processes": found.replicas, "cache_hits": info.figures,
            "unloads": info.unloads or None, "asleep": found.asleep, "unknown": list(info.unknown),
        },
        "template": None if found.template is None else {
            **asdict(found.template), "keeps_reasoning_when_asked": found.keeps_reasoning_when_asked,
            "date_option": found.date_option},
        "speed": {"prefill": found.prefill_speed, "decode": found.decode_speed},
        "probe": {
            "turns": [_turn_json(turn) for turn in found.turns],
            "pinned": None if found.pinned is None else asdict(found.pinned),
            "snapshot": None if found.snapshot is None else asdict(found.snapshot),
            "spent_tokens": found.spent_tokens, "seconds": found.seconds, "skipped": list(found.skipped),
            "warnings": list(found.warnings),
            "question": found.question or None, "busy": found.busy,
        },
    }


def _turn_json(turn: ProbeTurn) -> dict[str, object]:
    figures = turn.figures
    return with_old_names({
        "step": turn.step, "prompt_tokens": figures.prompt_tokens, "cached_tokens": figures.cached_tokens,
        "evaluated_tokens": figures.evaluated_tokens, "new_tokens": figures.new_tokens,
        "wasted_tokens": figures.wasted_tokens if turn.step in BEFORE else None,
        "predicted_tokens": figures.predicted_tokens, "ttft_ms": figures.ttft_ms, "prompt_ms": figures.prompt_ms,
        "predicted_ms": figures.predicted_ms, "estimated": turn.estimated,
    })
