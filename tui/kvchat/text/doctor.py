"""What the doctor found, what to change and what it asks first: kinds whose value is the sentence. What is not known is
left out or said to be unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import UNIQUE, StrEnum, verify

from kvchat.figures.accounting import TurnFigures
from kvchat.text.findings import remedy_sentence
from kvchat.text.format import count, counted, duration, filled
from kvchat.text.notes import note_sentence
from kvchat.values import Statement

SECOND = 1.0
"""A gain below this many seconds is given in tokens alone."""

PROGRESS: dict[str, str] = {
    "first question": "Asking a small question …",
    "turn 1": "Turn 1 of a conversation …",
    "turn 2": "Turn 2: is turn 1 cached? …",
    "turn 3": "Turn 3: is turn 2 cached? …",
    "side request": "A side request, as for a title …",
    "turn after it": "The next turn: is the conversation still there? …",
}
"""What is being tried (`kvchat.doctor.report.Step`)."""

_COST = "<again:: {again:tokens} <again=1:was|were> prefilled again<took: ({took:took})>>"
_FROM = "<way=slot:its slot><way=host cache:the host cache><way=file:a file><way=other slot:a file in another slot>"
_PROGRAM = "{program} with {flag}"
_AFTER = "the probe takes its place, and it is prefilled again afterwards unless the server parks it in memory."


@verify(UNIQUE)
class Seen(StrEnum):
    """What a verdict says. `again`, `took`: the tokens that the probe prefilled again, and the seconds that took;
    `felt`: whether that is a second or more."""

    BUSY = "The server is answering somebody just now, so nothing was tried out."
    NEEDS_WORD = "Nothing was tried out, because it needs your word. {question}"
    KEPT = (
        "A conversation is read once: its last turn reused <about:about >{cached:count} of {old:tokens} that were "
        "there before."
    )
    STAYED = "{servers} servers answer at this address, and the conversation stayed on its own."
    ANSWER_AGAIN = (
        "Each turn reads the answer before it again: it comes back to the server in other tokens than it was written "
        "in."
    )
    PROBE_TOO_SMALL = (
        "Nothing was reused, but services like this one cache only prompts of {tokens:count} tokens and more, and the "
        "probe is smaller."
    )
    NEVER_REUSED = f"Nothing of a conversation is reused: every turn prefills all of it again{_COST}."
    NOT_HELD = (
        "<servers:{servers} servers answer at this address, and a|A> conversation does not stay where its cache is: "
        f"<two:turn 2<three: and turn 3>|turn 3> found little of the turn before{_COST}."
    )
    PART_HELD = (
        f"<two:Turn 2<three: and turn 3>|Turn 3> found only a part of the turn before{_COST}: another program may have "
        "used the server meanwhile."
    )
    NOT_REPORTED = (
        "{title} does not report what came from its cache here, so its reuse is unknown.<works=True: By the time to "
        "the first token the cache works.><works=False: By the time to the first token nothing is reused.>"
    )
    SIDE_FREE = "A side request, such as one for a title, costs the conversation nothing."
    PUSHED_OUT = (
        "<one_slot:The server has one slot and parks nothing: a|A> side request, or another conversation, pushes a "
        f"conversation out of the cache{_COST}.<half: With {{half:count}} tokens that is about {{half_seconds:took}}, "
        "each time.>"
    )
    TEMPLATE_MOVES = (
        "The chat template writes <system:the system message in front of the newest question|earlier messages "
        f"differently in each turn>, so that the prompt changes from there on{_COST}."
    )
    NO_SYSTEM_PLACE = (
        "The chat template has no place for a system message: it goes in the first question, and costs nothing there."
    )
    DATE = (
        "The chat template puts today's date into the prompt: after midnight each conversation is prefilled again as a "
        "whole, once<felt: ({took:took} for {tokens:count} tokens)>."
    )
    REASONING_UNASKED = (
        "The chat template leaves earlier reasoning out unless it is asked to keep it; left out, each turn reads the "
        "answer before it again."
    )
    REASONING_LEFT_OUT = (
        "The chat template leaves earlier reasoning out of the prompt: each turn reads the answer before it again."
        "<again: Here that was {again:tokens}<took: ({took:took})> of a short one.>"
    )
    WINDOW_TRAINED = (
        "The window holds {size:tokens}, all that the model was trained for: longer conversations need another model."
    )
    WINDOW_SMALL = (
        "The window holds {size:tokens}<trained: of the {trained:count} that the model was trained for>: a "
        "conversation is full after a few long answers, and what is compacted or dropped then has to be prefilled "
        "again."
    )
    PINNED = (
        "Requests that name their slot lose the cache: all slots share one KV cache, and {again} of {tokens:tokens} "
        "were prefilled again. kvchat does not pin; other programs may."
    )
    NOT_RESTORED = "What was saved to disk could not be restored."
    SLOW_RESTORE = (
        "The disk is slower than reading again: restoring {tokens:tokens} took {restore:took}, reading them takes "
        "{read:took}."
    )
    SLOW_SAVE = "Saving to disk is slow ({megabytes} MB/s): a full conversation takes about {took:took}."
    SNAPSHOTS_PAY = "Snapshots pay: restoring {tokens:tokens} took {restore:took}."
    RETURN_CHANGED = f"A state that comes back from {_FROM} answers otherwise than before."
    NO_SLOT_FOLDER = (
        "The server saves no slots. With a folder for them, kvchat saves a conversation before another one takes its "
        "slot, and a return to it prefills only what is new."
    )
    SLEEPS = "The model sleeps after a while without a request, and what it held is lost then."
    UNLOADS = "{title} unloads the model {when}, and what it held is lost then."


@verify(UNIQUE)
class Asks(StrEnum):
    """What the user has to know before the probe. `tokens`: at most, or of the slot."""

    ELSEWHERE = (
        "The server at {url} is not on this machine: the probe sends it invented text and takes up to {tokens:count} "
        "tokens of its time."
    )
    ASLEEP = "The model sleeps: the probe wakes it."
    PASSED_ON = (
        "{title} does not run the model {model} itself: it passes the invented text of the probe on to {remote}, up to "
        "{tokens:count} tokens."
    )
    NOT_LOADED = (
        "The model {model} is not loaded: the probe loads it<full:, and the server unloads another one for it, with "
        "all that it holds>."
    )
    SEVERAL_SERVERS = (
        f"Several servers answer at this address, and only one said what it holds. For what others hold: {_AFTER}"
    )
    ONE_SLOT = f"The server has one slot, which holds {{tokens:tokens}}: {_AFTER}"
    FULL_SLOTS = f"All {{slots}} slots hold something. For what lies longest in one of them: {_AFTER}"
    FEW_SLOTS = (
        "Only {free} of {slots} slots <free=1:is|are> empty, and the probe may use {used}. For what lies in another "
        f"one: {_AFTER}"
    )
    ONE_CONVERSATION = f"{{title}} may keep only one conversation. For the one it holds: {_AFTER}"


@verify(UNIQUE)
class Advice(StrEnum):
    """What to change. `flag` is ready to be typed."""

    KEY = (
        "Put the key that the server was started with (llama-server and vLLM: --api-key) into a variable, and name "
        "that with <cli:--api-key-env or >the setting server.api_key_env."
    )
    WAIT = "Wait until it has, then run the doctor again."
    LIST_SERVERS = "<cli:The command kvchat backends|/model> lists the servers of this machine."
    WHEN_IDLE = "Run the doctor again when it is idle."
    AGREE = "Agree to it<cli:, or run: kvchat doctor --yes|.>"
    WARM_UP = "The setting cache.warm_up prefills it again ahead of time."
    FASTER_DISK = "Keep kvchat's data on a faster disk, or set engine.snapshots to false."
    SET = "Set {flag}<where: in {where}>."
    RAISE = "Raise {flag} in {where}."
    NEWER = "Update {where}: {flag}."
    START = (
        "Start {where} with {flag}<slots:<apart: where its {slots} slots share one KV cache, {apart} where each has "
        "its own|<shared: (its {slots} slots share it)| (for {slots} slots together)>>>."
    )
    START_PROGRAM = f"Start {_PROGRAM}."
    OR = "Or"
    SLOT_MORE = "Or give it a slot more: {flag}."
    CACHE_ROOM = "Give {title} more cache: a larger {flag}."
    BEHIND = "Run the doctor on the server behind {title}: its own settings decide."
    MORE_ROOM = "Give the server room for more than one conversation."
    WINDOW = "Give the server a window of {size:count} tokens."
    ASKED_WINDOW = "Set server.context_size to {size}, which kvchat asks {title} for ({flag}), or"
    AFFINITY = (
        "<flag:Switch {title}'s session affinity on ({flag}); kvchat sends {header}.|Let the router go by the header "
        "{header} that kvchat sends: nginx: hash $http_x_session_id consistent; HAProxy: balance hdr({header}); "
        "vllm-router: --policy consistent_hash; sglang-router: --policy manual (it goes by X-SMG-Routing-Key).>"
    )
    DATE_OPTION = (
        "Fix the date with date_string in the conversation's template options<flag:<program: ({program}: {flag})>>."
    )
    WORDS = "{words}"
    OTHER_TEMPLATE = (
        f"Start {_PROGRAM}, a copy of the template <which=date:without the date><which=reasoning:that keeps it>"
        "<which=system:that writes the system message first><more:; {more}>."
    )
    PRESERVED = f"kvchat asks for it in new conversations ({{option}})<flag:; for other programs start {_PROGRAM}>."
    FIRST_QUESTION = "Let the system message go in the first question."
    UNPINNED = f"If a program pins (id_slot), start {_PROGRAM}."
    KEEP_ALIVE = 'Or set server.keep_alive to "{value}".'


def verdict_sentence(seen: Statement, tokens: int | None, seconds: float | None) -> str:
    """What a verdict says. `tokens`, `seconds`: what the probe read again, and how long that took."""
    form = Seen.__members__.get(seen.kind.upper())
    words = {"cached": None, **dict(seen.arguments), "again": tokens, "took": seconds, "felt": (seconds or 0) >= SECOND}
    return note_sentence(seen) if form is None else filled(form, words)


def advice_words(advice: Sequence[Statement]) -> str:
    """What is to be done, in sentences; empty for nothing."""
    words = ""
    for one in advice:
        form = Advice.__members__.get(one.kind.upper())
        piece = remedy_sentence(one) if form is None else filled(form, dict(one.arguments))
        words += f" {piece[:1].lower()}{piece[1:]}" if words.endswith(("or", "Or")) else f" {piece}"
    return words.lstrip()


def question_words(asks: Sequence[Statement]) -> str:
    """What the user has to know before the probe, in sentences; empty for nothing."""
    return " ".join(filled(Asks[one.kind.upper()], dict(one.arguments)) for one in asks)


def headline(problems: int, notes: int, well: bool, reuse_seen: bool) -> str:
    """The whole report in one sentence."""
    more = f"{counted(notes, 'thing')} to know."
    if problems:
        return f"{counted(problems, 'problem')}{f', and {more}' if notes else '.'}"
    if not well:
        return "kvchat cannot say whether all is well."
    return f"{'All is well' if reuse_seen else 'Nothing wrong was found'}{f'; {more}' if notes else '.'}"


def gain(tokens: int | None, seconds: float | None, per: str) -> str:
    """What following an advice saves: `saves 412 tokens (1.2 s) per turn`; empty where nothing was measured."""
    took = duration(seconds) if seconds is not None else ""
    if tokens:
        return f"saves {counted(tokens, 'token')}{f' ({took})' if took else ''} per {per}"
    return f"saves {took} per {per}" if (seconds or 0) >= SECOND else ""


# -- what was measured ----------------------------------------------------------------------------------------------


def return_words(way: str, tokens: int, ms: float | None, difference: float | None) -> str:
    """How a state came back in one way."""
    source = filled(f"from {_FROM}", {"way": way})
    if ms is None:
        return f"{source}: {'not known, the server gives no log-probabilities' if way == 'slot' else 'no'}"
    same = {None: "the rest is prefilled", 0.0: "equal bit for bit"}.get(difference) or (
        f"its answer differs by {difference:.3g}"
    )
    return f"{source}: {counted(tokens, 'token')} in {duration(ms / 1000)}, {same}"


def deep_cost(tokens: int) -> str:
    """What the deep examination costs, before it begins."""
    return (
        f"Proving how states come back: up to {counted(tokens, 'token')} more, and a file or two in the folder for "
        "slots, where there is one."
    )


def turn_words(figures: TurnFigures, estimated: bool, continues: bool) -> str:
    """A request of the probe: `395 tokens: 346 cached, 49 prefilled in 0.14 s`. `continues`: whether it continues an
    earlier one, so that the sentence also says what was prefilled again."""
    first = "" if figures.ttft_ms is None else duration(figures.ttft_ms / 1000)
    if figures.prompt_tokens is None:
        return f"first token after {first}" if figures.ttft_ms else "answered"
    read = "" if figures.prompt_ms is None else duration(figures.prompt_ms / 1000)
    took = f", {read or f'{first} to the first token'}" if read or first else ""
    total = counted(figures.prompt_tokens, "token")
    if figures.cached_tokens is None:
        return f"{total}, reuse not reported{took}"
    about = "about " if estimated else ""
    wasted = figures.wasted_tokens or 0
    again = f", {count(wasted)} of them again" if continues and wasted else ""
    return (
        f"{total}: {about}{count(figures.cached_tokens)} cached, {about}{count(figures.evaluated_tokens)} "
        f"prefilled{f' in {read}' if read else took}{again}"
    )


def pushed_out_words(tokens: int, seconds: float | None, parked: bool) -> str:
    """What became of what the one slot held that the probe took."""
    if parked:
        return f"the {counted(tokens, 'token')} that the slot held are parked by the server"
    took = f", about {duration(seconds)}" if seconds is not None else ""
    return f"the {counted(tokens, 'token')} that the slot held are prefilled again when they are used next{took}"


def pinned_words(cached: int, tokens: int) -> str:
    """What two requests that name their slots found."""
    return f"{count(cached)} of {counted(tokens, 'token')} cached"


def template_words(template: Mapping[str, bool | None] | None) -> str:
    """What the chat template does, as far as it is known (`kvchat.backends.dialect.TemplateFacts` by name)."""
    if template is None:
        return "not known"
    said = (
        ("date", "puts in today's date", "no date"),
        ("drops_reasoning", "leaves earlier reasoning out", "drops no reasoning"),
        ("moves_system", "moves the system message", ""),
        ("system_role", "" if template["moves_system"] else "system message first", "no system message"),
        ("alternates", "roles must alternate", ""),
        ("keeps_prefix", "", "changes earlier messages"),
    )
    words = [yes if template[name] else no for name, yes, no in said if template[name] is not None]
    return " · ".join(filter(None, words)) or "not known"
