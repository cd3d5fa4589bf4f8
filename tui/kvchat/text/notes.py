"""How an answer ended and what to know of it, in words.

A kind and its arguments become one sentence here, a fault in `kvchat.text.faults`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kvchat.prompt.message import NoteKind
from kvchat.text.faults import Fault, fault_sentence, room_sentence
from kvchat.text.findings import CHECK_ANSWER
from kvchat.text.format import filled, span
from kvchat.values import Argument, Statement

_ELSEWHERE = "{url} is not on this machine, and you have not agreed to send"

_SENTENCES: dict[str, str] = {
    NoteKind.KVCHAT_ENDED: "kvchat ended while this answer streamed.",
    NoteKind.NOTHING_SENT: "Stopped before it was sent.",
    NoteKind.STOPPED_EARLY: "Stopped before the first word.",
    NoteKind.SILENT: "The server has gone quiet.",
    NoteKind.ONLY_LOADED: "The server <loads:loaded|unloaded> the model, and did not answer. Try again.",
    NoteKind.NO_WORDS: "The model answered nothing<tokens: ({tokens:,} tokens, none visible)>"
    "<cut:: cut at max tokens>. Try again<cut:, or raise max_tokens>.",
    NoteKind.ONLY_REASONING: "The model reasoned and gave no answer. <cli:kvchat show has it|It is folded above>; ask "
    "again, or turn thinking off.",
    NoteKind.FILTERED: "A content filter of the server stopped the answer<words:: {words:stop}|.>",
    NoteKind.MODEL_REFUSED: "The model refused to answer<words:: {words:stop}|.>",
    NoteKind.NOT_FITTING: "{title} ended the answer without a message, as it does when a conversation no longer fits. "
    "Try again; if it stays so, start a new conversation, or {room}.",
    NoteKind.BROKEN_CALL: "The call of {call} cannot be carried out: {why}. The next message says so to the model.",
    NoteKind.TOOL_CALLS: "The model called {what}. This conversation has no such tool; ask for an answer in words.",
    NoteKind.CALL_AS_TEXT: "The model wrote a call as text, and it was not carried out: the server reads no calls of "
    "this model. llama-server needs --jinja, vLLM a --tool-call-parser, Ollama a template with tools.",
    NoteKind.CALLS_LEFT_OUT: "The model made {made:,} calls at once; only the first {most:,} are carried out.",
    NoteKind.LONGEST: "Cut at max tokens.",
    NoteKind.FILLS_WINDOW: "The conversation fills the server's window of {size:,} tokens. {remedy}",
    NoteKind.FILLS_OWN_WINDOW: "The conversation fills its window of {size:,} tokens. {remedy}",
    NoteKind.NOT_AGREED: f"{_ELSEWHERE} this conversation to it. Nothing was sent; <cli:name it with "
    "--base-url, or agree in the app|try again to be asked>.",
    NoteKind.NOT_AGREED_ONWARD: "{url} passes what {model} is sent on to {host}, and you have not agreed to send "
    "there. Nothing was sent; <cli:to agree, send a message to that model once in the app|send a message there once to "
    "be asked>, or choose a model that runs here.",
    NoteKind.MOVED: "{url} has moved to another machine, and you have not agreed to send to it. Nothing was sent; try "
    "again to be asked.",
    NoteKind.NOT_AGREED_BESIDE: f"{_ELSEWHERE} to it. Nothing was sent.",
    NoteKind.NOT_AGREED_APART: f"{_ELSEWHERE} to it. Nothing was sent; send a message there once to be asked.",
    NoteKind.ON_THE_INTERNET: "{url} sends what it gets to the internet, where memory.on_cloud lets no background work "
    "be done.",
    NoteKind.CALLS_LOST: "A damaged file has lost a part of this branch, and servers refuse it so. Nothing was sent.",
    NoteKind.NO_IMAGES: "This conversation has an image, and {model} cannot see images. Nothing was sent.",
    NoteKind.NO_TOOLS: "This conversation has tools, and {model} has none. Nothing was sent.",
    NoteKind.CALL_WAITS: "Not carried out yet.",
    NoteKind.PART_LOST: "A part of this answer came damaged and is missing.",
    NoteKind.OTHER_MODEL_ANSWERED: "Another model answered: {answered}, not {asked}. <title:{title} answers with "
    "the model that is loaded; load the other one there.|Nothing of this conversation was cached there.>",
    NoteKind.RUNS_ELSEWHERE: "This model runs at {host}: the conversation was sent there, it left this machine. Choose "
    "a model that runs here to keep it.",
    NoteKind.MODEL_LOADED: 'llama-swap loaded "{model}" for this answer: its cache was empty.',
    NoteKind.LOADED_AGAIN: "The model was loaded again ({seconds:.1f} s), and the whole prompt was prefilled: {why}.",
    NoteKind.SUMMARISED: "LocalAI put a summary in the place of {messages} earlier messages, so everything is "
    "prefilled again. Raise context_size in the model's YAML file, or turn compression off there.",
    NoteKind.LEFT_OUT: "{title} read {tokens:,} tokens of a conversation that has about {expected:,}: it left the "
    "oldest messages out, so everything is prefilled again. {remedy}",
    NoteKind.LEFT_OUT_UNASKED: "The server read {tokens:,} tokens of a conversation that has about {expected:,}: it "
    "left the oldest messages out, {why}.",
    NoteKind.REPORTED_COLD: f"The server reports 0 cached tokens, though it held {{held:,}} of this conversation. "
    f"{CHECK_ANSWER}",
}


def note_sentence(note: Statement | None) -> str:
    """How an answer ended, in sentences; empty for nothing, and for a kind of a later version."""
    if note is None:
        return ""
    sentence = _sentence(note)
    return f"{sentence} {_SENTENCES[NoteKind.PART_LOST]}" if sentence and note["damaged"] else sentence


def _sentence(note: Statement) -> str:
    words: dict[str, Argument] = {"size": 0, "remedy": room_sentence(note["room"]), **dict(note.arguments)}
    try:
        if (known := _SENTENCES.get(note.kind)) is None:
            return fault_sentence(Fault[note.kind.upper()], words)
        for name, made in _MADE.get(note.kind, {}).items():
            words[name] = made(words)
        return filled(known, words)
    except (KeyError, TypeError, ValueError):  # it may come from a file that was changed
        return ""


def _called(words: Mapping[str, Argument]) -> str:
    more = words.get("more")
    *first, last = [*str(words.get("calls")).split("\n"), *([f"{more} more"] if more else [])]
    if first:
        return f"the tools {', '.join(first)} and {last}"
    return f"a tool without a name{last}" if words.get("nameless") else f"the tool {last}"


def _why_loaded(words: Mapping[str, Argument]) -> str:
    if not words["known"]:
        return "it had been loaded with other options than kvchat sends, or its time without use was over"
    if changed := words.get("changed"):
        return f"{changed} changed since the last request"
    idle, limit = words.get("idle"), words.get("limit")
    if isinstance(idle, int | float) and isinstance(limit, int | float):
        return (
            f"it was idle for {span(idle)}, and Ollama unloads it after {span(limit)}. A longer server.keep_alive "
            "keeps it"
        )
    return (
        "nothing changed here, so another program used the model with other options, or another model took its memory"
    )


def _why_left_out(words: Mapping[str, Argument]) -> str:
    size, expected = words["size"], words["expected"]
    if isinstance(size, int) and isinstance(expected, int) and 0 < size < expected:
        return f"because its window of {size:,} tokens is full. Compact the conversation, or {words['room']}"
    asked = f"although a window of {size:,} tokens (num_ctx) was asked for" if size else "unasked"
    return (
        f"{asked}. Start Ollama with OLLAMA_CONTEXT_LENGTH={size or expected}, and see whether a proxy before it "
        "changes requests"
    )


_MADE: dict[str, dict[str, Callable[[Mapping[str, Argument]], str]]] = {
    NoteKind.TOOL_CALLS: {"what": _called},
    NoteKind.LOADED_AGAIN: {"why": _why_loaded},
    NoteKind.LEFT_OUT_UNASKED: {"why": _why_left_out},
}
"""The part of a sentence that is more than its arguments, by its name there."""
