"""Changing one setting in the file and leaving the user's comments and layout alone.

The new text is parsed again before it is written, and must say exactly what was meant. A file that cannot be
read as TOML is never written. Two kvchats that save at the same time take turns: neither undoes what the other saved.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from kvchat.config.option import UnfitError, fitted, wrong_entries
from kvchat.config.problem import ConfigError
from kvchat.config.settings import key_of, option_at
from kvchat.config.source import Key, TomlSource, TomlStatement
from kvchat.config.toml import SIZE_LIMIT, TomlFile, TomlUnreadableError, parsed, read_toml, written, written_key
from kvchat.paths import PathError, folder, write_private


def save_setting(path: Path, name: str, value: object) -> None:
    """Set `name` (`theme`, `profiles.work.model`, `keys.export`) in the file; None takes it out, back to its default.
    Raises ConfigError when the value does not fit, or the file is broken or cannot be written."""
    try:
        with _turn(path):
            _save(path, name, value)
    except TypeError:  # of what a setting may hold, TOML lacks this
        raise ConfigError(f"{name} is not saved: a TOML file cannot hold null.") from None
    except (PathError, RecursionError, UnicodeEncodeError) as error:
        raise ConfigError(f"{name} is not saved: {error}") from error


TURN_S = 5.0
"""How long to wait for another kvchat that saves; it takes milliseconds."""


@contextmanager
def _turn(path: Path) -> Iterator[None]:
    """The time in which no other kvchat writes this file: a lock on its folder, which leaves no file behind."""
    from kvchat.store.presence.locks import locked_within

    place = folder(Path(os.path.realpath(path)).parent)
    try:
        handle = os.open(place, os.O_RDONLY)
    except OSError:
        yield
        return
    try:
        locked_within(handle, TURN_S)
        yield
    finally:
        os.close(handle)


def _save(path: Path, name: str, value: object) -> None:
    file = read_toml(path)
    key = _key_of(name, file.values)
    if value is not None:
        value = _plain(name, key, value)
    if file.problems:
        raise ConfigError(f"{name} is not saved: {file.problems[0]}")
    expected = _with(file.values, key, value)
    text = _edited(file, key, value)
    if not _says(text, expected):
        import tomli_w

        text = tomli_w.dumps(expected)
    data = text.encode()
    if len(data) > SIZE_LIMIT:
        raise ConfigError(f"{name} is not saved: {path.name} would be larger than {SIZE_LIMIT // 1024} KiB.")
    write_private(path, data)


def _key_of(name: str, values: dict[str, object]) -> Key:
    section, dot, rest = name.partition(".")
    if section == "keys" and dot:
        keys, (first, *_) = values.get("keys"), rest.split(".")
        nested = isinstance(keys, dict) and isinstance(keys.get(first), dict)
        return ("keys", *rest.split(".")) if nested else ("keys", rest)
    try:
        return key_of(name)
    except KeyError:
        raise ConfigError(f"There is no setting {name}.") from None


def _plain(name: str, key: Key, value: object) -> object:
    """The value as TOML takes it. Raises ConfigError."""
    option = option_at(key)
    if option is None:
        if not isinstance(value, str):
            raise ConfigError(f"{name} is not saved: it must be a text of keys.")
        return value
    try:
        value = fitted(option.spec, value)
    except UnfitError as unfit:
        raise ConfigError(f"{name} is not saved: it {unfit}.") from None
    if isinstance(value, dict):
        for entry, wrong in wrong_entries(option.spec, value).items():
            raise ConfigError(f"{name} is not saved: {entry} {wrong}.")
    return list(value) if isinstance(value, tuple) else value


def _with(values: dict[str, object], key: Key, value: object) -> dict[str, object]:
    """A copy of the file's values with one changed."""
    *parents, last = key
    root = table = dict(values)
    for parent in parents:
        inner = table.get(parent)
        if value is None and not isinstance(inner, dict):
            return values
        table[parent] = copy = dict(inner) if isinstance(inner, dict) else {}
        table = copy
    if value is None:
        table.pop(last, None)
    else:
        table[last] = value
    return root


def _says(text: str, expected: dict[str, object]) -> bool:
    """Whether a text has these values; a table without any may be left out or stay as an empty section."""
    try:
        return _filled(parsed(text)) == _filled(expected)
    except TomlUnreadableError:
        return False


def _filled(values: Mapping[str, object]) -> dict[str, object]:
    inner = {name: _filled(value) if isinstance(value, Mapping) else value for name, value in values.items()}
    return {name: value for name, value in inner.items() if value != {}}


def _edited(file: TomlFile, key: Key, value: object) -> str:
    """The file's text with one value changed."""
    before = _at(file.values, key)
    if isinstance(before, dict) and not _is_statement(file.source, key) and (value is None or isinstance(value, dict)):
        return _edited_table(file, key, before, value or {})
    for length in range(len(key) - 1, 0, -1):  # in a table on one line: the whole line is written again
        table = _at(file.values, key[:length])
        if isinstance(table, dict) and _is_statement(file.source, key[:length]):
            return _edited_line(file.source, key[:length], _with(table, key[length:], value))
    return _edited_line(file.source, key, value)


def _edited_table(file: TomlFile, key: Key, before: dict[str, object], after: dict[str, object]) -> str:
    """The text with a table changed that is written as a section, or key by key: what is the same in it stays."""
    for name in (*before, *(name for name in after if name not in before)):
        if name not in before or name not in after or before[name] != after[name]:
            text = _edited(file, (*key, name), after.get(name))
            file = replace(file, source=TomlSource(text), values=parsed(text))
    return file.source.text


def _at(values: Mapping[str, object], key: Key) -> object:
    found: object = values
    for step in key:
        if not isinstance(found, Mapping):
            return None
        found = found.get(step)
    return found


def _is_statement(source: TomlSource, key: Key) -> bool:
    """Whether there is a statement of its own for the value at `key`, not a section or parts of a table."""
    entry = source.entries.get(key)
    return entry is not None and not entry.header and entry.end > entry.start


def _edited_line(source: TomlSource, key: Key, value: object) -> str:
    text = source.text
    newline = "\r\n" if "\r\n" in text else "\n"
    entry = source.entries.get(key)
    if value is None:
        return text if entry is None else _without(text, entry)
    if entry and not entry.header:
        return text[: entry.value] + written(value) + text[entry.end :]
    line = f"{written_key(key[-1])} = {written(value)}"
    place = _place(source, key)
    if place is None:
        header = ".".join(map(written_key, key[:-1]))
        gap = newline if text and not text.endswith("\n") else ""
        return f"{text}{gap}{newline if text else ''}[{header}]{newline}{line}{newline}"
    before = text[:place]
    gap = newline if before and not before.endswith("\n") else ""
    return f"{before}{gap}{line}{newline}{text[place:]}"


def _place(source: TomlSource, key: Key) -> int | None:
    """The offset of the line where a new key goes: below its commented default, else below the last key of its
    section, else at the section's beginning. None: the section is not there."""
    section = key[:-1]
    begin = 0
    if section:
        header = source.entries.get(section)
        if header is None or not header.header:
            return None
        begin = header.end
    headers = [entry.start for entry in source.entries.values() if entry.header and entry.start >= begin]
    end = min(headers, default=len(source.text))
    own = [entry.end for entry in source.entries.values() if begin <= entry.start < end and not entry.header]
    last = _next_line(source.text, max(own)) if own else _next_line(source.text, begin) if section else None
    commented = re.compile(rf"^#[ \t]*{re.escape(written_key(key[-1]))}[ \t]*=[^\n]*\n?", re.MULTILINE)
    spans = [(entry.value, entry.end) for entry in source.entries.values()]
    for found in commented.finditer(source.text, begin, end):
        if not any(start <= found.start() < stop for start, stop in spans):
            return found.end()
    if last is not None:
        return last
    return end if headers or not source.text.strip() else len(source.text)


def _next_line(text: str, position: int) -> int:
    end = text.find("\n", position)
    return len(text) if end < 0 else end + 1


def _without(text: str, entry: TomlStatement) -> str:
    return text[: text.rfind("\n", 0, entry.start) + 1] + text[_next_line(text, entry.end) :]
