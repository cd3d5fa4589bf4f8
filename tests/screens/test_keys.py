"""Every key, slash command and palette entry of the help does what the help says.

A case prepares its scene, has the action done by `do` (once for every key, once by its slash command, once from the
palette) and asserts what a person would notice.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path

import pytest
from app_kit import Drive, Driven
from textual import events
from textual.keys import _character_to_key

from kvchat.commands.actions import ACTIONS, BY_ID, Action
from kvchat.commands.editor import OutsideText
from kvchat.config import Settings, changed
from kvchat.prompt.message import State
from toyserver import ToyServer, tokens

Do = Callable[[], Awaitable[None]]
Case = Callable[[Driven, Do], Awaitable[None]]

CASES: dict[str, Case] = {}
MODALS = {
    "list": "ConversationPicker",
    "search": "SearchScreen",
    "rename": "AskScreen",
    "export": "ExportScreen",
    "tree": "BranchTreeScreen",
    "parameters": "ParametersScreen",
    "system": "SystemPromptScreen",
    "tools": "ToolsScreen",
    "model": "ModelPicker",
    "inspector": "InspectorScreen",
    "theme": "ThemeScreen",
    "palette": "PaletteScreen",
    "help": "HelpScreen",
    "compact": "ConfirmScreen",
    "transcript.branches": "BranchTreeScreen",
    "doctor": "DoctorScreen",
    "memory": "ManagerScreen",
    "remember": "ManagerScreen",
    "forget": "ManagerScreen",
    "attach": "AttachScreen",
    "documents": "ManagerScreen",
    "tag": "AskScreen",
    "queue": "QueueScreen",
    "import": "ImportScreen",
    "settings": "SettingsScreen",
    "persona": "BeginningScreen",
    "trunk": "BeginningScreen",
}
"""The actions that open a screen, with its class."""

CODE = "".join(f"```\nblock {number}\n```\n\n" for number in range(1, 10))
LONG = "\n\n".join(f"line {number}" for number in range(40))


def case(id: str) -> Callable[[Case], Case]:
    def keep(function: Case) -> Case:
        CASES[id] = function
        return function

    return keep


@asynccontextmanager
async def scene(drive: Drive, server: ToyServer) -> AsyncIterator[Driven]:
    """Two conversations: the older one with a single turn, the open one with two."""
    server.on_chat(tokens("Hello"))
    async with drive(settings=changed(Settings(), "vi_keys", True)) as app:
        await app.begin("older")
        app.service.clock.now = app.service.clock.now.replace(hour=10)  # type: ignore[attr-defined]
        await app.begin("one", "two")
        yield app


def ways(app: Driven, action: Action) -> list[tuple[str, Do]]:
    """Each key, the slash command, and the palette."""
    keys = [*action.key_list, *filter(None, action.vi_keys.split(","))]
    found: list[tuple[str, Do]] = [(key, lambda key=key: app.press(key)) for key in keys]  # type: ignore[misc]
    for slash in filter(None, (action.slash, action.also)):
        found.append((f"/{slash}", lambda slash=slash: app.command(f"/{slash}")))  # type: ignore[misc]
    if action.palette:
        found.append(("palette", lambda: app.run(action.id)))
    return found


async def in_place(app: Driven, id: str) -> None:
    """Put the focus where the keys of an action work."""
    match BY_ID[id].context:
        case "transcript":
            await app.select(-1)
        case "sidebar":
            await app.focus_sidebar()
        case _:
            app.chat.composer.focus()
            await app.rest()


def test_every_action_has_a_case() -> None:
    assert {action.id for action in ACTIONS} == {*CASES, *MODALS}
    assert not set(CASES) & set(MODALS)


@pytest.mark.slow
async def test_the_keys_that_open_a_screen_open_it_and_escape_closes_it(drive: Drive, server: ToyServer) -> None:
    async with scene(drive, server) as app:
        for id, screen in MODALS.items():
            for name, do in ways(app, BY_ID[id]):
                await in_place(app, id)
                await do()
                await app.until(lambda screen=screen: app.front == screen)
                assert name and app.front == screen
                await app.press("escape")
                await app.closes()
                assert app.draft == ""


# -- conversations


@case("new")
async def _(app: Driven, do: Do) -> None:
    before = app.conversation.id
    await do()
    await app.until(lambda: app.conversation.id != before and app.shown == [])
    assert app.said == []
    assert app.chat.composer.has_focus_within


@case("next")
async def _(app: Driven, do: Do) -> None:
    await do()
    await app.until(lambda: app.said == ["older", "Hello"])


@case("previous")
async def _(app: Driven, do: Do) -> None:
    newest = app.conversation.id
    await app.open(next(c.id for c in app.service.conversations.all() if c.title == "older"))
    await do()
    await app.until(lambda: app.shown == ["one", "Hello", "two", "Hello"])
    assert app.conversation.id == newest


@case("delete")
async def _(app: Driven, do: Do) -> None:
    id = app.conversation.id
    await do()
    await app.until(lambda: app.conversation.id != id and app.shown == app.said)
    assert id not in {c.id for c in app.service.conversations.all()}
    assert app.noticed("Moved to trash")
    await app.service.conversations.restore(id)


@case("favourite")
async def _(app: Driven, do: Do) -> None:
    for words, tags in (("Favourite:", ("favourite",)), ("No longer a favourite.", ())):
        await do()
        await app.until(lambda words=words: app.noticed(words))
        assert app.conversation.record.tags == tags
        app.notices.clear()


@case("archive")
async def _(app: Driven, do: Do) -> None:
    for words, shown in (("Archived:", False), ("Back in the list.", True)):
        await do()
        await app.until(lambda words=words: app.noticed(words))
        assert (app.conversation.id in {one.id for one in app.service.conversations.shown()}) is shown
        app.notices.clear()


@case("keep")
async def _(app: Driven, do: Do) -> None:
    await app.begin("hello")
    app.service.saver.why_not = lambda id: None
    for words, kept in (("Kept · saved", True), ("No longer kept", False)):
        await do()
        await app.until(lambda words=words: app.noticed(words))
        assert (app.conversation.id in app.service.claims.all()) is kept
        app.notices.clear()


@case("stop")
async def _(app: Driven, do: Do) -> None:
    await app.begin()
    await app.streaming("half an answer")
    await do()
    await app.until(lambda: not app.service.conversations.streaming())
    assert app.path[-1].state is State.CANCELLED
    await app.until(lambda: app.shown[-1] == "half an answer")
    assert "Stopped" in app.prose


@case("undo")
async def _(app: Driven, do: Do) -> None:
    before = app.said
    await app.service.branches.delete_turn(app.conversation.id, app.path[-1].id)
    assert app.said == before[:-2]
    await do()
    await app.until(lambda: app.shown == before)
    assert app.said == before


@case("find")
async def _(app: Driven, do: Do) -> None:
    await do()
    await app.until(lambda: app.chat.findbar.has_focus_within)
    await app.type("two")
    await app.until(lambda: "1/1" in app.text)
    await app.press("escape")
    assert not app.chat.findbar.is_open
    app.chat.findbar.query_one("Input").value = ""  # type: ignore[attr-defined]


# -- this conversation


@case("thinking")
async def _(app: Driven, do: Do) -> None:
    before = dict(app.conversation.record.template_options)
    await do()
    await app.until(lambda: app.conversation.record.template_options != before)
    await app.until(lambda: app.noticed("Thinking"))
    app.notices.clear()


@case("editor")
async def _(app: Driven, do: Do) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app.app, "suspend", nullcontext)
        patch.setattr("kvchat.commands.editor.OutsideText.edit", _edited)
        await do()
        await app.until(lambda: app.draft == "written in the editor")
        app.chat.composer.replace_text("")
        await app.rest()


async def _edited(outside: OutsideText, command: str, keep: object) -> None:
    outside.path.write_text("written in the editor\n")
    assert outside.saved
    outside.remove()


@case("sidebar")
async def _(app: Driven, do: Do) -> None:
    for shown in (False, True):
        await do()
        await app.until(lambda shown=shown: (" older " in app.text) is shown)
        assert app.chat.sidebar.display is shown


@case("panel")
async def _(app: Driven, do: Do) -> None:
    await app.pilot.resize_terminal(160, 40)
    await app.until(lambda: "Server's cache" in app.text)
    for shown in (False, True):
        await do()
        await app.until(lambda shown=shown: ("Server's cache" in app.text) is shown)


@case("jump")
async def _(app: Driven, do: Do) -> None:
    """To a row of the list, to a message, and away again."""
    before = app.text
    await app.open(next(c.id for c in app.service.conversations.all() if c.title == "one"))
    await do()
    await app.until(lambda: "Letter go there" in app.text)
    assert len(app.lines) == len(before.splitlines())
    await app.press(next(line for line in app.lines if " older " in line).strip()[0])
    await app.until(lambda: app.said == ["older", "Hello"])
    await do()
    await app.until(lambda: "Letter go there" in app.text)
    await app.press(next(line for line in app.lines if " You " in line).partition(" You ")[0][-1])
    assert app.chat.transcript.has_focus
    assert app.selected == "older"
    await do()
    await app.until(lambda: "Letter go there" in app.text)
    await app.press("escape")
    assert "Letter go there" not in app.text
    app.chat.composer.focus()
    await app.rest()
    await do()
    await app.until(lambda: "Letter go there" in app.text)
    await app.press("0")
    assert app.draft == ""
    assert app.chat.composer.has_focus_within


@case("suspend")
async def _(app: Driven, do: Do) -> None:
    stopped: list[bool] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app.app._driver, "suspend", lambda: not stopped.append(True), raising=False)
        await do()
        await app.until(lambda: stopped)


@case("quit")
async def _(app: Driven, do: Do) -> None:
    codes: list[object] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app.app, "exit", lambda code=None: codes.append(code))
        await do()
        await app.until(lambda: codes)
    assert codes == [0]


# -- messages


@case("transcript.previous")
async def _(app: Driven, do: Do) -> None:
    await app.select(2)
    await do()
    assert app.selected == "Hello"
    await do()
    assert app.selected == "one"


@case("transcript.next")
async def _(app: Driven, do: Do) -> None:
    await app.select(1)
    await do()
    assert app.selected == "two"


async def _long(app: Driven) -> None:
    assert app.server is not None
    app.server.on_chat(tokens(LONG))
    await app.begin("long")


@case("transcript.extend_up")
async def _(app: Driven, do: Do) -> None:
    await app.select(2)
    await do()
    await do()
    assert [item.text for item in app.chat.transcript.selected_items] == ["one", "Hello", "two"]
    text = await _copied(app, lambda: app.command("/copy"))
    assert text.endswith("## You\n\ntwo") and text.count("## ") == 3


@case("transcript.extend_down")
async def _(app: Driven, do: Do) -> None:
    await app.select(1)
    await do()
    assert [item.text for item in app.chat.transcript.selected_items] == ["Hello", "two"]


@case("transcript.page_up")
async def _(app: Driven, do: Do) -> None:
    await _long(app)
    await app.focus_transcript()
    assert "line 39" in app.text
    await do()
    await app.until(lambda: "line 39" not in app.text)


@case("transcript.page_down")
async def _(app: Driven, do: Do) -> None:
    await _long(app)
    await app.focus_transcript()
    await app.press("home")
    assert "line 39" not in app.text
    for _ in range(5):
        await do()
    await app.until(lambda: "line 39" in app.text)


@case("transcript.first")
async def _(app: Driven, do: Do) -> None:
    await _long(app)
    await app.focus_transcript()
    await do()
    await app.until(lambda: "line 0" in app.text)
    assert app.selected == "long"


@case("transcript.last")
async def _(app: Driven, do: Do) -> None:
    await _long(app)
    await app.focus_transcript()
    await app.press("home")
    await do()
    await app.until(lambda: "line 39" in app.text)
    assert app.chat.transcript.following


@case("transcript.find")
async def _(app: Driven, do: Do) -> None:
    await _looked_for(app, do)
    await app.until(lambda: "1/2" in app.text or "2/2" in app.text)
    await app.press("escape")
    assert not app.chat.findbar.is_open
    assert app.chat.transcript.has_focus


@case("transcript.next_match")
async def _(app: Driven, do: Do) -> None:
    await _looked_for(app, lambda: app.press("slash"))
    at = next(place for place in ("1/2", "2/2") if place in app.text)
    await do()
    await app.until(lambda: {"1/2": "2/2", "2/2": "1/2"}[at] in app.text)
    await app.press("escape", "escape")
    await app.select(-1)
    await do()  # what was looked for last
    await app.until(lambda: "/2" in app.text and app.chat.transcript.has_focus)
    await app.press("escape")


CASES["transcript.previous_match"] = CASES["transcript.next_match"]


async def _looked_for(app: Driven, do: Do) -> None:
    """Enter goes back to the messages."""
    await app.select(-1)
    await do()
    assert app.chat.findbar.is_open
    await app.type("Hello")
    await app.press("enter")
    assert app.chat.transcript.has_focus
    assert app.chat.findbar.is_open


@case("transcript.edit")
async def _(app: Driven, do: Do) -> None:
    await app.select(0)
    await do()
    await app.until(lambda: app.draft == "one")
    assert "editing" in app.prose
    assert app.chat.composer.has_focus_within
    await app.press("escape")
    assert app.draft == ""


@case("transcript.regenerate")
async def _(app: Driven, do: Do) -> None:
    assert app.server is not None
    app.server.on_chat(tokens("Another"))
    await app.select(-1)
    versions = app.chat.transcript.items[-1].siblings[1]
    await do()
    await app.until(lambda: app.chat.transcript.items[-1].siblings[1] > versions)
    await app.settled()
    await app.until(lambda: app.shown[-1] == "Another")


@case("transcript.continue")
async def _(app: Driven, do: Do) -> None:
    assert app.server is not None
    app.server.on_chat(tokens("Half", finish="length"))
    await app.grow("a long one")
    app.server.on_chat(tokens(" and whole"))
    await app.select(-1)
    await do()
    await app.until(lambda: app.shown[-1] == "Half and whole")
    await app.settled()
    app.server.on_chat(tokens("Hello"))


@case("alternatives")
async def _(app: Driven, do: Do) -> None:
    assert app.server is not None
    app.server.on_chat(tokens("Yes."), tokens("No."), tokens("Perhaps."))
    versions = app.chat.transcript.items[-1].siblings[1]
    await do()
    await app.opens("AlternativesScreen")
    await app.until(lambda: app.service.turns.is_undecided(app.conversation.id))
    await app.press("2")
    await app.closes()
    await app.until(lambda: app.shown[-1] == "No.")
    assert app.chat.transcript.items[-1].siblings[1] == versions + 3
    app.server.on_chat(tokens("Hello"))


@case("transcript.copy")
async def _(app: Driven, do: Do) -> None:
    await app.select(0)
    assert await _copied(app, do) == "one"
    assert app.noticed("Message copied to the test's clipboard")


@case("copy_answer")
async def _(app: Driven, do: Do) -> None:
    await app.select(0)
    assert await _copied(app, do) == app.said[-1]


@case("copy_all")
async def _(app: Driven, do: Do) -> None:
    text = await _copied(app, do)
    assert text.startswith("## You\n\none\n\n## ") and text.endswith(app.said[-1])
    assert text.count("## ") == len(app.said)
    assert app.noticed(f"{len(app.said)} messages copied to the test's clipboard")


async def _copied(app: Driven, do: Do) -> str:
    copies: list[str] = []

    def copy(_app: object, text: str) -> str:
        copies.append(text)
        return "the test's clipboard"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kvchat.ui.controllers.messages.copy", copy)
        await do()
        await app.until(lambda: copies)
    return copies[-1]


@case("transcript.code")
async def _(app: Driven, do: Do) -> None:
    assert app.server is not None
    app.server.on_chat(tokens(CODE))
    await app.begin("code")
    await app.select(-1)
    assert await _copied(app, do) == f"block {app.way if app.way.isdecimal() else 1}"


@case("transcript.sibling_previous")
async def _(app: Driven, do: Do) -> None:
    await _versions(app)
    await app.select(-1)
    await do()
    await app.until(lambda: app.shown[-1] == "first version")
    assert app.selected == "first version"
    assert "1/2" in app.text


@case("transcript.sibling_next")
async def _(app: Driven, do: Do) -> None:
    await _versions(app)
    await app.service.branches.walk(app.conversation.id, app.path[-1].id, -1)
    await app.select(-1)
    assert app.selected == "first version"
    await do()
    await app.until(lambda: app.shown[-1] == "second version")
    assert app.selected == "second version"
    assert "2/2" in app.text


async def _versions(app: Driven) -> None:
    assert app.server is not None
    app.server.on_chat(tokens("first version"), tokens("second version"))
    await app.begin("versions")
    await app.service.turns.regenerate(app.conversation.id, app.path[-1].id)
    await app.settled()


@case("transcript.source")
async def _(app: Driven, do: Do) -> None:
    await app.select(-1)
    await do()
    await app.until(lambda: app.noticed("This answer cites no source"))


@case("transcript.fork")
async def _(app: Driven, do: Do) -> None:
    origin = app.conversation.id
    await app.select(1)
    await do()
    await app.until(lambda: app.conversation.id != origin and app.shown == ["one", "Hello"])
    assert app.conversation.record.forked_from == origin
    await app.service.conversations.delete(app.conversation.id)


@case("transcript.delete")
async def _(app: Driven, do: Do) -> None:
    before = app.said
    await app.select(0)
    await do()
    await app.until(lambda: app.shown == before[2:])
    assert app.noticed("Turn deleted")
    await app.service.branches.undo(app.conversation.id)
    assert app.said == before


@case("transcript.fold")
async def _(app: Driven, do: Do) -> None:
    await app.select(0)
    for shown in (True, False):
        await do()
        await app.select(0)
        assert ("Saturday" in app.text) is shown


# -- writing


@case("composer.enter")
async def _(app: Driven, do: Do) -> None:
    before = len(app.said)
    await app.write("sent by a key")
    await do()
    await app.until(lambda: len(app.said) == before + 2)
    assert app.said[-2] == "sent by a key"
    await app.settled()
    assert app.draft == ""
    assert app.shown[-1] == "Hello"


CASES["composer.send"] = CASES["composer.enter"]


@case("memories")
async def _(app: Driven, do: Do) -> None:
    await do()
    assert app.noticed("Nothing extra goes with this message")
    await app.service.memory.with_memories(lambda memories: memories.add("I prefer metric units."))
    await app.write("How long is a mile in metric units?")
    await app.until(lambda: app.chat.composer.context.memories)
    await do()
    await app.opens("ContextScreen")
    await app.press("delete", "escape")
    await app.closes()
    await app.until(lambda: not app.chat.composer.context.memories)
    app.chat.composer.replace_text("")
    await app.service.memory.with_memories(lambda memories: [memories.delete(entry.id) for entry in memories.entries()])


@case("composer.messages")
async def _(app: Driven, do: Do) -> None:
    await do()
    assert app.app.focused is app.chat.transcript
    assert "e edit" in app.text and "Tab messages" not in app.text
    await app.press("escape")
    assert "Tab messages" in app.text


@case("composer.newline")
async def _(app: Driven, do: Do) -> None:
    before = app.said
    await app.write("a")
    await do()
    await app.press("b")
    assert app.draft == "a\nb"
    assert app.said == before
    app.chat.composer.replace_text("")


@case("composer.interrupt")
async def _(app: Driven, do: Do) -> None:
    await app.write("to be cleared")
    await do()
    assert app.draft == ""
    await app.press("ctrl+z")
    assert app.draft == "to be cleared"
    await do()
    await app.begin()
    await app.streaming()
    await do()
    await app.until(lambda: not app.service.conversations.streaming())
    await app.press("ctrl+c")
    await app.until(lambda: app.noticed("Nothing is running · Ctrl+Q quits"))


@case("composer.end")
async def _(app: Driven, do: Do) -> None:
    codes: list[object] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app.app, "exit", lambda code=None: codes.append(code))
        await app.write("ab")
        await app.press("home")
        await do()
        assert (app.draft, codes) == ("b", [])
        await do()
        assert (app.draft, codes) == ("", [])
        await do()
        await app.until(lambda: codes == [0])


# -- the list


@case("sidebar.open")
async def _(app: Driven, do: Do) -> None:
    await app.focus_sidebar()
    await app.press("down")
    await do()
    await app.until(lambda: app.said == ["older", "Hello"])
    assert app.chat.composer.has_focus_within


@case("sidebar.menu")
async def _(app: Driven, do: Do) -> None:
    await app.focus_sidebar()
    await app.press("down")
    await do()
    await app.opens("ConfirmScreen")
    assert "older" in app.lines[next(i for i, line in enumerate(app.lines) if "╭" in line)]
    for word in ("Open", "Rename", "Export", "Delete"):
        assert word in app.text
    await app.press("o")
    await app.until(lambda: app.said == ["older", "Hello"])


@case("sidebar.rename")
async def _(app: Driven, do: Do) -> None:
    await app.focus_sidebar()
    await app.press("down")
    await do()
    await app.opens("AskScreen")
    await app.type("elder")
    await app.press("enter")
    await app.until(lambda: "elder" in {c.title for c in app.service.conversations.all()})
    assert app.said == ["one", "Hello", "two", "Hello"]


@case("sidebar.delete")
async def _(app: Driven, do: Do) -> None:
    await app.focus_sidebar()
    await app.press("down")
    id = app.chat.sidebar.cursor_id
    assert id is not None and id != app.conversation.id
    await do()
    await app.until(lambda: app.noticed("Moved to trash") and id not in {c.id for c in app.service.conversations.all()})
    assert app.said == ["one", "Hello", "two", "Hello"]
    await app.service.conversations.restore(id)


async def test_letters_begin_a_message_without_the_keys_of_vi(drive: Drive) -> None:
    async with drive() as app:
        await app.begin("one")
        for letter in ("g", "G", "n", "N", "/"):
            await app.select(-1)
            app.app.post_message(events.Key(_character_to_key(letter), letter))
            await app.until(lambda letter=letter: app.draft == letter)
            assert not app.chat.findbar.is_open
            app.chat.composer.replace_text("")


# -- arguments of slash commands


async def test_slash_commands_take_their_argument(drive: Drive, server: ToyServer, tmp_path: Path) -> None:
    server.on_chat(tokens(CODE))
    async with drive() as app:
        await app.begin("one")
        await app.command("/rename A better title")
        await app.until(lambda: app.conversation.record.title == "A better title")
        await app.command("/search block 7")
        await app.opens("SearchScreen")
        await app.until(lambda: "1 message" in app.text)
        await app.press("escape")
        await app.closes()
        await app.command("/find block 4")
        await app.until(lambda: "1/1" in app.text)
        await app.press("escape")
        await app.command(f"/export {tmp_path / 'out.html'}")
        await app.until(lambda: app.noticed("Exported to"))
        assert "block 9" in (tmp_path / "out.html").read_text()
        await app.command("/theme kvchat-day")
        await app.until(lambda: app.app.theme == "kvchat-day")
        await app.command("/theme nosuch")
        await app.until(lambda: app.noticed("There is no theme nosuch."))
        await app.command("/system Be terse.")
        await app.until(lambda: app.conversation.instructions == "Be terse.")
        await app.command("/model nosuch")
        await app.until(lambda: app.noticed("has no model nosuch"))
        await app.command("/model toy")
        await app.until(lambda: app.conversation.record.model == "toy")
        assert await _copied(app, lambda: app.command("/code 3")) == "block 3"
        await app.command("/code 12")
        await app.until(lambda: app.noticed("There is no code block 12"))
        app.chat.composer.type("/nosuch thing")
        await app.press("enter")
        await app.until(lambda: app.noticed("There is no command /nosuch"))
        assert app.draft == "/nosuch thing"


async def test_the_hint_that_there_is_no_shell_comes_once_and_never_again(drive: Drive) -> None:
    async with drive() as app:
        await app.write("!ls")
        await app.press("enter")
        await app.until(lambda: app.noticed("There is no shell here"))
        assert (app.draft, app.said) == ("!ls", [])
        await app.press("enter")
        await app.until(lambda: app.said[:1] == ["!ls"])
        await app.settled()
    async with drive() as app:
        await app.write("!pwd")
        await app.press("enter")
        await app.until(lambda: app.said[:1] == ["!pwd"])
        await app.write("#tea")
        await app.press("enter")
        await app.until(lambda: app.noticed("/remember keeps a note"))


async def test_the_palette_runs_what_is_typed_in_it(drive: Drive) -> None:
    async with drive() as app:
        await app.begin("one")
        await app.press("ctrl+p")
        await app.opens("PaletteScreen")
        await app.type("Parameters")
        await app.until(lambda: "Change temperature" in app.text)
        await app.press("enter")
        await app.opens("ParametersScreen")


async def test_the_palette_over_a_dialog_leaves_that_unanswered(drive: Drive) -> None:
    async with drive() as app:
        await app.begin("one")
        await app.press("f12")
        await app.opens("AskScreen")
        await app.run("export")
        await app.opens("ExportScreen")
        await app.press("escape")
        await app.closes()
        assert app.conversation.record.title == "one"


async def test_two_quick_presses_open_one_screen(drive: Drive) -> None:
    async with drive() as app:
        await app.begin("one")
        app.app.simulate_key("f4")
        app.app.simulate_key("f4")
        await app.opens("ExportScreen")
        await app.press("escape")
        await app.closes()


@pytest.mark.slow
async def test_in_an_empty_conversation_no_action_fails(drive: Drive) -> None:
    async with drive() as app:
        for action in ACTIONS:
            if action.palette and action.id not in ("quit", "editor"):
                await app.run(action.id)
                for _ in app.app.screen_stack[1:]:
                    await app.press("escape")
                await app.closes()
        assert app.said == []


# -- all of them


@pytest.mark.slow
@pytest.mark.parametrize("group", list(dict.fromkeys(action.group for action in ACTIONS)))
async def test_every_key_does_what_the_help_says(group: str, drive: Drive, server: ToyServer) -> None:
    async with scene(drive, server) as app:
        home, older = (known.id for known in app.service.conversations.all() if known.turns)
        for action in ACTIONS:
            if action.group != group or action.id not in CASES:
                continue
            for way, do in ways(app, action):
                app.way = way
                server.on_chat(tokens("Hello"))
                try:
                    await CASES[action.id](app, do)
                except AssertionError as error:
                    raise AssertionError(f"{action.id} by {app.way}: {error}\n{app.text}") from error
                await app.closes()
                for other in {known.id for known in app.service.conversations.all()} - {home, older}:
                    await app.service.conversations.delete(other)
                await app.open(home)
