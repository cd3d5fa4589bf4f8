"""The prefix linter: warns about text in a system prompt that changes by itself, and so costs the cache.

The rule: an ordinary prompt gives no warning; every warning names the exact characters and what to do instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from kvchat.prompt.lint_patterns import Kind, matches

__all__ = ["Kind", "PrefixWarning", "lint", "lint_options"]

_REREAD = "changing it makes the server read the whole conversation again"
_WHY: dict[Kind, str] = {
    Kind.CLOCK: f"A date or a time is soon wrong, and {_REREAD}.",
    Kind.PLACEHOLDER: "kvchat sends the prompt as it is written, so the model sees this placeholder and not a value.",
    Kind.RANDOM: "A value that differs between conversations keeps them from sharing the prompt in the cache.",
    Kind.PATH: f"A path is another one on another machine or in another folder, and {_REREAD}.",
    Kind.HOST: f"A host or a port is soon another one, and {_REREAD}.",
    Kind.COUNTER: f"A count is wrong with the next message, and {_REREAD}.",
}
_INSTEAD: dict[Kind, str] = {
    Kind.CLOCK: "Leave it out: kvchat puts date and time into your message when they are news.",
    Kind.PLACEHOLDER: "Leave it out; date and time are put into your message, other facts belong into one too.",
    Kind.RANDOM: "Leave it out, or write it into the message that needs it.",
    Kind.PATH: "Write “the project folder” here, and the path into the message that needs it.",
    Kind.HOST: "Name the service here, and its address in the message that needs it.",
    Kind.COUNTER: "Leave it out: the model sees the messages themselves.",
}


@dataclass(frozen=True, slots=True)
class PrefixWarning:
    """Something in the prompt that changes by itself."""

    kind: Kind
    found: str
    """The exact characters."""
    start: int
    """Where they begin, in characters from the start of the text."""
    line: int
    """The line they are in; 1 is the first."""
    why: str
    """Why it matters, one sentence."""
    instead: str
    """What to do instead, one sentence."""
    option: str = ""
    """The template option it is in; empty: it is in the instructions."""

    @property
    def end(self) -> int:
        return self.start + len(self.found)

    @property
    def sentence(self) -> str:
        """What was found and where, why it matters, and what to do."""
        where = f"in the option {self.option}" if self.option else f"in line {self.line} of the system prompt"
        return f"“{self.found}” {where}: {self.why} {self.instead}"


_TIMELY = re.compile(r"date|time|today|now|clock|day", re.IGNORECASE)
"""Names of template options that are about now."""


def lint(instructions: str) -> tuple[PrefixWarning, ...]:
    """The warnings about a system prompt, in the order of the text; one for each place."""
    return _warnings(instructions, "")


def lint_options(options: Mapping[str, object]) -> tuple[PrefixWarning, ...]:
    """The warnings about template options: their values are part of the prompt. A name such as `date_string` says that
    a value is about now."""
    found: list[PrefixWarning] = []
    for name, value in options.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        label = "current date: " if _TIMELY.search(name) else f"{name.replace('_', ' ')}: "
        found.extend(PrefixWarning(each.kind, each.found[max(0, len(label) - each.start):].strip(),
                                   max(0, each.start - len(label)), 1, each.why, each.instead, name)
                     for each in _warnings(label + text, name) if each.end > len(label))
    return tuple(found)


def _warnings(text: str, option: str) -> tuple[PrefixWarning, ...]:
    found: list[PrefixWarning] = []
    reached, line, counted = 0, 1, 0
    for start, end, kind in sorted(((start, end, kind) for kind, start, end in matches(text)),
                                   key=lambda each: (each[0], -each[1])):
        if start < reached:
            continue
        reached = end
        line, counted = line + text.count("\n", counted, start), start
        found.append(PrefixWarning(kind, text[start:end], start, line, _WHY[kind], _INSTEAD[kind], option))
    return tuple(found)
