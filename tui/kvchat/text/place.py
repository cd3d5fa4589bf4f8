"""Where a sentence is read: in the app, or on the command line, which has other ways to do what it advises."""

from __future__ import annotations

from contextvars import ContextVar

on_command_line: ContextVar[bool] = ContextVar("on_command_line", default=False)
"""Set once, by a command."""


def here(in_app: str, in_command: str) -> str:
    """The words that fit the place."""
    return in_command if on_command_line.get() else in_app
