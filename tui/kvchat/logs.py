"""The log that `--log FILE` writes: shapes, sizes and timings, for finding a fault.

No log line carries a key, a password, the home folder's path or a control character. What people and models
say is not logged at all; that is the caller's part.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import stat
import time
import traceback
from pathlib import Path
from typing import TextIO

from kvchat.paths import PathError, folder, make_private, reason
from kvchat.patterns import compiled_later
from kvchat.sanitize import one_line

LINE_LIMIT = 2000
"""Characters of one line."""

_HIDDEN = "[hidden]"
_PATTERNS = (
    (compiled_later(r"(?i)(\bbearer\s+|\bbasic\s+)[^\s\"',;\]})]{4,}"), rf"\1{_HIDDEN}"),
    (
        compiled_later(r"(?i)(\b(?:proxy-)?authorization\b[\"']?\s*[:=]\s*[b\"'(]*)(?!bearer|basic)[^\s\"',;\]})]+"),
        rf"\1{_HIDDEN}",
    ),
    (
        compiled_later(
            r"(?i)((?:api[_-]?key|token|access[_-]?key|secret|passw(?:or)?d|cookie)(?:[\"']?\s*[:=]|[\"']\s*,)\s*[b\"'(]*)"
            r"(?=[^\s\"',;&\]})]*[a-z])[^\s\"',;&\]})]+"
        ),
        rf"\1{_HIDDEN}",
    ),
    (compiled_later(r"(?<=://)[^/\s?#\"']*@"), f"{_HIDDEN}@"),
    (
        compiled_later(r"\b(?:sk|pk|hf|gsk|ghp|gho|xai|AIza|key)[-_][A-Za-z0-9_-]{12,}|\bAIza[A-Za-z0-9_-]{20,}"),
        _HIDDEN,
    ),
    (compiled_later(r"(?i)([?&](?:key|sig|signature)=)[^\s&\"']+"), rf"\1{_HIDDEN}"),
)
_known: set[str] = set()


def hide(secret: str | None) -> None:
    """Keep this text out of the log from now on, wherever it turns up."""
    if secret and len(secret) >= 4:
        _known.add(secret)


def redacted(text: str) -> str:
    """`text` without keys, passwords and the home folder."""
    for secret in sorted(_known, key=len, reverse=True):
        text = text.replace(secret, _HIDDEN)
    for pattern, to in _PATTERNS:
        text = pattern.sub(to, text)
    for home in _homes():
        text = re.sub(rf"{re.escape(home)}(?![\w.-])", "~", text)
    return text


class Redaction(logging.Filter):
    """Turns a record into its final text before anything can write it. Never drops one."""

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            text = record.getMessage()
        except Exception as error:
            text = f"{record.msg} (the log line cannot be filled in: {type(error).__name__})"
        if record.exc_info:
            text += " | " + logging.Formatter().formatException(record.exc_info)
        record.msg, record.args = one_line(redacted(text), LINE_LIMIT), None
        record.exc_info = record.exc_text = record.stack_info = None
        return True


class _Handler(logging.StreamHandler):  # type: ignore[type-arg]
    def __init__(self, path: Path, stream: TextIO) -> None:
        super().__init__(stream)
        self.path = path

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """A full disk ends the log, not the conversation: a traceback would be drawn over the screen."""

    def close(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self.stream.close()
        super().close()


def start(path: Path, level: int = logging.DEBUG) -> None:
    """Write the log of kvchat's own modules to `path`, adding to what is there. Raises PathError."""
    stop()
    folder(path.parent)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        if stat.S_ISREG(os.fstat(handle).st_mode):
            make_private(path)
        stream = os.fdopen(handle, "a", encoding="utf-8", errors="replace")
    except OSError as error:
        raise PathError(
            f"The log {path} cannot be written: {reason(error)}. Choose another file with --log."
        ) from error
    handler = _Handler(path, stream)
    handler.addFilter(Redaction())
    formatter = logging.Formatter("%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s %(message)s", "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    logger = logging.getLogger("kvchat")
    logger.setLevel(level)
    logger.propagate = False
    logger.addHandler(handler)


def keep_details(error: BaseException, otherwise: Path | None) -> Path | None:
    """Write where `error` came from to the log, or where there is none to the file `otherwise`, if its folder is
    there. The file that has it; None: none has. Never raises."""
    handlers = _handlers()
    if not handlers and otherwise is not None and otherwise.parent.is_dir():
        with contextlib.suppress(PathError):
            start(otherwise)
            handlers = _handlers()
    if not handlers:
        return None
    logger = logging.getLogger("kvchat")
    for line in "".join(traceback.format_exception(error)).splitlines():
        logger.error("%s", line)
    return handlers[0].path


def _handlers() -> list[_Handler]:
    return [item for item in logging.getLogger("kvchat").handlers if isinstance(item, _Handler)]


def stop() -> None:
    """Close the log."""
    logger = logging.getLogger("kvchat")
    for handler in _handlers():
        logger.removeHandler(handler)
        handler.close()
    logger.propagate = True
    logger.setLevel(logging.NOTSET)


def _homes() -> list[str]:
    with contextlib.suppress(RuntimeError):
        home = Path.home()
        return sorted({str(home), os.path.realpath(home)} - {"/"}, key=len, reverse=True)
    return []
