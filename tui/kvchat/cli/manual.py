"""The manual page `kvchat.1`, made from the command line."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterator, Sequence
from typing import Protocol

from kvchat import __version__


class _Parser(Protocol):
    """A parser that names its arguments."""

    description: str | None
    epilog: str | None

    @property
    def arguments(self) -> Sequence[argparse.Action]: ...


def manual(parser: _Parser) -> str:
    """The page as man reads it."""
    lines = [
        f'.TH KVCHAT 1 "" "kvchat {__version__}" "User Commands"',
        ".SH NAME",
        f"kvchat \\- {_text((parser.description or '').rstrip('.'))}",
        ".SH SYNOPSIS",
        ".B kvchat",
        "[OPTIONS] [COMMAND]",
        ".SH DESCRIPTION",
        _text(parser.description or ""),
        ".PP",
        _text(parser.epilog or ""),
        ".SH OPTIONS",
        *_options(parser),
        ".SH COMMANDS",
        *_commands(parser, "kvchat"),
        ".SH EXIT STATUS",
        "0 done, 1 failed, 2 wrong usage, 130 interrupted.",
    ]
    return "\n".join(lines) + "\n"


def _commands(parser: _Parser, above: str) -> Iterator[str]:
    for action in parser.arguments:
        if isinstance(action, argparse._SubParsersAction):
            words = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, inner in action.choices.items():
                yield f".SS {_text(above)} {_text(name)}"
                yield _text(f"{words[name][:1].upper()}{words[name][1:]}.")
                yield from _options(inner, without={action.dest for action in parser.arguments})
                yield from _commands(inner, f"{above} {name}")


def _options(parser: _Parser, without: Collection[str] = ()) -> Iterator[str]:
    """The arguments of a command, without those that every command has: these are listed once, above."""
    for action in parser.arguments:
        if isinstance(action, argparse._SubParsersAction) or action.help == argparse.SUPPRESS or action.dest in without:
            continue
        value = "" if action.nargs == 0 else f" {action.metavar or action.dest.upper()}"
        if action.choices is not None:
            value = f" {{{'|'.join(map(str, action.choices))}}}"
        names = ", ".join(action.option_strings)
        yield ".TP"
        yield f".B {_text(f'{names}{value}'.strip())}"
        yield _text(action.help or "")


def _text(text: str) -> str:
    """A text as roff takes it: nothing in it is a command."""
    text = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-").replace("%%", "%")
    return f"\\&{text}" if text.startswith((".", "'")) else text
