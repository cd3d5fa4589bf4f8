"""Where a prompt parts from what the last request on its branch left in the server: the first differing characters, the
message they lie in, and whose doing it is.

Positions are exact where there are ids or texts to compare; ids decide how far both are the same, texts
decide why; the message is named only when its content was found in the text, and what is known of neither stays
unknown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from kvchat.cache.causes.cause import Divergence
from kvchat.cache.causes.evidence import Evidence, LastRead
from kvchat.figures.accounting import NOISE, reads_back

_THOUGHT = re.compile(r"think|thought|reason|channel", re.IGNORECASE)
_TAIL = 64
"""Characters a generation prompt may have, where the messages could not be found in the text."""


class Difference(StrEnum):
    """What differs."""

    NOTHING = "nothing"
    OPTIONS = "options"
    """Template options or tools."""
    MESSAGE = "message"
    """The wire bytes of a message."""
    ANSWER = "answer"
    """The last answer was sent back with another text than was received."""
    TEMPLATE = "template"
    """The template wrote the same messages differently."""
    THOUGHTS = "thoughts"
    """The last answer's reasoning, or its empty block, is gone."""
    REPLY = "reply"
    """The last answer has the same text but other tokens."""
    BEHIND = "behind"
    """Something from the last answer on; the texts are not known."""
    UNKNOWN = "unknown"


class Parting(Struct, frozen=True):
    what: Difference = Difference.UNKNOWN
    common: int | None = None
    """Tokens that both begin with; None: not known."""
    exact: bool = False
    """Whether `common` was counted on ids, not estimated from texts."""
    where: Divergence | None = None


NO_PARTING = Parting()
"""Nothing is known."""


def differ(a: bytes | None, b: bytes | None) -> bool:
    """Whether two values are both known and not the same."""
    return a is not None and b is not None and a != b


def prompt_length(before: LastRead) -> int | None:
    """Tokens of the last read's prompt."""
    return len(before.sent.tokens) if before.sent.tokens is not None else before.prompt_tokens


def parting(e: Evidence) -> Parting:
    """Where this request's prompt parts from what was held before it."""
    if e.before is None:
        return NO_PARTING
    found = _by_wire(e, e.before) or _by_text(e, e.before) or _by_report(e, e.before)
    counted = _counted(e, e.before)
    if counted is not None:
        where = replace(found.where, token=counted) if found.where else None
        found = replace(found, common=counted, exact=True, where=where)
        if found.what in (Difference.REPLY, Difference.UNKNOWN, Difference.BEHIND):
            found = replace(found, what=_by_count(found.what, counted, e.before))
    return found


def _counted(e: Evidence, before: LastRead) -> int | None:
    """The common prefix in tokens, where the ids tell it."""
    if e.now.tokens is None or before.held is None:
        return None
    common = e.now.tokens.common(before.held)
    whole = before.sampled is not None or common < len(before.held)
    return common if whole else None


def _by_count(what: Difference, common: int, before: LastRead) -> Difference:
    """What the count of common tokens makes of a difference that the texts left open."""
    length, left = prompt_length(before), before.left
    if left is None and before.held is not None and before.sampled is not None:
        left = len(before.held)
    if left is not None and common >= left - 1:
        return Difference.NOTHING
    if length is not None and common < length - NOISE:
        return Difference.TEMPLATE if before.sent.wires else Difference.UNKNOWN
    return what if what is Difference.REPLY else Difference.BEHIND


def _by_wire(e: Evidence, before: LastRead) -> Parting | None:
    """What differs in what was sent; None where nothing does or it is not known."""
    total, old, new = e.figures.prompt_tokens, before.sent.wires, e.now.wires
    where = wire_divergence(old, new, total) if new else None
    if where is not None:
        return Parting(Difference.MESSAGE, where.token if total else None, False, _in_text(e, before, where))
    if differ(before.sent.options, e.now.options) or differ(before.sent.tools, e.now.tools):
        text = _text_divergence(e, before)
        return Parting(Difference.OPTIONS, text.token if text and total else None, False, text)
    if old and len(new) > len(old) and before.reply and content_of(new[len(old)]) != before.reply:
        sent = content_of(new[len(old)])
        held, now = excerpts(before.reply, sent, common_length(before.reply, sent))
        token = prompt_length(before)
        return Parting(Difference.ANSWER, token, False, Divergence(token or 0, len(old), held, now))
    return Parting(Difference.NOTHING) if new and len(new) <= len(old) else None


def _text_divergence(e: Evidence, before: LastRead) -> Divergence | None:
    if not before.sent.rendered or not e.now.rendered:
        return None
    return divergence(before.sent.rendered, e.now.rendered, e.now.wires, e.figures.prompt_tokens)


def _in_text(e: Evidence, before: LastRead, where: Divergence) -> Divergence:
    """`where`, with the better estimate of the token that the rendered texts give."""
    old, new = before.sent.rendered, e.now.rendered
    if not old or not new:
        return where
    return replace(where, token=share(common_length(old, new), len(new), e.figures.prompt_tokens))


def _by_text(e: Evidence, before: LastRead) -> Parting | None:
    """What differs in the rendered prompts of requests whose wire bytes agree or are not known."""
    old, new, total = before.sent.rendered, e.now.rendered, e.figures.prompt_tokens
    if not old or not new:
        return None
    at = common_length(old, new)
    if at == len(new):
        return Parting(Difference.NOTHING)
    if at == len(old):
        return _after_prompt(e, before, at)
    places = spans(new, e.now.wires)
    where = divergence_at(at, old, new, places, total)
    common = share(at, len(new), total) if total else None
    if at >= _generation_prompt(old, before):
        token = prompt_length(before) if common is not None else None
        thoughts = bool(before.reasoning or _THOUGHT.search(old[max(0, at - 16) :] + new[at : at + 16]))
        return Parting(Difference.THOUGHTS if thoughts else Difference.TEMPLATE, token or common, False, where)
    if before.sent.wires or not e.now.wires:
        return Parting(Difference.TEMPLATE if e.now.wires else Difference.MESSAGE, common, False, where)
    span = places[where.message] if where.message is not None else None
    inside = span is not None and span[0] <= at
    return Parting(Difference.MESSAGE if inside else Difference.TEMPLATE, common, False, where)


def _generation_prompt(rendered: str, before: LastRead) -> int:
    """Where the generation prompt of a rendered prompt begins at the earliest."""
    last = content_of(before.sent.wires[-1]).strip() if before.sent.wires else ""
    at = rendered.rfind(last) if last else -1
    return at + len(last) if at >= 0 else max(0, len(rendered) - _TAIL)


def _after_prompt(e: Evidence, before: LastRead, at: int) -> Parting:
    """The old prompt is still there whole: what became of the reply behind it?"""
    rest, length = e.now.rendered[max(0, at - before.begun) :], prompt_length(before)
    thoughts, reply = before.reasoning.strip(), before.reply.strip()
    if thoughts and thoughts not in rest[: before.begun + len(before.reasoning) + _TAIL]:
        where = Divergence(length or 0, _next(before), thoughts[:24], rest[:24])
        return Parting(Difference.THOUGHTS, length, False, where)
    head = rest[: before.begun + len(before.reasoning) + len(before.reply) + 2 * _TAIL]
    if reply and reply not in head:
        where = Divergence(length or 0, _next(before), reply[:24], rest[:24])
        return Parting(Difference.TEMPLATE, length, False, where)
    return _within_reply(e, length)


def _next(before: LastRead) -> int | None:
    """The index of the message after the last read's: its answer."""
    return len(before.sent.wires) or None


def _within_reply(e: Evidence, length: int | None) -> Parting:
    """The texts agree. Where their tokens were not counted, only what the server reused can say whether those do."""
    cached, same = e.figures.cached_tokens, same_tokens(e)
    if same:
        return Parting(Difference.NOTHING)
    if cached is not None and length is not None and cached >= length - NOISE:
        return Parting(Difference.REPLY, cached)
    if same is False:
        return Parting(Difference.REPLY, length)
    counted = e.now.tokens is not None and e.before is not None and e.before.sampled is not None
    return Parting(Difference.REPLY if counted else Difference.NOTHING)


def same_tokens(e: Evidence) -> bool | None:
    """Whether the last answer has the tokens, as history, that it was sampled in; None: not known."""
    before, history = e.before, e.history
    if before is None or before.same_tokens is not None:
        return before.same_tokens if before is not None else None
    if before.prompt_tokens is None or before.predicted_tokens is None or before.stopped is None or history is None:
        return None
    if len(e.now.wires) - len(before.sent.wires) not in (1, 2):  # the reply, and mostly a question
        return None
    return reads_back(before.predicted_tokens, history - before.prompt_tokens, before.stopped)


def _by_report(e: Evidence, before: LastRead) -> Parting:
    """Neither wires nor texts tell: a server that reused just the last prompt read the last answer again."""
    cached, length = e.figures.cached_tokens, prompt_length(before)
    if same_tokens(e):
        return Parting(Difference.NOTHING)
    if cached is not None and length is not None and abs(cached - length) <= NOISE:
        return Parting(Difference.BEHIND, cached)
    return NO_PARTING


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
    """The text at `at` on both sides, from the beginning of the word it lies in, each on one line."""
    start = at
    while start > max(0, at - _WORD) and not before[start - 1].isspace():
        start -= 1
    if start and not before[start - 1].isspace():
        start = at
    return before[start : start + EXCERPT], now[start : start + EXCERPT]


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
"""Where each message's content is in a text, from and to."""


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

    One that is not in the text, as the template changed it, is taken to precede the next one.
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
    """The share of `tokens` in the first `part` of `whole` characters."""
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
