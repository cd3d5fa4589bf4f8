"""How an answer ended, in words.

The rule: a kind and its arguments become one sentence here, a fault in `kvchat.text.faults`. What an earlier version
stored as a sentence is shown as it is.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvchat.cache.causes.cause import Argument, Statement
from kvchat.prompt.message import NoteKind
from kvchat.text.faults import ROOM, Fault, fault_sentence, room_sentence

_ELSEWHERE = "{url} is not on this machine, and you have not agreed to send"

_SENTENCES: dict[str, str] = {
    NoteKind.KVCHAT_ENDED: "kvchat ended while this answer streamed.",
    NoteKind.NOTHING_SENT: "Before anything was sent.",
    NoteKind.STOPPED_EARLY: "Before the first token; the server may still finish the batch it was reading.",
    NoteKind.SILENT: "The server has not answered for a while.",
    NoteKind.NO_WORDS: "The model ended its answer without a word. Try again; if it stays so, the conversation may be "
                       "too long for the server's window.",
    NoteKind.NOT_FITTING: "{title} ended the answer without a word, as it does when a conversation no longer fits. Try "
                          "again; if it stays so, start a new conversation, or {room}.",
    NoteKind.TOOL_CALLS: "The model called {what}. kvchat has no tools; ask for an answer in words.",
    NoteKind.LONGEST: "The answer reached its largest length (max_tokens). Raise that to get more.",
    NoteKind.FILLS_WINDOW: "The conversation fills the server's window of {size:,} tokens. {remedy}",
    NoteKind.FILLS_OWN_WINDOW: "The conversation fills its window of {size:,} tokens. {remedy}",
    NoteKind.NOT_AGREED: f"{_ELSEWHERE} this conversation to it. Nothing was sent; try again in the app to be asked, "
                         "or name it with --base-url.",
    NoteKind.MOVED: "{url} has moved to another machine, and you have not agreed to send to it. Nothing was sent; try "
                    "again to be asked.",
    NoteKind.NOT_AGREED_BESIDE: f"{_ELSEWHERE} to it. Nothing was sent.",
    NoteKind.NOT_AGREED_APART: f"{_ELSEWHERE} to it. Nothing was sent; send a message there once to be asked.",
    NoteKind.ON_THE_INTERNET: "{url} sends what it gets to the internet, where memory.on_cloud lets no background work "
                              "be done.",
}


def note_sentence(note: Statement | str) -> str:
    """How an answer ended, as one sentence or two; empty for nothing, and for a kind of a later version."""
    if isinstance(note, str):
        return note
    words = {"size": 0, **dict(note.arguments)}
    try:
        if (known := _SENTENCES.get(note.kind)) is None:
            return fault_sentence(Fault(note.kind), words)
        return known.format_map({"what": _called(words), "remedy": room_sentence(str(words.get("room") or ROOM)),
                                 **words})
    except (KeyError, TypeError, ValueError):  # it may be of a file that somebody changed
        return ""


def _called(words: Mapping[str, Argument]) -> str:
    more = words.get("more")
    *first, last = [*str(words.get("calls")).split("\n"), *([f"{more} more"] if more else [])]
    if first:
        return f"the tools {', '.join(first)} and {last}"
    return f"a tool without a name{last}" if words.get("nameless") else f"the tool {last}"
