"""The settings one by one, as the settings screen and `kvchat config get` and `set` have them: in words, with where
each comes from; and a value that a user wrote, checked.

The words are those of the tables of settings and actions, and whatever is wrong is one sentence.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from kvchat.commands.actions import BY_ID
from kvchat.commands.keymap import FIXED, key_words, keymap
from kvchat.config.layers import Layers, is_read_at_start
from kvchat.config.load import no_profile
from kvchat.config.option import Option, OptionKind, UnfitError, from_text, wrong_entries
from kvchat.config.problem import ConfigError
from kvchat.config.settings import changed, key_of, opens, option_at
from kvchat.config.show import in_words
from kvchat.config.unknown import nearest, unknown
from kvchat.sanitize import one_line

_FEW = 10
"""Words that a sentence names."""


class SettingRow(Struct, frozen=True):
    """A setting and what there is to say of it."""

    path: str
    """`theme`, `profiles.work.model`, `keys.export`."""
    about: str
    kind: OptionKind
    text: str
    """Its value as a user writes it in a field; empty where it has none, or it is secret."""
    shown: str
    """Its value in words."""
    default: str
    """Its default in words."""
    origin: str
    """`default`, `config.toml:3`, `--theme`, `KVCHAT_MODEL`."""
    given: bool = False
    """Whether this run was given it, so that the file does not decide."""
    is_set: bool = False
    """Whether the file sets it."""
    at_start: bool = False
    """Whether it is read once, when kvchat starts."""
    words: tuple[str, ...] = ()
    """What it may be, where that is one of a few words."""
    secret: bool = False
    """Whether its value is not shown, and not changed in a field."""
    problem: str = ""
    """What is wrong with it in the file."""
    found_by: str = ""
    """Further words that a search finds it by: of the keys of an action, those of the help."""


def rows(layers: Layers, themes: Sequence[str] = ()) -> list[SettingRow]:
    """Every setting in the order of the file, and the keys of every action."""
    found = [_row(layers, option, themes) for option in layers.all()]
    return found + [_key_row(layers, id) for id in BY_ID if id not in FIXED]


def row(layers: Layers, name: str, themes: Sequence[str] = ()) -> SettingRow:
    """The setting of this name. Raises ConfigError with the name that was probably meant."""
    section, dot, action = name.partition(".")
    if section == "keys" and dot:
        if action in BY_ID and action not in FIXED:
            return _key_row(layers, action)
        raise ConfigError(_sentence(keymap({action: "f5"})[1][0].text))
    try:
        option = option_at(key_of(name))
    except KeyError:
        option = None
    if option is not None and option.spec.kind is not OptionKind.KEYS:
        return _row(layers, option, themes)
    key = tuple(name.split("."))
    if opens(key) or name == "keys":
        inner = [found.path for found in rows(layers) if found.path.startswith(f"{name}.")]
        some = ", ".join(inner[:4]) + (" …" if len(inner) > 4 else "")
        raise ConfigError(f"{name} is a section{': ' + some if some else ', without any setting so far'}.")
    raise ConfigError(_sentence(unknown(key, "").removesuffix("; it is not used").replace("unknown", "Unknown", 1)))


def _sentence(text: str) -> str:
    return text if text.endswith("?") else f"{text}."


def _row(layers: Layers, option: Option, themes: Sequence[str]) -> SettingRow:
    value, spec = layers.value(option), option.spec
    given, line = layers.given_by(option), layers.line(option.key)
    problem = layers.problem(option.key)
    file = "" if line is None else f"{layers.file.path.name}:{line}"
    return SettingRow(
        option.path,
        spec.doc,
        spec.kind,
        text="" if spec.secret else _written(option, value),
        shown=in_words(option, value),
        default=in_words(option, option.default),
        origin=given or file or "default",
        given=bool(given),
        is_set=line is not None,
        at_start=is_read_at_start(option),
        words=_words(layers, option, themes),
        secret=spec.secret,
        problem="" if problem is None else str(problem),
    )


def _key_row(layers: Layers, id: str) -> SettingRow:
    action, own, line = BY_ID[id], layers.settings.keys.get(id), layers.line(("keys", *id.split(".")))
    keys = action.keys if own is None else own
    wrong = [] if own is None else keymap(layers.settings.keys, layers.file.path)[1]
    problem = next((str(one) for one in wrong if one.text.startswith(f"keys.{id}:")), "")
    origin = "default" if line is None else f"{layers.file.path.name}:{line}"
    return SettingRow(
        f"keys.{id}",
        action.help,
        OptionKind.KEYS,
        keys,
        keys or "no key",
        action.keys or "no key",
        origin,
        is_set=line is not None,
        problem=problem,
        found_by=f"{action.group} {action.label} /{action.slash} /{action.also} {key_words(keys)}",
    )


def _written(option: Option, value: object) -> str:
    if value is None or value == {}:
        return ""
    return value if isinstance(value, str) else in_words(option, value)


def _words(layers: Layers, option: Option, themes: Sequence[str]) -> tuple[str, ...]:
    if option.spec.words is not None:
        return option.spec.words()
    if option.path == "theme":
        return tuple(themes)
    if option.path in ("default_profile", "memory.profile"):
        return "", *layers.settings.profiles
    return ()


def checked(layers: Layers, row: SettingRow, text: str) -> object:
    """The value that `text` says for a setting, as `save_setting` takes it; None: none, where it may be left out.
    Raises ConfigError with what is wrong."""
    if row.kind is OptionKind.KEYS:
        return _checked_keys(layers, row, text)
    option = option_at(key_of(row.path))
    assert option is not None
    if not text.strip() and option.default is None and option.spec.kind is not OptionKind.TEXT:
        return None
    if row.words and text not in row.words and option.spec.check is None:
        raise ConfigError(_no_word(row, text))
    try:
        value = from_text(option.spec, text)
        if isinstance(value, dict) and (wrong := wrong_entries(option.spec, value)):
            raise ConfigError("".join([f"{row.path}.{one_line(name, 40)} {why}." for name, why in wrong.items()][:1]))
        if option.path == "default_profile" and (why := no_profile(changed(layers.settings, option.path, value))):
            raise UnfitError(why)
    except UnfitError as unfit:
        near = nearest(text, row.words) if row.words else None
        raise ConfigError(f"{row.path} {unfit}" + (f"; did you mean {near}?" if near else ".")) from None
    return value


def _checked_keys(layers: Layers, row: SettingRow, text: str) -> object:
    """As the settings file has it: the keys in force with these must all be of use."""
    id = row.path.removeprefix("keys.")
    others = {other: keys for other, keys in layers.settings.keys.items() if other != id}
    for problem in keymap({**others, id: text})[1]:
        if problem.text.startswith(f"keys.{id}:"):
            raise ConfigError(f"{row.path}: {problem.text.partition(': ')[2].partition(';')[0]}.")
    return text


def _no_word(row: SettingRow, text: str) -> str:
    """What is said of a word that is none of those that a setting may be."""
    kind = "theme" if row.path == "theme" else "profile"
    known = [word for word in row.words if word]
    said = f"There is no {kind} {one_line(text, 40)}"
    if near := nearest(text, known):
        return f"{said}; did you mean {near}?"
    if not known:
        return f"{said}; the settings have none."
    return f"{said}; the settings have {', '.join(known)}." if len(known) <= _FEW else f"{said}."


def given_words(row: SettingRow) -> str:
    """Why a setting cannot be changed in the file for this run."""
    return f"{row.origin} gives it in this run, and overrides the file."
