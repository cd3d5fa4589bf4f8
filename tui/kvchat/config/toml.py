"""Reading a TOML file that a user wrote: bounded, and every failure is a problem with its line. Writing values.

Nothing in a file, and no file, makes this raise.
"""

from __future__ import annotations

import re
import stat
import tomllib
from pathlib import Path

from msgspec import Struct

from kvchat.config.problem import Problem
from kvchat.config.source import Key, TomlSource
from kvchat.paths import original_of, reason
from kvchat.sanitize import one_line

SIZE_LIMIT = 256 * 1024
"""Bytes; no settings file comes near it."""

_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_LONG_KEY = re.compile(r"""(?:(?:[A-Za-z0-9_-]{1,64}|"[^"\n]{0,64}"|'[^'\n]{0,64}')[ \t]{0,4}\.[ \t]{0,4}){200}""")
_HELP = {
    "Invalid value": "there is no value here that TOML knows (a text needs quotes; true and false are lower case)",
    "Invalid statement": 'a line is a setting, such as theme = "kvchat-day", a [section] or a # comment',
    "Expected '=' after a key in a key/value pair": "a key needs = and a value after it",
    "Expected newline or end of document after a statement": "there is something left behind the value (a "
    "text needs quotes, and each setting its own line)",
    "Unterminated string": "a text is not closed, it needs a quote at its end",
    "Unescaped '\\' in a string": "a backslash in a text is written twice, or the text is put in 'single quotes'",
    "Unclosed array": "a list is not closed, it needs a ] at its end",
    "Cannot overwrite a value": "this is set twice, one of the two must go",
    "Invalid initial character for a key part": "a key is made of letters, digits, - and _, or stands in quotes",
}


class TomlFile(Struct, frozen=True):
    """What a file holds: nothing, where it could not be read."""

    path: Path
    source: TomlSource
    values: dict[str, object]
    problems: tuple[Problem, ...] = ()

    def problem(self, key: Key, text: str) -> Problem:
        """A problem at the place of `key`."""
        return Problem(self.path, *self.source.place(key), text)


def read_toml(path: Path, limit: int = SIZE_LIMIT, otherwise: str = "the defaults are used") -> TomlFile:
    """The file at `path`, of at most `limit` bytes. A file that does not exist is an empty one. `otherwise` ends the
    sentence about a file that has no values."""
    try:
        text = _text(path, limit)
        return TomlFile(path, TomlSource(text), parsed(text))
    except TomlUnreadableError as error:
        problem = Problem(path, error.line, error.column, f"{error}; {otherwise}")
        return TomlFile(path, TomlSource(""), {}, (problem,))


class TomlUnreadableError(Exception):
    """A file has no values; the text says why, `line` and `column` where."""

    def __init__(self, line: int | None, column: int | None, text: str) -> None:
        super().__init__(text)
        self.line = line
        self.column = column


def parsed(text: str) -> dict[str, object]:
    """The values of a TOML text. Raises UnreadableError."""
    if long := _LONG_KEY.search(text):  # tomllib's time grows with the square of a key's parts.
        line = text.count("\n", 0, long.start()) + 1
        raise TomlUnreadableError(line, long.start() - text.rfind("\n", 0, long.start()), "a key of too many parts")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _syntax(text, str(error)) from error
    except RecursionError as error:
        raise TomlUnreadableError(_deepest_line(text), None, "too many lists or tables inside each other") from error
    except ValueError as error:  # A number of more digits than Python converts.
        raise TomlUnreadableError(_longest_number_line(text), None, "a number here is too long") from error


def _text(path: Path, limit: int) -> str:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise TomlUnreadableError(None, None, "is not a file")
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise TomlUnreadableError(None, None, f"cannot be read ({reason(error)})") from error
    except ValueError as error:
        raise TomlUnreadableError(None, None, "is not a path") from error
    if len(data) > limit:
        raise TomlUnreadableError(None, None, f"is larger than {limit // 1024} KiB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        raise TomlUnreadableError(line, column, "this is not UTF-8, which the file must be saved as") from error


def _syntax(text: str, message: str) -> TomlUnreadableError:
    place = _PLACE.search(message)
    lines = text.replace("\r\n", "\n").split("\n")
    line, column = len(lines), len(lines[-1]) + 1
    if place:
        message = message[: place.start()]
        if place[1]:
            line, column = int(place[1]), int(place[2])
    said = _HELP.get(message) or one_line(message[:1].lower() + message[1:], 120)
    return TomlUnreadableError(line, column, f"not valid TOML: {said}")


def _deepest_line(text: str) -> int:
    counts = [line.count("[") + line.count("{") for line in text.split("\n")]
    return counts.index(max(counts)) + 1


def _longest_number_line(text: str) -> int:
    lengths = [max(map(len, re.findall(r"[0-9_]+", line)), default=0) for line in text.split("\n")]
    return lengths.index(max(lengths)) + 1


FILE_LIMIT = 200
"""Files of one folder of themes, personas or snippets."""


def toml_files(folder: Path, what: str) -> tuple[list[Path], list[Problem]]:
    """The TOML files of a folder, which may be missing, with its problems. `what`: what they are, in the plural. A file
    whose name marks it as another version of one in the folder is left out as a problem, or comes after all others
    where the name only has a number."""
    try:
        every = [path for path in folder.iterdir() if path.suffix == ".toml" and not path.name.startswith(".")]
    except (FileNotFoundError, NotADirectoryError):
        return [], []
    except OSError as error:
        return [], [Problem(folder, None, None, f"the folder of {what} cannot be read ({reason(error)})")]
    names = {path.name for path in every}
    copies = sorted(path for path in every if original_of(path.name) in names)
    problems = [
        Problem(
            path, None, None, f"is another version of {original_of(path.name)}, made by a program that copies files"
        )
        for path in copies
    ]
    files = sorted({*every} - {*copies}, key=lambda path: (original_of(path.name, numbered=True) in names, path))
    if len(files) > FILE_LIMIT:
        text = f"holds {len(files)} {what}; the first {FILE_LIMIT} are loaded"
        problems.append(Problem(folder, None, None, text))
    return files[:FILE_LIMIT], problems


def written(value: object) -> str:
    """`value` as TOML on one line. Raises TypeError for what TOML cannot hold, None among it."""
    if isinstance(value, list | tuple):
        return "[" + ", ".join(written(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{written_key(name)} = {written(item)}" for name, item in value.items()) + "}"
    import tomli_w

    return tomli_w.dumps({"x": value}).removeprefix("x = ").rstrip("\n")


def written_key(part: str) -> str:
    """One part of a key, in quotes where it needs them."""
    return part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else written(part)


def problem_at(path: Path | None, name: str, text: str) -> Problem:
    """A problem with the setting `name` (`keys.transcript.edit`), found after the file was read: its line is looked up
    again. None: the setting did not come from a file."""
    if path is None:
        return Problem(None, None, None, text)
    file = read_toml(path)
    section, _, rest = name.partition(".")
    quoted = (section, rest)
    return file.problem(quoted if quoted in file.source.entries else tuple(name.split(".")), text)
