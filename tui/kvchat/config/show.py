"""The settings in words: the example file, `kvchat config show`, and the table for the documentation.

The rule: all three are made from the one list of settings, and the first two are TOML that loads.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from kvchat.config.option import Kind
from kvchat.config.settings import OPTIONS, SECTIONS, Settings, value_of
from kvchat.config.toml import written, written_key
from kvchat.display import clean

_WIDTH = 96


def example() -> str:
    """A settings file in which every setting stands with its words and its default, commented out."""
    head = ("# The settings of kvchat. Each line that begins with # is a comment: take the # away to set a value.\n"
            "# The file is read when kvchat starts.\n")
    return head + "\n" + described(Settings())


def described(settings: Settings) -> str:
    """Every setting with its words; those that differ from their defaults are active, the others comments.
    Passwords in addresses are left out."""
    parts = []
    for section in ("", "server", "engine", "cache", "parameters", "keys"):
        if section:
            parts.append(f"{_comment(SECTIONS[section])}[{section}]\n")
        if section == "keys":
            keys = "".join(f"{written_key(action)} = {written(keys)}\n" for action, keys in settings.keys.items())
            parts.append(keys or '# export = "f4"\n')
        parts += _lines(settings, section)
    return "\n".join(parts)


def table() -> str:
    """Every setting as a Markdown table."""
    rows = ["| setting | default | |", "|---|---|---|"]
    for option in OPTIONS:
        default = option.default
        shown = "" if default in (None, "", (), {}) else f"`{_value(default)}`"
        rows.append(f"| `{option.path}` | {shown} | {option.spec.doc.replace('|', chr(92) + '|')} |")
    return "\n".join(rows) + "\n"


def _lines(settings: Settings, section: str) -> Iterator[str]:
    for option in OPTIONS:
        if option.section != section or option.spec.kind is Kind.KEYS:
            continue
        value = value_of(settings, option)
        if option.spec.kind is Kind.TABLE:
            line = f"{option.name} = {written(value)}\n"
            yield _comment(option.spec.doc) + (line if value else f"# {line}")
        elif value == option.default:
            sample = option.spec.example if option.default in (None, "", ()) else option.default
            yield _comment(option.spec.doc) + f"# {option.name} = {_value(sample)}\n"
        else:
            yield _comment(option.spec.doc) + f"{option.name} = {_value(value)}\n"


def _comment(doc: str) -> str:
    return textwrap.indent(textwrap.fill(doc, _WIDTH) + "\n", "# ")


def _value(value: object) -> str:
    if isinstance(value, str):
        value = clean(re.sub(r"//[^/@\s]*@", "//", value))
    return written(value)
