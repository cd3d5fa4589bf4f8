"""Warnings about a system prompt, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvchat.prompt.lint import PrefixWarning  # its patterns take a while to compile

_REREAD = "changing it makes the server prefill the whole conversation again"
_WHY: dict[str, str] = {
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
    return (f"“{warning.found}” in line {warning.line} of the system prompt: {_WHY[warning.kind]} "
            f"{_INSTEAD[warning.kind]}")
