"""Single acts of a person at work: editing, finding, naming, exporting, options, settings and themes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from app_kit import Drive

from kvchat.backends.dialect import HostClass
from kvchat.config import Settings, changed, load
from kvchat.paths import find
from kvchat.ui.terminal.input import Background
from toyserver import ToyServer, error, reply, tokens

pytestmark = pytest.mark.slow


# -- sending, streaming, stopping


async def test_reasoning_is_folded_and_unfolds(drive: Drive, server: ToyServer) -> None:
    server.on_chat(tokens("Four.", reasoning=["two and ", "two"]))
    async with drive() as app:
        await app.say("2 + 2?")
        assert "two and two" not in app.text
        await app.select(1)
        await app.press("enter")
        assert "two and two" in app.text


# -- writing


async def test_up_recalls_what_was_sent(drive: Drive) -> None:
    async with drive() as app:
        await app.begin("first", "second")
        await app.write("")
        await app.press("up")
        assert app.draft == "second"
        await app.press("up")
        assert app.draft == "first"
        await app.press("down", "down")
        assert app.draft == ""


async def test_the_editor_gets_the_draft_and_gives_it_back(
    drive: Drive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from contextlib import nullcontext

    script = tmp_path / "editor"
    script.write_text('#!/bin/sh\nprintf " and more" >> "$1"\n')
    script.chmod(0o700)
    monkeypatch.setenv("EDITOR", str(script))
    async with drive() as app:
        monkeypatch.setattr(app.app, "suspend", nullcontext)
        await app.write("a word")
        await app.press("ctrl+g")
        await app.until(lambda: app.draft == "a word and more")
        monkeypatch.setenv("EDITOR", "/nonexistent/editor")
        await app.press("ctrl+g")
        await app.until(lambda: app.noticed("Cannot run the editor /nonexistent/editor"))
        assert app.draft == "a word and more"


async def test_a_terminal_that_cannot_be_handed_over_is_said(drive: Drive) -> None:
    async with drive() as app:
        await app.write("a word")
        await app.press("ctrl+g")
        await app.until(lambda: app.noticed("cannot run an editor"))
        assert app.draft == "a word"


async def test_editing_leaves_the_draft_alone(drive: Drive) -> None:
    async with drive() as app:
        first = await app.begin("one")
        second = await app.begin("two")
        await app.write("half a thought")
        await app.select(0)
        await app.press("e")
        await app.until(lambda: app.draft == "two")
        await app.type(" and more")
        await app.press("escape")
        assert app.draft == "half a thought"
        await app.select(0)
        await app.press("e")
        await app.until(lambda: app.draft == "two")
        await app.type(" and more")
        await app.open(first)
        assert app.draft == ""
        assert app.chat.workspace.editing is None
        await app.open(second)
        await app.until(lambda: app.draft == "two and more")
        await app.press("escape")
        assert app.draft == "half a thought"
        await app.select(0)
        await app.press("e")
        await app.until(lambda: app.draft == "two")
        await app.press("escape", "ctrl+q")
    async with drive(conversation=second) as app:
        assert app.draft == "half a thought"


async def test_an_edited_message_keeps_its_paste(drive: Drive, server: ToyServer) -> None:
    pasted = "\n".join(f"log line {number}" for number in range(500))
    async with drive() as app:
        await app.write("What is this? ")
        await app.type(pasted)
        await app.press("enter")
        await app.until(lambda: len(app.said) == 2)
        await app.settled()
        await app.select(0)
        await app.press("e")
        await app.until(lambda: app.draft.startswith("What is this?"))
        await app.type(" Be brief.")
        await app.press("enter")
        await app.until(lambda: app.said[0].endswith("Be brief."))
        await app.settled()
        sent = server.chats[-1].json["messages"][-1]["content"]
        assert "log line 499" in sent
        assert sent.endswith("[pasted 1: 500 lines] Be brief.")


# -- finding


async def test_find_walks_through_the_matches_of_this_conversation(drive: Drive, server: ToyServer) -> None:
    server.on_chat(tokens("a lamp, and a lamp"))
    async with drive() as app:
        await app.begin("lamp one", "lamp two")
        await app.press("ctrl+f")
        await app.type("lamp")
        await app.until(lambda: "6/6" in app.text)
        await app.press("enter")
        await app.until(lambda: "5/6" in app.text)
        await app.press("down")
        await app.until(lambda: "6/6" in app.text)
        await app.press("down")
        await app.until(lambda: "1/6" in app.text)
        await app.type("post")
        await app.until(lambda: "nothing found" in app.text)
        await app.press("escape")
        assert not app.chat.findbar.is_open
        assert app.chat.composer.has_focus_within


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("3", "There is no code block 3 here"),
        ("left", "This message has one version only"),
        ("right", "This message has one version only"),
        ("f8", "This is the first conversation of the list"),
        ("o", "This question was sent without sources"),
    ],
)
async def test_a_key_that_does_nothing_here_says_so(drive: Drive, key: str, words: str) -> None:
    async with drive() as app:
        await app.begin("one")
        await app.select(0)
        await app.press(key)
        await app.until(lambda: app.noticed(words))


async def test_at_the_first_and_the_last_version_of_a_message_a_key_says_so(drive: Drive) -> None:
    async with drive() as app:
        await app.begin("one")
        await app.select(1)
        await app.press("r")
        await app.until(lambda: " 2/2" in app.text)
        await app.settled()
        await app.select(1)
        await app.press("right")
        await app.until(lambda: app.noticed("There is no later version of this message"))
        await app.press("left")
        await app.until(lambda: " 1/2" in app.text)
        await app.press("left")
        await app.until(lambda: app.noticed("There is no earlier version of this message"))


async def test_what_is_said_while_a_dialog_is_open_waits_until_it_is_closed(drive: Drive) -> None:
    async with drive() as app:
        await app.press("f1")
        app.chat.workspace.say("Two things to know")
        await app.rest()
        assert not app.noticed("Two things to know")
        await app.press("escape")
        await app.closes()
        await app.until(lambda: app.noticed("Two things to know"))


async def test_search_finds_a_message_on_another_branch_and_goes_there(drive: Drive, server: ToyServer) -> None:
    server.on_chat(tokens("the lighthouse"), tokens("the harbour"), tokens("Hello"))
    async with drive() as app:
        first = await app.begin("where?")
        await app.service.turns.regenerate(first, app.path[-1].id)
        await app.settled()
        await app.begin("something else")
        await app.press("ctrl+r")
        await app.opens("SearchScreen")
        await app.type("lighthouse")
        await app.until(lambda: "1 message" in app.text)
        await app.press("enter")
        await app.until(lambda: app.shown == ["where?", "the lighthouse"])
        assert app.conversation.id == first
        await app.until(lambda: app.selected == "the lighthouse")


# -- conversations


async def test_a_deleted_conversation_comes_back_by_undo(drive: Drive) -> None:
    async with drive() as app:
        kept = await app.begin("kept")
        gone = await app.begin("gone", "really")
        await app.press("f10")
        await app.until(lambda: app.conversation.id == kept and "gone" not in app.text)
        await app.press("ctrl+underscore")
        await app.until(lambda: app.conversation.id == gone and app.shown)
        assert app.shown == ["gone", "Hello", "really", "Hello"]


async def test_export_by_key_writes_the_file_and_asks_before_it_replaces_one(drive: Drive, tmp_path: Path) -> None:
    target = tmp_path / "talk.md"
    async with drive() as app:
        await app.begin("the lighthouse")
        for text in ("written", "there already", "again"):
            if text == "there already":
                target.write_text("mine")
            await app.press("f4")
            await app.opens("ExportScreen")
            app.app.screen.query_one("Input").focus()
            await app.press("end", "ctrl+u")
            await app.type(str(target))
            await app.press("enter")
            if text == "written":
                await app.closes()
                await app.until(target.exists)
                assert "the lighthouse" in target.read_text()
            else:
                await app.until(lambda: "is there already" in app.prose)
                assert target.read_text() == "mine"
                await app.press("escape" if text == "there already" else "enter")
                await app.closes()
        await app.until(lambda: "the lighthouse" in target.read_text())
        assert app.noticed("Exported to")


async def test_an_export_that_fails_is_said(drive: Drive, tmp_path: Path) -> None:
    async with drive() as app:
        await app.begin("one")
        await app.command(f"/export {tmp_path}/no/such/folder/x.md")
        await app.until(lambda: app.notices)
        assert app.noticed("no/such/folder")
        await app.command("/export ~nobody-here/x.md")
        await app.until(lambda: app.noticed("~nobody-here/x.md"))
        await app.command(f"/export {tmp_path}/x.pdf")
        await app.until(lambda: app.noticed("pdf"))


async def test_renaming_shows_in_the_list(drive: Drive) -> None:
    async with drive() as app:
        await app.begin("one")
        await app.press("f12")
        await app.opens("AskScreen")
        await app.type("The lighthouse log")
        await app.press("enter")
        await app.until(lambda: "The lighthouse log" in app.text)
        await app.say("more")
        assert app.conversation.record.title == "The lighthouse log"


# -- options


async def test_a_system_prompt_that_costs_is_priced_first(drive: Drive, server: ToyServer) -> None:
    server.on_chat(tokens("Hello", prompt=3000, prompt_ms=9000))
    async with drive() as app:
        await app.begin("one")
        before = app.conversation.instructions
        await app.command("/system Be terse.")
        await app.opens("ConfirmScreen")
        assert re.search(r"(2,9|3,0)\d\d tokens", app.prose)
        await app.press("escape")
        await app.closes()
        assert app.conversation.instructions == before
        await app.command("/system Be terse.")
        await app.opens("ConfirmScreen")
        await app.press("enter")
        await app.until(lambda: app.conversation.instructions == "Be terse.")


async def test_the_system_prompt_screen_changes_it(drive: Drive, server: ToyServer) -> None:
    async with drive() as app:
        await app.run("system")
        await app.opens("SystemPromptScreen")
        await app.press("f7")
        await app.type("Answer in rhymes.")
        await app.press("ctrl+s")
        await app.closes()
        await app.until(lambda: app.conversation.instructions == "Answer in rhymes.")
        await app.say("hi")
        assert server.chats[-1].json["messages"][0]["content"].startswith("Answer in rhymes.")


async def test_parameters_are_sent_from_then_on(drive: Drive, server: ToyServer) -> None:
    async with drive() as app:
        await app.begin("one")
        await app.press("ctrl+o")
        await app.opens("ParametersScreen")
        await app.type("0.25")
        await app.press("enter")
        await app.closes()
        await app.say("two")
        assert server.chats[-1].json["temperature"] == 0.25
        assert "temperature" not in server.chats[0].json


async def test_a_model_is_chosen_from_the_list_of_the_server(drive: Drive, server: ToyServer) -> None:

    names = ["toy", "bigger-toy"]
    server.on(
        "/v1/models",
        reply(
            200,
            {
                "object": "list",
                "data": [
                    {"id": name, "object": "model", "owned_by": "llamacpp", "meta": {"n_ctx": 4096}} for name in names
                ],
            },
        ),
    )
    async with drive() as app:
        await app.press("ctrl+l")
        await app.opens("ModelPicker")
        await app.until(lambda: "bigger-toy" in app.text)
        await app.type("bigger")
        await app.press("enter")
        await app.closes()
        await app.until(lambda: app.conversation.record.model == "bigger-toy")
        await app.say("hi")
        assert server.chats[-1].json["model"] == "bigger-toy"


async def test_another_server_is_used_by_its_address(drive: Drive, server: ToyServer) -> None:
    async with ToyServer(model="elsewhere") as other, drive() as app:
        await app.press("ctrl+l")
        await app.opens("ModelPicker")
        await app.type(other.url)
        await app.press("enter")
        await app.until(lambda: "elsewhere" in app.lines[0])
        await app.say("hi")
        assert (server.posts, other.posts) == (0, 1)


async def test_thinking_goes_through_its_three_states(drive: Drive, server: ToyServer) -> None:
    async with drive() as app:
        states = []
        for _ in range(3):
            said = len(app.notices)
            await app.press("ctrl+t")
            await app.until(lambda said=said: len(app.notices) > said)
            states.append(app.conversation.record.template_options.get("enable_thinking"))
        assert states == [True, False, None]
        assert app.notices[0] == "Thinking on, if this model has the switch"


# -- the server


async def test_acts_on_branches_ask_before_they_leave_this_machine_too(
    drive: Drive, server: ToyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with drive() as app:
        id = await app.begin("said here")
    monkeypatch.setattr("kvchat.backends.http.endpoint.classify", lambda _address: HostClass.CLOUD)
    async with drive(conversation=id) as app:
        await app.select(1)
        await app.press("r")
        await app.opens("ConfirmScreen")
        await app.press("n")
        await app.closes()
        await app.press("e")
        await app.until(lambda: app.draft == "said here")
        await app.type("!")
        await app.press("enter")
        await app.opens("ConfirmScreen")
        await app.press("escape")
        await app.closes()
        assert app.draft == "said here!"
        assert (server.posts, app.said) == (1, ["said here", "Hello"])


# -- settings, themes, the disk


async def test_what_is_wrong_in_the_settings_is_said_and_the_app_runs(drive: Drive) -> None:
    config = find().config
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text('theme = "no-such-theme"\nenter_sends = "maybe"\n[keys]\nnew = "f4"\n')
    (config.parent / "themes").mkdir()
    (config.parent / "themes" / "broken.toml").write_text("name = [")
    settings, problems = load(config)
    async with drive(settings=settings, notices=map(str, problems)) as app:
        await app.until(lambda: app.noticed("broken.toml"))
        for words in ("no-such-theme", "enter_sends", "broken.toml", "keys.new"):
            assert app.noticed(words), words
        assert app.app.theme == "kvchat-night"
        await app.say("hi")
        assert app.shown == ["hi", "Hello"]


async def test_changed_keys_work_and_stand_in_the_footer(drive: Drive) -> None:
    config = find().config
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text('[keys]\nexport = "alt+y, alt+x"\nhelp = "f11"\n"transcript.copy" = "c"\n')
    settings, problems = load(config)
    async with drive(settings=settings, notices=map(str, problems)) as app:
        assert app.notices == []
        await app.until(lambda: "Alt+Y export" in app.lines[-1] and "F11 help" in app.lines[-1])
        await app.press("f4")
        assert app.front == "ChatScreen"
        await app.press("alt+y")
        await app.opens("ExportScreen")
        await app.press("escape")
        await app.closes()
        await app.press("f11")
        await app.opens("HelpScreen")
        await app.type("export")
        await app.until(lambda: "Alt+Y, Alt+X" in app.text)
        await app.press("escape")
        await app.closes()
        await app.begin("one")
        await app.select(0)
        await app.press("c")
        await app.until(lambda: app.noticed("Message copied to"))
        assert app.app.clipboard == "one"


OTHER_KEYS = {
    "composer.messages": "f11",
    "composer.enter": "alt+s",
    "composer.newline": "alt+n",
    "stop": "alt+z",
    "transcript.continue": "x",
    "transcript.regenerate": "z",
    "transcript.copy": "w",
    "transcript.edit": "q",
    "transcript.sibling_previous": "comma",
    "transcript.sibling_next": "full_stop",
}
"""Other keys for what texts on the main screen name."""


async def test_texts_name_the_users_own_keys(drive: Drive, server: ToyServer) -> None:
    settings = changed(Settings(), "keys", OTHER_KEYS)
    async with drive(settings=settings, size=(100, 32)) as app:
        assert app.notices == []
        await app.until(lambda: "F11 to the messages · @ attaches a file" in app.text)
        assert "alt+s send · alt+n newline" in app.text
        server.on_chat(tokens("Once", " upon", finish="length"))
        await app.write("a story")
        await app.press("alt+s")
        await app.until(lambda: "▲ Cut at max tokens (2) · F11, then x continue · z retry" in app.text)
        await app.settled()
        await app.press("f11", "z")
        await app.until(lambda: "2/2  , ." in app.text)
        await app.settled()
        await app.press("up", "q")
        await app.until(lambda: "editing, on a new branch · Alt+Z cancels" in app.text)
        await app.write("@")
        await app.press("alt+z")
        await app.until(lambda: "editing" not in app.text)
        server.on_chat(error(500, "broken"))
        await app.write("more")
        await app.press("alt+s")
        await app.until(lambda: "F11, then z retry   w copy" in app.text)
        server.on_chat(tokens("Half", hang_after=1))
        for text in ("a", "b"):
            await app.write(text)
            await app.press("alt+s")
        await app.until(lambda: "Half" in app.text and "queued 1  b" in app.text)
        await app.press("alt+z")
        await app.until(lambda: "Queue held: answer stopped · Alt+S sends · ↑ edits" in app.text)
        assert "■ Stopped · F11, then x continue" in app.text
        app.chat.settings.take(Settings())
        await app.until(lambda: "■ Stopped · Tab, then c continue" in app.text)
        assert "enter send · ^J newline" in app.text


async def test_enter_may_make_new_lines(drive: Drive, server: ToyServer) -> None:
    config = find().config
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text("enter_sends = false\n")
    settings, _ = load(config)
    async with drive(settings=settings) as app:
        await app.write("a")
        await app.press("enter", "b")
        assert (app.draft, server.posts) == ("a\nb", 0)
        await app.press("ctrl+j")
        await app.until(lambda: app.said[:1] == ["a\nb"])


async def test_a_chosen_theme_is_kept(drive: Drive) -> None:
    config = find().config
    async with drive() as app:
        await app.run("theme")
        await app.opens("ThemeScreen")
        before = app.app.theme
        await app.press("down", "down")
        await app.until(lambda: app.app.theme != before)
        assert "It turned 112 times" in app.text, "a conversation shows how it looks"
        await app.press("escape")
        await app.until(lambda: app.app.theme == before)
        assert not config.exists(), "what was only looked at is not kept"
        await app.run("theme")
        await app.opens("ThemeScreen")
        await app.type("kvchat-day")
        await app.until(lambda: app.app.theme == "kvchat-day")
        await app.press("enter")
        await app.closes()
        await app.until(lambda: app.app.theme == "kvchat-day")
        await app.until(config.exists)
        assert tomllib.loads(config.read_text())["theme"] == "kvchat-day"
    settings, problems = load(config)
    assert not problems
    async with drive(settings=settings) as app:
        assert app.app.theme == "kvchat-day"


@pytest.mark.parametrize(("before", "meanwhile"), [("kvchat-day", "kvchat-day"), ("kvchat-paper", "kvchat-night")])
async def test_the_terminals_own_colours_replace_ours_once_it_answers(
    drive: Drive, before: str, meanwhile: str
) -> None:
    async with drive(settings=changed(Settings(), "theme", before)) as app:
        await app.command("/theme auto")
        await app.until(lambda: app.app.themes.follows_terminal)
        assert app.app.theme == meanwhile
        app.app.post_message(Background("rgb:ffff/ffff/ffff"))
        await app.until(lambda: app.app.theme == "kvchat-day")


async def test_settings_that_cannot_be_written_are_said(drive: Drive) -> None:
    config = find().config
    config.parent.rmdir()
    config.parent.write_text("a file where the folder should be")
    async with drive() as app:
        await app.command("/theme kvchat-day")
        await app.until(lambda: app.notices)
        assert app.noticed("config")
        assert app.app.theme == "kvchat-day"


async def test_every_theme_of_ours_draws_the_conversation(drive: Drive, server: ToyServer) -> None:
    server.on_chat(tokens("| a | b |\n|---|---|\n| 1 | 2 |\n\n```python\nx = 1\n```\n\n> quoted, *soft*\n"))
    async with drive() as app:
        await app.begin("show everything")
        names = [name for name in app.app.available_themes if name.startswith("kvchat")]
        assert len(names) >= 6
        seen = set()
        for name in names:
            app.app.theme = name
            await app.rest()
            assert "x = 1" in app.text
            assert "show everything" in app.text
            seen.add(app.app.export_screenshot().replace(name, ""))
        assert len(seen) == len(names)


async def test_the_mouse_opens_conversations_and_presses_the_keys_of_the_footer(drive: Drive) -> None:
    async with drive() as app:
        await app.begin("older")
        await app.begin("newer")
        row = next(at for at, line in enumerate(app.lines) if " older" in line)
        await app.pilot.click(offset=(5, row))
        await app.until(lambda: app.shown == ["older", "Hello"])
        await app.pilot.click(offset=(app.lines[-1].index("F4"), len(app.lines) - 1))
        await app.opens("ExportScreen")


async def test_the_list_gives_way_in_a_narrow_terminal(drive: Drive) -> None:
    async with drive(size=(120, 30)) as app:
        await app.begin("one")

        async def resized(columns: int, *, listed: bool) -> None:
            await app.pilot.resize_terminal(columns, 30)
            await app.until(lambda: app.chat.size.width == columns)
            await app.until(lambda: (app.chat.sidebar.display and " one" in app.listed) is listed)
            assert app.app.screen.focused is not None

        await app.focus_sidebar()
        await resized(80, listed=False)
        await app.press("f3")
        assert app.chat.sidebar.display and " one" in app.listed
        await resized(120, listed=True)
        await app.press("f3")
        await resized(80, listed=False)
        await resized(120, listed=False)


async def test_all_that_a_start_has_to_say_is_on_the_screen(drive: Drive) -> None:
    sentences = [f"Problem {number} is a word wrong." for number in range(1, 9)]
    async with drive(notices=sentences[:2], toasts=True) as app:
        await app.until(lambda: all(sentence in app.text for sentence in sentences[:2]))
    async with drive(notices=sentences, toasts=True) as app:
        await app.until(lambda: "And 2 more." in app.text and sentences[0] in app.text)
