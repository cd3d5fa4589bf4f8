"""What a conversation begins with and is set to, in words: its system prompt and trunk, its parameters, its model's
thinking.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvchat.prompt.request import Reserved, reserved
from kvchat.sanitize import one_line
from kvchat.text.format import counted

if TYPE_CHECKING:
    from kvchat.prompt.lint import PrefixWarning  # its patterns take a while to compile
    from kvchat.reports.cache_report import TrunkBeginning  # the settings need none of the cache

_REREAD = "changing it makes the server prefill the whole conversation again"
_WARNINGS: dict[str, str] = {
    "clock": f"A date or a time is soon wrong, and {_REREAD}.",
    "placeholder": "kvchat sends the prompt as it is written, so the model sees this placeholder and not a value.",
    "random": "A value that differs between conversations keeps them from sharing the prompt in the cache.",
    "path": f"A path is another one on another machine or in another folder, and {_REREAD}.",
    "host": f"A host or a port is soon another one, and {_REREAD}.",
    "counter": f"A count is wrong with the next message, and {_REREAD}.",
}
_INSTEAD: dict[str, str] = {
    "clock": "Leave it out: kvchat puts date and time into your message when they are news.",
    "placeholder": "Leave it out; date and time are put into your message, other facts belong into one too.",
    "random": "Leave it out, or write it into the message that needs it.",
    "path": "Write “the project folder” here, and the path into the message that needs it.",
    "host": "Name the service here, and its address in the message that needs it.",
    "counter": "Leave it out: the model sees the messages themselves.",
}


def warning_sentence(warning: PrefixWarning) -> str:
    """What was found and where, why it matters, and what to do."""
    return (
        f"“{warning.found}” in line {warning.line} of the system prompt: {_WARNINGS[warning.kind]} "
        f"{_INSTEAD[warning.kind]}"
    )


_NAMED = 3


def beginning_words(beginning: TrunkBeginning) -> str:
    """What a conversation begins with: `trunk handbook (setup.md, care.md, …)`, or its files where the trunk has gone
    on without it: `3 files (setup.md, care.md, …)`."""
    files = beginning.files
    named = ", ".join(one_line(file, 40) for file in files[:_NAMED]) + (", …" if len(files) > _NAMED else "")
    return f"{f'trunk {beginning.trunk}' if beginning.trunk else counted(len(files), 'file')} ({named})"


def changed_words(name: str, changed: Sequence[str]) -> str:
    """That files of a trunk say something else now, and what to do."""
    named = [one_line(file, 80) for file in changed[:_NAMED]]
    if len(changed) > _NAMED:
        named.append(f"{len(changed) - _NAMED} more")
    files = named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"
    return (
        f"{files} {'has' if len(changed) == 1 else 'have'} changed since the trunk {name} was made. "
        f"To make it again: kvchat trunk add {name} PATH"
    )


_RESERVED = {
    Reserved.OWN: "kvchat sends this field itself",
    Reserved.STREAM: "kvchat reads one streamed answer",
    Reserved.PROMPT: "it would change the prompt, and all of it would be prefilled again",
    Reserved.TEMPLATE: "it is an option of the model's template, and would change the prompt",
    Reserved.CACHE: "it decides which cache the conversation finds",
    Reserved.CONTEXT_SIZE: "the server's setting context_size says this",
    Reserved.KEEP_ALIVE: "the server's setting keep_alive says this",
    Reserved.OPTIONS: "its fields are set one by one, without options around them",
}


def reserved_words(name: str) -> str | None:
    """Why parameters cannot set the field `name`; None where they can."""
    why = reserved(name)
    return None if why is None else f"cannot be set: {_RESERVED[why]}"


EFFORTS = ("low", "medium", "high")
THINKING = {
    "on": "Thinking on",
    "off": "Thinking off",
    "auto": "Thinking as the server has it",
    **{effort: f"Thinking at {effort} effort" for effort in EFFORTS},
}
"""By the word that asks for it."""
THINKING_USAGE = "/thinking takes on, off, auto, low, medium or high"


def no_thinking(word: str, *, takes_effort: bool, switches: bool) -> str:
    """What a model lacks that was asked to think, and what it has instead."""
    if word in EFFORTS:
        return "This model has no thinking effort." + (" It thinks, or not: /thinking on or off." if switches else "")
    return "This model has no thinking switch." + (" It takes /thinking low, medium or high." if takes_effort else "")


def thinking_words(word: str, *, known: bool) -> str:
    """What is set now. `known`: whether the model has the switch."""
    return THINKING[word] if known or word == "auto" else f"{THINKING[word]}, if this model has the switch"
