"""The table of actions: every action can be found, every key can be changed, no key means two things."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from itertools import combinations
from pathlib import Path

import pytest
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.widgets import TextArea

from corpus import corpus
from kvchat.commands import keys
from kvchat.commands.actions import ACTIONS, BY_ID, DIALOG_ACTIONS, Action
from kvchat.commands.keymap import help_rows, keymap, work_together
from kvchat.commands.slash import by_slash, slash_commands
from kvchat.config import load
from kvchat.ui.bindings import bindings


def test_every_action_is_in_the_help_and_those_of_the_main_screen_are_commands() -> None:
    rows = {(group, row.label, row.help) for group, rows in help_rows().items() for row in rows}
    assert rows == {(action.group, action.label, action.help) for action in BY_ID.values()}
    for action in BY_ID.values():
        has_no_word = action.context == "sidebar" or action.id in ("memories", "palette")
        assert action.slash or not action.method or has_no_word, action.id
        assert action.keys or action.vi_keys or (action.slash and action.palette), action.id
        assert action.help.endswith("."), action.id
        assert len(action.label) <= 22
    assert {a.id for a in BY_ID.values() if a.palette} == {
        a.id for a in ACTIONS if a.method and a.context != "sidebar"
    } - {"palette"}


def test_ids_and_slash_commands_are_unique() -> None:
    assert len(BY_ID) == len(ACTIONS) + len(DIALOG_ACTIONS)
    names = [name for name, _ in slash_commands()]
    assert len(names) == len(set(names))
    assert {
        "new",
        "rename",
        "delete",
        "export",
        "search",
        "system",
        "parameters",
        "model",
        "theme",
        "sidebar",
        "fork",
        "edit",
        "regenerate",
        "branches",
        "copy",
        "help",
        "quit",
        "find",
        "undo",
    } <= set(names)
    assert by_slash("Rename") is BY_ID["rename"]
    assert by_slash("nothing") is None
    assert by_slash("") is None


def test_no_key_means_two_things_where_both_could_be_meant() -> None:
    for one, other in combinations(BY_ID.values(), 2):
        if work_together(one, other):
            assert not set(one.key_list) & set(other.key_list), (one.id, other.id)


def test_every_default_key_is_written_as_textual_names_it_and_can_be_sent() -> None:
    for action in BY_ID.values():
        for key in action.key_list:
            assert keys.normal(key) == key
            assert not (action.context == "app" and keys.is_typing(key)), (action.id, key)
        if action.keys:
            assert not all(key.startswith("alt+") for key in action.key_list), "a Mac sends no alt by default"


UNSURE = re.compile(
    r"f1|f10|f11|alt\+.*|super\+.*|(?:ctrl\+)?(?:shift\+)?insert|shift\+(?!tab).*|"
    r"ctrl\+(?:shift\+.*|enter|tab|space|comma|plus|minus|0|pageup|pagedown|home|end|up|down|left|right|"
    r"delete|backspace)"
)
"""Keys that some common terminal takes for itself or cannot send: GNOME Terminal F1, F10, Ctrl+PgUp, Shift+Insert,
Alt+digits; Terminal on a Mac F11 and Ctrl+arrows; what only an extended keyboard protocol can tell apart."""
MAIN = {
    "new",
    "next",
    "previous",
    "list",
    "search",
    "rename",
    "delete",
    "export",
    "stop",
    "undo",
    "find",
    "parameters",
    "model",
    "thinking",
    "inspector",
    "memory",
    "documents",
    "editor",
    "sidebar",
    "palette",
    "help",
    "quit",
}
ALSO = {"composer.send": "composer.enter", "delete": "sidebar.delete", "memories": "palette"}
"""Actions whose keys are unsure, and what does the same by a sure one."""


def is_sure(action: Action) -> bool:
    return any(not UNSURE.fullmatch(key) for key in action.key_list)


def test_no_action_has_only_keys_that_a_terminal_may_not_send() -> None:
    for action in BY_ID.values():
        sure = is_sure(action) or bool(action.vi_keys) or (action.id in ALSO and is_sure(BY_ID[ALSO[action.id]]))
        assert sure or (action.palette and action.id not in MAIN), action.id
    assert {action.id for action in ACTIONS if action.footer and action.context == "app"} <= MAIN


@corpus(
    ("id", "expected"),
    [
        ("new", "ctrl+n"),
        ("next", "ctrl+pagedown,alt+down,f9"),
        ("previous", "ctrl+pageup,alt+up,f8"),
        ("list", "ctrl+s"),
        ("sidebar", "f3"),
        ("search", "ctrl+r"),
        ("find", "ctrl+f"),
        ("export", "f4"),
        ("inspector", "f2"),
        ("memory", "f5"),
        ("stop", "escape"),
        ("palette", "ctrl+p"),
        ("help", "f1,ctrl+b"),
        ("quit", "ctrl+q"),
        ("model", "ctrl+l"),
        ("thinking", "ctrl+t"),
        ("editor", "ctrl+g"),
        ("transcript.edit", "e"),
        ("transcript.regenerate", "r"),
        ("transcript.copy", "y"),
        ("transcript.branches", "b"),
        ("composer.newline", "shift+enter,ctrl+j,alt+enter"),
    ],
)
def test_the_keys_people_learn_are_these(id: str, expected: str) -> None:
    assert BY_ID[id].keys == expected


def test_the_keys_that_writing_needs_are_those_of_the_text_field() -> None:
    own = {key.key for key in Binding.make_bindings(TextArea.BINDINGS)}
    assert own - {"f6", "ctrl+z"} <= keys.TYPING  # the app has them: F6 would select a line, Ctrl+Z undo


class Field(TextArea):
    """A text field that leaves F6 to the app, as the composer's does, and Ctrl+Z, which the app has first."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action not in ("select_line", "undo") and super().check_action(action, parameters)


class Talk(App[None]):
    """A text field under the app's bindings."""

    BINDINGS = bindings("app")
    ENABLE_COMMAND_PALETTE = False

    def __init__(self) -> None:
        super().__init__()
        self.done: list[str] = []

    def compose(self) -> ComposeResult:
        yield Field()

    def action_do(self, id: str) -> None:
        self.done.append(id)


async def test_every_key_of_the_app_works_while_a_message_is_written() -> None:
    app = Talk()
    expected = []
    async with app.run_test() as pilot:
        for action in ACTIONS:
            if action.context == "app":
                for key in action.key_list:
                    await pilot.press(key)
                    expected.append(action.id)
        assert app.query_one(TextArea).text == ""
    assert app.done == expected


async def test_a_keymap_changes_what_the_keys_do() -> None:
    found, problems = keymap({"export": "F11", "next": "ctrl+o", "parameters": "f9", "quit": "alt+q, ctrl+q"})
    assert problems == []
    app = Talk()
    async with app.run_test() as pilot:
        app.set_keymap(found)
        await pilot.press("f11", "ctrl+o", "f9", "alt+q", "ctrl+q", "f4", "ctrl+pagedown", "ctrl+n")
    assert app.done == ["export", "next", "parameters", "quit", "quit", "new"]


@corpus(
    ("id", "written", "sentence"),
    [
        ("exprot", "f5", "there is no such action; did you mean export?"),
        ("zzz", "f5", "there is no such action; the help has their names"),
        ("transcript.code", "x", "these keys cannot be changed: its keys are the numbers of the code blocks"),
        ("new", "ctrl+h", "ctrl+h cannot be used: terminals send it for the backspace key; it keeps Ctrl+N"),
        ("new", "Ctrl-I", "Ctrl-I cannot be used: terminals send it for the tab key; it keeps Ctrl+N"),
        ("new", "ctrl+m", "ctrl+m cannot be used: terminals send it for the enter key; it keeps Ctrl+N"),
        ("new", "ctrl+[", "ctrl+[ cannot be used: terminals send it for the escape key; it keeps Ctrl+N"),
        ("new", "ctrl+e", "ctrl+e cannot be used: writing a message needs it; it keeps Ctrl+N"),
        ("new", "n", "n cannot be used: writing a message needs it; it keeps Ctrl+N"),
        ("new", "ctrl+foo", "ctrl+foo is not a key; write it like ctrl+x, alt+down or f5; it keeps Ctrl+N"),
        ("new", "contrl+n", "contrl+n is not a key; write it like ctrl+x, alt+down or f5; it keeps Ctrl+N"),
        ("new", "", 'a key is missing; write it like "ctrl+x, f5"; it keeps Ctrl+N'),
        ("new", "f5,", 'a key is missing; write it like "ctrl+x, f5"; it keeps Ctrl+N'),
        ("theme", "enter", "enter cannot be used: writing a message needs it; it has no key"),
        ("export", "ctrl+n", "Ctrl+N already means New conversation (new); it keeps F4"),
        ("export", "f5, F9", "F9 already means Next conversation (next); it keeps F4"),
        ("transcript.edit", "Y", None),
        ("transcript.edit", "y", "y already means Copy message (transcript.copy); it keeps e"),
        ("transcript.edit", "ctrl+n", "Ctrl+N already means New conversation (new); it keeps e"),
        ("transcript.edit", "m", None),
        ("memory.delete", "x", None),
        ("memory.delete", "u", "u already means Undo (memory.undo); it keeps d, Del"),
        ("memory.delete", "a", "a already means Add (manager.add); it keeps d, Del"),
        ("documents.folder", "up", "↑ already means Up (rows.up); it keeps o"),
        ("dialog.close", "q", "q cannot be used: it is typed there; it keeps Esc"),
        ("dialog.close", "ctrl+n", "Ctrl+N already means New conversation (list_dialog.new); it keeps Esc"),
        ("source.pager", "ctrl+n", None),
    ],
)
def test_a_key_that_cannot_be_is_refused_in_a_sentence(id: str, written: str, sentence: str | None) -> None:
    found, problems = keymap({id: written})
    if sentence is None:
        assert problems == []
        assert id in found
    else:
        assert found == {}
        assert [problem.text for problem in problems] == [f"keys.{id}: {sentence}"]


VI = {
    "transcript.first": "home,g",
    "transcript.last": "end,G",
    "transcript.find": "slash",
    "transcript.next_match": "n",
    "transcript.previous_match": "N",
}


def test_the_keys_of_vi_are_there_where_they_are_wanted_and_mean_nothing_else() -> None:
    assert keymap({}) == ({}, [])
    assert keymap({}, vi_keys=True) == (VI, [])
    assert set(VI) == {action.id for action in BY_ID.values() if action.vi_keys}
    for action in BY_ID.values():
        for key in action.vi_keys.split(",") if action.vi_keys else ():
            assert keys.normal(key) == key
    mine = {"transcript.fork": "n", "transcript.first": "x"}
    assert keymap(mine, vi_keys=True) == (
        {**mine, **{id: key for id, key in VI.items() if id not in ("transcript.first", "transcript.next_match")}},
        [],
    )


def test_the_help_tells_the_keys_of_vi() -> None:
    def found(overrides: dict[str, str]) -> dict[str, str]:
        return {row.label: row.keys for row in help_rows(overrides)["Messages"]}

    assert [found({})[label] for label in ("First message", "Next match")] == ["Home", "n (vi_keys)"]
    with_them = found(keymap({}, vi_keys=True)[0])
    assert [with_them[label] for label in ("First message", "Last message", "Find from here", "Previous match")] == [
        "Home, g",
        "End, G",
        "/",
        "N",
    ]


async def test_an_action_without_a_key_can_be_given_one() -> None:
    app = Talk()
    async with app.run_test() as pilot:
        app.set_keymap(keymap({"theme": "f11", "tree": "alt+t"})[0])
        await pilot.press("f11", "alt+t")
    assert app.done == ["theme", "tree"]


def test_two_actions_may_swap_their_keys() -> None:
    assert keymap({"export": "f2", "inspector": "f4"}) == ({"export": "f2", "inspector": "f4"}, [])


def test_a_refused_swap_leaves_no_action_without_its_key() -> None:
    found, problems = keymap({"export": "f2", "inspector": "ctrl+h"})
    assert found == {}
    assert [problem.text for problem in problems] == [
        "keys.inspector: ctrl+h cannot be used: terminals send it for the backspace key; it keeps F2",
        "keys.export: F2 already means Cache (inspector); it keeps F4",
    ]


def test_problems_of_keys_have_the_line_of_the_settings_file(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('theme = "kvchat-day"\n[keys]\nnew = "ctrl+h"\ntranscript.edit = "y"\n"transcript.fork" = "e"\n')
    _, problems = keymap(load(file)[0].keys, file)
    assert sorted(str(problem) for problem in problems) == [
        "config.toml:3:1: keys.new: ctrl+h cannot be used: terminals send it for the backspace key; it keeps Ctrl+N",
        "config.toml:4:1: keys.transcript.edit: y already means Copy message (transcript.copy); it keeps e",
        "config.toml:5:1: keys.transcript.fork: e already means Edit message (transcript.edit); it keeps f",
    ]


def test_the_help_shows_the_keys_in_use() -> None:
    rows = {
        row.slash.split()[0]: row
        for group in help_rows({"export": "f5,ctrl+right_square_bracket"}).values()
        for row in group
        if row.slash
    }
    assert rows["/export"].keys == "F5, Ctrl+]"
    assert rows["/next"].keys == "Ctrl+PgDn, Alt+↓, F9"
    assert rows["/rename"].slash == "/rename TITLE"
    assert rows["/code"].keys == "1–9"
    assert rows["/undo"].keys == "Ctrl+_, Ctrl+/"


def test_the_help_tells_what_enter_does() -> None:
    def enter(**options: bool) -> str:
        return next(row.label for row in help_rows(**options)["Writing"] if row.keys == "Enter")

    assert enter() == "Send"
    assert enter(enter_sends=False) == "New line"


@corpus(
    ("written", "normal", "shown", "short"),
    [
        ("Ctrl+N", "ctrl+n", "Ctrl+N", "^N"),
        ("control-x", "ctrl+x", "Ctrl+X", "^X"),
        ("PgDn", "pagedown", "PgDn", "PgDn"),
        ("shift+alt+Down", "alt+shift+down", "Alt+Shift+↓", "Alt+Shift+↓"),
        ("?", "question_mark", "?", "?"),
        ("ctrl+/", "ctrl+slash", "Ctrl+/", "^/"),
        ("ctrl++", "ctrl+plus", "Ctrl++", "^+"),
        ("+", "plus", "+", "+"),
        ("-", "minus", "-", "-"),
        ("shift+x", "X", "X", "X"),
        ("F12", "f12", "F12", "F12"),
        ("ESC", "escape", "Esc", "Esc"),
        ("Cmd+K", "super+k", "Super+K", "Super+K"),
        ("é", "é", "é", "é"),
        ("ctrl+\\", "ctrl+backslash", "Ctrl+\\", "^\\"),
    ],
)
def test_keys_are_understood_as_people_write_them(written: str, normal: str, shown: str, short: str) -> None:
    assert keys.normal(written) == normal
    assert keys.shown(normal) == shown
    assert keys.short(normal) == short


@corpus("written", ["", "+ +", "ctrl+", "ctrl++x", "f99", "a b", "\x1b", "\t", "x" * 500, "control", "ctrl+\u202e"])
def test_what_is_not_a_key_is_refused(written: str) -> None:
    with pytest.raises(keys.KeyNameError):
        keys.normal(written)


@pytest.mark.process
def test_the_table_is_read_without_loading_textual() -> None:
    code = (
        "import sys, kvchat.commands.keymap as a; a.help_rows(); a.keymap({'new': 'f5'}); "
        "sys.exit(any(name.split('.')[0] in ('textual', 'platformdirs', 'tomli_w') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_ids_can_be_written_as_toml_keys() -> None:
    for action in BY_ID.values():
        assert tomllib.loads(f'"{action.id}" = "f5"') == {action.id: "f5"}


# The dialogs.


def test_the_keys_of_the_dialogs_do_what_the_table_says() -> None:
    """Every action of a dialog is bound by some dialog or one of its parts, which has what it does."""
    from kvchat.ui.screens import (
        alternatives,
        branches,
        context,
        conversations,
        doctor,
        export,
        inspector,
        options,
        queue,
        settings,
        sources,
        tools,
    )
    from kvchat.ui.screens.documents import add
    from kvchat.ui.screens.documents import search as passage_search
    from kvchat.ui.screens.kit import manager, modal
    from kvchat.ui.screens.memory import editor
    from kvchat.ui.widgets.findbar import FindBar

    places = {
        "dialog": modal.Modal,
        "rows": modal.ListModal,
        "choice": export.ChoiceLine,
        "manager": manager.ManagerScreen,
        "entry": editor.EntryEditor,
        "add": add.AddDocumentsScreen,
        "passages": passage_search.DocumentSearchScreen,
        "source": sources.SourceScreen,
        "attach": context.AttachScreen,
        "context": context.ContextScreen,
        "branches": branches.BranchTreeScreen,
        "tools": tools.ToolsScreen,
        "inspector": inspector.InspectorScreen,
        "report": doctor.DoctorScreen,
        "list_dialog": conversations.ConversationPicker,
        "search_dialog": conversations.SearchScreen,
        "prompt": options.SystemPromptScreen,
        "fields": options.ParametersScreen,
        "findbar": FindBar,
        "settings": settings.SettingsScreen,
        "queue": queue.QueueScreen,
        "alternatives": alternatives.AlternativesScreen,
    }
    assert export.ExportScreen.action_apply
    for action in DIALOG_ACTIONS:
        if action.context in ("memory", "documents"):
            continue  # a source of the manager has them
        place, name = places[action.context], action.action.partition("(")[0]
        assert name.startswith("app.") or hasattr(place, f"action_{name}"), action.id
        assert action.id in {binding.id for binding in place.BINDINGS if isinstance(binding, Binding)}, action.id


def test_the_key_that_continues_gives_way_to_a_persons_own() -> None:
    found, problems = keymap({"transcript.copy": "c"})
    assert (found, problems) == ({"transcript.copy": "c", "transcript.continue": ""}, [])
    rows = {row.label: row.keys for rows in help_rows(found).values() for row in rows}
    assert (rows["Copy message"], rows["Continue answer"]) == ("c", "")
    assert keymap({"transcript.continue": "u"}) == ({"transcript.continue": "u"}, [])
    assert "transcript.continue" not in keymap({"export": "alt+c"})[0]
