"""`kvchat cache`: the report of a conversation as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from engine_fixture import running_server
from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.config import Settings, changed
from kvchat.store import Store
from toyserver import SSE_HEAD, ToyServer, chunked, event, tokens
from whole_rows import put_row

TURNS = (("How many nights?", 412, 0), ("Which was the longest?", 508, 416), ("What did it cost?", 635, 60))
"""Question, prompt tokens, cached tokens; in the last one most of the cache was gone."""


@pytest.fixture
async def talk(own_folders: Path) -> str:
    """A conversation of three turns, and an older one; its id."""
    async with ToyServer() as server:
        settings = changed(changed(Settings(), "server.base_url", server.url), "cache.warm_up", False)
        service = ChatService(Store.open(own_folders / "data"), settings)
        ids = []
        for questions in (TURNS[:1], TURNS):
            conversation = await service.new_conversations.create(reuse=False)
            ids.append(conversation.id)
            for text, prompt, cached in questions:
                server.on_chat(
                    tokens("Twenty", "-six", prompt=prompt, cached=cached, prompt_ms=3.0 * (prompt - cached))
                )
                await service.turns.send(conversation.id, Question(text))
                await service.conversations.wait(conversation.id)
        await service.aclose()
    return ids[-1]


async def test_the_newest_conversation_is_told_without_a_server(run: Any, talk: str) -> None:
    done = await run("cache")
    assert (done.status, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == f"How many nights?  {talk[:8]}"
    rows = {line.split()[0]: line.split() for line in lines if line[:4].strip().isdigit()}
    assert rows["1"][1:4] == ["0", "412", "0"] and "What did it cost?" in done.out
    assert rows["2"][1] == "416" and rows["3"][1] == "60"
    assert any(line.startswith("turn 3: ") and "tokens prefilled again" in line for line in lines)
    assert not any(line.startswith("turn 2: ") for line in lines)
    facts = {line[:14].strip(): line[14:] for line in lines}
    assert "476 cached" in facts["conversation"] and "476 cached" in facts["last 7 days"]
    assert facts["reuse"] == "cached share of what was sent before; new text does not count"
    assert facts["slots"] == "contents unknown"
    assert facts["planner"] == "unknown"


async def test_json_has_every_turn_with_its_figures_and_null_for_what_is_not_known(run: Any, talk: str) -> None:
    done = await run("cache", talk[:8], "--json")
    assert done.status == 0
    report = json.loads(done.out)
    assert report["conversation"] == talk
    assert [turn["question"] for turn in report["turns"]] == [text for text, _, _ in TURNS]
    assert [turn["figures"]["cached_tokens"] for turn in report["turns"]] == [0, 416, 60]
    assert report["warmth"] == {
        "heat": "unknown",
        "held": None,
        "to_prefill": None,
        "since": None,
        "exact": True,
    }
    assert report["here"]["totals"]["turns"] == 3 and report["week"]["totals"]["turns"] == 4
    assert report["plan"] is None
    assert report["here"]["totals"]["wasted_tokens"] > 0


async def silent(visit: Any) -> None:
    """An answer without any figures."""
    await visit.send(SSE_HEAD)
    await visit.send(chunked(event({"choices": [{"index": 0, "delta": {"content": "Yes."}, "finish_reason": "stop"}]})))
    await visit.send(chunked(b"data: [DONE]\n\n") + b"0\r\n\r\n")


async def test_of_a_server_that_reports_nothing_it_is_unknown_what_was_wasted(run: Any, own_folders: Path) -> None:
    async with ToyServer() as server:
        settings = changed(changed(Settings(), "server.base_url", server.url), "cache.warm_up", False)
        service = ChatService(Store.open(own_folders / "data"), settings)
        server.on_chat(silent)
        id = (await service.new_conversations.create()).id
        await service.turns.send(id, Question("Is it?"))
        await service.conversations.wait(id)
        await service.aclose()
    done = await run("cache")
    facts = [(line[:14].strip(), line[14:]) for line in done.out.splitlines()]
    assert [words for name, words in facts if name == "misses"] == ["unknown"] * 2
    assert ("planner", "unknown") in facts and ("slots", "contents unknown") in facts
    report = json.loads((await run("cache", "--json")).out)
    assert report["states"] is None
    for sums in (report["here"]["totals"], report["week"]["totals"], *(day["totals"] for day in report["days"][-1:])):
        assert sums["turns"] == sums["unknown"] == 1
        assert {sums[name] for name in sums.keys() - {"turns", "unknown"}} == {None}
    done = await run("stats", "--json")
    assert json.loads(done.out)["wasted_tokens"] is None


async def test_a_conversation_stays_unread_when_its_cache_is_looked_at(run: Any, talk: str, own_folders: Path) -> None:
    store = Store.open(own_folders / "data")
    put_row(store, replace(store.conversation(talk), unread=True))
    store.close()
    await run("cache", talk)
    store = Store.open(own_folders / "data")
    assert store.conversation(talk).unread
    store.close()


async def test_a_server_that_does_not_answer_takes_nothing_away(run: Any, talk: str) -> None:
    done = await run("--base-url", "http://127.0.0.1:9", "cache", talk)
    assert done.status == 0
    assert "What did it cost?" in done.out


@pytest.fixture
async def default(own_folders: Path) -> AsyncIterator[ToyServer]:
    """The server of the settings."""
    async with ToyServer() as server:
        file = own_folders / "config" / "config.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f'[server]\nbase_url = "{server.url}"\n')
        yield server


def move(own_folders: Path, id: str, server: str) -> None:
    """Let a conversation be one of this server."""
    store = Store.open(own_folders / "data")
    put_row(store, replace(store.conversation(id), server=server))
    store.close()


async def test_the_conversations_own_server_is_asked_and_no_other(
    run: Any, talk: str, own_folders: Path, default: ToyServer
) -> None:
    move(own_folders, talk, "")
    await run("cache", talk)
    assert default.visits, "without one of its own it is the one of the settings"
    default.visits.clear()
    async with ToyServer() as own:
        move(own_folders, talk, own.url)
        assert (await run("cache", talk)).status == 0
        assert own.visits and not own.posts and not default.visits


async def test_a_model_file_is_not_started_for_a_look(
    run: Any, talk: str, own_folders: Path, default: ToyServer
) -> None:
    move(own_folders, talk, "/nowhere/model.gguf")
    done = await run("cache", talk)
    assert (done.status, done.err) == (0, "") and not default.visits


async def test_an_unknown_conversation_is_one_sentence(run: Any, talk: str) -> None:
    done = await run("cache", "ffffffff")
    assert done.status == 1
    assert done.out == "" and done.err.startswith("kvchat: ") and done.err.count("\n") == 1


async def test_without_conversations_there_is_a_word(run: Any) -> None:
    done = await run("cache")
    assert (done.status, done.out) == (0, "There are no conversations yet.\n")
    assert (await run("cache", "--json")).out == "null\n"


@pytest.mark.engine
async def test_what_a_server_that_answers_holds_is_looked_at(run: Any, own_folders: Path) -> None:
    with running_server(context=4096) as server:
        assert (await run("--base-url", server.base_url, "ask", "Which lamp?")).status == 0
        done = await run("cache")
        facts = {line[:14].strip(): line[14:] for line in done.out.splitlines()}
        assert done.out.splitlines()[1].startswith("warm · ")
        assert facts["slot 0"].startswith("Which lamp? · ")
        assert facts["rules"] == "1 slot; a host cache for what leaves a slot; reuses any prefix"
        assert facts["planner"] == "no request yet"
    gone = {line[:14].strip(): line[14:] for line in (await run("cache")).out.splitlines()}
    assert gone["slots"] == "contents unknown" and "Which lamp?" in (await run("cache")).out
