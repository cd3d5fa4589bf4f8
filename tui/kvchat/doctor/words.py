"""The facts of a report by name, and the report as JSON, the same on the screen and on the command line.

What is not known is left out or said to be unknown. Names from a server are raw here: who shows them makes
them fit to show.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import asdict

from kvchat.backends.dialect import HostClass
from kvchat.backends.kinds import title_of
from kvchat.doctor.report import BEFORE, HELD, DoctorReport, Examination, ProbeTurn, Severity, Step
from kvchat.text import doctor as words
from kvchat.text.format import count, counted, duration, size, speed
from kvchat.text.notes import note_sentence
from kvchat.text.servers import CACHED_TOKENS, model_name
from kvchat.values import as_fields

GLYPHS: dict[Severity, str] = {Severity.PROBLEM: "✗", Severity.NOTE: "!", Severity.FINE: "✓"}
PLACES: dict[HostClass, str] = {
    HostClass.LOOPBACK: "on this machine",
    HostClass.LAN: "on the local network",
    HostClass.TAILNET: "on the tailnet",
    HostClass.CLOUD: "on the internet",
}


def headline(report: DoctorReport) -> str:
    """The whole report in one sentence."""
    return words.headline(
        len(report.of(Severity.PROBLEM)), len(report.of(Severity.NOTE)), report.well, report.examination.reuse_seen
    )


def facts(found: Examination) -> Iterable[tuple[str, str]]:
    """What was found out, as names and words."""
    info = found.server
    if info is None:
        if found.url:
            yield "server", found.url
        return
    build = f" {info.build}" if info.build else ""
    place = "the built-in engine" if info.embedded else f"{info.base_url}, {PLACES[info.host_class]}"
    yield "server", f"{title_of(info.kind)}{build} · {place}"
    elsewhere = info.remote_of(info.model)
    yield "model", f"{model_name(info.model) or 'not named'}{f', answered by {elsewhere}' if elsewhere else ''}"
    trained = f" (the model was trained for {count(found.trained_context)})" if found.trained_context else ""
    yield "window", f"{counted(info.context_size, 'token')}{trained}" if info.context_size else "not told"
    shared = {True: ", one KV cache for all", False: ", each with its own KV cache", None: ""}[found.unified]
    yield "slots", "not told" if info.slots is None else f"{info.slots}{shared}"
    yield CACHED_TOKENS, f"{info.figures}" if info.figures != "not reported" else "not reported by this server"
    prefill, decode = found.prefill_speed, found.decode_speed
    if prefill is not None or decode is not None:
        yield "speed", f"prefill {speed(prefill)} · decode {speed(decode)}"
    yield "template", words.template_words(None if found.template is None else asdict(found.template))
    for turn in found.turns:
        yield str(turn.step), words.turn_words(turn.figures, turn.estimated, turn.step in BEFORE)
    if found.pinned is not None:
        yield "pinned slots", words.pinned_words(found.pinned.cached, found.pinned.tokens)
    if found.snapshot is not None:
        saved, restored = duration(found.snapshot.save_seconds), duration(found.snapshot.restore_seconds)
        whole = f"{counted(found.snapshot.tokens, 'token')}, {size(found.snapshot.size)}"
        yield "snapshot", f"{whole}: saved in {saved}, restored in {restored}"
    for back in found.returns:
        yield "comes back", words.return_words(back.way, back.tokens, back.ms, back.difference)
    if found.turns:
        most = "at most " if any(turn.figures.evaluated_tokens is None for turn in found.turns) else ""
        yield "spent", f"{most}{counted(found.spent_tokens, 'token')} of the server's time, {duration(found.seconds)}"
    match found.held:
        case (tokens,) if tokens and found.turns:  # of the conversation in the one slot that the probe took
            parked = found.fate(Step.AFTER_SIDE) in HELD
            yield "pushed out", words.pushed_out_words(tokens, found.seconds_for(tokens), parked)
    for skipped in found.skipped:
        yield "left out", skipped


def as_json(report: DoctorReport) -> dict[str, object]:
    """The report as one JSON object. What is not known is null."""
    found, info = report.examination, report.examination.server
    return {
        "url": (info.base_url if info is not None else found.url) or None,
        "well": report.well,
        "headline": headline(report),
        "verdicts": [
            {**as_fields(verdict), "sentence": verdict.sentence, "advice": verdict.advice}
            for verdict in report.verdicts
        ],
        "server": None
        if info is None
        else {
            "kind": info.kind,
            "build": info.build or None,
            "model": info.model or None,
            "place": info.host_class,
            "passed_on_to": info.remote_of(info.model) or None,
            "embedded": info.embedded,
            "context_size": info.context_size,
            "trained_context": found.trained_context,
            "slots": info.slots,
            "unified_kv": found.unified,
            "processes": found.replicas,
            "cache_hits": info.figures,
            "saves_slots": found.saves_slots,
            "unloads": info.unloads or None,
            "asleep": found.asleep,
            "unknown": list(info.unknown),
        },
        "template": None
        if found.template is None
        else {
            **asdict(found.template),
            "keeps_reasoning_when_asked": found.keeps_reasoning_when_asked,
            "date_option": found.date_option,
        },
        "speed": {"prefill": found.prefill_speed, "decode": found.decode_speed},
        "probe": {
            "turns": [_turn_json(turn) for turn in found.turns],
            "pinned": None if found.pinned is None else asdict(found.pinned),
            "snapshot": None if found.snapshot is None else asdict(found.snapshot),
            "returns": [asdict(back) for back in found.returns],
            "spent_tokens": found.spent_tokens,
            "seconds": found.seconds,
            "skipped": list(found.skipped),
            "warnings": [note_sentence(warning) for warning in found.warnings],
            "question": found.question or None,
            "busy": found.busy,
        },
    }


def _turn_json(turn: ProbeTurn) -> dict[str, object]:
    figures = turn.figures
    return {
        "step": turn.step,
        "prompt_tokens": figures.prompt_tokens,
        "cached_tokens": figures.cached_tokens,
        "evaluated_tokens": figures.evaluated_tokens,
        "new_tokens": figures.new_tokens,
        "wasted_tokens": figures.wasted_tokens if turn.step in BEFORE else None,
        "predicted_tokens": figures.predicted_tokens,
        "ttft_ms": figures.ttft_ms,
        "prompt_ms": figures.prompt_ms,
        "predicted_ms": figures.predicted_ms,
        "estimated": turn.estimated,
    }
