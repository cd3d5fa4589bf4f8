"""Messages on their way to a model, in words: what holds one in the queue or keeps it from being sent, what is waited
for while its answer does not come, and what is sent to go on with a cut one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvchat.prompt.context import removed
from kvchat.prompt.queued import HoldKind
from kvchat.sanitize import one_line
from kvchat.text.format import count, counted, duration, filled, short_count

if TYPE_CHECKING:
    from kvchat.figures.accounting import PromptProgress

_HOLDS: dict[HoldKind, str] = {
    HoldKind.STOPPED: "answer stopped",
    HoldKind.FAILED: "answer failed",
    HoldKind.CONTEXT_FULL: "window full",
    HoldKind.INTERRUPTED: "answer interrupted",
    HoldKind.EMPTY: "answer was empty",
    HoldKind.TOO_LONG: "too long for the window",
    HoldKind.NEEDS_YES: "needs your yes",
    HoldKind.NOT_SENT: "not sent",
    HoldKind.EARLIER: "kept from earlier",
}


def held_reason(kind: HoldKind) -> str:
    """What holds a queue, in a few words: `answer stopped`."""
    return _HOLDS[kind]


def queued_words(messages: int) -> str:
    """How many messages wait, in lists: `2 queued`."""
    return f"{messages:,} queued"


def nothing_found(places: Sequence[str], *, is_blank: bool) -> str:
    """That nothing of the mentioned places goes with a question. `is_blank`: it says nothing else."""
    named = " or ".join(f"@{one_line(place, 60)}" for place in places)
    if is_blank:
        return f"Nothing to look for in {named}: write a question with it."
    return f"Nothing new found in {named}."


def held_words(kind: HoldKind, send: str) -> str:
    """`Queue held: answer stopped · Enter sends · ↑ edits`. `send`: the key that sends."""
    return f"Queue held: {_HOLDS[kind]} · {send} sends · ↑ edits"


def no_images(model: str, sees: bool | None, *, earlier: bool) -> str:
    """Why messages with images are not sent to a model. `sees`: what its server says of it. `earlier`: the images are
    in messages before the one that is sent."""
    name = one_line(model.replace("\\", "/").rpartition("/")[2], 60) or "this model"
    if sees is None:
        return (
            f"Nothing was sent: the server does not say whether {name} can see images. If it can, set vision to "
            '"yes" in the server\'s settings.'
        )
    return filled(
        "Nothing was sent: <earlier:this conversation has an image, and >{name} cannot see images. <cli:Name a model "
        "that can (-m)|Choose a model that can (/model)>, or <earlier:start a new conversation|<cli:leave the image "
        "out|remove the image>>.",
        {"name": name, "earlier": earlier},
    )


WAITING = {
    "queued": "waiting for the server",
    "loading": "the model is loading",
    "busy": "the server takes no requests now, sends again soon",
    "prefill": "prefilling, no word of how far",
    "silent": "the answer pauses",
    "closing": "the request before is being closed",
    "lane": "waiting for another answer on this server",
    "connecting": "connecting",
    "cancelled": "the server is finishing the cancelled batch",
    "gone": "server offline, sends when it returns",
    "tool": "carrying out the call",
    "consent": "waiting for your word on the call",
}
"""By the phase of `Waiting`."""


def waiting_sentence(phase: str, seconds: float, progress: str = "") -> str:
    """`Waiting for the server, 12 s.`; `progress`: how far what is waited for is, in its own words."""
    words = WAITING.get(phase, WAITING["queued"])
    return f"{words[0].upper()}{words[1:]}{f' ({progress})' if progress else ''}, {duration(seconds)}."


def prefill_sentence(progress: PromptProgress) -> str:
    """`Prefilling: 40 percent of 1,240 tokens.`"""
    total = max(1, progress.total)
    return f"Prefilling: {min(100, progress.processed * 100 // total)} percent of {count(total)} tokens."


GO_ON = "Continue."
"""What a server is asked that cannot go on with an answer itself."""


def asked_to_go_on(title: str, message: str) -> str:
    """That a server of the kind `title` was sent a message instead."""
    return f"This kind of server ({title}) cannot continue an answer: “{message}” was sent as a message."


def removed_words(text: str) -> str:
    """`3 invisible characters removed`: what is not shown, and not sent, of a foreign text; empty where it has none."""
    gone = removed(text)
    return f"{counted(gone, 'invisible character')} removed" if gone else ""


def too_long_words(tokens: int | None, window: int | None, turns: int) -> str:
    """`Too long: 13k of 8.2k tokens · shorten it or /compact`, once the server has refused a message. `turns`: of the
    conversation without it."""
    size = f"{short_count(tokens)} of {short_count(window)} tokens" if tokens and window else "refused by the server"
    return f"Too long: {size} · shorten it" + (" or /compact" if turns > 1 else "")


def too_long_lines(tokens: int, window: int, used: int | None, *, is_counted: bool) -> list[str]:
    """The figures, before a message is sent. `tokens`: of the whole prompt; `used`: of the conversation without the
    message; `is_counted`: the server has counted them."""
    about = "" if is_counted else "about "
    lines = [f"The prompt has {about}{counted(tokens, 'token')}; the window holds {count(window)}."]
    if used:
        lines.append(f"The conversation has {count(used)} of them, this message {count(max(0, tokens - used))}.")
    return lines
