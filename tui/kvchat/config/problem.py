"""What is wrong with a settings or theme file: one sentence with its place."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from kvchat.config.source import Key
from kvchat.sanitize import one_line


class ConfigError(Exception):
    """A setting that cannot be used or saved; the sentence says which, why and what to do."""


class Problem(Struct, frozen=True):
    """Something to mend. What it is about is left at its default, or bars a server; everything else is used."""

    file: Path | None
    """The file it is in; None for the environment and the command line, which the text names."""
    line: int | None
    """Counted from 1; None when it is about the file as a whole."""
    column: int | None
    text: str
    bars: Key = ()
    """The setting that decides where words go, where it is about one: nothing is sent by such settings. Empty: it is a
    matter of taste."""

    def __str__(self) -> str:
        place = [] if self.file is None else [self.file.name]
        place += [str(number) for number in (self.line, self.column) if number is not None]
        return one_line(":".join([*place, " " + self.text]) if place else self.text, 400)
