"""Where two prompts part: the first differing characters, and the message they lie in.

The rule: positions are exact where there are ids or texts to compare, and the message is named only when its
content was found in the text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TypeAlias

from kvchat.cache.causes.cause import Divergence

EXCERPT = 24
"""Characters shown of each side."""
_WORD = 12
"""Characters an excerpt may begin before the first difference, so that it begins with a word."""


def common_length(a: str, b: str) -> int:
    """How many characters both begin with."""
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def excerpts(before: str, now: str, at: int) -> tuple[str, str]:
    """What stands at `at` on both sides, from the beginning of the word it lies in, each on one line."""
    start = at
    while start > max(0, at - _WORD) and not before[start - 1].isspace():
        start -= 1
    if start and not before[start - 1].isspace():
        start = at
    return before[start:start + EXCERPT], now[start:start + EXCERPT]


def content_of(wire: bytes) -> str:
    """The text of a wire message; of one in parts, its first text. Empty where there is none."""
    try:
        message = json.loads(wire)
    except ValueError:
        return ""
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, list):
        content = next((p.get("text") for p in content if isinstance(p, dict) and p.get("type") == "text"), "")
    return content if isinstance(content, str) else ""


Spans: TypeAlias = list[tuple[int, int] | None]
"""Where each message's content stands in a text, from and to."""


def _spans(text: str, contents: Sequence[str], first_anywhere: bool) -> Spans:
    found: Spans = []
    cursor = 0
    for index, content in enumerate(contents):
        free = first_anywhere and index == 0
        for form in (content, content.strip()):
            at = text.find(form, cursor) if form else -1
            if at >= 0:
                found.append((at, at + len(form)))
                cursor = cursor if free else at + len(form)
                break
        else:
            found.append(None)
    return found


def spans(text: str, messages: Sequence[bytes]) -> Spans:
    """Where the contents of the wire messages stand in a rendered prompt; None for one that is not there.

    They are looked for in order; a template may trim them, and may put the first one (the system message) later.
    """
    contents = [content_of(wire) for wire in messages]
    in_order = _spans(text, contents, False)
    if None not in in_order:
        return in_order
    moved = _spans(text, contents, True)
    return moved if moved.count(None) < in_order.count(None) else in_order


def message_at(where: Spans, at: int) -> int | None:
    """The message that holds position `at`, or whose header does. None behind the last one.

    One that is not in the text, as the template changed it, stands before the one that follows it.
    """
    after = [(span[1], index) for index, span in enumerate(where) if span is not None and at < span[1]]
    if not after:
        return None
    index = min(after)[1]
    while index and where[index - 1] is None:
        index -= 1
    return index


def divergence(
    before_text: str, now_text: str, messages: Sequence[bytes], tokens: int | None = None
) -> Divergence | None:
    """Where the prompt `now_text` (made of `messages`) parts from `before_text`; None if it only goes on from there.

    `tokens` are those of the whole prompt: the token's index is then their share before the difference, an
    estimate; without them it is 0. Where ids are known, their own index replaces it.
    """
    at = common_length(before_text, now_text)
    if at == len(before_text):
        return None
    return divergence_at(at, before_text, now_text, spans(now_text, messages), tokens)


def divergence_at(at: int, before_text: str, now_text: str, where: Spans, tokens: int | None = None) -> Divergence:
    """The same for texts that are known to part at `at`, with the messages' places in `now_text`."""
    held, sent = excerpts(before_text, now_text, at)
    return Divergence(share(at, len(now_text), tokens), message_at(where, at), held, sent)


def share(part: int, whole: int, tokens: int | None) -> int:
    """The share of `tokens` that stands in the first `part` of `whole` characters."""
    return int(tokens * part / whole) if tokens and whole else 0


def wire_divergence(before: Sequence[bytes], now: Sequence[bytes], tokens: int | None = None) -> Divergence | None:
    """The same from the wire messages alone. None where all of `before` is still sent as it was."""
    for index, old in enumerate(before):
        new = now[index] if index < len(now) else b""
        if old == new:
            continue
        size = sum(map(len, now[:index]))
        was, is_now = content_of(old), content_of(new)
        if was == is_now:  # another field differs: quote the JSON itself
            was, is_now = old.decode("utf-8", "replace"), new.decode("utf-8", "replace")
        at = common_length(was, is_now)
        held, sent = excerpts(was, is_now, at)
        size += min(len(is_now[:at].encode("utf-8", "replace")), len(new))
        return Divergence(share(size, sum(map(len, now)), tokens), index, held, sent)
    return None
