"""Messages of the protocol (JSON-RPC) as servers write them, read by what they mean."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from kvchat.patterns import compiled_later
from kvchat.sanitize import one_line

Message = Mapping[str, Any]

LONGEST_WORDS = 300
"""Characters of a server's words in a sentence."""
TOO_LARGE = "Its answer has more than 8 MB, and kvchat reads no more."
_WORDS = (
    "message",
    "error_description",
    "detail",
    "details",
    "description",
    "text",
    "reason",
    "error",
    "data",
    "title",
)
"""Where errors have their words, in the order in which they are looked at."""
_DEPTH = 4
_UNKNOWN_SESSION = compiled_later(
    r"\b(?:session|mcp-session-id)\b.{0,60}\b(?:not found|not exist|doesn't exist|expired|unknown|invalid|no longer|"
    r"required|missing|terminated|closed|not recogni[sz]ed)\b|"
    r"\b(?:no|unknown|invalid|missing|expired|unrecogni[sz]ed)\b.{0,30}\b(?:session|mcp-session-id)\b|"
    r"\bnot (?:yet )?(?:been )?initiali[sz]ed\b|\bbefore initiali[sz]ation\b",
    re.IGNORECASE,
)


class CallProgress(Struct, frozen=True):
    """How far a server is with a request."""

    done: float
    total: float | None = None
    words: str = ""

    @property
    def sentence(self) -> str:
        """`3 of 10: Indexing`."""
        figures = f"{self.done:g} of {self.total:g}" if self.total else ""
        return ": ".join(filter(None, [figures, self.words]))


def messages_in(data: str | bytes) -> list[Message]:
    """The messages of a JSON text: one, or those of a batch; none where it has none."""
    try:
        found: Any = json.loads(data)
    except (ValueError, RecursionError):
        return []
    return [one for one in (found if isinstance(found, list) else [found]) if isinstance(one, dict)]


def is_answer(message: Message) -> bool:
    """Whether it answers a request; some repeat its method."""
    return "result" in message or "error" in message


def is_request(message: Message) -> bool:
    """Whether it wants an answer."""
    return not is_answer(message) and isinstance(message.get("method"), str) and message.get("id") is not None


def meant_id(id: object) -> int | None:
    """An id as a number: 1, "1" and 1.0 are 1. None: it is no whole number."""
    try:
        number = float(id) if isinstance(id, str | int | float) and not isinstance(id, bool) else math.nan
    except (ValueError, OverflowError):
        return None
    return int(number) if number.is_integer() else None


def reply_to(request: Message) -> Message:
    """What a request of a server's is answered: kvchat is there, and offers nothing."""
    if request["method"] == "ping":
        return {"jsonrpc": "2.0", "id": request["id"], "result": {}}
    error = {"code": -32601, "message": "kvchat offers nothing."}
    return {"jsonrpc": "2.0", "id": request["id"], "error": error}


def progress_of(message: Message, id: int) -> CallProgress | None:
    """The progress of a request that a notification tells of; None: it is none."""
    given = message.get("params")
    if message.get("method") != "notifications/progress" or not isinstance(given, dict):
        return None
    if meant_id(given.get("progressToken")) != id:
        return None
    words = given.get("message")
    total = _finite(given.get("total"))
    return CallProgress(
        _finite(given.get("progress")) or 0.0, total, one_line(words, 80) if isinstance(words, str) else ""
    )


def _finite(value: object) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < 1e15:
        return None
    return float(value)


def words_of(error: object) -> str:
    """The words of an error in whatever form, as one line; empty where it has none."""
    return one_line(_words(error, _DEPTH), LONGEST_WORDS)


def _words(error: object, depth: int) -> str:
    if isinstance(error, str):
        return error.strip()
    if isinstance(error, dict) and depth:
        found = next(filter(None, (_words(error.get(name), depth - 1) for name in _WORDS)), "")
        code = error.get("code")
        return found or (str(code) if isinstance(code, str | int) else "")
    if isinstance(error, list) and depth:
        return next(filter(None, (_words(one, depth - 1) for one in error[:8])), "")
    return ""


def words_in(body: bytes) -> str:
    """The words of a body that is no answer: of its JSON, or of a short plain text; empty for a web page."""
    text = body.decode("utf-8", "replace").strip()
    try:
        return words_of(json.loads(text))
    except (ValueError, RecursionError):
        return "" if text.startswith("<") else one_line(text, LONGEST_WORDS)


def says_unknown_session(words: str) -> bool:
    """Whether these words of a refusal say that nothing of an earlier `initialize` is known."""
    return _UNKNOWN_SESSION.search(words) is not None
