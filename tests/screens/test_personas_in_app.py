"""Beginning with a persona, and snippets in the composer."""

from __future__ import annotations

from pathlib import Path

import pytest
from app_kit import Drive

from engine_fixture import running_server
from kvchat.config import Settings, changed
from kvchat.paths import find
from kvchat.prompt.conversation import SavedPrompt
from kvchat.ui.widgets.composer.widget import Composer

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def files() -> Path:
    folder = find().config.parent
    for name, text in {
        "personas/reviewer": 'system_prompt = "You review code."\n'
        'first_message = "Review this {{language}} code: {{code}}"\n'
        "[parameters]\ntemperature = 0.2\n",
        "personas/lost": 'system_prompt = "x"\nprofile = "wrok"\n',
        "personas/broken": "model = x\n",
        "snippets/explain": 'about = "Explain something"\ntext = "Explain {{topic}} to a {{reader}}."\n',
        "snippets/brief": 'text = "Be brief."\n',
        "snippets/new": 'text = "x"\n',
    }.items():
        path = folder / f"{name}.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


async def test_a_persona_begins_a_new_conversation_and_changes_no_other(drive: Drive) -> None:
    async with drive() as app:
        first = await app.begin("hello")
        before = app.conversation.path()[0].text
        await app.command("/persona reviewer")
        await app.until(lambda: app.conversation.id != first)
        assert app.conversation.instructions == "You review code."
        assert app.conversation.record.parameters.temperature == 0.2
        await app.until(lambda: app.draft == "Review this {{language}} code: {{code}}")
        await app.type("Go")
        await app.press("tab")
        await app.type("x := 1")
        await app.press("enter")
        await app.settled()
        assert app.said[0] == "Review this Go code: x := 1"
        assert app.server is not None and app.server.chats[-1].json["temperature"] == 0.2
        system = app.server.chats[-1].json["messages"][0]["content"]
        assert system.startswith("You review code.") and "Go" not in system
        assert app.service.conversations.load(first).path()[0].text == before
        await app.press("ctrl+n")
        await app.until(lambda: app.said == [])
        assert app.conversation.instructions != "You review code."
        assert app.conversation.record.parameters.temperature is None


async def test_the_next_new_conversation_is_none_of_an_empty_personas(drive: Drive, files: Path) -> None:
    (files / "personas" / "cold.toml").write_text("[parameters]\ntemperature = 0.0\n")
    async with drive() as app:
        await app.command("/persona cold")
        await app.until(lambda: app.conversation.record.parameters.temperature == 0.0)
        await app.press("ctrl+n")
        await app.until(lambda: app.conversation.record.parameters.temperature is None)


async def test_a_saved_system_prompt_is_a_persona_too(drive: Drive) -> None:
    async with drive() as app:
        await app.service.options.save_prompt(SavedPrompt("Poet", "Answer in rhymes."))
        await app.command("/persona")
        await app.opens("BeginningScreen")
        await app.until(lambda: "Poet" in app.text and "reviewer" in app.text)
        await app.press(*"poet")
        await app.until(lambda: "reviewer" not in app.text)
        await app.press("enter")
        await app.until(lambda: app.conversation.instructions == "Answer in rhymes.")
        await app.command("/system")
        await app.opens("SystemPromptScreen")
        await app.until(lambda: "Poet" in app.text and "reviewer" in app.text)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("reviwer", "There is no persona reviwer; did you mean reviewer?"),
        ("lost", "The persona lost asks for the profile wrok, which the settings do not have."),
        ("broken", "The persona broken cannot be used: broken.toml:1:9: not valid TOML"),
    ],
)
async def test_a_persona_that_cannot_be_is_told_and_nothing_begins(drive: Drive, name: str, sentence: str) -> None:
    async with drive() as app:
        id = await app.begin("hello")
        await app.command(f"/persona {name}")
        await app.until(lambda: app.noticed(sentence))
        assert app.conversation.id == id


async def test_the_app_begins_with_a_persona(drive: Drive) -> None:
    async with drive(persona="reviewer") as app:
        assert app.conversation.instructions == "You review code."
        assert app.draft.startswith("Review this ")
        assert app.noticed("broken.toml:1:9") and app.noticed("new.toml: /new is a command")


async def test_a_persona_that_is_none_is_told_and_the_app_begins(drive: Drive) -> None:
    async with drive(persona="nobody") as app:
        assert app.noticed("There is no persona nobody.") and app.said == []


async def test_a_snippet_is_put_in_and_its_fields_filled_with_tab(drive: Drive) -> None:
    async with drive() as app:
        await app.command("/explain monads")
        await app.until(lambda: app.draft == "Explain monads to a {{reader}}.")
        await app.press("enter")
        await app.until(lambda: app.noticed("Fill in {{reader}}, or press the key again to send it as it is."))
        assert app.said == []
        await app.type("child")
        await app.press("enter")
        await app.settled()
        assert app.said[0] == "Explain monads to a child."
        await app.command("/explain")
        await app.type("a")
        await app.press("tab")
        await app.type("b")
        assert app.draft == "Explain a to a b."
        await app.press("tab")  # nothing is left to fill in: Tab goes on
        assert not app.chat.composer.has_focus_within


async def test_a_field_can_be_sent_as_it_is(drive: Drive) -> None:
    async with drive() as app:
        await app.command("/explain x")
        await app.press("enter", "enter")
        await app.settled()
        assert app.said[0] == "Explain x to a {{reader}}."


async def test_a_snippet_is_offered_with_its_words_and_a_command_stays_one(drive: Drive) -> None:
    async with drive() as app:
        await app.write("/expl")
        await app.until(lambda: "Explain something" in app.text)
        await app.press("escape", "ctrl+c")
        await app.command("/brief Why?")
        await app.until(lambda: app.draft == "Be brief.\n\nWhy?")
        await app.press("ctrl+c")
        id = await app.begin("hello")
        await app.command("/new")
        await app.until(lambda: app.conversation.id != id)
        assert isinstance(app.chat.composer, Composer) and app.draft == ""


@pytest.mark.engine
async def test_a_persona_and_changed_settings_cost_the_real_server_nothing(drive: Drive, files: Path) -> None:
    (files / "personas" / "short.toml").write_text(
        'system_prompt = "You answer in a few words."\n[parameters]\nmax_tokens = 12\ntemperature = 0.0\n'
    )
    with running_server() as engine:
        settings = changed(Settings(), "server.base_url", engine.base_url)
        async with drive(server=None, settings=settings) as app:
            await app.service.servers.connect()
            await app.command("/persona short")
            await app.until(lambda: app.conversation.instructions == "You answer in a few words.")
            await app.say("Name a colour.")
            for name in ("time_stamp", "show_reasoning"):
                await app.command(f"/settings {name}")
                await app.opens("SettingsScreen")
                await app.press("enter")
                await app.until(lambda: "Saved." in app.prose)
                await app.press("escape")
                await app.closes()
            (files / "personas" / "short.toml").write_text('system_prompt = "Other words."\n')
            await app.say("Another.", "One more.")
            figures = [node.figures for node in app.path if node.figures is not None]
            wasted = [one.wasted_tokens for one in figures]
            assert len(wasted) == 3 and all((tokens or 0) <= 1 for tokens in wasted), wasted
            assert all((one.cached_tokens or 0) > 20 for one in figures[1:])
            assert app.conversation.path()[0].text.startswith("You answer in a few words.")
