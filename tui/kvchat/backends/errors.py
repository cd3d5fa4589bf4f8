"""Failures as sentences: what happened, at which server, and what to do.

The rule: text from a server goes into a sentence only through `quoted`, which makes it one clean, short line.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from kvchat.backends.dialect import BackendError, Trouble
from kvchat.backends.payload import PayloadError, count_at, is_object, parsed
from kvchat.display import one_line
from kvchat.prompt.wire import whole_characters

QUOTE_LIMIT = 200
CONTEXT_ERROR = "exceed_context_size_error"
ROOM = ("Start a new conversation, delete a turn, or give the server a larger context (llama-server: -c, built-in "
        "engine: engine.context_size)")

_CONTEXT_TEXT = re.compile(
    r"context (?:length|size|window)|maximum allowed length|context.{0,20}(?:exceed|overflow)|exceed.{0,40}context",
    re.IGNORECASE,
)
_PROMPT_TOKENS = re.compile(
    r"(?:passed|requested|length|prompt has|first|request) \(?(\d{2,9})\)?(?: input)?(?: tokens)?", re.IGNORECASE
)
_WINDOW_TOKENS = re.compile(
    r"(?:context (?:length|size|window)|maximum allowed length)"
    r"(?: is| of)?(?: only)?(?: up to)? \(?(\d{2,9})\)?(?: tokens)?", re.IGNORECASE
)
_UNKNOWN_FIELD = re.compile(
    r"extra[_ ](?:inputs|fields?|forbidden)|not permitted|not supported|unsupported|unknown|unrecogni[sz]ed|unexpected|"
    r"no such (?:field|parameter)|invalid (?:field|parameter|argument)", re.IGNORECASE)
_SECONDS = re.compile(r"\d{1,9}(?:\.\d+)?")


def quoted(text: str) -> str:
    """Text from a server, fit for the inside of a sentence."""
    return one_line(whole_characters(text), QUOTE_LIMIT)


class NotConnectedError(BackendError):
    """No connection was made, so the server has seen nothing of the request."""

    def __init__(self, sentence: str, *, refused: bool = False) -> None:
        super().__init__(Trouble.UNREACHABLE, sentence)
        self.refused = refused
        """Whether a machine answered that nothing listens there: a server that starts may accept soon."""


class StillLoadingError(BackendError):
    """The server answers 503 while it loads its model: the one answer after which a request repeats by itself."""

    def __init__(self, url: str) -> None:
        super().__init__(Trouble.LOADING, f"The server at {url} is still loading its model.", status=503)


class UnknownFieldError(BackendError):
    """The server refused the request for a field by name, before it began: without it, the request may go again."""

    def __init__(self, url: str, status: int, field: str) -> None:
        super().__init__(Trouble.REFUSED, f'The server at {url} refuses the field "{field}" ({status}).', status=status)
        self.field = field


def unknown_field(body: str, optional: Collection[str]) -> str:
    """Which of the `optional` fields an error body says is not permitted; empty where it says no such thing."""
    if not _UNKNOWN_FIELD.search(body):
        return ""
    return next((name for name in sorted(optional) if re.search(rf"\b{name}\b", body)), "")


def not_connected(url: str, reason: str, *, refused: bool = False) -> NotConnectedError:
    return NotConnectedError(f"No server answers at {url} ({quoted(reason)}). Start it, or choose another with "
                             "--base-url.", refused=refused)


def bad_certificate(url: str, reason: str) -> BackendError:
    return BackendError(Trouble.UNREACHABLE,
                        f"The certificate of {url} cannot be trusted ({quoted(reason)}). If the server has its own "
                        "certificate authority, name its file in the setting server.ca_file.")


def cut(url: str, *, before_answer: bool) -> BackendError:
    if before_answer:
        sentence = f"The server at {url} closed the connection before it answered. Look at its log, then try again."
    else:
        sentence = f"The connection to {url} broke before the answer was complete. What came is kept."
    return BackendError(Trouble.CUT, sentence)


def not_sent(url: str) -> BackendError:
    return BackendError(Trouble.CUT, f"The server at {url} stopped accepting the request while it was sent. Try again.")


def protocol(url: str, what: str) -> BackendError:
    """`what` ends the sentence "The server at ... sent ..."."""
    return BackendError(Trouble.PROTOCOL, f"The server at {url} sent {quoted(what)}, so the answer cannot be read.")


def not_json(url: str) -> BackendError:
    return BackendError(Trouble.PROTOCOL, f"The server at {url} answered with something that is not a chat answer. "
                                          "Check that --base-url is the address of a model server.")


def dead(url: str) -> BackendError:
    return BackendError(Trouble.DEAD, f"The server at {url} has stopped answering: three health checks in a row "
                                      "failed. Restart it, then try again.")


def no_answer(url: str, seconds: float) -> BackendError:
    return BackendError(Trouble.UNREACHABLE, f"The server at {url} accepted the connection but did not answer "
                                             f"within {seconds:g} s. It may hang; look at its log or restart it.")


def redirect(url: str, target: str) -> BackendError:
    return BackendError(Trouble.REFUSED, f"The server at {url} points to another address: {quoted(target) or 'none'}. "
                                         "kvchat follows no redirect; if you trust that address, use it as --base-url.")


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
        inner = error.get("message")
        return (inner if isinstance(inner, str) else ""), error
    if isinstance(error, str):
        return error, value
    if error is not None and error is not False:
        return "", value
    message = value.get("message")
    if value.get("object") == "error" or (value.get("type") == "error" and isinstance(message, str)):
        return (message if isinstance(message, str) else ""), value
    return None


def is_loading(status: int, body: str) -> bool:
    """Whether an answer says that the server is there and loads its model."""
    found = _error_of(body) if status == 503 else None
    if found is None:
        return False
    message, error = found
    return error.get("type") == "unavailable_error" or "loading model" in message.lower()


def _error_of(body: str) -> tuple[str, Mapping[str, object]] | None:
    try:
        value = parsed(body)
    except PayloadError:
        return None
    found = error_in(value)
    if found is None and is_object(value):
        detail = value.get("detail") or value.get("message")
        return (detail if isinstance(detail, str) else ""), value
    return found


def of_stream(url: str, message: str, error: Mapping[str, object]) -> BackendError:
    """An error that came inside an answer."""
    overflow = _overflow(url, message, error)
    if overflow:
        return overflow
    said = f": {quoted(message)}" if message else "."
    return BackendError(Trouble.SERVER_ERROR, _stopped(f"The server at {url} stopped the answer with an error{said}"))


def of_status(url: str, status: int, body: str, *, retry_after: str = "", has_key: bool = False) -> BackendError:
    """An answer with an error status."""
    message, error = _error_of(body) or ("", {})
    said = f": {quoted(message)}" if message else ""
    if status in (401, 403):
        sentence = (f"The server at {url} refused the API key ({status}). Set the right one with --api-key-env."
                    if has_key else f"The server at {url} wants an API key ({status}). Set it with --api-key-env.")
        return BackendError(Trouble.UNAUTHORIZED, sentence, status=status)
    overflow = _overflow(url, message, error, status)
    if overflow:
        return overflow
    if status == 429:
        when = _retry_time(retry_after)
        return BackendError(Trouble.RATE_LIMITED,
                            f"The server at {url} takes no more requests now (429). Try again {when}.", status=status)
    if status == 404:
        sentence = f"The server at {url} does not know the model or the address (404){said}"
        return BackendError(Trouble.REFUSED, _stopped(sentence) + " Check --base-url and the model.", status=status)
    if status == 503:
        sentence = f"The server at {url} is not available now (503){said}"
        return BackendError(Trouble.SERVER_ERROR, _stopped(sentence) + " Try again later.", status=status)
    if status >= 500:
        sentence = f"The server at {url} failed ({status}){said}"
        return BackendError(Trouble.SERVER_ERROR, _stopped(sentence) + " Look at its log, then try again.",
                            status=status)
    return BackendError(Trouble.REFUSED, _stopped(f"The server at {url} refused the request ({status}){said}"),
                        status=status)


def _stopped(sentence: str) -> str:
    return sentence if sentence.endswith((".", "!", "?", "…")) else sentence + "."


def _retry_time(retry_after: str) -> str:
    text = retry_after.strip()
    if _SECONDS.fullmatch(text):
        return f"in {text} s"
    return f"after {quoted(text)}" if text else "later"


def _overflow(
    url: str, message: str, error: Mapping[str, object], status: int | None = None,
) -> BackendError | None:
    """The prompt does not fit, with the numbers where the server gives them."""
    typed = error.get("type") == CONTEXT_ERROR
    if not typed and (status not in (None, 400, 413, 422) or not _CONTEXT_TEXT.search(message)):
        return None
    prompt, window = count_at(error, "n_prompt_tokens"), count_at(error, "n_ctx")
    if not typed:
        prompt, window = _number(_PROMPT_TOKENS, message), _number(_WINDOW_TOKENS, message)
    if prompt and window and prompt > window:
        sentence = f"The prompt has {prompt:,} tokens, but the server's window holds {window:,}. {ROOM}."
    else:
        sentence = _stopped(f"The window of the server at {url} is full: {quoted(message)}") + f" {ROOM}."
    return BackendError(Trouble.CONTEXT_OVERFLOW, sentence, status=status, prompt_tokens=prompt, context_size=window)


def _number(pattern: re.Pattern[str], message: str) -> int | None:
    found = pattern.search(message)
    return int(found[1]) if found else None
