"""Failures as sentences: what happened, at which server, and what to do, in the app as on the command line.

The rule: text from a server goes into a sentence only through `quoted`, which makes it one clean, short line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime

from kvchat.backends.dialect import BackendError, Trouble
from kvchat.backends.payload import PayloadError, count_at, is_object, parsed
from kvchat.backends.retry_after import seconds_of
from kvchat.prompt.wire import whole_characters
from kvchat.sanitize import one_line
from kvchat.text.format import duration

QUOTE_LIMIT, SHORT = 120, 80
CONTEXT_ERROR = "exceed_context_size_error"
ROOM = ("Start a new conversation, delete a turn, or give the server a larger context (llama-server: -c, built-in "
        "engine: engine.context_size)")
ADDRESS = "(Ctrl+L in the app, --base-url on the command line)"
MODEL = "(Ctrl+L in the app, --model on the command line)"
KEY = "(--api-key-env, or server.api_key_env in the settings)"

_CONTEXT_TEXT = re.compile(
    r"context (?:length|size|window)|maximum allowed length|context.{0,20}(?:exceed|overflow)|exceed.{0,40}context",
    re.IGNORECASE,
)
_CONTEXT_EXCEEDED = re.compile(r"context.{0,20}exceed|exceed.{0,40}context", re.IGNORECASE)
_PROMPT_TOKENS = re.compile(
    r"(?:passed|requested|length|prompt has|first|request|contains|at least) \(?(\d{2,9})\)?(?: input)?(?: tokens)?",
    re.IGNORECASE)
_WINDOW_TOKENS = re.compile(
    r"(?:context (?:length|size|window)|maximum allowed length)"
    r"(?: is| of)?(?: only)?(?: up to)? \(?(\d{2,9})\)?(?: tokens)?", re.IGNORECASE
)
_ROLES = re.compile(
    r"roles must alternate|system (?:role|message|prompt)s?(?: is| are)? not (?:supported|allowed)|"
    r"not support (?:the )?[`'\"]?system\b|only user\b.{0,40}\broles are supported|unexpected role.{0,4}system|"
    r"developer instruction is not enabled", re.IGNORECASE)
"""How a chat template, or a service, says that it takes no system message, or wants questions and answers in turn."""
_NO_MODEL = re.compile(
    r"\bmodels?\b.{0,120}\b(?:not found|not loaded|not exist|unknown)\b|\b(?:unknown|invalid|no) model|"
    r"\bfor requested model|cached snapshot|repository not found", re.IGNORECASE)
_NO_CREDIT = re.compile(r"insufficient[_ ](?:quota|balance|credits?|funds)|exceeded your current quota", re.IGNORECASE)
_PLAIN_LIMIT = 500
"""Characters: a longer body that is no JSON is a page, not a message."""


def quoted(text: str, limit: int = QUOTE_LIMIT) -> str:
    """Text from a server, fit for the inside of a sentence."""
    return one_line(whole_characters(text), limit)


class NotConnectedError(BackendError):
    """No connection was made, so the server has seen nothing of the request."""

    def __init__(self, sentence: str, *, refused: bool = False) -> None:
        super().__init__(Trouble.UNREACHABLE, sentence)
        self.refused = refused
        """Whether a machine answered that nothing listens there: a server that starts may accept soon."""


class NoAnswerError(BackendError):
    """The server accepted the connection and said nothing for as long as one waits for a quick answer."""

    def __init__(self, url: str, seconds: float) -> None:
        super().__init__(Trouble.UNREACHABLE, f"The server at {url} accepted the connection but did not answer "
                                              f"within {seconds:g} s. It may hang; look at its log or restart it.")


class StillLoadingError(BackendError):
    """The server answers 503 while it loads its model: the one answer after which a request repeats by itself."""

    def __init__(self, url: str) -> None:
        super().__init__(Trouble.LOADING, f"The server at {url} is still loading its model. Wait until that is done, "
                                          "then try again.", status=503)


class UnknownFieldError(BackendError):
    """The server refused the request for a field by name, before it began: without it, the request may go again."""

    def __init__(self, url: str, status: int, field: str) -> None:
        super().__init__(Trouble.REFUSED, f'The server at {url} refuses the field "{field}" ({status}). Take it out '
                                          "of the parameters, then try again.", status=status)
        self.field = field


def not_connected(url: str, reason: str, *, refused: bool = False) -> NotConnectedError:
    return NotConnectedError(f"No server answers at {url} ({quoted(reason)}). Start it, or choose another {ADDRESS}.",
                             refused=refused)


def bad_certificate(url: str, reason: str) -> BackendError:
    return BackendError(Trouble.BAD_ADDRESS,
                        f"The certificate of {url} cannot be trusted ({quoted(reason)}). If the server has its own "
                        "certificate authority, name its file in the setting server.ca_file.")


def cut(url: str, *, before_answer: bool) -> BackendError:
    if before_answer:
        sentence = f"The server at {url} closed the connection before it answered. Look at its log, then try again."
    else:
        sentence = (f"The connection to {url} broke before the answer was complete. What came is kept; try again for "
                    "a whole answer.")
    return BackendError(Trouble.CUT, sentence)


def not_sent(url: str) -> BackendError:
    return BackendError(Trouble.CUT, f"The server at {url} stopped accepting the request while it was sent. Try again.")


def protocol(url: str, what: str) -> BackendError:
    """`what` ends the sentence "The server at ... sent ..."."""
    return BackendError(Trouble.PROTOCOL, f"The server at {url} sent {quoted(what)}, so the answer cannot be read. "
                                          "Try again; if it stays so, update the server.")


def not_json(url: str) -> BackendError:
    return BackendError(Trouble.PROTOCOL, f"The server at {url} answered with something that is not a chat answer. "
                                          f"Check that this is the address of a model server {ADDRESS}.")


def dead(url: str) -> BackendError:
    return BackendError(Trouble.DEAD, f"The server at {url} has stopped answering: three health checks in a row "
                                      "failed. Restart it, then try again.")


def redirect(url: str, target: str) -> BackendError:
    return BackendError(Trouble.REFUSED, f"The server at {url} points to another address: {quoted(target) or 'none'}. "
                                         "kvchat follows no redirect; if you trust that address, choose it as the "
                                         f"server {ADDRESS}.")


def encoded(url: str, encoding: str) -> BackendError:
    return BackendError(Trouble.PROTOCOL, f'The server at {url} sent a compressed answer ("{quoted(encoding)}") that '
                                          "was not asked for. Turn compression off in the proxy before it.")


def unexpected(url: str, error: Exception) -> BackendError:
    """A failure nobody foresaw; its text may hold secrets, so only its type is told."""
    return BackendError(Trouble.PROTOCOL, f"The request to {url} failed in an unexpected way "
                                          f"({type(error).__name__}). Try again.")


def error_in(value: object) -> tuple[str, Mapping[str, object]] | None:
    """The message and the object of an error inside a JSON value, or None if it reports none."""
    if not is_object(value):
        return None
    error = value.get("error")
    if is_object(error):
        return _of_provider(error) or _said(error.get("message")), error
    if isinstance(error, str):
        return error, value
    if error is not None and error is not False:
        return "", value
    message = value.get("message")
    if value.get("object") == "error" or (value.get("type") == "error" and isinstance(message, str)):
        return _said(message), value
    return None


def _said(value: object) -> str:
    """The words in a field of an error: text, or the first of a list of problems with the field it is about."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return _said(value[0]) if value else ""
    if not is_object(value):
        return ""
    words = _said(value.get("msg") or value.get("message") or value.get("detail"))
    where = value.get("loc")
    return f"{where[-1]}: {words}" if words and isinstance(where, list) and where else words


def _of_provider(error: Mapping[str, object]) -> str:
    """What the provider behind a broker said, where the broker only says that it failed."""
    metadata = error.get("metadata")
    raw = metadata.get("raw") if is_object(metadata) else None
    return (error_of(raw) or ("",))[0] if isinstance(raw, str) else ""


def is_loading(status: int, body: str) -> bool:
    """Whether an answer says that the server is there and loads its model."""
    found = error_of(body) if status == 503 else None
    if found is None:
        return False
    message, error = found
    return error.get("type") == "unavailable_error" or "loading model" in message.lower()


def error_of(body: str) -> tuple[str, Mapping[str, object]] | None:
    """The message and the object of the error in the body of an answer; None where there is no such thing."""
    try:
        value = parsed(body)
    except PayloadError:
        text = body.strip()
        return (text, {}) if 0 < len(text) <= _PLAIN_LIMIT and not text.startswith("<") else None
    found = error_in(value)
    if found is None and is_object(value):
        return _said(value.get("detail") or value.get("message")), value
    return found


def of_stream(url: str, message: str, error: Mapping[str, object]) -> BackendError:
    """An error that came inside an answer."""
    known = _overflow(url, message, error) or _roles(url, message)
    if known:
        return known
    said = f": {quoted(message)}" if message else ""
    return BackendError(Trouble.SERVER_ERROR, _stopped(f"The server at {url} stopped the answer with an error{said}")
                        + " Try again; if it stays so, look at the server's log.")


def of_status(url: str, status: int, body: str, *, retry_after: str = "", has_key: bool = False) -> BackendError:
    """An answer with an error status."""
    message, error = error_of(body) or ("", {})
    known = _overflow(url, message, error, status) or _roles(url, message, status)
    if known:
        return known
    if status == 401:
        told = (f"refused the API key (401). Give the right one {KEY}." if has_key
                else f"wants an API key (401). Give it {KEY}.")
        return BackendError(Trouble.UNAUTHORIZED, f"The server at {url} {told}", status=status)
    trouble, what, remedy = _kind(status, message, str(error.get("code")), retry_after)
    said = f": {quoted(message)}" if message else ""
    return BackendError(trouble, _stopped(f"The server at {url} {what} ({status}){said}") + f" {remedy}", status=status)


def _kind(status: int, message: str, code: str, retry_after: str) -> tuple[Trouble, str, str]:
    """What kind of failure it is, what the server did, and what to do."""
    if status == 403:
        return (Trouble.UNAUTHORIZED, "refuses access",
                f"Check what the API key may use, or give another {KEY}.")
    if status == 402 or (status in (400, 429) and _NO_CREDIT.search(f"{message} {code}")):
        return (Trouble.RATE_LIMITED if status == 429 else Trouble.REFUSED, "has no credit left for this account",
                f"Add credit there, or choose another server {ADDRESS}.")
    if status == 429:
        return Trouble.RATE_LIMITED, "takes no more requests now", f"Try again {_retry_time(retry_after)}."
    if status in (400, 404, 422) and _NO_MODEL.search(message):
        return (Trouble.REFUSED, "does not have the model",
                f"Load it there, or choose another {MODEL}.")
    if status in (404, 405):
        return Trouble.REFUSED, "does not know this path of its API", f"Check the address {ADDRESS}."
    if status == 413:
        return (Trouble.REFUSED, "finds the request too large",
                "Start a new conversation, or raise the limit of the proxy before it (nginx: client_max_body_size).")
    if status == 503:
        return Trouble.SERVER_ERROR, "is not available now", "Try again later."
    if status in (502, 504) and not message:
        return (Trouble.SERVER_ERROR, "is a proxy that got no answer from the model server behind it",
                "Start or restart that one, then try again.")
    if status >= 500:
        return Trouble.SERVER_ERROR, "failed", "Try again; if it stays so, look at the server's log."
    return (Trouble.REFUSED, "refused the request",
            "Check the conversation's parameters and the server's log.")


def _stopped(sentence: str) -> str:
    return sentence if sentence.endswith((".", "!", "?", "…")) else sentence + "."


def _retry_time(retry_after: str) -> str:
    seconds = seconds_of(retry_after, datetime.now(UTC))
    if not seconds:
        return "later" if seconds is None else "now"
    return f"in {seconds} s" if seconds < 60 else f"in {duration(seconds)}"


def is_about_roles(message: str) -> bool:
    """Whether a chat template, or a service, says that it does not take these roles."""
    return _ROLES.search(message) is not None


def _roles(url: str, message: str, status: int | None = None) -> BackendError | None:
    """The template does not take these roles, told in the template's own words where they are inside others."""
    if not is_about_roles(message):
        return None
    words = message.rpartition("Jinja Exception:")[2]
    return BackendError(Trouble.SYSTEM_ROLE, _stopped(
        f"The chat template of the model at {url} does not take these messages: {quoted(words)}")
        + " Start a new conversation, or give the server another chat template.", status=status)


def _overflow(
    url: str, message: str, error: Mapping[str, object], status: int | None = None,
) -> BackendError | None:
    """The prompt does not fit, with the numbers where the server gives them."""
    typed = error.get("type") == CONTEXT_ERROR
    told = _CONTEXT_EXCEEDED if status is not None and status >= 500 else _CONTEXT_TEXT
    if not typed and (status in (401, 403, 404, 429) or not told.search(message)):
        return None
    prompt, window = count_at(error, "n_prompt_tokens") or None, count_at(error, "n_ctx") or None
    if not typed:
        prompt, window = _number(_PROMPT_TOKENS, message), _number(_WINDOW_TOKENS, message)
    if prompt and window and prompt > window:
        least = "at least " if "at least" in message else ""
        sentence = (f"This is too long for {url}: the prompt has {least}{prompt:,} tokens, but the server's window "
                    f"holds {window:,}. {ROOM}.")
    else:
        remedy = "Start a new conversation, delete a turn, or lower max_tokens" if prompt and window else ROOM
        sentence = _stopped(f"The window of the server at {url} is full: {quoted(message, SHORT)}") + f" {remedy}."
    return BackendError(Trouble.CONTEXT_OVERFLOW, sentence, status=status, prompt_tokens=prompt, context_size=window)


def _number(pattern: re.Pattern[str], message: str) -> int | None:
    found = pattern.search(message)
    return int(found[1]) if found else None
