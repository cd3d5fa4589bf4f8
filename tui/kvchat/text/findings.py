"""Why tokens were wasted, and what helps, in words.

A kind and its arguments become one sentence here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable

from kvchat.cache import Reason, Remedy
from kvchat.figures.cause import Cause
from kvchat.text.format import clock, counted, date_and_time, filled, local
from kvchat.values import Argument, Statement

_TITLE, _QUOTED, _MODEL = 30, 24, 28

_CAUSES: dict[Cause, str] = {
    Cause.RESTARTED: "server restarted",
    Cause.UNLOADED: "model unloaded",
    Cause.OTHER_WINDOW: "window changed",
    Cause.CACHING_OFF: "caching off",
    Cause.OUR_BYTES: "our bytes changed",
    Cause.CUT: "prompt cut",
    Cause.SHIFTED: "context shifted",
    Cause.REASONING: "reasoning dropped",
    Cause.TEMPLATE: "template changed the prompt",
    Cause.RETOKENISED: "reply re-tokenised",
    Cause.CANCELLED: "cancelled request",
    Cause.OWN_REQUEST: "own side request",
    Cause.OTHER_CLIENT: "another client",
    Cause.NOT_LOOKED_UP: "parked, not looked up",
    Cause.CACHE_FULL: "cache memory full",
    Cause.CHECKPOINT: "checkpoint limit",
    Cause.BLOCKS: "block size",
    Cause.OTHER_ANSWER: "other answer chosen",
    Cause.REPORTED_COLD: "warm, reported cold",
}

_ACTS: dict[Argument, str] = {
    "edit": "You edited {message}",
    "regenerate": "You asked for another answer",
    "continue": "You had the answer continued",
    "alternatives": "You asked for several answers",
    "delete": "You deleted messages",
    "fork": "You forked the conversation",
    "system": "You changed the system prompt",
    "template": "You changed the template's options",
    "model": "You chose another model",
    "tools": "You changed the tools",
    "compact": "You compacted the conversation",
}


def cause_name(cause: str | None) -> str:
    """A cause by its kind, in two or three words; `unknown` for one of a later version."""
    try:
        known = Cause(cause or "")
    except ValueError:
        return "unknown"
    return _CAUSES.get(known, known.value.replace("_", " "))


def evidence_sentence(evidence: Statement, tokens: int) -> str:
    """What was seen, as one sentence. `tokens`: wasted; 0 where the server does not report them."""
    clause, ending = _seen(evidence, tokens)
    if ending:
        return f"{clause}{ending}"
    return f"{clause}: {_again(tokens)}." if tokens else f"{clause}; it does not report what it prefilled again."


def behind_colon(evidence: Statement, tokens: int) -> str:
    """What was seen, worded to follow the number of wasted tokens and a colon: it does not repeat the number and has no
    full stop. Raw."""
    clause, ending = _seen(evidence, tokens)
    whole = f"{clause}{ending}".removesuffix(".")
    if evidence.kind == Reason.UNKNOWN:
        return "cause unknown"
    if evidence.kind == Reason.SAME_BEGINNING:
        return f"the first {_number(evidence['tokens'])} are the same, cause unknown"
    first = whole.partition(" ")[0]
    return first.lower() + whole[len(first) :] if first in ("The", "Another", "Other", "Caching") else whole


def _again(tokens: int) -> str:
    return f"{tokens:,} tokens were prefilled again"


def _seen(evidence: Statement, tokens: int) -> tuple[str, str]:
    """What was seen, and how the sentence ends where that is not by the number of tokens."""
    known = _WHOLE.get(evidence.kind)
    if known is not None:
        return known(evidence, tokens), "."
    clause = _CLAUSES.get(evidence.kind)
    return (clause(evidence) if clause is not None else "The cause is one of a later version"), ""


def _number(value: Argument) -> str:
    return f"{value:,}" if isinstance(value, int) else "?"


def _message(index: Argument, *, start: bool = False) -> str:
    """`message 3`, `the system prompt`; with `start` as a sentence begins."""
    name = "a message" if index is None else f"message {index}" if index else "the system prompt"
    return name[0].upper() + name[1:] if start else name


def _at(text: Argument) -> str:
    """` at “…10:15”`."""
    short = shortened(str(text or ""), _QUOTED)
    return f" at “…{short}”" if short else ""


def shortened(text: str, length: int = _TITLE) -> str:
    """One line of at most `length` characters."""
    text = " ".join(text.split())
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def _model(model: Argument) -> str:
    """A model's name without its folders, short."""
    name = str(model or "another model")
    return shortened(name.replace("\\", "/").rstrip("/").rpartition("/")[2] or name, _MODEL)


def _rewritten(s: Statement) -> str:
    name = _message(s["message"]) if s["message"] is not None else "the prompt"
    at = _at(s["text"]) or f" from token {_number(s['token'])} on"
    return f"The chat template wrote {name} differently{at}"


def _retokenised(s: Statement) -> str:
    since = f" from its token {_number(s['token'])} on" if s["token"] is not None else ""
    return f"The last {'call' if s['call'] else 'answer'} reads back as other tokens{since}"


def _taken_by(s: Statement) -> str:
    name = shortened(str(s["name"] or ""))
    return f"{f'“{name}”' if name else 'Another conversation'} took this conversation's slot"


def _checkpoint(s: Statement) -> str:
    aim = f", not to {_number(s['wanted'])}" if s["wanted"] is not None else ""
    return f"This model can only go back to token {_number(s['token'])}{aim}"


def _side_request(s: Statement) -> str:
    what = f"{shortened(str(s['name']))} request" if s["name"] else "side request"
    return f"kvchat's own {what} took this conversation's slot"


_CLAUSES: dict[str, Callable[[Statement], str]] = {
    Reason.OTHER_MODEL: lambda s: f"{_model(s['now'])} answered in place of {_model(s['before'])}",
    Reason.SLEPT: lambda s: "The model slept",
    Reason.OTHER_WINDOW: lambda s: (
        f"The model was loaded with a window of {_number(s['now'])} tokens in place of {_number(s['before'])}"
    ),
    Reason.OTHER_BUILD: lambda s: f"The server restarted as another build ({shortened(str(s['build']), 20)})",
    Reason.RESTARTED: lambda s: "The server restarted",
    Reason.LOADED_AGAIN: lambda s: "The model had to be loaded again",
    Reason.OTHER_SERVER: lambda s: "Another server answers now, with a cache of its own",
    Reason.CACHE_PROMPT_OFF: lambda s: "Caching was off for this request",
    Reason.OTHER_ADAPTERS: lambda s: "Other LoRA adapters clear the server's cache",
    Reason.ACT: lambda s: _ACTS.get(s["act"], "You changed the conversation").format(message=_message(s["message"])),
    Reason.MESSAGE_CHANGED: lambda s: f"{_message(s['message'], start=True)} changed{_at(s['text'])}",
    Reason.ANSWER_TRIMMED: lambda s: "The last answer was sent back trimmed",
    Reason.ANSWER_CHANGED: lambda s: f"The last answer was sent back with another text{_at(s['text'])}",
    Reason.TOOLS_CHANGED: lambda s: f"The tools changed{_at(s['text'])}",
    Reason.OPTIONS_CHANGED: lambda s: f"The template options changed{_at(s['text'])}",
    Reason.EMPTY_THOUGHTS_DROPPED: lambda s: "The chat template drops its empty thinking block",
    Reason.OTHER_DATE: lambda s: f"The chat template wrote another date (“{s['date']}”)",
    Reason.SYSTEM_MOVED: lambda s: "The chat template moves the system prompt to the last question",
    Reason.REWRITTEN: _rewritten,
    Reason.ANSWER_REWRITTEN: lambda s: "The chat template writes an answer differently once it is history",
    Reason.RETOKENISED: _retokenised,
    Reason.BLOCKS: lambda s: f"The server keeps whole blocks of {_number(s['block'])} tokens",
    Reason.CANCELLED: lambda s: "The slot still computed a cancelled request, so another one answered",
    Reason.WARM_UP: lambda s: "kvchat's own warm-up of another chat took this conversation's slot",
    Reason.SIDE_REQUEST: _side_request,
    Reason.FOREIGN: lambda s: "Another program used the model",
    Reason.OTHER_ANSWER: lambda s: f"The server keeps only the first of several answers; number {s['number']} went on",
    Reason.OTHER_BRANCH: lambda s: "Another branch of this conversation took its slot",
    Reason.OTHER_CONVERSATION: _taken_by,
    Reason.OTHER_CONVERSATION_OR_FULL: lambda s: f"{_taken_by(s)}, or the server's cache memory is small",
    Reason.CHECKPOINT: _checkpoint,
}
"""What is followed by the number of wasted tokens."""


def _foreign_slot(s: Statement, tokens: int) -> str:
    when = _between(s["since"], s["seen"])
    if not s["tokens"]:
        return f"Another program emptied slot {s['slot']} of the server{when}"
    return (
        f"Another program used the model{when}: slot {s['slot']} holds {_number(s['tokens'])} tokens that are not ours"
    )


def _between(since: Argument, seen: Argument) -> str:
    """` between 09:16 and 09:21`, ` since 2026-11-21 23:50`; empty where it is not known."""
    if not isinstance(since, int | float) or not isinstance(seen, int | float):
        return ""
    begun, ended = local(since), local(seen)
    if begun is None or ended is None:
        return ""
    if begun.date() != ended.date():
        return f" since {date_and_time(since)}"
    first, last = clock(since), clock(seen)
    return f" between {first} and {last}" if first != last else f" at {last}"


_WHOLE: dict[str, Callable[[Statement, int], str]] = {
    Reason.NOT_REPORTED: lambda s, n: "The server does not report cached tokens: the reuse is unknown",
    Reason.NEVER_REUSES: lambda s, n: f"The server reused nothing in {s['turns']} turns: its caching seems to be off",
    Reason.CUT: lambda s, n: (
        "The server cut the prompt silently: it read "
        f"{_number(s['prefilled'])} of {counted(_whole(s['whole']), 'token')}"
    ),
    Reason.SHIFTED: lambda s, n: (
        "The window was full: the server dropped old text and kept "
        f"{_number(s['kept'])} of {counted(_whole(s['whole']), 'token')}"
    ),
    Reason.OVERFLOWED: lambda s, n: (
        f"The server dropped old text of this conversation while it answered: {_number(s['tokens'])} tokens do not fit "
        f"into its window of {_number(s['window'])}"
    ),
    Reason.SHRUNK: lambda s, n: (
        f"The server dropped old text of this conversation: it read {_number(s['prefilled'])} tokens, and the turn "
        f"before had {_number(s['before'])} already"
    ),
    Reason.THOUGHTS_DROPPED: lambda s, n: (
        f"The chat template forgets thoughts: the last answer ({n:,} tokens) was prefilled again"
    ),
    Reason.FOREIGN_SLOT: _foreign_slot,
    Reason.FOREIGN_TOKENS: lambda s, n: (
        f"Another program used the model: the server read {_number(s['tokens'])} tokens that were not sent from here"
    ),
    Reason.NOT_LOOKED_UP: lambda s, n: (
        f"{_number(s['tokens'])} tokens were parked in the server's memory; it did not look them up"
    ),
    Reason.CACHE_FULL: lambda s, n: (
        f"The server ran out of cache memory and dropped {_number(s['tokens'])} tokens of this conversation"
    ),
    Reason.OTHER_SLOT: lambda s, n: (
        f"Slot {s['slot']} held {_number(s['tokens'])} tokens of this, but slot {s['answered']} answered"
    ),
    Reason.REPORTED_COLD: lambda s, n: (
        f"The server reports 0 cached tokens, though it held {_number(s['held'])} of this conversation"
    ),
    Reason.FEWER_THAN_EXPECTED: lambda s, n: (
        f"{_number(s['cached'])} tokens were reused where {_number(s['expected'])} were expected, cause unknown"
    ),
    Reason.SAME_BEGINNING: lambda s, n: (
        f"{_again(n)}, though the first {_number(s['tokens'])} are the same, cause unknown"
    ),
    Reason.UNKNOWN: lambda s, n: f"{_again(n)}, cause unknown",
}
"""Whole sentences, but for the full stop. `n`: wasted tokens."""


def _whole(value: Argument) -> int:
    return value if isinstance(value, int) else 0


SYSTEM_MOVED = (
    "This model's template has no place for a system prompt: in this conversation it is now at the "
    "beginning of the first question."
)
SYSTEM_STAYS = (
    "This model's template moves the system prompt with every question, so that all would be prefilled "
    "again: in this conversation it is at the beginning of the first question."
)


CHECK_ANSWER = (
    "Check the answer: it may be another conversation's. If it is, restart <flag:the server with {flag}|kvchat> and "
    "regenerate it."
)


def dropped_text_notice(evidence: Statement) -> str:
    """That the server dropped old text unasked, and what helps."""
    return f"{evidence_sentence(evidence, 0)} Compact it (/compact) or give the server a larger window."


def remedy_sentence(remedy: Statement | None) -> str:
    """What helps, as one sentence; empty for None, and for a kind of a later version."""
    if remedy is None or (form := _REMEDIES.get(remedy.kind)) is None:
        return ""
    words = {"flag": "", **dict(remedy.arguments)}
    return filled(form, {**words, "is_whole": " " in str(words["flag"])})


_REMEDIES: dict[str, str] = {
    Remedy.KEEP_SNAPSHOTS: "Keep the setting engine.snapshots on: what was read then outlives a restart.",
    Remedy.SAVE_SLOTS: "Start the server with {flag}: what kvchat saves there outlives a restart.",
    Remedy.SAVES_IN_APP: "The server saves slots, and the app (server.snapshots) has it do so some seconds after an "
    "answer; kvchat ask saves nothing.",
    Remedy.STAYS_LOADED: "Keep the setting engine.snapshots on: what was read is then restored from disk.",
    Remedy.GO_BACK: "<model:Each model has a cache of its own: going back finds the other one's if it stayed loaded.|"
    "Going back to the first server finds what it still holds.>",
    Remedy.KEEP_WINDOW: "Keep <setting:the setting {setting}|the server's window> as it is: what a server holds, or "
    "has saved, only fits the window that it was read with.",
    Remedy.SLEEP_LATER: "<words:{words}|Raise the server's time to keep an idle model loaded.>",
    Remedy.MORE_MODELS: "Start the server with {flag}: this model then stays loaded beside another.",
    Remedy.REPORT: "<words:{words}|Look for the server's setting for cached tokens in the usage.>",
    Remedy.SWITCH_CACHING_ON: "<program:Start {program} with {flag}.|<words:{words}|Look for the server's setting for "
    "prompt or prefix caching.>>",
    Remedy.LOOK_FOR_PROXY: "kvchat asks for caching with every request: look for a proxy that sets cache_prompt to "
    "false.",
    Remedy.SEND_CACHE_PROMPT: "Remove cache_prompt = false from the parameters.",
    Remedy.KEEP_ADAPTERS: "Keep the same adapters within a conversation.",
    Remedy.REPORT_TO_US: "kvchat never rewrites what it sent before: if nothing else changed the conversation, please "
    "report this.",
    Remedy.LARGER_WINDOW: "Compact the conversation, or give the server a larger window<flag:: {flag}>.",
    Remedy.NO_SHIFT: "Compact the conversation, and start the server with {flag}.",
    Remedy.KEEP_REASONING: "Turn <on=False:off|on> <option:{option}|preserve_reasoning> in the template options<known: "
    "of the conversation|, where the template knows it>.",
    Remedy.WARM_UP_REASONING: "This template has no switch for it. The setting cache.token_ids keeps it in llama.cpp's "
    "prompt all the same; cache.warm_up reads the answer again ahead of time.",
    Remedy.THINKING_ON: "Turn thinking on in this conversation, or set cache.token_ids, which keeps it in llama.cpp's "
    "prompt; cache.warm_up reads the answer again ahead of time.",
    Remedy.FIX_DATE: "Fix the date in the template options, where the template knows it: date_string.",
    Remedy.NO_SYSTEM_PROMPT: "Put the instructions into the first message instead of the system prompt.",
    Remedy.KEEP_APART: "Keep cache.warm_up on: a conversation is warmed up when you open it.",
    Remedy.OTHER_SYSTEM_PROMPT: "Give that program another system prompt: the server takes the slot that begins alike.",
    Remedy.HOST_CACHE: "Let the server park idle conversations: start it with {flag}.",
    Remedy.MORE_SLOTS: "<embedded:Set|Start the server with> {flag}.",
    Remedy.MORE_CACHE: "Give the server more cache memory<flag:: <is_whole:|a larger >{flag}>.",
    Remedy.DETOUR: "Keep cache.detour on: it makes the server look.",
    Remedy.NO_PIN: "Remove id_slot from the parameters.",
    Remedy.WHOLE_WINDOW: "Start the server with {flag}: the whole window stays, for more memory.",
    Remedy.MORE_CHECKPOINTS: "Start the server with more checkpoints: {flag}.",
    Remedy.CHECK_ANSWER: CHECK_ANSWER,
}
