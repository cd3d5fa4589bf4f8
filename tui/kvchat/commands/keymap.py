"""The keys in force, from the table of actions and the settings, and the rows of the help.

A keymap that would hide one action behind another, or bind a key that no terminal sends, is refused in words and the
default stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct

from kvchat.commands import keys as key_names
from kvchat.commands.actions import BY_ID, Action
from kvchat.config.problem import Problem
from kvchat.config.toml import problem_at
from kvchat.sanitize import one_line

FIXED = {"transcript.code": "its keys are the numbers of the code blocks"}
_EVERY_DIALOG = ("dialog", "rows")
_TOGETHER: Mapping[str, tuple[str, ...]] = {
    "composer": ("app",),
    "transcript": ("app",),
    "sidebar": ("app",),
    "rows": ("dialog",),
    "choice": ("fields",),
    "fields": ("dialog",),
    "manager": _EVERY_DIALOG,
    "memory": ("manager", *_EVERY_DIALOG),
    "entry": ("dialog",),
    "documents": ("manager", *_EVERY_DIALOG),
    "context": ("dialog",),
    "report": ("dialog",),
    "prompt": _EVERY_DIALOG,
    "findbar": (),
    "alternatives": ("dialog",),
}
"""The contexts whose keys work together with those of a context, in one place; of a dialog that is not named: those of
every dialog with a list."""
_TYPED = frozenset(
    {
        "dialog",
        "rows",
        "fields",
        "entry",
        "add",
        "passages",
        "attach",
        "list_dialog",
        "search_dialog",
        "prompt",
        "settings",
        "findbar",
    }
)
"""Contexts of dialogs in which something is typed."""


KeyOf = Callable[[str], str]
"""Gives the first key of an action as the user reads it."""


def default_key(id: str) -> str:
    """The first key of an action as the user reads it, where none is changed."""
    return key_names.shown(first_key(id, {}))


def newline_key(overrides: Mapping[str, str]) -> str:
    """The key that begins a new line, of its keys one that every terminal sends."""
    return first_key("composer.newline", overrides) if "composer.newline" in overrides else "ctrl+j"


def first_key(id: str, overrides: Mapping[str, str]) -> str:
    """The first key of an action as Textual names it; empty without one."""
    return overrides.get(id, BY_ID[id].keys).partition(",")[0]


def key_words(keys: str) -> str:
    """Keys of the table or the settings as the user reads them: `Ctrl+PgDn, Alt+↓, F9`."""
    return ", ".join(key_names.shown(key) for key in keys.split(",") if key)


class HelpRow(Struct, frozen=True):
    """A line of the help screen."""

    keys: str
    """As a user reads them: `Ctrl+PgDn, Alt+↓, F9`; empty: none."""
    slash: str
    """`/rename TITLE`, `/new, /clear`; empty: none."""
    label: str
    help: str


def help_rows(overrides: Mapping[str, str] | None = None, *, enter_sends: bool = True) -> dict[str, list[HelpRow]]:
    """The lines of the help by group, with the keys of a keymap in place of the defaults."""
    groups: dict[str, list[HelpRow]] = {}
    swapped = {} if enter_sends else {"composer.enter": "composer.newline", "composer.newline": "composer.enter"}
    for action in BY_ID.values():
        words = BY_ID[swapped.get(action.id, action.id)]
        keys = (overrides or {}).get(action.id, action.keys)
        shown = "1–9" if action.id in FIXED else key_words(keys)
        if not keys and action.vi_keys:
            shown = f"{key_names.shown(action.vi_keys)} (vi_keys)"
        slash = f"/{action.slash} {action.argument}".rstrip() if action.slash else ""
        slash += f", /{action.also}" if action.also else ""
        groups.setdefault(action.group, []).append(HelpRow(shown, slash, words.label, words.help))
    return groups


def keymap(
    overrides: Mapping[str, str], file: Path | None = None, *, vi_keys: bool = False
) -> tuple[dict[str, str], list[Problem]]:
    """The [keys] of the settings as `App.set_keymap` takes them, and what is wrong with them. An action whose keys
    are refused keeps its defaults. `file` is where they came from, for the line. `vi_keys`: with the keys of vi, where
    the user gave the action none and the key to nothing else."""
    found: dict[str, str] = {}
    problems: list[Problem] = []

    def refuse(id: str, text: str) -> None:
        problems.append(problem_at(file, f"keys.{id}", f"keys.{one_line(id, 60)}: {text}"))

    for id, written in overrides.items():
        if wrong := _wrong_action(id):
            refuse(id, wrong)
            continue
        try:
            found[id] = ",".join(dict.fromkeys(_bound(BY_ID[id], key) for key in written.split(",")))
        except key_names.KeyNameError as error:
            refuse(id, f"{error}; {_kept(id)}")
    for action in BY_ID.values():
        if action.gives_way and action.id not in found and (kept := _kept_keys(action, found)) != action.key_list:
            found[action.id] = ",".join(kept)
    while clash := _clash(found):
        loser, key, other = clash
        del found[loser]
        refuse(loser, f"{key_names.shown(key)} already means {BY_ID[other].label} ({other}); {_kept(loser)}")
    for action in BY_ID.values() if vi_keys else ():
        if action.id not in found and (more := _free(action, found)):
            found[action.id] = ",".join([*action.key_list, *more])
    return found, problems


def _free(action: Action, found: Mapping[str, str]) -> list[str]:
    """The vi keys of an action that mean nothing else where it works."""
    others = [other for other in BY_ID.values() if other.id != action.id and work_together(action, other)]
    taken = {key for other in others for key in found.get(other.id, other.keys).split(",")}
    return [key for key in action.vi_keys.split(",") if key and key not in taken]


def _kept_keys(action: Action, found: Mapping[str, str]) -> tuple[str, ...]:
    """The keys of an action that a user gave to no other one where it works."""
    taken = {key for id, keys in found.items() if work_together(action, BY_ID[id]) for key in keys.split(",")}
    return tuple(key for key in action.key_list if key not in taken)


def _wrong_action(id: str) -> str | None:
    if id in FIXED:
        return f"these keys cannot be changed: {FIXED[id]}"
    if id in BY_ID:
        return None
    import difflib

    near = difflib.get_close_matches(id[:60].lower(), BY_ID, 1, 0.6)
    return "there is no such action" + (f"; did you mean {near[0]}?" if near else "; the help has their names")


def _bound(action: Action, written: str) -> str:
    """The normal form of a key for an action. Raises KeyNameError with the whole sentence."""
    if not written.strip():
        raise key_names.KeyNameError('a key is missing; write it like "ctrl+x, f5"')
    try:
        key = key_names.normal(written)
    except key_names.KeyNameError as error:
        raise key_names.KeyNameError(f"{one_line(written, 40)} {error}") from None
    if action.context == "app" and key_names.is_typing(key):
        raise key_names.KeyNameError(f"{one_line(written, 40)} cannot be used: writing a message needs it")
    if action.context in _TYPED and key_names.is_character(key):
        raise key_names.KeyNameError(f"{one_line(written, 40)} cannot be used: it is typed there")
    return key


def _kept(id: str) -> str:
    default = ", ".join(key_names.shown(key) for key in BY_ID[id].key_list)
    return f"it keeps {default}" if default else "it has no key"


def _clash(found: dict[str, str]) -> tuple[str, str, str] | None:
    """An override that takes a key of another action where both work: (its id, the key, the other's id)."""
    for loser in reversed(found):
        mine = BY_ID[loser]
        for other in BY_ID.values():
            if other.id == loser or not work_together(mine, other):
                continue
            taken = found.get(other.id, other.keys).split(",")
            for key in filter(None, found[loser].split(",")):
                if key in taken:
                    return loser, key, other.id
    return None


def work_together(one: Action, other: Action) -> bool:
    """Whether the keys of both work in the same place, so that they may not be the same."""
    if one.context == other.context:
        return True
    default = _EVERY_DIALOG
    return other.context in _TOGETHER.get(
        one.context, default if one.context != "app" else ()
    ) or one.context in _TOGETHER.get(other.context, default if other.context != "app" else ())
