"""What is said and asked about a prompt that does not fit in the server's window. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from kvchat.chat.errors import TooLongError
from kvchat.numbers import count, counted, short_count

if TYPE_CHECKING:
    from kvchat.chat.compactor import CompactionPrice
    from kvchat.ui.screens.confirm import Choice

Way = Literal["compact", "edit", "send"]
"""What to do with a message that is too long: make room for it, shorten it, send it all the same."""
TITLE = "Too long for the window"


def refusal_words(tokens: int | None, window: int | None, turns: int) -> str:
    """`Too long: 13k of 8.2k tokens · shorten it or /compact`, once the server has refused it. `turns`: of the
    conversation without it."""
    size = f"{short_count(tokens)} of {short_count(window)} tokens" if tokens and window else "refused by the server"
    return f"Too long: {size} · shorten it" + (" or /compact" if turns > 1 else "")


def question_lines(error: TooLongError, used: int | None) -> list[str]:
    """The figures, before it is sent. `used`: tokens of the conversation without it."""
    about = "" if error.counted else "about "
    lines = [f"The prompt has {about}{counted(error.tokens, 'token')}; the window holds {count(error.window)}."]
    if used:
        lines.append(f"The conversation has {count(used)} of them, this message {count(max(0, error.tokens - used))}.")
    return lines


def choices(error: TooLongError, used: int | None, price: CompactionPrice | None) -> Sequence[Choice[Way]]:
    """What can be done. `price`: of compacting the conversation, where that can be done; it is offered where it makes
    room enough."""
    found: list[Choice[Way]] = [("e", "Edit the message", "edit")]
    if price is not None and used and price.plan.after + error.tokens - used < error.window:
        found.append(("c", f"Compact the conversation: {count(used)} → at most {count(price.plan.after)} tokens",
                      "compact"))
    return [*found, ("s", "Send anyway", "send")]
