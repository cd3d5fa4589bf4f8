"""What the doctor found, and what to change, in words.

The rule: a kind and its arguments become words here and nowhere else; the kinds are `kvchat.doctor.report.Seen` and
`Advice`. What is not known is left out or said to be unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kvchat.cache.accounting import TurnFigures
from kvchat.cache.causes.cause import Statement
from kvchat.text.findings import remedy_sentence
from kvchat.text.format import count, counted, duration
from kvchat.text.notes import note_sentence
from kvchat.text.place import here

SECOND = 1.0
"""A gain below this many seconds is told in tokens alone."""

PROGRESS: dict[str, str] = {
    "first question": "Asking a small question …",
    "turn 1": "Turn 1 of a conversation …",
    "turn 2": "Turn 2: is turn 1 cached? …",
    "turn 3": "Turn 3: is turn 2 cached? …",
    "side request": "A side request, as for a title …",
    "turn after it": "The next turn: is the conversation still there? …",
}
"""What is being tried (`kvchat.doctor.report.Step`)."""


def headline(problems: int, notes: int, well: bool, reuse_seen: bool) -> str:
    """The whole report in one sentence."""
    if problems:
        return (
            f"{counted(problems, 'problem')}."
            if not notes
            else f"{counted(problems, 'problem')}, and {counted(notes, 'thing')} to know."
        )
    if not well:
        return "It cannot be told whether all is well."
    said = "All is well" if reuse_seen else "Nothing wrong was found"
    return f"{said}; {counted(notes, 'thing')} to know." if notes else f"{said}."


def gain(tokens: int | None, seconds: float | None, per: str) -> str:
    """What following an advice saves: `saves 412 tokens (1.2 s) per turn`; empty where nothing was measured."""
    took = duration(seconds) if seconds is not None else ""
    if tokens:
        return f"saves {counted(tokens, 'token')}{f' ({took})' if took else ''} per {per}"
    return f"saves {took} per {per}" if (seconds or 0) >= SECOND else ""


# -- what is so -----------------------------------------------------------------------------------------------------


def verdict_sentence(seen: Statement, tokens: int | None, seconds: float | None) -> str:
    """What a verdict says. `tokens`, `seconds`: what the probe read again, and how long that took."""
    known = _SEEN.get(seen.kind)
    return known(seen, tokens, seconds) if known is not None else note_sentence(seen)


def _took(seconds: object) -> str:
    return f" ({duration(seconds)})" if isinstance(seconds, float) else ""


def _cost(tokens: int | None, seconds: float | None) -> str:
    """`: 412 tokens were read again (1.2 s)`."""
    if not tokens:
        return ""
    return f": {counted(tokens, 'token')} {'were' if tokens != 1 else 'was'} prefilled again{_took(seconds)}"


def _turns(s: Statement) -> str:
    return " and ".join(name for name, bad in (("turn 2", s["two"]), ("turn 3", s["three"])) if bad)


def _not_held(s: Statement, tokens: int | None, seconds: float | None) -> str:
    several = f"{s['servers']} servers answer at this address, and a" if s["servers"] else "A"
    return (
        f"{several} conversation does not stay where its cache is: {_turns(s)} found little of the turn "
        f"before{_cost(tokens, seconds)}."
    )


def _not_reported(s: Statement, tokens: int | None, seconds: float | None) -> str:
    seen = {
        True: " By the time to the first token the cache works.",
        False: " By the time to the first token nothing is reused.",
    }.get(bool(s["works"]))
    return (
        f"{s['title']} does not report what came from its cache here, so its reuse is unknown."
        f"{seen if s['works'] is not None else ''}"
    )


def _pushed_out(s: Statement, tokens: int | None, seconds: float | None) -> str:
    one = "The server has one slot and parks nothing: a" if s["one_slot"] else "A"
    half = (
        f" With {_count(s['half'])} tokens that is about {_duration(s['half_seconds'])}, each time."
        if s["half"] is not None
        else ""
    )
    return (
        f"{one} side request, or another conversation, pushes a conversation out of the cache"
        f"{_cost(tokens, seconds)}.{half}"
    )


def _template_moves(s: Statement, tokens: int | None, seconds: float | None) -> str:
    what = (
        "the system message in front of the newest question"
        if s["system"]
        else "earlier messages differently in each turn"
    )
    return f"The chat template writes {what}, so that the prompt changes from there on{_cost(tokens, seconds)}."


def _date(s: Statement, tokens: int | None, seconds: float | None) -> str:
    cost = f" ({duration(seconds)} for {_count(s['tokens'])} tokens)" if seconds and seconds >= 1 else ""
    return (
        "The chat template puts today's date into the prompt: after midnight each conversation is prefilled again "
        f"as a whole, once{cost}."
    )


def _window_small(s: Statement, tokens: int | None, seconds: float | None) -> str:
    more = f" of the {_count(s['trained'])} that the model was trained for" if s["trained"] else ""
    return (
        f"The window holds {_tokens(s['size'])}{more}: a conversation is full after a few long answers, and what "
        "is compacted or dropped then has to be prefilled again."
    )


def _count(value: object) -> str:
    return count(value if isinstance(value, int) else None)


def _tokens(value: object) -> str:
    return counted(value if isinstance(value, int) else 0, "token")


def _duration(value: object) -> str:
    return duration(value if isinstance(value, int | float) else None)


_FROM = {"slot": "its slot", "host cache": "the host cache", "file": "a file", "other slot": "a file in another slot"}


def return_words(way: str, tokens: int, ms: float | None, difference: float | None) -> str:
    """How a state came back in one way."""
    source = f"from {_FROM.get(way, way)}"
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


_SEEN: dict[str, Callable[[Statement, int | None, float | None], str]] = {
    "busy": lambda s, n, t: "The server is answering somebody just now, so nothing was tried out.",
    "needs_word": lambda s, n, t: f"Nothing was tried out, because it needs your word. {s['question']}",
    "kept": lambda s, n, t: (
        f"A conversation is read once: its last turn reused {'about ' if s['about'] else ''}{_count(s['cached'])} of "
        f"{_tokens(s['old'])} that were there before."
    ),
    "stayed": lambda s, n, t: f"{s['servers']} servers answer at this address, and the conversation stayed on its own.",
    "answer_again": lambda s, n, t: (
        "Each turn reads the answer before it again: it comes back to the server in other tokens than it was written "
        "in."
    ),
    "probe_too_small": lambda s, n, t: (
        f"Nothing was reused, but services like this one cache only prompts of {_count(s['tokens'])} tokens and more, "
        "and the probe is smaller."
    ),
    "never_reused": lambda s, n, t: (
        f"Nothing of a conversation is reused: every turn prefills all of it again{_cost(n, t)}."
    ),
    "not_held": _not_held,
    "part_held": lambda s, n, t: (
        f"{_turns(s).capitalize()} found only a part of the turn before{_cost(n, t)}: another program may have used "
        "the server meanwhile."
    ),
    "not_reported": _not_reported,
    "side_free": lambda s, n, t: "A side request, such as one for a title, costs the conversation nothing.",
    "pushed_out": _pushed_out,
    "template_moves": _template_moves,
    "no_system_place": lambda s, n, t: (
        "The chat template has no place for a system message: it goes in the first question, and costs nothing there."
    ),
    "date": _date,
    "reasoning_unasked": lambda s, n, t: (
        "The chat template leaves earlier reasoning out unless it is asked to keep it; left out, each turn reads the "
        "answer before it again."
    ),
    "reasoning_left_out": lambda s, n, t: (
        "The chat template leaves earlier reasoning out of the prompt: each turn reads the answer before it again."
        + (f" Here that was {counted(n, 'token')}{_took(t)} of a short one." if n else "")
    ),
    "window_trained": lambda s, n, t: (
        f"The window holds {_tokens(s['size'])}, all that the model was trained for: longer conversations need another "
        "model."
    ),
    "window_small": _window_small,
    "pinned": lambda s, n, t: (
        f"Requests that name their slot lose the cache: all slots share one KV cache, and {n} of "
        f"{_tokens(s['tokens'])} were prefilled again. kvchat does not pin; other programs may."
    ),
    "not_restored": lambda s, n, t: "What was saved to disk could not be restored.",
    "slow_restore": lambda s, n, t: (
        f"The disk is slower than reading again: restoring {_tokens(s['tokens'])} took {_duration(s['restore'])}, "
        f"reading them takes {_duration(s['read'])}."
    ),
    "slow_save": lambda s, n, t: (
        f"Saving to disk is slow ({s['megabytes']} MB/s): a full conversation takes about {_duration(t)}."
    ),
    "snapshots_pay": lambda s, n, t: f"Snapshots pay: restoring {_tokens(s['tokens'])} took {_duration(s['restore'])}.",
    "return_changed": lambda s, n, t: (
        f"A state that comes back from {_FROM.get(str(s['way']), s['way'])} answers otherwise than before."
    ),
    "no_slot_folder": lambda s, n, t: (
        "The server saves no slots. With a folder for them, kvchat saves a conversation before another one takes its "
        "slot, and a return to it prefills only what is new."
    ),
    "sleeps": lambda s, n, t: "The model sleeps after a while without a request, and what it held is lost then.",
    "unloads": lambda s, n, t: f"{s['title']} unloads the model {s['when']}, and what it held is lost then.",
}
"""What is so. `n`, `t`: tokens read again, and the seconds that took."""


# -- what to change -------------------------------------------------------------------------------------------------


def advice_words(advice: Sequence[Statement]) -> str:
    """What is to be done, in sentences; empty for nothing."""
    words = ""
    for one in advice:
        known = _ADVICE.get(one.kind)
        piece = known(one) if known is not None else remedy_sentence(one)
        inside = words.endswith(("or", "Or"))
        words = f"{words} {piece[:1].lower()}{piece[1:]}" if inside else f"{words} {piece}"
    return words.lstrip()


def _program(s: Statement, before: str, after: str = "") -> str:
    """`{before} llama-server with --flag{after}`; empty where there is no flag."""
    return f"{before} {s['program']} with {s['flag']}{after}" if s["flag"] else ""


def _affinity(s: Statement) -> str:
    if s["flag"]:
        return f"Switch {s['title']}'s session affinity on ({s['flag']}); kvchat sends {s['header']}."
    return (
        f"Let the router go by the header {s['header']} that kvchat sends: nginx: hash $http_x_session_id "
        f"consistent; HAProxy: balance hdr({s['header']}); vllm-router: --policy consistent_hash; "
        "sglang-router: --policy manual (it goes by X-SMG-Routing-Key)."
    )


_COPIES = {"date": "without the date", "reasoning": "that keeps it", "system": "that writes the system message first"}

_ADVICE: dict[str, Callable[[Statement], str]] = {
    "key": lambda s: (
        "Put the key that the server was started with (llama-server and vLLM: --api-key) into a variable, and name "
        f"that with {here('', '--api-key-env or ')}the setting server.api_key_env."
    ),
    "wait": lambda s: "Wait until it has, then run the doctor again.",
    "list_servers": lambda s: here(
        "/model lists the servers of this machine.", "The command kvchat backends lists the servers of this machine."
    ),
    "when_idle": lambda s: "Run the doctor again when it is idle.",
    "agree": lambda s: here("Agree to it.", "Agree to it, or run: kvchat doctor --yes"),
    "warm_up": lambda s: "The setting cache.warm_up prefills it again ahead of time.",
    "faster_disk": lambda s: "Keep kvchat's data on a faster disk, or set engine.snapshots to false.",
    "set": lambda s: f"Set {s['flag']}{f' in {where}' if (where := s['where']) else ''}.",
    "raise": lambda s: f"Raise {s['flag']} in {s['where']}.",
    "newer": lambda s: f"Update {s['where']}: {s['flag']}.",
    "start": lambda s: (
        f"Start {s['where']} with {s['flag']}{f' (for {slots} slots together)' if (slots := s['slots']) else ''}."
    ),
    "or": lambda s: "Or",
    "slot_more": lambda s: f"Or give it a slot more: {s['flag']}.",
    "cache_room": lambda s: f"Give {s['title']} more cache: a larger {s['flag']}.",
    "behind": lambda s: f"Run the doctor on the server behind {s['title']}: its own settings decide.",
    "more_room": lambda s: "Give the server room for more than one conversation.",
    "window": lambda s: f"Give the server a window of {_count(s['size'])} tokens.",
    "asked_window": lambda s: (
        f"Set server.context_size to {s['size']}, which kvchat asks {s['title']} for ({s['flag']}), or"
    ),
    "affinity": _affinity,
    "date_option": lambda s: (
        "Fix the date with date_string in the conversation's template options"
        f"{f' ({program}: {flag})' if (flag := s['flag']) and (program := s['program']) else ''}."
    ),
    "words": lambda s: str(s["words"]),
    "other_template": lambda s: (
        f"Start {s['program']} with {s['flag']}, a copy of the template {_COPIES.get(str(s['which']), '')}"
        f"{f'; {more}' if (more := s['more']) else ''}."
    ),
    "preserved": lambda s: (
        f"kvchat asks for it in new conversations ({s['option']}){_program(s, '; for other programs start')}."
    ),
    "first_question": lambda s: "Let the system message go in the first question.",
    "unpinned": lambda s: _program(s, "If a program pins (id_slot), start", "."),
    "slot_folder": lambda s: _program(s, "Start", "."),
    "keep_alive": lambda s: f'Or set server.keep_alive to "{s["value"]}".',
}


# -- what the person has to agree to --------------------------------------------------------------------------------


def question_words(asks: Sequence[Statement]) -> str:
    """What the person has to know before the probe, in sentences; empty for nothing."""
    return " ".join(_ASKS[one.kind](one) for one in asks)


_AFTER = "the probe takes its place, and it is prefilled again afterwards unless the server parks it in memory."

_ASKS: dict[str, Callable[[Statement], str]] = {
    "elsewhere": lambda s: (
        f"The server at {s['url']} is not on this machine: the probe sends it invented text and takes up to "
        f"{_count(s['tokens'])} tokens of its time."
    ),
    "asleep": lambda s: "The model sleeps: the probe wakes it.",
    "passed_on": lambda s: (
        f"{s['title']} does not run the model {s['model']} itself: it passes the invented text of the probe on to "
        f"{s['remote']}, up to {_count(s['tokens'])} tokens."
    ),
    "not_loaded": lambda s: f"The model {s['model']} is not loaded: the probe loads it.",
    "several_servers": lambda s: (
        f"Several servers answer at this address, and only one told what it holds. For what others hold: {_AFTER}"
    ),
    "one_slot": lambda s: f"The server has one slot, which holds {_tokens(s['tokens'])}: {_AFTER}",
    "full_slots": lambda s: f"All {s['slots']} slots hold something. For what lies longest in one of them: {_AFTER}",
    "few_slots": lambda s: (
        f"Only {s['free']} of {s['slots']} slots {'is' if s['free'] == 1 else 'are'} empty, and the probe may use "
        f"{s['used']}. For what lies in another one: {_AFTER}"
    ),
    "one_conversation": lambda s: f"{s['title']} may keep only one conversation. For the one it holds: {_AFTER}",
}


# -- what was measured ----------------------------------------------------------------------------------------------


def turn_words(figures: TurnFigures, estimated: bool, continues: bool) -> str:
    """A request of the probe: `395 tokens: 346 cached, 49 prefilled in 0.14 s`. `continues`: whether it goes on from
    one before it, so that what was prefilled again is told."""
    if figures.prompt_tokens is None:
        return f"first token after {duration(figures.ttft_ms / 1000)}" if figures.ttft_ms else "answered"
    about = "about " if estimated else ""
    total = counted(figures.prompt_tokens, "token")
    took = (
        duration(figures.prompt_ms / 1000)
        if figures.prompt_ms is not None
        else f"{duration(figures.ttft_ms / 1000)} to the first token"
        if figures.ttft_ms is not None
        else ""
    )
    if figures.cached_tokens is None:
        return f"{total}, reuse not reported{f', {took}' if took else ''}"
    took = f" in {took}" if took and figures.prompt_ms is not None else f", {took}" if took else ""
    wasted = figures.wasted_tokens or 0
    again = f", {count(wasted)} of them again" if continues and wasted else ""
    return (
        f"{total}: {about}{count(figures.cached_tokens)} cached, {about}{count(figures.evaluated_tokens)} "
        f"prefilled{took}{again}"
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
