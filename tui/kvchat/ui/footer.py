"""What the line of keys at the bottom of the main screen tells."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kvchat.commands.actions import ACTIONS
from kvchat.commands.keymap import first_key

SOMETIMES = frozenset({"transcript.continue", "transcript.code", "transcript.source"})
"""Actions that not every message has something for."""


def footer_keys(keys: Mapping[str, str], place: str = "", can: Collection[str] = ()) -> list[tuple[str, str]]:
    """Key and word of the actions of the footer, help last; in the transcript those of a message, with jump letters
    what can be typed. `keys`: the user's own, by action. `place` "composer": there are messages to go to; "question": a
    question waits. `can`: what can be done with this message and not with each."""
    if place == "jump":
        return [("letter", "go there"), ("escape", "back")]
    words = {"composer.messages": "messages"} if place == "composer" else {}
    if place == "question":
        words = {"composer.messages": "answer the question"}
    words |= {a.id: a.footer for a in ACTIONS if a.footer and a.context == "app" and a.id != "help"}
    if place == "transcript":
        words = {
            "transcript.continue": "continue",
            "transcript.edit": "edit",
            "transcript.regenerate": "regenerate",
            "transcript.copy": "copy",
            "transcript.code": "copy code",
            "transcript.source": "source",
            "transcript.branches": "branches",
            "transcript.fork": "fork",
            "transcript.delete": "delete",
            "stop": "back",
        }
        words = {id: word for id, word in words.items() if id not in SOMETIMES or id in can}
    found = [(first_key(id, keys), word) for id, word in [*words.items(), ("help", "help")]]
    return [(key, word) for key, word in found if key]
