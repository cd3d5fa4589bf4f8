"""Memory in the whole app: noted after an answer, told at the edge, looked at, changed, taken back; files on a disk."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest
from app_kit import Drive, Driven, driving

from kvchat.chat.background import jobs
from kvchat.chat.events import MemoriesChanged, MemoriesNoted
from kvchat.config import Settings, changed
from kvchat.memory.entry import PROFILE, Entry, Status
from kvchat.ui.screens.kit.manager import ManagerScreen
from kvchat.ui.screens.memory.source import MemorySource
from toyserver import Answer, ToyServer, Visit, tokens

pytestmark = pytest.mark.slow

SAID = "I keep a lighthouse on Hvar and I prefer metric units."
FACTS = (
    {"turns": [1], "text": "I prefer metric units.", "kind": "preference", "topic": "", "confidence": 0.9},
    {"turns": [1], "text": "I keep a lighthouse on Hvar.", "kind": "identity", "topic": "", "confidence": 0.9},
)


@pytest.fixture(autouse=True)
def nobody_types(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key pressed by a test was long ago."""
    monkeypatch.setattr(jobs, "TYPING_S", 0.0)


def at_once(server: ToyServer) -> Settings:
    """Settings with which a conversation is gone through right after an answer."""
    settings = changed(Settings(), "server.base_url", server.url)
    for name, value in (("every_messages", 2), ("worth_tokens", 0), ("rest_seconds", 0), ("consolidate", False)):
        settings = changed(settings, f"memory.{name}", value)
    return settings


def noting(*facts: object) -> Answer:
    """A server that answers questions, and finds these facts when it is asked for facts."""
    answer, found = tokens("Hello"), tokens(json.dumps({"facts": facts}))

    async def either(visit: Visit) -> None:
        await (found if b'"response_format"' in visit.body else answer)(visit)

    return either


async def entries(app: Driven, status: Status = Status.LIVE) -> list[Entry]:
    return await app.service.memory.with_memories(lambda book: book.entries(status))


async def texts(app: Driven, status: Status = Status.LIVE) -> list[str]:
    return sorted(entry.text for entry in await entries(app, status))


async def shows(app: Driven, words: str) -> None:
    await app.until(lambda: words in app.prose)


async def looks(app: Driven) -> MemorySource:
    """Open the memory and wait for what it shows."""
    await app.press("f5")
    await app.opens("ManagerScreen")
    screen = app.app.screen
    assert isinstance(screen, ManagerScreen) and isinstance(screen.source, MemorySource)
    source = screen.source
    await app.until(lambda: source.overview is not None)
    return source


def pages(data: Path) -> str:
    """The profile and the topics, without the diary of what was noted."""
    folder = data / "memory"
    return "\n".join(path.read_text() for path in (*sorted(folder.glob("*.md")), *sorted(folder.glob("topics/*.md"))))


# -- noted by itself


async def test_what_was_said_is_noted_told_quietly_and_found_on_the_screen(
    drive: Drive,
    server: ToyServer,
    tmp_path: Path,
) -> None:
    server.on_chat(noting(*FACTS))
    async with drive(settings=at_once(server), background=True) as app:
        await app.begin()
        home = app.conversation.id
        await app.say(SAID)
        await shows(app, "memory: 1 noted, 1 to confirm (F5)")
        assert app.front == "ChatScreen" and not any("noted" in notice for notice in app.notices)
        await looks(app)
        await shows(app, "Pending approval · 1 proposal")
        assert "I prefer metric units." in app.prose and "I keep a lighthouse on Hvar." in app.prose
        assert " new " in next(line for line in app.lines if "metric units" in line)
        assert "I prefer metric units." in pages(tmp_path / "data") and "lighthouse" not in pages(tmp_path / "data")
        await app.press("y")
        await shows(app, "Taken, into profile.md")
        assert "lighthouse" in (tmp_path / "data" / "memory" / PROFILE).read_text()
        await app.press("escape")
        await app.closes()
        assert "memory:" not in app.prose
        await app.begin("something else")
        await looks(app)
        await app.press("end", "s")
        await app.until(lambda: app.front == "ChatScreen" and app.conversation.id == home)
        await app.until(lambda: app.selected == SAID)


async def test_all_that_was_noted_in_the_session_is_taken_back_after_one_question(
    drive: Drive,
    server: ToyServer,
    tmp_path: Path,
) -> None:
    server.on_chat(noting(*FACTS))
    async with drive(settings=at_once(server), background=True) as app:
        await app.command("/remember The lamp has a red glass.")
        await app.until(lambda: app.noticed("Remembered"))
        await app.say(SAID)
        await shows(app, "memory: 1 noted, 1 to confirm")
        await looks(app)
        await app.press("U")
        await app.opens("ConfirmScreen")
        await shows(app, "This takes back 2 changes that kvchat made to your memory by itself.")
        await app.press("s")
        await shows(app, "Took back 2 changes.")
        assert await texts(app) == ["The lamp has a red glass."] and await texts(app, Status.PENDING) == []
        assert "metric" not in pages(tmp_path / "data")


async def test_an_answer_of_no_use_stands_in_the_queue_with_its_reason(drive: Drive, server: ToyServer) -> None:
    async def either(visit: Visit) -> None:
        await tokens("I cannot do that." if b'"response_format"' in visit.body else "Hello")(visit)

    server.on_chat(either)
    async with drive(settings=at_once(server), background=True) as app:
        await app.begin()
        await app.say(SAID)
        await app.until(lambda: any(job.attempts for job in app.service.jobs.all()))
        await looks(app)
        await app.press("tab")
        await shows(app, "2 messages · 1 attempt")
        await shows(app, "Because: ")


async def test_what_is_noted_in_several_goes_is_counted_until_it_is_looked_at(drive: Drive) -> None:
    async with drive() as app:
        await app.begin("one")
        for ids, proposed in ((("a", "b"), ()), (("b", "c"), ("d",))):
            app.service.events.tell(MemoriesNoted(app.conversation.id, ids, proposed))
        await shows(app, "memory: 3 noted, 1 to confirm (F5)")
        await app.begin("two")
        assert "memory: 3 noted, 1 to confirm (F5)" in app.prose
        await looks(app)
        await app.press("escape")
        await app.closes()
        assert "memory:" not in app.prose


# -- by the person


async def test_remember_writes_it_into_a_file_and_f5_shows_it(drive: Drive, tmp_path: Path) -> None:
    async with drive() as app:
        await app.begin("one")
        await app.command("/remember I take my tea without sugar.")
        await app.until(lambda: app.noticed("Remembered: “I take my tea without sugar.” · F5 shows it"))
        assert "- I take my tea without sugar." in pages(tmp_path / "data")
        assert app.draft == ""
        await looks(app)
        assert "I take my tea without sugar." in app.prose
        assert str(tmp_path / "data" / "memory").replace(str(Path.home()), "~")[-20:] in app.text


async def test_remember_without_words_asks_for_them(drive: Drive) -> None:
    async with drive() as app:
        await app.begin("one")
        await app.command("/remember")
        await app.opens("ManagerScreen")
        await app.type("Oil is ordered on Mondays.")
        await app.press("enter")
        await shows(app, "Remembered, in topics/")
        assert await texts(app) == ["Oil is ordered on Mondays."]


async def remembered(app: Driven, *sentences: str) -> None:
    for sentence in sentences:
        await app.service.memory.remember(sentence)


async def test_forget_deletes_the_one_memory_that_is_meant_and_f5_u_brings_it_back(
    drive: Drive,
    tmp_path: Path,
) -> None:
    async with drive() as app:
        await app.begin("one")
        await remembered(app, "I take my tea without sugar.", "The lamp has a red glass.")
        await app.command("/forget tea sugar")
        await app.until(lambda: app.noticed("Forgotten: “I take my tea without sugar.” · F5, u brings it back"))
        assert await texts(app) == ["The lamp has a red glass."] and "tea" not in pages(tmp_path / "data")
        await looks(app)
        await app.press("u")
        await shows(app, "Remembered again: “I take my tea without sugar.”")
        assert "- I take my tea without sugar." in pages(tmp_path / "data")


async def test_forget_shows_what_is_meant_where_that_is_not_one(drive: Drive) -> None:
    async with drive() as app:
        await app.begin("one")
        await remembered(app, "Tea without sugar.", "Tea at five.", "The teapot is blue.", "The lamp is red.")
        await app.command("/forget tea")
        await app.opens("ManagerScreen")
        await shows(app, "Tea at five.")
        assert "Tea without sugar." in app.prose and "The lamp is red." not in app.prose
        await app.press("escape", "escape")
        await app.closes()
        await app.command("/forget xylophone")
        await app.until(lambda: app.noticed("No memory has these words"))
        assert len(await entries(app)) == 4


async def test_half_a_word_never_deletes(drive: Drive) -> None:
    async with drive() as app:
        await app.begin("one")
        await remembered(app, "The teapot is blue.")
        await app.command("/forget tea")
        await app.until(lambda: app.front == "ManagerScreen" or app.noticed("No memory has these words"))
        assert await texts(app) == ["The teapot is blue."]


TOLD = "Memory notes facts after answers"


async def test_that_memory_will_run_is_said_once_in_an_installation_with_the_key_to_switch_it_off(
    drive: Drive,
    server: ToyServer,
) -> None:
    async with drive(background=True) as app:
        await app.begin()
        assert not app.noticed(TOLD)
        await app.say("One")
        await app.until(lambda: app.noticed(TOLD))
        assert [notice for notice in app.notices if TOLD in notice] == [f"{TOLD} · F5, then o turns it off"]
        await app.begin()
        await app.say("Two")
        await looks(app)
        await app.press("o")
        await shows(app, "off in this conversation o")
    async with drive(background=True) as app:
        await app.begin()
        await app.say("Three")
        await app.until(lambda: app.service.jobs.all())
        assert not app.noticed(TOLD)


@pytest.mark.parametrize("how", ["incognito", "settings", "conversation"])
async def test_that_memory_is_off_is_no_reason_to_speak_of_it(
    drive: Drive,
    server: ToyServer,
    how: str,
) -> None:
    settings = changed(changed(Settings(), "server.base_url", server.url), "memory.enabled", how != "settings")
    async with (
        driving(None, server, background=True) if how == "incognito" else drive(settings=settings, background=True)
    ) as app:
        await app.begin()
        if how == "conversation":
            await app.service.extraction.set_memory(app.conversation.id, False)
        await app.say("One", "Two")
        assert not app.noticed("Memory")


async def test_what_was_asked_outside_the_app_is_told_before_it_is_gone_through(
    drive: Drive,
    server: ToyServer,
) -> None:
    async with drive() as app:
        await app.begin("One")  # as `kvchat ask` does, nothing is done in the background
        assert not app.noticed(TOLD)
    async with drive(background=True) as app:
        await app.until(lambda: app.noticed(TOLD))


async def test_every_key_puts_off_what_is_noted_by_itself_however_short_the_rest(
    drive: Drive,
    server: ToyServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jobs, "TYPING_S", 3600.0)
    monkeypatch.setattr("kvchat.ui.widgets.composer.widget.DRAFT_DELAY", 3600.0)
    hold = asyncio.Event()
    answers = noting(*FACTS)

    async def held(visit: Visit) -> None:
        await hold.wait()
        await answers(visit)

    server.on_chat(held)
    async with drive(settings=at_once(server), background=True) as app:
        await app.begin()
        await app.write(SAID)
        await app.press("enter")
        await app.until(lambda: server.posts == 1)
        app.service.jobs.typed_at = 0.0  # the Enter was long ago
        await app.press("w", "h")
        hold.set()
        await app.settled()
        await app.until(lambda: app.service.jobs.all())
        for _ in range(20):
            await app.press("y")
        assert server.posts == 1, "it began while the person was typing"
        app.service.jobs.typed_at = 0.0
        app.service.jobs.wake()
        await shows(app, "memory: 1 noted, 1 to confirm (F5)")


async def test_memory_is_switched_off_and_on_for_a_conversation(drive: Drive) -> None:
    async with drive() as app:
        await app.begin("one")
        id = app.conversation.id
        await app.command("/memory off")
        await app.until(lambda: app.noticed("Memory is off in this conversation"))
        assert not app.service.memory.is_on(id)
        await app.command("/memory now")
        await app.until(lambda: app.noticed("Memory is off for this conversation."))
        await app.command("/memory on")
        await app.until(lambda: app.noticed("Memory is on in this conversation."))
        assert app.service.memory.is_on(id)
        await looks(app)
        await app.press("o")
        await shows(app, "off in this conversation o")
        assert not app.service.memory.is_on(id)


async def test_the_queue_has_what_was_not_gone_through_and_r_asks_for_it(drive: Drive) -> None:
    async with drive() as app:
        await app.begin("one", "two")
        await looks(app)
        await app.press("tab")
        await shows(app, "4 messages")
        await app.press("r")
        await shows(app, "It is done as soon as nothing else runs.")
        assert [(job.subject, job.why) for job in app.service.jobs.all()] == [(app.conversation.id, "asked")]


async def test_an_incognito_run_says_that_it_has_no_memory(server: ToyServer) -> None:
    async with driving(None, server) as app:
        await app.begin("one")
        await app.press("f5")
        await shows(app, "There is no memory in an incognito run.")
        await app.press("d", "e", "tab", "escape")
        await app.closes()
        await app.command("/remember x")
        await app.until(lambda: app.noticed("There is no memory in an incognito run."))
        await app.command("/memory on")
        await app.until(lambda: app.noticed("An incognito run remembers nothing."))


# -- the files


async def test_the_persons_editor_gets_the_page_at_the_line_and_what_it_wrote_is_shown(
    drive: Drive,
    tmp_path: Path,
) -> None:
    script, told = tmp_path / "nano", tmp_path / "told"
    script.write_text(
        f"#!{sys.executable}\nimport sys, pathlib\npage = pathlib.Path(sys.argv[2])\n"
        f"pathlib.Path({str(told)!r}).write_text(' '.join(sys.argv[1:]))\n"
        "lines = page.read_text().splitlines()\nat = int(sys.argv[1][1:]) - 1\n"
        "lines[at] = lines[at].replace('sugar', 'milk')\npage.write_text('\\n'.join(lines) + '\\n')\n"
    )
    script.chmod(0o755)
    settings = changed(changed(Settings(), "editor", str(script)), "server.base_url", "")
    async with drive(settings=settings) as app:
        await app.begin("one")
        await remembered(app, "Tea without sugar.", "Tea at five.")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(app.app, "suspend", nullcontext)
            source = await looks(app)
            await app.press("end" if source.entry is None or "sugar" not in source.entry.text else "home", "E")
            await shows(app, "Tea without milk.")
        page = next((tmp_path / "data/memory/topics").glob("*.md"))
        assert told.read_text().endswith(str(page)) and told.read_text().startswith("+")
        assert await texts(app) == ["Tea at five.", "Tea without milk."]


async def test_a_hand_edit_and_a_broken_page_show_while_one_looks(drive: Drive, tmp_path: Path) -> None:
    async with drive() as app:
        await app.begin("one")
        await remembered(app, "Tea without sugar.")
        page = next((tmp_path / "data/memory/topics").glob("*.md"))
        await looks(app)
        page.write_text(page.read_text() + "- Written by hand.\n")
        await app.service.memory.look()
        await shows(app, "Written by hand.")
        whole = page.read_text()
        page.write_text("---\nkind: [\n" + whole)
        await app.service.memory.look()
        app.service.events.tell(MemoriesChanged())
        await app.until(lambda: f"{page.name}:" in app.prose)
        assert "Tea without sugar." in app.prose and "Written by hand." in app.prose
        page.write_text(whole)
        await app.service.memory.look()
        app.service.events.tell(MemoriesChanged())
        await app.until(lambda: f"{page.name}:" not in app.prose)
        assert await texts(app) == ["Tea without sugar.", "Written by hand."]


@pytest.mark.parametrize("keys", [("d",), ("e", "x", "enter"), ("p",)], ids=["delete", "edit", "profile"])
async def test_what_is_done_on_the_screen_is_done_in_the_files_and_undone_there(
    drive: Drive,
    tmp_path: Path,
    keys: Sequence[str],
) -> None:
    async with drive() as app:
        await app.begin("one")
        await remembered(app, "Tea without sugar.")
        before = pages(tmp_path / "data")
        source = await looks(app)
        await app.press(*keys)
        await app.until(lambda: len(source.changes) == 2)
        assert pages(tmp_path / "data") != before
        await app.press("u")
        await app.until(lambda: len(source.changes) == 3)
        assert [(entry.text, entry.page) for entry in await entries(app)] == [
            ("Tea without sugar.", next(change.after.page for change in source.changes[2:]))
        ]
        assert "- Tea without sugar." in pages(tmp_path / "data")
