"""What a command takes and gives, on the command line and in plain mode."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NoReturn

from msgspec import Struct

_DAYS_AGO = {"today": 0, "yesterday": 1}


class CommandError(Exception):
    """A command failed; the text is the one sentence for the user."""

    status = 1
    """The exit status."""


class UsageError(CommandError):
    """What was written does not say what to do."""

    status = 2


class NotInTimeError(CommandError):
    """What was waited for did not come in time: it may later (EX_TEMPFAIL of sysexits.h)."""

    status = 75


class SlashParser(argparse.ArgumentParser):
    """Reads what is typed behind a slash command. Raises UsageError, also where help is asked for."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {re.sub(r'argument [A-Z]+: invalid choice:', 'unknown here:', message)}.")

    def print_help(self, file: object = None) -> NoReturn:
        raise UsageError(" ".join(self.format_usage().split()))


class TableColumn(Struct, frozen=True):
    """A column of a table."""

    title: str = ""
    right: bool = False
    """Whether its texts stand at the right: numbers."""
    shrinks: bool = False
    """Whether its texts may be cut to fit the width."""


class TextTable(Struct, frozen=True):
    """Rows of raw texts. Without `columns` there are no titles and the last column shrinks."""

    rows: Sequence[Sequence[str]]
    columns: Sequence[TableColumn] = ()


class CommandResult(Struct, frozen=True):
    """What a command gives."""

    found: object
    """As JSON has it."""
    words: Iterable[str | TextTable] = ()
    """The same for a reader."""
    failed: str = ""
    """Why there is nothing to give, which is the exit status 1."""


def fields(value: Any) -> dict[str, Any]:
    """A struct as an object of JSON."""
    return {name: getattr(value, name) for name in value.__struct_fields__}


def instant(text: str) -> float:
    """A date or an instant in seconds since the epoch; without a zone it is one of this machine. Raises UsageError."""
    try:
        if text in _DAYS_AGO:
            today = datetime.now().replace(hour=0, minute=0, second=0, microsecond=0)
            return (today - timedelta(days=_DAYS_AGO[text])).timestamp()
        return datetime.fromisoformat(text).timestamp() or 1.0  # 0 means no time
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            f"{text} is no date: write it as 2026-11-21 or 2026-11-21T18:00, or say today or yesterday."
        ) from None


def number(text: str) -> int:
    """An argument that is a number from 1 on."""
    if not (text.isascii() and text.isdigit() and len(text) < 16 and int(text)):
        raise argparse.ArgumentTypeError(f"{text} is not such a number; give 1 or more")
    return int(text)
