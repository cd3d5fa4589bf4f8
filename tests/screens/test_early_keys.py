"""What is typed before the conversation is open, or before a dialog is there, goes where it was meant to go."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
from app_kit import Drive, Driven
from test_keys import MODALS, in_place, scene
from textual import events
from textual.keys import _character_to_key

from kvchat.commands.actions import BY_ID
from kvchat.commands.editor import OutsideText
from kvchat.prompt.drafts import decoded
from kvchat.reports.cache_report import KeptRoom
from kvchat.store import Store
from kvchat.ui.app import KvchatApp
from toyserver import ToyServer

pytestmark = pytest.mark.slow


def typed(app: KvchatApp, *keys: str) -> None:
    """Type keys, and a text where there is no such key, as they come in one read."""
    for key in keys:
        for name in [key] if len(key) > 1 and " " not in key and not key.isupper() else key:
            app.post_message(events.Key(_character_to_key(name), name) if len(name) == 1 else events.Key(name, None))


def type_early(monkeypatch: pytest.MonkeyPatch, *keys: str) -> None:
    """Have these typed into the first frame, and dealt with, before the conversation is opened."""
    begin = KvchatApp._begin

    async def late(app: KvchatApp) -> None:
        typed(app, *keys)
        for _ in range(3):
            for widget in app.chat.walk_children(with_self=True):
                await _emptied(widget.call_later)
        await begin(app)

    monkeypatch.setattr(KvchatApp, "_begin", lambda app: app.run_worker(late(app)))


async def _emptied(call_later: Callable[..., bool]) -> None:
    done = asyncio.Event()
    if call_later(done.set):
        await done.wait()


@pytest.fixture
async def stored(drive: Drive) -> None:
    """A conversation with a draft."""
    async with drive() as app:
        await app.say("first")
        await app.write("a draft")
        await app.until(lambda: decoded(app.conversation.draft).text == "a draft")


async def test_what_is_typed_into_the_first_frame_follows_the_draft(
    drive: Drive, stored: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    type_early(monkeypatch, " ", "O", "N", "E", "home", "X")
    async with drive(continue_=True) as app:
        await app.until(lambda: app.draft == "Xa draft ONE")


async def test_an_early_enter_sends_when_the_conversation_is_open(
    drive: Drive, stored: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    type_early(monkeypatch, " ", "T", "W", "O", "enter", "N", "E", "X", "T")
    async with drive(continue_=True) as app:
        await app.until(lambda: len(app.said) == 4)
        await app.settled()
        assert app.said == ["first", "Hello", "a draft TWO", "Hello"]
        assert app.draft == "NEXT"


async def test_an_early_mention_counts_as_typed(drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    type_early(monkeypatch, "@", "A")
    async with drive() as app:
        await app.until(lambda: app.draft == "@A")
        assert not app.chat.composer.spans


async def test_an_early_paste_stays_one(drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = KvchatApp._begin

    async def late(app: KvchatApp) -> None:
        app.post_message(events.Paste("@a\npasted "))
        typed(app, "X")
        await begin(app)

    monkeypatch.setattr(KvchatApp, "_begin", lambda app: app.run_worker(late(app)))
    async with drive() as app:
        await app.until(lambda: app.draft == "@a\npasted X")
        assert app.chat.composer.spans


async def test_an_early_key_of_a_screen_opens_it_over_the_conversation(
    drive: Drive, stored: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    type_early(monkeypatch, "f12", "T", "I", "T", "L", "E", "enter", "M", "O", "R", "E")
    async with drive(continue_=True) as app:
        await app.until(lambda: app.conversation.record.title == "TITLE")
        assert app.draft == "a draftMORE"


async def test_an_early_quit_keeps_what_was_typed(
    tmp_path: Path, drive: Drive, stored: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    type_early(monkeypatch, "Z", "ctrl+q")
    async with drive(continue_=True) as app:
        await app.until(lambda: app.app.return_value == 0)
    store = Store.open(tmp_path / "data")
    assert [decoded(draft).text for draft in store.drafts().values()] == ["a draftZ"]
    store.close()


async def test_the_first_run_takes_no_letter_from_the_composer(drive: Drive) -> None:
    async with drive(server=None) as app:
        await app.until(lambda: app.chat.query("WelcomePanel:focus"))
        typed(app.app, "h", "e", "y")
        await app.until(lambda: app.draft == "hey")
        assert app.chat.composer.has_focus_within


# -- dialogs


def ways(app: Driven, id: str) -> dict[str, list[str]]:
    """What is typed to open a screen: each key, and the slash command."""
    action = BY_ID[id]
    found = {key: [key] for key in action.key_list}
    return found | ({f"/{action.slash}": [*f"/{action.slash} ", "enter"]} if action.slash else {})


@pytest.mark.slow
async def test_escape_in_the_same_read_closes_the_screen_that_a_key_opens(drive: Drive, server: ToyServer) -> None:
    async with scene(drive, server) as app:
        await app.streaming()
        for id, screen in MODALS.items():
            for name, keys in ways(app, id).items():
                opened = watch(app)
                await in_place(app, id)
                if name.startswith("/"):
                    app.chat.composer.focus()
                    await app.rest()
                typed(app.app, *keys, "escape")
                await app.until(lambda opened=opened, screen=screen: opened == [screen])
                await app.closes()
                assert (opened, app.draft) == ([screen], ""), name
                assert app.service.conversations.streaming(), f"{name}, Esc stopped the answer"


async def test_escape_waits_for_a_list_whose_rows_are_still_looked_up(
    drive: Drive, server: ToyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scene(drive, server) as app:
        await app.streaming()
        kept = app.service.kept
        room = kept.room

        async def late() -> KeptRoom:
            await asyncio.sleep(0.3)
            return await room()

        monkeypatch.setattr(kept, "room", late)
        opened = watch(app)
        typed(app.app, "ctrl+s", "escape")
        await app.until(lambda: opened == ["ConversationPicker"])
        await app.closes()
        assert app.service.conversations.streaming(), "Esc stopped the answer"


def watch(app: Driven) -> list[str]:
    """The screens that are opened from now on."""
    opened: list[str] = []
    app.app.screen_change_signal.unsubscribe(app.app)
    known = set(app.app.screen_stack)

    def changed(screen: object) -> None:
        if screen not in known:
            known.add(screen)  # type: ignore[arg-type]
            opened.append(type(screen).__name__)

    app.app.screen_change_signal.subscribe(app.app, changed)
    return opened


async def test_what_follows_a_key_is_typed_into_the_screen_that_it_opens(drive: Drive) -> None:
    async with drive() as app:
        await app.begin("one")
        typed(app.app, "f12", "A", "B", "enter", "C")
        await app.until(lambda: app.conversation.record.title == "AB")
        assert app.draft == "C"
        await app.select(-1)
        typed(app.app, "D", "E")
        await app.until(lambda: app.draft == "CDE")
        typed(app.app, "ctrl+n", "F")
        await app.until(lambda: app.draft == "F")
        assert app.said == []
        typed(app.app, "ctrl+p", *"Parameters", "escape", "G")
        await app.until(lambda: app.draft == "FG")


async def test_what_follows_the_key_of_the_editor_waits_for_its_end(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvchat.ui.key_queue.PATIENCE_S", 0.0)
    ends, began = asyncio.Event(), asyncio.Event()

    async def edited(outside: OutsideText, command: str, keep: object) -> None:
        began.set()
        await ends.wait()
        outside.path.write_text(outside.path.read_text() + " edited")

    monkeypatch.setattr("kvchat.commands.editor.OutsideText.edit", edited)
    async with drive() as app:
        monkeypatch.setattr(app.app, "suspend", nullcontext)
        typed(app.app, "A", "ctrl+g", "B")
        await began.wait()
        await app.rest()
        assert app.draft == "A"
        ends.set()
        await app.until(lambda: app.draft == "A editedB")


async def test_escape_closes_a_dialog_whose_price_is_not_known_yet(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvchat.ui.key_queue.PATIENCE_S", 0.0)
    known = asyncio.Event()
    async with drive() as app:
        await app.begin("one", "two")
        exact = app.service.prices.exact

        async def slow(*arguments: object) -> object:
            await known.wait()
            return await exact(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(app.service.prices, "exact", slow)
        await app.streaming()
        await app.select(0)
        before = app.said
        await app.press("d", "escape")
        known.set()
        await app.rest()
        assert app.service.conversations.streaming() and app.said == before
        assert app.front == "ChatScreen"


async def test_what_is_typed_while_a_backup_is_made_is_there_at_once(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go, ended = threading.Event(), threading.Event(), threading.Event()

    def slow(store: Store) -> None:
        begun.set()
        go.wait(30)
        ended.set()

    monkeypatch.setattr(Store, "backup_if_due", slow)
    monkeypatch.setattr("kvchat.ui.app.HOUSEKEEPING_SECONDS", 0.01)
    async with drive() as app:
        await asyncio.to_thread(begun.wait, 60)
        typed(app.app, *"lamp")
        await app.until(lambda: app.draft == "lamp")
        assert not ended.is_set()
        go.set()
