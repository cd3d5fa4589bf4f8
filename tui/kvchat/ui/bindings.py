"""The Textual bindings of the table of actions, and the keys that the user has in place of the table's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from textual.app import App
from textual.binding import Binding

from kvchat.commands import keys
from kvchat.commands.actions import BY_ID
from kvchat.commands.keymap import FIXED, first_key, keymap, newline_key

if TYPE_CHECKING:
    from kvchat.config.problem import Problem
    from kvchat.config.settings import Settings

BY_WORDS = {"alt+f": "ctrl+right", "alt+b": "ctrl+left"}
"""What terminals send for Alt and an arrow, and readline's keys, where they are not bound."""


class UserKeys:
    """The keys of an app: those of the table, but for what the user has changed."""

    def __init__(self, app: App[Any], changed: Mapping[str, str] | None = None) -> None:
        self._app = app
        self.changed = changed or {}
        """By action, as Textual names them; several with commas between."""

    def take(self, settings: Settings, file: Path) -> Sequence[Problem]:
        """Have the keys of these settings, which come from `file`, in force. Returns what is wrong with some."""
        self.changed, problems = keymap(settings.keys, file, vi_keys=settings.vi_keys)
        self._app.set_keymap(self.changed)
        return problems

    def key_of(self, id: str) -> str:
        """The first key of an action, as the user reads it; empty without one."""
        return keys.shown(first_key(id, self.changed))

    def hint(self, id: str) -> str:
        """The same as a row of keys has it."""
        return keys.hinted(first_key(id, self.changed))

    @property
    def send_keys(self) -> tuple[str, str]:
        """The keys of Enter and of a new line, as Textual names them; a setting swaps what they do."""
        return first_key("composer.enter", self.changed), newline_key(self.changed)

    def meant(self, key: str) -> str:
        """The key that is meant by one that the terminal has sent."""
        return BY_WORDS[key] if key in BY_WORDS and key not in ",".join(self.changed.values()).split(",") else key


class _Keyed(Protocol):
    keys: UserKeys


def users_keys(app: App[Any]) -> UserKeys:
    """The keys of this app of ours."""
    return cast("_Keyed", app).keys


def bindings(context: str, *, priority: bool = False) -> list[Binding]:
    """The bindings of a context, to stand in a BINDINGS; their ids make them rebindable by `App.set_keymap`.
    `priority`: the widget that has the focus does not get the keys."""
    found = []
    for action in BY_ID.values():
        if action.context != context:
            continue
        if action.id in FIXED:
            found += [
                Binding(key, f"screen.do({action.id!r}, {key!r})", action.label, show=False, tooltip=action.help)
                for key in action.key_list
            ]
        else:
            keys = action.keys or f"no-key-{action.id}"  # never sent, for the keymap to put others in its place
            found.append(
                Binding(
                    keys,
                    action.action,
                    action.footer or action.label,
                    show=bool(action.footer),
                    tooltip=action.help,
                    id=action.id,
                    priority=priority,
                )
            )
    return found


def binding(id: str, action: str, *, priority: bool = False) -> Binding:
    """The keys of an action of another context, where `action` is done for it; `priority` as in `bindings`."""
    return Binding(BY_ID[id].keys, action, BY_ID[id].label, show=False, id=id, priority=priority)
