"""Compacting by keys: an early warning, a calm offer, the price, the summary as it comes, and the way back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from app_kit import Drive, Driven

from kvchat.config import Settings, changed
from kvchat.prompt.message import State
from toyserver import ToyServer, error, tokens

pytestmark = pytest.mark.slow
SUMMARY = tokens("They ", "counted ", "nights.", prompt=1860, cached=1800)


@asynccontextmanager
async def talk(
    drive: Drive, server: ToyServer, used: int = 1800, turns: int = 5, settings: Settings | None = None
) -> AsyncIterator[Driven]:
    """Turns that fill the window up to `used` tokens."""
    step = used // turns
    server.on_chat(
        *(
            tokens(f"answer {n}", prompt=end - 1, cached=max(0, end - step - 1))
            for n, end in enumerate(range(step, step * turns + 1, step))
        )
    )
    async with drive(size=(120, 30), settings=settings or Settings()) as app:
        await app.begin(*(f"question {n}" for n in range(turns)))
        server.on_chat(SUMMARY)
        yield app


async def test_compact_shows_its_price_and_goes_on_with_a_summary(drive: Drive, server: ToyServer) -> None:
    async with talk(drive, server) as app:
        await app.command("/compact")
        await app.opens("ConfirmScreen")
        assert "Compact this conversation?" in app.text
        assert "A summary replaces 3 older turns; the last 2 stay as they are." in app.text
        assert "1,800 → at most " in app.text
        assert "in a window of 4,096." in app.text
        assert "The summary takes about" in app.text
        assert server.posts == 5
        await app.press("y")
        await app.until(lambda: app.said == ["question 3", "answer 3", "question 4", "answer 4"])
        await app.until(lambda: app.noticed("Compacted 3 turns: 1,800 → "))
        assert app.shown == app.said
        await app.command("/source")
        await app.opens("SourceScreen")
        assert "summary of 3 earlier turns" in app.text and "They counted nights." in app.text
        await app.press("escape")
        await app.closes()
        assert "▸ sent with: summary of 3 earlier turns" in app.text
        assert "2/2" in app.text
        await app.select(0)
        await app.press("space")
        await app.until(lambda: "They counted nights." in app.text)
        assert "The branch" not in app.text


async def test_cancelling_asks_nothing(drive: Drive, server: ToyServer) -> None:
    async with talk(drive, server) as app:
        before = app.said
        await app.command("/compact")
        await app.opens("ConfirmScreen")
        await app.press("escape")
        await app.closes()
        assert (app.said, server.posts) == (before, 5)


async def test_the_branch_that_was_left_is_a_version_of_the_first_message_and_one_undo_away(
    drive: Drive,
    server: ToyServer,
) -> None:
    async with talk(drive, server) as app:
        before, head = app.said, app.conversation.record.head
        await app.command("/compact")
        await app.opens("ConfirmScreen")
        await app.press("y")
        await app.until(lambda: len(app.said) == 4 and not app.service.conversations.streaming())
        await app.select(0)
        await app.press("left")
        await app.until(lambda: app.shown == before)
        assert app.conversation.record.head == head
        await app.run("tree")
        await app.opens("BranchTreeScreen")
        assert "2 branches" in app.text
        await app.press("escape")
        await app.closes()
        await app.run("undo")
        await app.until(lambda: len(app.said) == 4)
        await app.run("undo")
        await app.until(lambda: app.shown == before)
        assert "1,800/4,096" in app.text


async def test_the_summary_is_watched_as_it_comes_and_esc_stops_it_without_a_change(
    drive: Drive,
    server: ToyServer,
) -> None:
    async with talk(drive, server) as app:
        before = app.said
        server.on_chat(tokens("They ", "counted ", "nights.", hang_after=2))
        await app.command("/compact")
        await app.opens("ConfirmScreen")
        await app.press("y")
        await app.until(lambda: "summary: 2 words" in app.text and "They counted▍" in app.transcript_rows)
        rows = app.transcript_rows
        head = next(at for at, row in enumerate(rows) if row.startswith("Summary of 3 older turns"))
        assert rows[head].endswith("Esc stops · nothing changes")
        assert rows[head + 1 : head + 3] == ["They counted▍", "◌ summary: 2 words"]
        assert rows[head - 2 : head] == ["answer 4", ""], "the last answer stands by itself"
        assert app.said == before and app.shown == [*before, "They counted "]
        assert "compacting" in app.text and "answering" not in app.text
        await app.press("escape")
        await app.until(lambda: app.noticed("Nothing has changed"))
        await server.until_closed()
        assert app.said == app.shown == before
        assert "ummary" not in "\n".join(app.transcript_rows)
        assert app.path[-1].state is State.DONE


async def test_before_its_first_word_the_summarys_row_tells_how_far_the_prompt_is_read(
    drive: Drive,
    server: ToyServer,
) -> None:
    async with talk(drive, server) as app:
        server.on_chat(tokens("They", prompt=1860, cached=1800, hang_after=0))
        app.chat.transcript.scroll_home(animate=False)
        await app.command("/compact")
        await app.opens("ConfirmScreen")
        await app.press("y")
        await app.until(lambda: "1,800 cached · 60/60 new" in "\n".join(app.transcript_rows))
        rows = app.transcript_rows
        head = next(at for at, row in enumerate(rows) if row.startswith("Summary of 3 older turns"))
        assert "1,800 cached · 60/60 new" in rows[head + 1]
        await app.focus_transcript()
        await app.press("end", "1", "e", "o", "b")
        await app.press("escape", "escape", "escape")  # out of the tree, back from the messages, and stop
        await app.until(lambda: app.noticed("Nothing has changed"))
        assert app.shown == app.said


async def test_a_failure_is_said_and_changes_nothing(drive: Drive, server: ToyServer) -> None:
    async with talk(drive, server) as app:
        before = app.said
        server.on_chat(error(500, "out of memory"))
        await app.command("/compact")
        await app.opens("ConfirmScreen")
        await app.press("y")
        await app.until(lambda: app.noticed("nothing was changed"))
        assert app.noticed("out of memory")
        assert app.shown == before


async def test_with_a_single_turn_there_is_nothing_to_compact(drive: Drive, server: ToyServer) -> None:
    async with talk(drive, server, turns=1) as app:
        await app.command("/compact")
        await app.until(lambda: app.noticed("nothing to compact yet"))
        assert app.app.screen is app.chat


async def test_the_meter_warns_early_and_the_offer_comes_once_and_blocks_nothing(
    drive: Drive,
    server: ToyServer,
) -> None:
    async with talk(drive, server, used=2800, turns=4) as app:
        assert "△" not in app.lines[0]
        server.on_chat(tokens("early", prompt=2990, cached=2799))
        await app.say("more")
        assert "△ context" in app.lines[0]
        assert not app.noticed("/compact")
        server.on_chat(tokens("nearly", prompt=3500, cached=2990), tokens("on", prompt=3550, cached=3500))
        await app.say("and more")
        assert "▲ context" in app.lines[0]
        assert [notice for notice in app.notices if "/compact" in notice] == [
            "Window 85 % full · /compact sums up the older turns"
        ]
        assert "85 % full: /compact" in app.text
        assert app.app.screen is app.chat
        await app.say("still talking")
        assert len([notice for notice in app.notices if "/compact" in notice]) == 1
        assert app.said[-1] == "on"


async def test_text_that_the_server_dropped_is_said_in_red(drive: Drive, server: ToyServer) -> None:
    async with talk(drive, server, used=3800) as app:
        severities: list[str] = []
        plain = app.app.notify
        app.app.notify = lambda text, **more: (severities.append(more["severity"]), plain(text, **more))  # type: ignore
        server.on_chat(tokens("cut", prompt=2048))
        await app.say("and now?")
        await app.until(lambda: app.noticed("The server dropped old text of this conversation: it read 2,048 tokens"))
        assert severities[-1] == "error"


async def test_a_summary_written_at_rest_is_offered_and_compact_puts_it_in_place_without_a_request(
    drive: Drive, server: ToyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvchat.chat.background.summaries.on_battery", lambda: False)
    settings = changed(changed(Settings(), "cache.summary_at_rest", True), "memory.rest_seconds", 0)
    async with talk(drive, server, used=3700, settings=settings) as app:
        app.service.jobs.enabled = True
        app.service.begin_background()
        app.service.jobs.typed_at = 0.0
        app.service.summaries._put(app.conversation.id)
        await app.until(lambda: "summary ready: Shift+F2" in app.lines[-2])
        assert app.noticed("Summary ready: Shift+F2 prefills ")
        posts, before = server.posts, app.said
        await app.press("shift+f2")
        await app.opens("ConfirmScreen")
        assert "The summary is ready" in app.text and app.said == before
        await app.press("y")
        await app.until(lambda: app.said == before[-2:] and app.noticed("Compacted "))
        assert server.posts == posts and "summary ready" not in app.text
        await app.run("undo")
        await app.until(lambda: app.shown == before)


async def test_writing_it_at_rest_is_offered_once_and_off_until_then(drive: Drive, server: ToyServer) -> None:
    async with talk(drive, server, used=3000) as app:
        await app.until(lambda: app.noticed("/settings summary_at_rest has a summary written in spare time"))
        await app.say("one more")
        offers = [text for text in app.notices if "summary_at_rest" in text]
        assert len(offers) == 1 and server.posts == 6
