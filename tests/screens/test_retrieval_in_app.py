"""Documents while one writes, in the whole app: found for the message, mentioned, attached, changed since."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from app_kit import Drive, Driven
from textual import events

from book_samples import epub
from kvchat.chat.question.retrieval import RetrievalResult
from kvchat.documents.library import Library
from kvchat.prompt.context import FILE, PASSAGE
from kvchat.prompt.drafts import Draft
from kvchat.prompt.message import Role
from kvchat.ui.controllers.context import changed_words
from kvchat.ui.widgets.composer.context_line import ContextLine
from kvchat.ui.widgets.composer.mentions import MentionList

pytestmark = pytest.mark.slow

HANDBOOK = {
    "lamp.md": "# The lamp\n\nThe lamp turns once in twelve seconds. A brass clockwork drives it.\n",
    "tower/paint.md": "# Paint\n\nThe tower is painted white each fifth summer.\n",
    "tower/my stairs.md": "# Stairs\n\nThe tower has one hundred and forty stairs of granite.\n",
}


@asynccontextmanager
async def reading(drive: Drive, tmp_path: Path, searching: str = "", **options: Any) -> AsyncIterator[Driven]:
    """The app with a collection, in an open conversation that searches in it, or not."""
    folder = tmp_path / "handbook"
    for name, text in HANDBOOK.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    async with drive(**options) as app:
        service, data = app.service, tmp_path / "data"
        service.documents._open_library = lambda: Library.open(service.store, data / "index.db")
        await service.documents.add(str(folder), "handbook")
        await service.documents._indexers["handbook"]
        await app.begin()
        if searching:
            await service.retrieval.set_retrieval(app.conversation.id, searching, ["handbook"])
        yield app


def line(app: Driven) -> str:
    """The row of the rule over the composer, beside the list."""
    row = app.chat.composer.query_one("ContextLine")
    return app.lines[row.region.y][row.region.x :].strip(" ─") if row.display else ""


async def shows(app: Driven, words: str) -> None:
    await app.until(lambda: words in line(app))


def sent(app: Driven, kind: str) -> list[str]:
    """The sources of the blocks of this kind in the last question."""
    question = [node for node in app.path if node.role is Role.USER][-1]
    return [block.source for block in question.message.blocks if block.kind == kind]


async def test_what_is_found_is_shown_and_sent_and_the_line_is_empty_again(drive: Drive, tmp_path: Path) -> None:
    async with reading(drive, tmp_path, "always", size=(120, 40)) as app:
        await app.write("How fast does the lamp turn?")
        await shows(app, "▤ 1 passage ~")
        await app.until(lambda: "~" in app.lines[app.chat.composer.region.bottom - 1])
        await app.press("enter")
        await app.until(lambda: app.said)
        await app.settled()
        assert sent(app, PASSAGE) == ["[1] handbook/lamp.md:1-3, The lamp"]
        assert line(app) == "" and "tokens" not in app.lines[app.chat.composer.region.bottom - 1]


async def test_a_mention_that_brings_nothing_is_told_over_the_text_or_as_it_is_sent(
    drive: Drive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with reading(drive, tmp_path) as app:
        await app.write("@handbook zebra quokka?")
        await shows(app, "Nothing new found in @handbook.")
        app.chat.composer.replace_text("")
        await app.until(lambda: line(app) == "")
        monkeypatch.setattr("kvchat.ui.widgets.composer.widget.DRAFT_DELAY", 3600.0)
        await app.write("@handbook zebra xylophone?")
        await app.press("enter")
        await app.until(lambda: "Nothing new found in @handbook." in app.notices)
        await app.settled()
        assert app.shown[0] == "@handbook zebra xylophone?" and sent(app, PASSAGE) == []


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_nothing_moves_when_passages_come_and_go(drive: Drive, tmp_path: Path, size: tuple[int, int]) -> None:
    async with reading(drive, tmp_path, "always", size=size) as app:
        await app.write("How fast does the")
        places = [widget.region for widget in app.chat.query("*") if not isinstance(widget, ContextLine)]
        await app.write(" lamp turn?")
        await shows(app, "▤ 1 passage")
        assert [w.region for w in app.chat.query("*") if not isinstance(w, ContextLine)] == places


async def test_offered_passages_are_taken_by_the_key_and_else_not_sent(drive: Drive, tmp_path: Path) -> None:
    async with reading(drive, tmp_path, "ask") as app:
        await app.write("How fast does the lamp turn?")
        await shows(app, "1 passage found")
        assert "Shift+F5 takes them" in line(app)
        await app.press("enter")
        await app.until(lambda: app.said)
        await app.settled()
        assert sent(app, PASSAGE) == []
        await app.write("How fast does the lamp turn, again?")
        await shows(app, "1 passage found")
        await app.press("shift+f5")
        await shows(app, "▤ 1 passage ~")
        await app.press("enter")
        await app.until(lambda: len(app.said) > 2)
        await app.settled()
        assert len(sent(app, PASSAGE)) == 1


@pytest.mark.parametrize(
    ("searching", "text", "shown"),
    [
        ("", "What of @handbook/lamp.md now?", "turns once in twelve seconds"),
        ("always", "How fast does the lamp turn?", "A brass clockwork drives it."),
        ("", "How long is a mile in metric units?", "I prefer metric units."),
        ("ask", "How fast does the lamp turn?", None),
        ("", "What of nothing at all?", None),
    ],
    ids=["mention", "passage", "memory", "offered", "nothing"],
)
async def test_the_key_waits_for_what_is_not_looked_up_yet(
    drive: Drive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, searching: str, text: str, shown: str | None
) -> None:
    async with reading(drive, tmp_path, searching) as app:
        await app.service.memory.with_memories(lambda memories: memories.add("I prefer metric units."))
        monkeypatch.setattr("kvchat.ui.widgets.composer.widget.DRAFT_DELAY", 3600.0)
        await app.write(text)
        await app.press("shift+f5")
        if shown is not None:
            await app.opens("ContextScreen")
            assert shown in app.prose
        elif searching:
            await shows(app, "▤ 1 passage ~")
        else:
            await app.until(lambda: app.noticed("Nothing extra goes with this message"))


@pytest.mark.parametrize("then", ["escape", "x"])
async def test_what_is_looked_up_too_late_opens_over_nothing(
    drive: Drive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    async with reading(drive, tmp_path, "always") as app:
        monkeypatch.setattr("kvchat.ui.key_queue.PATIENCE_S", 0.05)
        monkeypatch.setattr("kvchat.ui.widgets.composer.widget.DRAFT_DELAY", 3600.0)
        found, look = asyncio.Event(), app.service.retrieval.retrieve

        async def slow(*args: Any, **options: Any) -> RetrievalResult:
            await found.wait()
            return await look(*args, **options)

        monkeypatch.setattr(app.service.retrieval, "retrieve", slow)
        await app.write("How fast does the lamp turn?")
        await app.press("shift+f5", then)
        coming = app.chat.workspace.key_queue._coming
        await app.until(lambda: all(one.is_given_up or one.is_late for one in coming))
        found.set()
        await app.until(lambda: all(worker.is_finished for worker in app.app.workers if worker.group == "dialog"))
        assert app.front == "ChatScreen" and not app.noticed("Nothing extra")
        await app.press("shift+f5")
        await app.opens("ContextScreen")
        assert "A brass clockwork drives it." in app.prose


@pytest.mark.parametrize("by", ["key", "click", "palette"])
async def test_a_passage_left_out_in_the_dialog_is_not_sent(drive: Drive, tmp_path: Path, by: str) -> None:
    async with reading(drive, tmp_path, "always") as app:
        await app.write("How fast does the lamp turn?")
        await shows(app, "▤ 1 passage")
        if by == "key":
            await app.press("shift+f5")
        elif by == "click":
            await app.pilot.click(ContextLine, offset=(3, 0))
        else:
            await app.run("memories")
        await app.opens("ContextScreen")
        assert "handbook/lamp.md:1-3" in app.prose and "A brass clockwork drives it." in app.prose
        await app.press("space", "escape")
        await app.closes()
        await shows(app, "▢ no passages")
        await app.press("!", "enter")  # before it was found for this text
        await app.until(lambda: app.said)
        await app.settled()
        assert app.said[0] == "How fast does the lamp turn?!" and sent(app, PASSAGE) == []


async def test_a_mention_is_completed_and_its_file_goes_as_a_whole(drive: Drive, tmp_path: Path) -> None:
    async with reading(drive, tmp_path) as app:
        mentions = app.chat.composer.query_one(MentionList)
        await app.write("What of @hand")
        await app.until(lambda: mentions.is_open)
        await app.press("tab", "backspace")
        await app.until(lambda: [one.text for one in mentions.items] == ["handbook/tower/", "handbook/lamp.md"])
        await app.press("tab")
        await app.until(lambda: mentions.is_open and mentions.items[0].text == "handbook/tower/my stairs.md")
        await app.press("down", "enter")
        assert app.draft == 'What of @"handbook/tower/my stairs.md" '
        await shows(app, "▥ 1 file ~")
        await app.press("enter")
        await app.until(lambda: app.said)
        await app.settled()
        assert app.said[0] == 'What of @"handbook/tower/my stairs.md" '
        assert sent(app, FILE) == ["[1] handbook/tower/my stairs.md"]


async def test_without_collections_an_at_sign_opens_nothing(drive: Drive) -> None:
    async with drive() as app:
        await app.write("hello @han")
        await asyncio.sleep(0.2)
        await app.rest()
        assert not app.chat.composer.query_one(MentionList).is_open
        await app.press("enter")
        await app.until(lambda: app.said)


async def test_a_mention_that_cannot_be_followed_is_said_and_the_message_stays(drive: Drive, tmp_path: Path) -> None:
    async with reading(drive, tmp_path, size=(120, 30)) as app:
        await app.write(f"see @{tmp_path}/handbook/tower here")
        await shows(app, "! @/")
        assert "is a folder" in line(app) or "…" in line(app)
        await app.press("enter")
        await app.until(lambda: app.noticed("is a folder"))
        assert app.draft.startswith("see @/") and app.said == []


async def test_a_slow_search_is_told_and_never_holds_up_the_typing(
    drive: Drive,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with reading(drive, tmp_path, "always") as app:
        held = asyncio.Event()
        plain = app.service.retrieval.retrieve

        async def slow(*args: Any, **more: Any) -> RetrievalResult:
            await held.wait()
            return await plain(*args, **more)

        monkeypatch.setattr(app.service.retrieval, "retrieve", slow)
        await app.write("How fast does the lamp turn")
        await shows(app, "searching…")
        await app.press("?")
        assert app.draft.endswith("turn?")
        held.set()
        await shows(app, "▤ 1 passage")
        assert "searching" not in line(app)


async def test_what_is_found_for_another_conversation_is_not_shown(
    drive: Drive,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with reading(drive, tmp_path, "always") as app:
        held, began = asyncio.Event(), asyncio.Event()
        plain = app.service.retrieval.retrieve

        async def slow(*args: Any, **more: Any) -> RetrievalResult:
            found = await plain(*args, **more)
            began.set()
            await held.wait()
            return found

        monkeypatch.setattr(app.service.retrieval, "retrieve", slow)
        await app.write("How fast does the lamp turn?")
        await app.until(began.is_set)
        await app.begin()
        held.set()
        await app.rest()
        assert line(app) == ""


async def test_an_edit_shows_what_it_is_asked_anew_with(drive: Drive, tmp_path: Path) -> None:
    async with reading(drive, tmp_path, "always") as app:
        await app.say("How fast does the lamp turn?")
        app.chat.drafts.begin_edit(app.path[0].id, Draft("Who paints the tower white?"))
        await shows(app, "▤ 1 passage ~")
        assert "found" not in line(app), "an edit takes all that is found"
        await app.press("enter")
        await app.until(lambda: app.said[0] == "Who paints the tower white?")
        await app.settled()
        assert any("paint.md" in source for source in sent(app, PASSAGE))


async def test_the_header_names_only_collections_that_exist(drive: Drive, tmp_path: Path) -> None:
    async with reading(drive, tmp_path, "always", size=(120, 30)) as app:
        await app.service.retrieval.set_retrieval(app.conversation.id, "always", ["handbook", "gone"])
        await app.until(lambda: "▤ handbook  " in app.lines[0])
        await app.service.retrieval.set_retrieval(app.conversation.id, "always", ["gone"])
        await app.until(lambda: "▤" not in app.lines[0])


# -- attaching


async def test_a_file_is_attached_as_a_chip_with_its_price_and_read_ahead(drive: Drive, tmp_path: Path) -> None:
    async with reading(drive, tmp_path, size=(120, 30)) as app:
        prepared: list[Any] = []
        plain = app.service.warm_up.prepare
        app.service.warm_up.prepare = lambda id, blocks: (prepared.append(blocks), plain(id, blocks))  # type: ignore[method-assign]
        await app.command(f"/attach {tmp_path}/handbook/lamp.md")
        await app.until(lambda: app.draft.strip() == "[lamp.md: 3 lines]")
        await app.until(lambda: "~" in app.lines[app.chat.composer.region.bottom - 1])
        assert [block.kind for block in prepared[-1]] == [FILE]
        await app.write("What is this?")
        await app.press("enter")
        await app.until(lambda: app.said)
        await app.settled()
        assert sent(app, FILE) == ["[1] lamp.md"]


async def test_an_e_book_is_searched_mentioned_and_attached(drive: Drive, tmp_path: Path) -> None:
    (tmp_path / "handbook").mkdir()
    book, other = (tmp_path / "handbook" / name for name in ("keeper.epub", "watch.epub"))
    other.write_bytes(epub("<p>Each watch has four hours.</p>"))
    book.write_bytes(epub("<h1>Dusk</h1><p>Whale oil smokes.</p>"))
    async with reading(drive, tmp_path, "always", size=(120, 40)) as app:
        await app.write("Which whale oil smokes?")
        await shows(app, "▤ 1 passage ~")
        await app.press("enter")
        await app.until(lambda: app.said)
        await app.settled()
        assert sent(app, PASSAGE) == ["[1] handbook/keeper.epub:¶1, The Lamp Keeper > Dusk"]
        await app.write("All of @handbook/watch.epub")
        await shows(app, "▥ 1 file ~")
        await app.press("enter")
        await app.until(lambda: len(app.said) > 1)
        await app.settled()
        assert sent(app, FILE) == ["[2] handbook/watch.epub"]
        await app.command(f"/attach {book}")
        await app.until(lambda: app.draft.strip() == "[keeper.epub: 3 lines]")


async def test_the_key_asks_for_a_file_and_attaches_it_at_the_cursor(
    drive: Drive,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with reading(drive, tmp_path) as app:
        monkeypatch.chdir(tmp_path / "handbook")
        await app.write("see")
        await app.press("shift+f6")
        await app.opens("AttachScreen")
        await app.until(lambda: "lamp.md" in app.text)
        await app.press("down", "enter")
        await app.closes()
        await app.until(lambda: app.draft == "see [lamp.md: 3 lines] ")


async def test_what_cannot_be_attached_is_said_and_the_command_stays(drive: Drive, tmp_path: Path) -> None:
    async with reading(drive, tmp_path) as app:
        await app.command("/attach gone.md")
        await app.until(lambda: app.noticed("There is no file gone.md"))
        assert app.draft == "/attach gone.md"


async def test_a_pasted_path_is_text_and_one_key_makes_it_the_file(drive: Drive, tmp_path: Path) -> None:
    async with reading(drive, tmp_path) as app:
        await app.write("see ")
        path = f"'{tmp_path}/handbook/tower/my stairs.md'"
        app.app.post_message(events.Paste(f"{path} "))
        await app.until(lambda: app.noticed("Shift+F6 attaches my stairs.md"))
        assert app.draft == f"see {path} "
        await app.press("shift+f6")
        await app.until(lambda: app.draft == "see [my stairs.md: 3 lines] ")
        app.app.post_message(events.Paste("/there/is/no/such/file.md"))
        await app.rest()
        assert len([one for one in app.notices if "attaches" in one]) == 1


async def test_a_changed_file_is_told_once_and_its_change_can_be_attached(drive: Drive, tmp_path: Path) -> None:
    async with reading(drive, tmp_path) as app:
        lamp = tmp_path / "handbook" / "lamp.md"
        lamp.write_text("".join(f"The lamp turned {n} times in that night.\n" for n in range(50)))
        await app.command(f"/attach {lamp}")
        await app.until(lambda: "[lamp.md: 50 lines]" in app.draft)
        await app.press("enter")
        await app.until(lambda: app.said)
        await app.settled()
        home = app.conversation.id
        lamp.write_text(lamp.read_text().replace("turned 7 times", "turned seven times"))
        app.app.app_focus = False
        app.app.app_focus = True
        await app.until(lambda: app.noticed("lamp.md has changed · /attach "))
        await app.begin()
        await app.open(home)
        await app.rest()
        assert len([one for one in app.notices if "lamp.md has changed" in one]) == 1
        await app.command(f"/attach {lamp}")
        await app.until(lambda: app.draft.startswith("[change of lamp.md: "))
        await app.press("ctrl+n")
        await app.open(home)
        await app.until(lambda: app.draft.startswith("[change of lamp.md: "))
        await app.press("enter")
        await app.until(lambda: len(app.said) > 2)
        await app.settled()
        assert sent(app, FILE) == ["[2] change of lamp.md since it was attached"]
        await app.command(f"/attach {lamp}")
        await app.until(lambda: app.noticed("has not changed since"))


@pytest.mark.parametrize("theme", ["ansi-dark", "kvchat-contrast"])
async def test_the_line_the_list_and_the_screens_are_drawn_in_other_themes(
    drive: Drive,
    tmp_path: Path,
    theme: str,
) -> None:
    async with reading(drive, tmp_path, "always") as app:
        app.app.theme = theme
        await app.write("How fast does the lamp turn? @handbook")
        await shows(app, "▤ 1 passage")
        await app.until(lambda: app.chat.composer.query_one(MentionList).is_open and "collection" in app.text)
        await app.press("escape", "shift+f5")
        await app.opens("ContextScreen")
        assert "A brass clockwork drives it." in app.prose
        await app.press("escape")
        await app.closes()
        await app.press("shift+f6")
        await app.opens("AttachScreen")


def test_of_several_changed_files_the_first_is_named() -> None:
    assert changed_words(["/there/a.md", "/there/\x1b[2Jb.md"]) == (
        "a.md and 1 other file have changed · /attach /there/a.md sends the change"
    )
