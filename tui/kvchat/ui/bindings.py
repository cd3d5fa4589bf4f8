"""The Textual bindings of the table of actions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, cast

from textual.app import App
from textual.binding import Binding

from kvchat.commands.actions import BY_ID
from kvchat.commands.keymap import FIXED


class _Keyed(Protocol):
    keys: Mapping[str, str]


def users_keys(app: App[Any]) -> Mapping[str, str]:
    """The user's keys by action, where they differ from the table, as this app of ours was given them."""
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
