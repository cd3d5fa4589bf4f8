"""Failures as values: what happened at which server, made of what it answers; `kvchat.text.faults` has the words.

Text from a server becomes an argument only through `quoted`, which makes it one clean, short line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime

from kvchat.backends.dialect import BackendError, Trouble, failure
from kvchat.backends.http.payload import PayloadError, count_at, is_object, name_at, parsed, parsed_or_none
from kvchat.patterns import compiled_later
from kvchat.prompt.wire import whole_characters
from kvchat.sanitize import one_line
from kvchat.text.faults import Fault

# -- when to try again, as `Retry-After` says it ----------------------------------------------------------------------


LONGEST_S = 3600
"""More than that is not waited for: it is "later"."""
_SECONDS = compiled_later(r"\d{1,9}(?:\.\d{1,9})?", re.ASCII)
_DATE = compiled_later(r"[A-Za-z]{3,9}, [0-9A-Za-z: -]{15,40}", re.ASCII)


def seconds_of(header: str, now: datetime) -> int | None:
    """Whole seconds from `now` until a request is welcome again, rounded up; 0 for a time that has passed. None where
    the header says nothing, something that is no time, or a time beyond LONGEST_S."""
    text = header.strip()
    if _SECONDS.fullmatch(text):
        seconds = float(text)
    elif _DATE.fullmatch(text):
        from email.utils import parsedate_to_datetime  # hardly ever needed, and slow to import

        try:
            then = parsedate_to_datetime(text)
        except (ValueError, OverflowError):
            return None
        seconds = (then.replace(tzinfo=then.tzinfo or UTC) - now).total_seconds()
    else:
        return None
    return max(0, math.ceil(seconds)) if seconds <= LONGEST_S else None


# -- failures ---------------------------------------------------------------------------------------------------------


QUOTE_LIMIT, SHORT = 120, 80
CONTEXT_ERROR = "exceed_context_size_error"

_CONTEXT_TEXT = compiled_later(
    r"context (?:length|size|window)|maximum allowed length|context.{0,20}(?:exceed|overflow)|exceed.{0,40}context",
    re.IGNORECASE,
)
_CONTEXT_EXCEEDED = compiled_later(r"context.{0,20}exceed|exceed.{0,40}context", re.IGNORECASE)
_PROMPT_TOKENS = compiled_later(
    r"(?:passed|requested|length|prompt has|first|request|contains|at least) \(?(\d{2,9})\)?(?: input)?(?: tokens)?",
    re.IGNORECASE,
)
_WINDOW_TOKENS = compiled_later(
    r"(?:context (?:length|size|window)|maximum allowed length)"
    r"(?: is| of)?(?: only)?(?: up to)? \(?(\d{2,9})\)?(?: tokens)?",
    re.IGNORECASE,
)
_ROLES = compiled_later(
    r"roles must alternate|system (?:role|message|prompt)s?(?: is| are)? not (?:supported|allowed)|"
    r"not support (?:the )?[`'\"]?system\b|only user\b.{0,40}\broles are supported|unexpected role.{0,4}system|"
    r"developer instruction is not enabled",
    re.IGNORECASE,
)
"""How a chat template, or a service, says that it takes no system message, or wants questions and answers in turn."""
_NO_MODEL = compiled_later(
    r"\bmodels?\b.{0,120}\b(?:not found|not loaded|not exist|unknown)\b|\b(?:unknown|invalid|no) model|"
    r"\bfor requested model|cached snapshot|repository not found",
    re.IGNORECASE,
)
_NO_CREDIT = compiled_later(
    r"insufficient[_ ](?:quota|balance|credits?|funds)|exceeded your current quota", re.IGNORECASE
)
_ONLY_TLS = compiled_later(r"HTTP request (?:was sent )?to (?:an )?HTTPS (?:port|server)", re.IGNORECASE)
_PLAIN_LIMIT = 500
"""Characters: a longer body that is no JSON is a page, not a message."""


def quoted(text: str, limit: int = QUOTE_LIMIT) -> str:
    """Text from a server, fit for the inside of a sentence."""
    return one_line(whole_characters(text), limit)


class NotConnectedError(BackendError):
    """No connection was made, so the server has seen nothing of the request."""

    def __init__(self, url: str, reason: str, *, refused: bool = False) -> None:
        super().__init__(Trouble.UNREACHABLE, Fault.NOT_CONNECTED, {"url": url, "reason": quoted(reason)})
        self.refused = refused
        """Whether a machine answered that nothing listens there: a server that starts may accept soon."""


class NoAnswerError(BackendError):
    """The server accepted the connection and said nothing for as long as one waits for a quick answer."""

    def __init__(self, url: str, seconds: float) -> None:
        super().__init__(Trouble.UNREACHABLE, Fault.NO_ANSWER, {"url": url, "seconds": seconds})


class StillLoadingError(BackendError):
    """The server answers 503 while it loads its model: the one answer after which a request repeats by itself."""

    def __init__(self, url: str) -> None:
        super().__init__(Trouble.LOADING, Fault.LOADING, {"url": url}, status=503)


class UnknownFieldError(BackendError):
    """The server refused the request for a field by name, before it began: without it, the request may go again."""

    def __init__(self, url: str, status: int, field: str) -> None:
        super().__init__(Trouble.REFUSED, Fault.UNKNOWN_FIELD, {"url": url, "field": field}, status=status)
        self.field = field


def cut(url: str, *, before_answer: bool) -> BackendError:
    return failure(Trouble.CUT, Fault.CUT_BEFORE if before_answer else Fault.CUT, url=url)


def protocol(url: str, what: PayloadError | str) -> BackendError:
    """`what` was sent: in words, the end of the sentence "The server at ... sent ..."."""
    return failure(Trouble.PROTOCOL, Fault.PROTOCOL, url=url, what=quoted(str(what)))


def not_json(url: str) -> BackendError:
    return failure(Trouble.PROTOCOL, Fault.NOT_JSON, url=url)


def dead(url: str) -> BackendError:
    return failure(Trouble.DEAD, Fault.DEAD, url=url)


def unexpected(url: str, error: Exception) -> BackendError:
    """An unforeseen failure; its text may hold secrets, so the sentence only names its type."""
    return failure(Trouble.PROTOCOL, Fault.UNEXPECTED, url=url, error=type(error).__name__)


def unfinished(url: str, reason: str = "") -> BackendError:
    """The server ended an answer, and did not say that it is whole. `reason`: its `finish_reason`."""
    return failure(Trouble.CUT, Fault.UNFINISHED, url=url, reason=quoted(reason, SHORT))


def error_in(value: object) -> tuple[str, Mapping[str, object]] | None:
    """The message and the object of an error inside a JSON value, or None if it reports none; an empty one is none."""
    if isinstance(value, list):
        return error_in(value[0]) if value else None
    if not is_object(value):
        return None
    if error := value.get("error"):
        if not is_object(error):
            return _said(error) or words_in(value), value
        if any(error.values()):
            return _of_provider(error) or _said(error) or name_at(error, "code") or name_at(error, "type"), error
    if value.get("object") == "error" or (value.get("type") == "error" and isinstance(value.get("message"), str)):
        return words_in(value), value
    return None


def words_in(value: object) -> str:
    """What a value that is no part of an answer says, wherever servers put it; empty: nothing."""
    if not is_object(value):
        return ""
    return next((words for name in _WORDS if (words := _said(value.get(name)))), "")


_WORDS = ("detail", "message", "msg", "error_message", "error_msg", "errors")


def _said(value: object) -> str:
    """The words in a field of an error: text, or the first of a list of problems with the field it is about."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return _said(value[0]) if value else ""
    if not is_object(value):
        return ""
    words, where = words_in(value), value.get("loc")
    return f"{where[-1]}: {words}" if words and isinstance(where, list) and where else words


def _of_provider(error: Mapping[str, object]) -> str:
    """What the provider behind a broker said, where the broker only says that it failed."""
    metadata = error.get("metadata")
    raw = metadata.get("raw") if is_object(metadata) else None
    return (error_of(raw) or ("",))[0] if isinstance(raw, str) else ""


def is_loading(status: int, body: str) -> bool:
    """Whether an answer says that the server is there and loads its model: by its words. A type alone does not say so:
    llama.cpp has one for a server without a free slot too, and a router for a model that failed to load."""
    found = error_of(body) if status == 503 else None
    if found is None:
        return False
    message, error = found
    is_typed = error.get("type") == "model_loading"
    return not _NOT_LOADING.search(message) and (is_typed or _IS_LOADING.search(message) is not None)


_IS_LOADING = compiled_later(r"\bloading\b|being loaded|starting up|warming up|still starting", re.IGNORECASE)
_NOT_LOADING = compiled_later(r"fail|error|could not|cannot|can't|unable|no slot|\bnot loading|abort", re.IGNORECASE)


_CUT_WORDS = compiled_later(r'"(?:message|error|detail|msg)"[ \t]*:[ \t]*"([^"\\]{1,2000})')
_EVENT = compiled_later(r"^data:[ \t]*(?!\[DONE\])(\S.*)$", re.MULTILINE)


def error_of(body: str) -> tuple[str, Mapping[str, object]] | None:
    """The message and the object of the error in the body of an answer; None where there is no such thing."""
    try:
        value = parsed(body)
    except PayloadError:
        if (part := _EVENT.search(body)) is not None:  # an event, as of a stream that could not begin
            return error_of(part[1])
        text = body.strip()
        if "{" in text or text.startswith("["):  # an error that was cut, or is not quite JSON
            words = _CUT_WORDS.search(text)
            return (words[1], {}) if words else None
        return (text, {}) if 0 < len(text) <= _PLAIN_LIMIT and not text.startswith("<") else None
    found = error_in(value)
    if found is None and is_object(value):
        return words_in(value), value
    return found


def of_stream(url: str, message: str, error: Mapping[str, object]) -> BackendError:
    """An error that came inside an answer."""
    return (
        _overflow(url, message, error)
        or _roles(url, message)
        or failure(Trouble.SERVER_ERROR, Fault.STREAM_ERROR, url=url, said=quoted(message))
    )


NO_HEADERS: Mapping[str, str] = {}
BUSY = (Fault.TOO_MANY, Fault.UNAVAILABLE)
"""What a server that says when to come again has not begun."""


def wants_password(status: int, headers: Mapping[str, str]) -> bool:
    """Whether an answer asks for a user name and a password, as proxies in front of a server do (RFC 7617)."""
    return status == 401 and headers.get("www-authenticate", "").lstrip().lower().startswith("basic")


def of_status(
    url: str, status: int, body: str, *, headers: Mapping[str, str] = NO_HEADERS, has_key: bool = False
) -> BackendError:
    """An answer with an error status. `headers`: its own, in lower case."""
    message, error = error_of(body) or ("", {})
    known = _overflow(url, message, error, status) or _roles(url, message, status)
    if known:
        return known
    if status == 400 and _ONLY_TLS.search(body):
        return failure(Trouble.BAD_ADDRESS, Fault.ONLY_TLS, status=status, url=url)
    if wants_password(status, headers):
        return failure(Trouble.UNAUTHORIZED, Fault.BASIC_AUTH, status=status, url=url)
    if status == 401:
        wrong = Fault.WRONG_KEY if has_key else Fault.NO_KEY
        return failure(Trouble.UNAUTHORIZED, wrong, status=status, url=url)
    trouble, fault = _kind(status, message, str(error.get("code")))
    seconds = seconds_of(headers.get("retry-after", ""), datetime.now(UTC)) if fault in BUSY else None
    return failure(trouble, fault, status=status, url=url, said=quoted(message), seconds=seconds)


def pause_in(error: BackendError) -> int | None:
    """Whole seconds, at least one, after which the server that refused a request takes it; None: it does not say."""
    seconds = error.arguments.get("seconds") if error.fault in BUSY else None
    return max(1, seconds) if isinstance(seconds, int) else None


def _kind(status: int, message: str, code: str) -> tuple[Trouble, Fault]:
    """What kind of failure it is."""
    if status == 403:
        return Trouble.UNAUTHORIZED, Fault.NO_ACCESS
    if status == 402 or (status in (400, 429) and _NO_CREDIT.search(f"{message} {code}")):
        return Trouble.RATE_LIMITED if status == 429 else Trouble.REFUSED, Fault.NO_CREDIT
    if status == 429:
        return Trouble.RATE_LIMITED, Fault.TOO_MANY
    if status in (400, 404, 422) and _NO_MODEL.search(message):
        return Trouble.REFUSED, Fault.NO_MODEL
    if status in (404, 405):
        return Trouble.REFUSED, Fault.NO_PATH
    if status == 413:
        return Trouble.REFUSED, Fault.TOO_LARGE
    if status == 503:
        return Trouble.SERVER_ERROR, Fault.UNAVAILABLE
    if status in (502, 504) and not message:
        return Trouble.SERVER_ERROR, Fault.BEHIND_PROXY
    return (Trouble.SERVER_ERROR, Fault.FAILED) if status >= 500 else (Trouble.REFUSED, Fault.REFUSED)


def is_about_roles(message: str) -> bool:
    """Whether a chat template, or a service, says that it does not take these roles."""
    return _ROLES.search(message) is not None


def _roles(url: str, message: str, status: int | None = None) -> BackendError | None:
    """The template does not take these roles; in the template's own words where the message quotes them."""
    if not is_about_roles(message):
        return None
    words = quoted(message.rpartition("Jinja Exception:")[2])
    return failure(Trouble.SYSTEM_ROLE, Fault.ROLES, status=status, url=url, words=words)


def _overflow(
    url: str,
    message: str,
    error: Mapping[str, object],
    status: int | None = None,
) -> BackendError | None:
    """The prompt does not fit, with the numbers where the server gives them."""
    typed = error.get("type") == CONTEXT_ERROR
    pattern = _CONTEXT_EXCEEDED if status is not None and status >= 500 else _CONTEXT_TEXT
    if not typed and (status in (401, 403, 404, 429) or not pattern.search(message)):
        return None
    prompt, window = count_at(error, "n_prompt_tokens") or None, count_at(error, "n_ctx") or None
    if not typed:
        prompt, window = _number(_PROMPT_TOKENS, message), _number(_WINDOW_TOKENS, message)
    if prompt and window and prompt > window:
        return failure(
            Trouble.CONTEXT_OVERFLOW,
            Fault.TOO_LONG,
            status=status,
            prompt_tokens=prompt,
            context_size=window,
            url=url,
            prompt=prompt,
            window=window,
            least="at least" in message,
        )
    return failure(
        Trouble.CONTEXT_OVERFLOW,
        Fault.WINDOW_FULL,
        status=status,
        prompt_tokens=prompt,
        context_size=window,
        url=url,
        words=quoted(message, SHORT),
        with_figures=bool(prompt and window),
    )


def _number(pattern: re.Pattern[str], message: str) -> int | None:
    found = pattern.search(message)
    return int(found[1]) if found else None


# -- which field of a request a server refuses by name: only what it says of the request counts, never what it repeats


_REFUSES = compiled_later(
    r"extra[_ ](?:inputs|fields?|forbidden)|not permitted|not supported|unsupported|unknown|unrecogni[sz]ed|unexpected|"
    r"no such (?:field|parameter)|invalid (?:field|parameter|argument)",
    re.IGNORECASE,
)
_ROLE = compiled_later(r"\broles?\b", re.IGNORECASE)
_ECHO = compiled_later(r"\binput(?:_value)?['\"]?\s?[=:]")
"""From here on, a problem written out as text repeats what was sent."""
_IN_PASSING = frozenset({"model", "messages", "stream"})
"""Fields whose names stand in sentences that are about other fields."""
_NESTED = ("error", "message", "detail", "errors")
_DEPTH = 4


def unknown_field(body: str, sent: Collection[str]) -> str:
    """Which of the `sent` fields (those at the top of the request) an error body says is not permitted; empty where it
    says no such thing."""
    problems = list(_problems(parsed_or_none(body)))
    if problems:
        return next((name for problem in problems if (name := _place_of(problem, sent))), "")
    message, error = error_of(body) or ("", {})
    message = _ECHO.split(message, maxsplit=1)[0]
    if not _REFUSES.search(message) or is_about_roles(message):
        return ""
    parameter = error.get("param")
    if isinstance(parameter, str) and parameter in sent:
        return parameter
    return "" if _ROLE.search(message) else _first_named(message, sent)


def _first_named(message: str, sent: Collection[str]) -> str:
    found = {
        name: match.start()
        for name in sorted(set(sent) - _IN_PASSING)
        if (match := re.search(rf"(?<!\w){re.escape(name)}(?!\w)", message))
    }
    return min(found, key=lambda name: found[name], default="")


def _place_of(problem: Mapping[str, object], sent: Collection[str]) -> str:
    """The field at the top of the request that a problem is about, if the problem is that it is there."""
    said = " ".join(str(problem.get(key)) for key in ("type", "msg", "message"))
    place = problem.get("loc")
    if not isinstance(place, list) or not _REFUSES.search(said):
        return ""
    return next((part for part in place if isinstance(part, str) and part in sent), "")


def _problems(value: object, depth: int = _DEPTH) -> Iterator[Mapping[str, object]]:
    """The problems with their places in a list, wherever an error has it."""
    if isinstance(value, list):
        yield from (entry for entry in value if is_object(entry) and isinstance(entry.get("loc"), list))
    elif is_object(value) and depth:
        for key in _NESTED:
            yield from _problems(value.get(key), depth - 1)
