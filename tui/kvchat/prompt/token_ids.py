"""The second law: where a prompt goes as token ids, it is the last one, what was sampled behind it, and what is new.

    ids(n + 1) = ids(n) + the sampled ids + the new ids

What a server evaluated or sampled is never tokenised again. An answer keeps what its prompt added and what
was sampled, so that a branch's ids are those of its answers, joined; what is not known of them is left to the template.
"""

from __future__ import annotations

import json
import sys
from array import array
from collections.abc import Sequence

from msgspec import Struct

from kvchat.cache import Tokens
from kvchat.prompt.wire import canonical


class AnswerIds(Struct, frozen=True):
    """The token ids of one answer."""

    scope: str
    """Whose ids they are, and of which rendering: a model's name and vocabulary, the template's options."""
    before: int
    """How many tokens of the branch stand in front of those that its prompt added; 0: it added them all."""
    added: Tokens
    """What its prompt had behind the ids of the answers before."""
    sampled: Tokens
    """The answer itself, without the token that ended it: that one is the template's."""


class KnownIds(Struct, frozen=True):
    """The ids that a branch begins with: of its first `messages` messages, up to the end of an answer."""

    scope: str
    messages: int = 0
    tokens: Tokens = Tokens()


def known_ids(answers: Sequence[AnswerIds | None], scope: str) -> KnownIds:
    """What is known of a branch, given what each of its messages keeps. Behind an answer whose ids are missing, or of
    another scope, only one that starts from the beginning counts."""
    parts: list[Tokens] = []
    length = messages = 0
    for at, ids in enumerate(answers):
        if ids is None or ids.scope != scope:
            continue
        if ids.before == 0:
            parts, length = [], 0
        elif ids.before != length:  # those before it are lost
            continue
        parts += ids.added, ids.sampled
        length += len(ids.added) + len(ids.sampled)
        messages = at + 1
    return KnownIds(scope, messages, Tokens.joined(parts))


def answered(known: KnownIds, prompt: Tokens, sampled: Tokens) -> AnswerIds:
    """What an answer keeps: `known` is what was known of the branch up to its question. Where its prompt does not begin
    with that, it starts from the beginning."""
    before = len(known.tokens) if prompt.starts_with(known.tokens) else 0
    return AnswerIds(known.scope, before, prompt.after(before), sampled)


# -- as they are stored -----------------------------------------------------------------------------------------------


def packed(ids: AnswerIds) -> bytes:
    """A line of JSON, then the ids of 4 bytes each, the lowest first."""
    values = array("i", [*ids.added, *ids.sampled])
    if sys.byteorder == "big":
        values.byteswap()
    head = {"scope": ids.scope, "before": ids.before, "added": len(ids.added)}
    return canonical(head) + b"\n" + values.tobytes()


def unpacked(stored: bytes) -> AnswerIds | None:
    """The ids of stored bytes; None where they are damaged."""
    try:
        line, _, rest = stored.partition(b"\n")
        head = json.loads(line)
        scope, before, added = str(head["scope"]), int(head["before"]), int(head["added"])
        values = array("i", rest)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    if sys.byteorder == "big":
        values.byteswap()
    tokens = Tokens(values)
    if before < 0 or not 0 <= added <= len(tokens) or tokens.known < len(tokens):
        return None
    return AnswerIds(scope, before, tokens.first(added), tokens.after(added))
