"""A prompt that a server cut or shifted silently, found from its own figures.

A false alarm is worse than a late one. A branch only grows, so its prompt does too; what a chat template may
leave out of it is old reasoning, and that is allowed for.
"""

from __future__ import annotations

from kvchat.cache.causes.cause import Reason
from kvchat.figures.accounting import NOISE, TurnFigures
from kvchat.values import Statement, said

RETOKENISED = 0.25
"""The part of a reply that may be missing because it is written differently when it comes back (white space, end
markers, other tokens for the same text)."""
EDGE = 64
"""Further tokens that may be missing."""


def dropped_text(previous: TurnFigures | None, now: TurnFigures, reasoning: int | None = 0) -> Statement | None:
    """What was seen of a prompt from which the server dropped old text; None when nothing speaks for that.

    `previous` is the turn before on the same branch, answered by the same model with the same template options; None:
    there is none. `reasoning`: tokens of reasoning on the branch at most, which the template may leave out; None: the
    reply may have held some that the server does not show.
    """
    if now.context_size and now.context_used is not None and now.context_used > now.context_size + NOISE:
        return said(Reason.OVERFLOWED, tokens=now.context_used, window=now.context_size)
    if previous is None or previous.prompt_tokens is None or now.prompt_tokens is None:
        return None
    before, reply = previous.prompt_tokens, previous.predicted_tokens or 0
    least = before - NOISE - (reasoning or 0)
    if reasoning is not None:
        least = max(least, before + reply - round(reply * RETOKENISED) - EDGE - reasoning)
    if now.prompt_tokens >= least:
        return None
    return said(Reason.SHRUNK, prefilled=now.prompt_tokens, before=before + reply)
