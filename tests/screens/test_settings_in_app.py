"""The settings screen: every setting found, changed in place, saved with comments kept, and in force at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from app_kit import Drive, Driven
from textual.widgets._toast import Toast

from kvchat.config import load
from kvchat.config.edit import save_setting
from kvchat.config.settings import OPTIONS
from kvchat.paths import find
from toyserver import ToyServer, tokens

pytestmark = pytest.mark.slow

MINE = "# mine\nsidebar = true  # the list\n\n[memory]  # what is kept\nrecall = true\n"


@pytest.fixture
def file() -> Path:
    path = find().config
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(MINE)
    return path


async def found(app: Driven, name: str) -> None:
    """The settings screen with the cursor on the setting of this name."""
    await app.command(f"/settings {name}")
    await app.opens("SettingsScreen")
    await app.until(lambda: any("▌" in line and f" {name} " in line for line in app.lines))


@pytest.mark.slow
async def test_every_setting_is_there_with_its_words(drive: Drive, file: Path) -> None:
    async with drive(size=(128, 40)) as app:
        for option in OPTIONS:
            if option.name == "keys":
                continue
            await app.command(f"/settings {option.path}")
            await app.opens("SettingsScreen")
            await app.until(lambda option=option: " ".join(option.spec.doc.split()) in app.prose)
            await app.press("escape")
            await app.closes()


async def test_a_switch_is_saved_and_in_force_at_once(drive: Drive, file: Path) -> None:
    async with drive() as app:
        assert app.chat.sidebar.display
        await found(app, "sidebar")
        assert "config.toml:2" in app.prose
        await app.press("enter")
        await app.until(lambda: "Saved." in app.prose)
        assert file.read_text() == MINE.replace("sidebar = true", "sidebar = false")
        assert not app.chat.sidebar.display
        await app.press("delete")
        await app.until(lambda: app.chat.sidebar.display)
        assert file.read_text() == MINE.replace("sidebar = true  # the list\n", "")


async def test_what_is_changed_works_in_the_running_app(drive: Drive, file: Path) -> None:
    async with drive() as app:
        await found(app, "enter_sends")
        await app.press("enter")
        await app.until(lambda: not app.chat.composer.enter_sends)
        await app.press("escape")
        await app.closes()
        app.chat.composer.enter_sends = True
        await found(app, "time_stamp_minutes")
        await app.press("enter", "backspace", "backspace", "7", "enter")
        await app.until(lambda: app.service.settings.time_stamp_minutes == 7)
        await app.press("escape")
        await found(app, "keys.export")
        await app.press("enter")
        await app.type(",f11")
        await app.press("enter")
        await app.until(lambda: "Saved." in app.prose)
        await app.press("escape")
        await app.closes()
        await app.press("f11")
        await app.opens("ExportScreen")
        assert load(file)[0].keys == {"export": "f4,f11"}


async def test_reasoning_that_is_on_the_screen_is_unfolded_at_once(drive: Drive, file: Path, server: ToyServer) -> None:
    server.on_chat(tokens("Yes.", reasoning=("A deep thought.",)))
    async with drive() as app:
        await app.begin("hello")
        assert "A deep thought." not in app.text
        await found(app, "show_reasoning")
        await app.press("enter")
        await app.until(lambda: "Saved." in app.prose)
        await app.press("escape")
        await app.closes()
        await app.until(lambda: "A deep thought." in app.text)


async def test_a_theme_is_chosen_among_its_words(drive: Drive, file: Path) -> None:
    async with drive() as app:
        await found(app, "theme")
        await app.press("enter", "right", "enter")
        await app.until(lambda: "Saved." in app.prose)
        chosen = load(file)[0].theme
        assert app.app.theme == chosen != "auto" and f'theme = "{chosen}"' in file.read_text()


@pytest.mark.parametrize("theme", ["kvchat-day", "kvchat-paper", "kvchat-night", "kvchat-ember"])
async def test_a_notice_stands_out_from_the_page(drive: Drive, theme: str) -> None:
    async with drive(toasts=True) as app:
        app.app.theme = theme
        app.chat.workspace.say("Copied")
        await app.until(lambda: "Copied" in app.text)
        _, tint = app.app.screen.query_one(Toast).background_colors
        assert abs(tint.brightness - app.chat.background_colors[1].brightness) > 0.04


async def test_what_is_read_at_the_start_says_so_and_leaves_the_run_alone(drive: Drive, file: Path) -> None:
    async with drive() as app:
        before = app.service.settings.server
        await found(app, "server.timeout")
        assert "read when kvchat starts" in app.prose
        await app.press("enter", "backspace", "9", "enter")
        await app.until(lambda: "Saved; read when kvchat starts." in app.prose)
        assert load(file)[0].server.timeout == 9 and app.service.settings.server is before


async def test_vision_is_in_force_at_once(drive: Drive, file: Path) -> None:
    async with drive() as app:
        await found(app, "server.vision")
        assert "read when kvchat starts" not in app.prose
        await app.press("enter", "right", "enter")
        await app.until(lambda: "Saved." in app.prose)
        assert load(file)[0].server.vision == app.service.settings.server.vision == "yes"
        assert app.service.servers.link().connector.server.vision == "yes"


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("Ctrl+PgDn", "keys.next"),
        ("Ctrl+]", "keys.jump"),
        ("/exit", "keys.quit"),
        ("/clear", "keys.new"),
        ("Another answer", "keys.transcript.regenerate"),
        ("Messages fold", "keys.transcript.fold"),
    ],
)
async def test_keys_are_found_by_the_words_of_the_help(drive: Drive, file: Path, words: str, name: str) -> None:
    async with drive(size=(128, 40)) as app:
        await app.command(f"/settings {words}")
        await app.opens("SettingsScreen")
        await app.until(lambda: any(f" {name} " in line for line in app.lines))


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("time_stamp_minutes", "soon", "time_stamp_minutes must be a whole number."),
        ("time_stamp_minutes", "0", "time_stamp_minutes must be from 1 to 10080."),
        ("server.base_url", "here", 'server.base_url must be an address such as "http://127.0.0.1:9931".'),
        ("parameters.extra", "{model = 1}", "parameters.extra.model cannot be set: kvchat sends this field itself."),
        ("keys.new", "ctrl+s", "keys.new: Ctrl+S already means List (list)."),
    ],
)
async def test_what_is_wrong_is_said_at_the_field_and_nothing_is_saved(
    drive: Drive,
    file: Path,
    name: str,
    text: str,
    sentence: str,
) -> None:
    async with drive(size=(60, 20)) as app:
        await found(app, name)
        await app.press("enter", *["backspace"] * 8)
        await app.type(text)
        await app.press("enter")
        await app.until(lambda: sentence in " ".join(app.prose.replace("─", " ").split()))
        assert file.read_text() == MINE
        await app.press("escape")
        await app.until(lambda: sentence not in app.prose)
        assert app.front == "SettingsScreen"


async def test_what_the_environment_gives_says_so_and_stays(
    drive: Drive,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KVCHAT_MEMORY_RECALL", "false")
    async with drive() as app:
        await found(app, "memory.recall")
        for key in ("enter", "delete"):
            await app.press(key)
            await app.until(lambda: "KVCHAT_MEMORY_RECALL gives it in this run, and" in app.prose)
        assert file.read_text() == MINE


async def test_a_change_of_another_window_is_not_undone(drive: Drive, file: Path) -> None:
    async with drive() as app:
        await found(app, "notify")
        save_setting(file, "cache.compact_at", 70)  # the other window, after this one has looked
        await app.press("enter")
        await app.until(lambda: "Saved." in app.prose)
        settings = load(file)[0]
        assert (settings.notify, settings.cache.compact_at) == (False, 70)
        assert app.service.settings.cache.compact_at == 70
        await app.press("escape")
        await app.closes()
        save_setting(file, "sidebar", False)
        await found(app, "sidebar")
        assert not app.chat.sidebar.display, "what is listed is in force"


async def test_a_broken_file_is_told_with_its_place_and_left(drive: Drive, file: Path) -> None:
    file.write_text("sidebar = yes  # my words\n")
    async with drive() as app:
        await found(app, "notify")
        await app.press("enter")
        await app.until(lambda: "notify is not saved: config.toml:1:11: not valid TOML" in app.prose)
        assert file.read_text() == "sidebar = yes  # my words\n"


async def test_a_mistake_in_the_file_stands_at_its_setting(drive: Drive, file: Path) -> None:
    file.write_text(MINE + '[engine]\nslots = "two"\n')
    async with drive() as app:
        await found(app, "engine.slots")
        assert "config.toml:7:1: engine.slots must be a whole number, not a text; the default, 1, is used" in app.prose


async def test_the_values_of_headers_are_neither_shown_nor_lost(drive: Drive, file: Path) -> None:
    file.write_text('[server.headers]\nX-Team = "hush"\n')
    async with drive() as app:
        await found(app, "server.headers")
        await app.press("enter")
        await app.until(lambda: "Its values are not shown. They are changed in the file." in app.prose)
        assert "X-Team (values not shown)" in app.prose and "hush" not in app.text


async def test_what_is_said_while_memory_is_switched_off_is_never_gone_through(drive: Drive, file: Path) -> None:
    async with drive() as app:
        app.service.jobs.enabled = True
        await found(app, "memory.enabled")
        await app.press("enter")
        await app.until(lambda: not app.service.settings.memory.enabled)
        await app.press("escape")
        await app.closes()
        await app.begin("I live in Lisbon.")
        await found(app, "memory.enabled")
        await app.press("enter")
        await app.until(lambda: app.service.settings.memory.enabled)
        await app.service.core.rest()
        assert await app.service.extraction.queue() == []
