"""Names of keys: as a user writes them, as Textual knows them, as a screen shows them.

A key that a terminal cannot send is refused with the reason, never bound in silence.
"""

from __future__ import annotations

import re
import unicodedata

_MODIFIERS = {
    "ctrl": "ctrl",
    "control": "ctrl",
    "c": "ctrl",
    "alt": "alt",
    "option": "alt",
    "opt": "alt",
    "shift": "shift",
    "super": "super",
    "cmd": "super",
    "command": "super",
    "win": "super",
    "meta": "meta",
    "hyper": "hyper",
}
_ALIASES = {
    "esc": "escape",
    "return": "enter",
    "del": "delete",
    "ins": "insert",
    "bs": "backspace",
    "pgup": "pageup",
    "page_up": "pageup",
    "pgdn": "pagedown",
    "pgdown": "pagedown",
    "page_down": "pagedown",
}
_NAMED = frozenset(
    {
        "escape",
        "enter",
        "tab",
        "space",
        "backspace",
        "delete",
        "insert",
        "home",
        "end",
        "pageup",
        "pagedown",
        "up",
        "down",
        "left",
        "right",
        *(f"f{number}" for number in range(1, 25)),
    }
)
_CHARACTER_NAMES = {
    "solidus": "slash",
    "reverse_solidus": "backslash",
    "commercial_at": "at",
    "hyphen_minus": "minus",
    "plus_sign": "plus",
    "low_line": "underscore",
}
_UNICODE_NAMES = {short: long for long, short in _CHARACTER_NAMES.items()}
_SHOWN = {
    "escape": "Esc",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "delete": "Del",
    "insert": "Ins",
    "up": "↑",
    "down": "↓",
    "left": "←",
    "right": "→",
}
_NEVER_SENT = {
    "ctrl+h": "terminals send it for the backspace key",
    "ctrl+i": "terminals send it for the tab key",
    "ctrl+m": "terminals send it for the enter key",
    "ctrl+left_square_bracket": "terminals send it for the escape key",
}
TYPING = frozenset(
    {
        "enter",
        "tab",
        "space",
        "backspace",
        "delete",
        "home",
        "end",
        "pageup",
        "pagedown",
        "up",
        "down",
        "left",
        "right",
        "shift+enter",
        "alt+enter",
        "shift+tab",
        "ctrl+j",
        "f7",
        "ctrl+a",
        "ctrl+c",
        "ctrl+d",
        "ctrl+e",
        "ctrl+k",
        "ctrl+u",
        "ctrl+v",
        "ctrl+w",
        "ctrl+x",
        "ctrl+y",
        "ctrl+left",
        "ctrl+right",
        "ctrl+shift+left",
        "ctrl+shift+right",
        "ctrl+shift+k",
        "shift+home",
        "shift+end",
        "shift+up",
        "shift+down",
        "shift+left",
        "shift+right",
        "ctrl+backspace",
        "alt+backspace",
        "alt+delete",
        "super+backspace",
        "super+c",
        "super+v",
        "super+x",
        "super+y",
        "super+z",
    }
)
"""Keys that writing a message needs: an action of the whole app would take them away."""


class KeyNameError(Exception):
    """A key that cannot be bound; the text follows its name: `is ...`."""


def normal(name: str) -> str:
    """A key as Textual names it: `Ctrl+PgDn` is `ctrl+pagedown`, `?` is `question_mark`. Raises KeyNameError."""
    name = name.strip()
    if len(name) > 40:
        raise KeyNameError("is not a key")
    *written, key = _parts(name)
    modifiers = set()
    for modifier in written:
        if modifier.lower() not in _MODIFIERS:
            raise KeyNameError("is not a key; write it like ctrl+x, alt+down or f5")
        modifiers.add(_MODIFIERS[modifier.lower()])
    key = _base(key)
    if len(key) == 1 and key.isalpha() and modifiers:
        key = key.lower()
    if modifiers == {"shift"} and len(key) == 1:
        modifiers, key = set(), key.upper()
    full = "+".join([*sorted(modifiers), key])
    if full in _NEVER_SENT:
        raise KeyNameError(f"cannot be used: {_NEVER_SENT[full]}")
    return full


def is_typing(key: str) -> bool:
    """Whether writing a message needs this key."""
    return key in TYPING or is_character(key)


def is_character(key: str) -> bool:
    """Whether the key writes a character into a field."""
    return key == "space" or ("+" not in key and key not in _NAMED)


def shown(key: str) -> str:
    """A key as the help shows it: `Ctrl+N`, `PgDn`, `F4`, `?`."""
    *modifiers, base = key.split("+")
    if base in _SHOWN:
        last = _SHOWN[base]
    elif base in _NAMED:
        last = base.capitalize()
    else:
        last = _character(base)
        last = last.upper() if modifiers else last
    return "+".join([*(modifier.capitalize() for modifier in modifiers), last])


def short(key: str) -> str:
    """A key as the footer shows it: `^N`, `F4`."""
    return re.sub(r"^Ctrl\+(?=.$)", "^", shown(key))


def hinted(key: str) -> str:
    """A key as the edge of a dialog shows it: `esc`, `^N`, `E`, `F5`, `shift+tab`."""
    words = short(key)
    return words if len(words) == 1 or re.match(r"\^|F\d", words) else words.lower()


def _parts(name: str) -> list[str]:
    if name in ("+", ""):
        return [name]
    if name.endswith("++"):
        return [*name[:-2].split("+"), "+"]
    separator = "-" if "+" not in name and re.match(r"(?i)(?:ctrl|control|alt|shift|c)-.", name) else "+"
    return [part.strip() for part in name.split(separator)]


def _base(key: str) -> str:
    lower = _ALIASES.get(key.lower(), key.lower())
    if lower in _NAMED or lower in _UNICODE_NAMES:
        return lower
    if len(key) == 1:
        if key == " " or not key.isprintable():
            raise KeyNameError("is not a key")
        if key.isalnum():
            return key
        name = unicodedata.name(key, "").lower().replace("-", "_").replace(" ", "_")
        return _CHARACTER_NAMES.get(name, name)
    try:
        unicodedata.lookup(lower.replace("_", " "))
    except KeyError:
        raise KeyNameError("is not a key; write it like ctrl+x, alt+down or f5") from None
    return lower


def _character(base: str) -> str:
    if len(base) == 1:
        return base
    name = _UNICODE_NAMES.get(base, base).replace("_", " ").replace("hyphen minus", "hyphen-minus")
    try:
        return unicodedata.lookup(name)
    except KeyError:
        return base
