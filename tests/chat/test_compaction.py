"""Compacting: a summary asked for as a suffix, a new branch far below the limit, and the old one as it was."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from engine_fixture import running_server
from kvchat.chat.errors import ChatError
from kvchat.chat.events import CompactionChanged, Noticed
from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.chat.turns.dropped_text import dropped_on
from kvchat.config import Settings, changed
from kvchat.prompt.message import Role, State
from kvchat.prompt.request import Parameters
from kvchat.prompt.tree import Tree
from kvchat.store import Store
from kvchat.text.notes import note_sentence
from kvchat.transfer.formats import Source, render
from toyserver import ToyServer, drop, error, tokens

SUMMARY = "They counted nights."
TURN = 300
"""Tokens a turn adds: the question and the answer."""


def messages(visit) -> bytes:
    """The bytes of the messages array, without its brackets."""
    start = visit.body.index(b'"messages":[') + len(b'"messages":[')
    return visit.body[start : visit.body.rindex(b'"}]') + 2]


def texts(conversation):
    return [n.text for n in conversation.path() if n.role is not Role.SYSTEM]


async def talked(service, server, turns=5):
    """A conversation whose window fills up by TURN tokens a turn; the next answer is a summary."""
    server.on_chat(*(tokens(f"answer {n}", prompt=60 + TURN * n, cached=max(0, TURN * n - 241)) for n in range(turns)))
    conversation = await service.new_conversations.create()
    for number in range(turns):
        await service.turns.send(conversation.id, Question(f"question {number}"))
        await service.conversations.wait(conversation.id)
    server.on_chat(tokens(*SUMMARY.split(), prompt=60 + TURN * turns, cached=TURN * turns))
    return conversation


def exported(conversation, record, head):
    """The branch to `head` in every form in which it can be given out."""
    source = Source(replace(record, head=head), Tree(conversation.tree.path(head)))
    return [render(format, [source]) for format in ("md", "json", "jsonl", "html")]


@pytest.fixture
def notices(service):
    found: list[Noticed] = []
    service.events.subscribe(lambda event: found.append(event) if isinstance(event, Noticed) else None)
    return found


async def test_the_summary_is_asked_for_with_the_conversations_own_bytes_and_one_message_more(service, server):
    conversation = await talked(service, server)
    await service.options.set_parameters(conversation.id, Parameters(temperature=1.5, top_p=0.9, stop=("x",)))
    sent, answer = messages(server.chats[-1]), conversation.path()[-1].wire
    await service.compactor.compact(conversation.id)
    asked = server.chats[-1]
    assert messages(asked).startswith(sent + b"," + answer + b',{"role":"user","content":"Summarise our conversation')
    assert asked.json["session_id"] == conversation.id
    assert asked.json["temperature"] < 0.5
    assert asked.json["top_p"] == 0.9
    assert "stop" not in asked.json
    assert 64 <= asked.json["max_tokens"] <= 410


async def test_the_new_branch_has_the_same_system_bytes_a_summary_and_the_last_turns(service, server, notices):
    conversation = await talked(service, server)
    system, old = conversation.path()[0], conversation.record.head
    done = await service.compactor.compact(conversation.id)
    path = conversation.path()
    assert path[0] is system
    assert texts(conversation) == ["question 3", "answer 3", "question 4", "answer 4"]
    block = path[1].message.blocks[0]
    assert (block.kind, block.source, block.text) == ("summary", "summary of 3 earlier turns", "Theycountednights.")
    assert conversation.tree.version(path[1].id) == (2, 2)
    assert old in conversation.tree
    assert (done.before, done.spent.predicted_tokens) == (1261, 3)
    assert done.after == conversation.record.context_used == conversation.context_used
    assert done.after < 0.6 * done.before
    assert notices[-1].severity == "information"
    assert notices[-1].text == f"Compacted 3 turns: 1,261 → {done.after} tokens in 0.07 s · /source reads the summary"

    server.on_chat(tokens("on"))
    await service.turns.send(conversation.id, Question("go on"))
    await service.conversations.wait(conversation.id)
    sent = server.chats[-1].json["messages"]
    assert [message["role"] for message in sent] == ["system", *["user", "assistant"] * 2, "user"]
    assert messages(server.chats[-1]).startswith(messages(server.chats[0]).split(b"},{")[0])
    assert "Theycountednights." in sent[1]["content"]
    assert not any("Summarise" in message["content"] for message in sent)


async def test_the_branch_that_is_left_is_unchanged_searchable_and_one_undo_away(service, server, tmp_path):
    conversation = await talked(service, server)
    record, head = conversation.record, conversation.record.head
    before = exported(conversation, record, head)
    lines = "".join(service.exports.text([conversation.id], "jsonl"))
    await service.compactor.compact(conversation.id)
    assert exported(conversation, record, head) == before
    stored = Store.open(tmp_path / "data")
    kept = replace(conversation, tree=stored.tree(conversation.id))
    stored.close()
    assert exported(kept, record, head) == before
    found = [hit.node for hit in await service.conversations.search("question 1")]
    assert found == [conversation.tree.path(head)[3].id]
    assert await service.branches.undo(conversation.id)
    assert conversation.record.head == head
    assert "".join(service.exports.text([conversation.id], "jsonl")) == lines
    assert conversation.context_used == record.context_used


@pytest.mark.parametrize("act", ["undo", "fork", "regenerate", "tools", "ask"])
async def test_the_new_branch_is_free_before_the_server_has_counted_it(service, server, notices, monkeypatch, act):
    conversation = await talked(service, server)
    id, head = conversation.id, conversation.record.head
    prompts, counted, moved = service.servers.link(id).cache.prompts, asyncio.Event(), asyncio.Event()
    prefix = prompts.prefix

    async def slow(request):
        if conversation.record.head != head and not moved.is_set():
            moved.set()
            await counted.wait()
        return await prefix(request)

    monkeypatch.setattr(prompts, "prefix", slow)
    compacting = asyncio.create_task(service.compactor.compact(id))
    await moved.wait()
    server.on_chat(tokens("on"))
    acts = {
        "undo": lambda: service.branches.undo(id),
        "fork": lambda: service.branches.fork(id, conversation.record.head),
        "regenerate": lambda: service.turns.regenerate(id, conversation.record.head),
        "tools": lambda: service.branches.set_tools(id, ["web"]),
        "ask": lambda: service.turns.send(id, Question("go on")),
    }
    try:
        await acts[act]()
    finally:
        counted.set()
    assert (conversation.record.head == head) is (act == "undo")
    assert await compacting is not None and "Compacted 3 turns" in notices[0].text
    await service.conversations.wait(id)


async def test_it_is_stored_and_there_after_a_restart(service, server, make):
    conversation = await talked(service, server)
    done = await service.compactor.compact(conversation.id)
    digests = [node.digest for node in conversation.path()]
    other = make(server.url)
    again = await other.conversations.open(conversation.id)
    assert [node.digest for node in again.path()] == digests
    assert again.record.context_used == done.after


@pytest.mark.parametrize("turns", [0, 1])
async def test_there_must_be_two_turns(service, server, turns):
    conversation = await talked(service, server, turns)
    with pytest.raises(ChatError, match="nothing to compact yet"):
        await service.compactor.compact(conversation.id)
    assert server.posts == turns
    assert service.compactor.running is None


async def test_an_answer_must_have_ended(service, server):
    conversation = await talked(service, server, 2)
    server.on_chat(tokens("slow", hang_after=1))
    await service.turns.send(conversation.id, Question("on"))
    with pytest.raises(ChatError, match="still running"):
        await service.compactor.compact(conversation.id)
    await service.conversations.stop(conversation.id)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (tokens(), "held no text"),
        (tokens(reasoning=["hm", "hm"], finish="length"), "still thinking"),
        (tokens("<think>so", finish="length"), "still thinking"),
        (error(500, "out of memory"), "out of memory"),
        (error(400, "too long", "exceed_context_size_error", n_prompt_tokens=5000, n_ctx=4096), "4,096"),
        (drop(), "nothing was changed"),
        (tokens("Half of", finish=None), "nothing was changed"),
        (tokens(*["word "] * 950), "makes no room"),
    ],
)
async def test_an_unusable_summary_changes_nothing_and_says_why(service, server, answer, words):
    conversation = await talked(service, server)
    record, nodes = conversation.record, len(conversation.tree)
    server.on_chat(answer)
    with pytest.raises(ChatError) as raised:
        await service.compactor.compact(conversation.id)
    assert words in str(raised.value)
    assert "nothing was changed" in str(raised.value)
    assert (conversation.record, len(conversation.tree), service.compactor.running) == (record, nodes, None)
    server.on_chat(tokens("fine"))
    await service.turns.send(conversation.id, Question("still here?"))
    await service.conversations.wait(conversation.id)
    assert conversation.path()[-1].text == "fine"


async def test_a_summary_that_reached_its_limit_is_used_up_to_its_last_sentence(service, server):
    conversation = await talked(service, server)
    server.on_chat(tokens("One fact. ", "Another fact. ", "And ha", finish="length"))
    await service.compactor.compact(conversation.id)
    assert conversation.path()[1].message.blocks[0].text == "One fact. Another fact."


async def begun(service, server, conversation):
    """A compaction that has come to its first word and goes no further."""
    server.on_chat(tokens("They ", "counted", hang_after=1))
    heard = asyncio.Event()

    def look(event):
        if isinstance(event, CompactionChanged) and service.compactor.running and service.compactor.running.live.text:
            heard.set()

    service.events.subscribe(look)
    work = asyncio.create_task(service.compactor.compact(conversation.id))
    await heard.wait()
    return work


async def test_stopping_it_changes_nothing_and_closes_the_connection(service, server, notices):
    conversation = await talked(service, server)
    record, nodes = conversation.record, len(conversation.tree)
    work = await begun(service, server, conversation)
    assert service.conversations.streaming() == {conversation.id}
    await service.conversations.stop(conversation.id)
    await server.until_closed()
    assert await work is None
    assert (conversation.record, len(conversation.tree)) == (record, nodes)
    assert service.conversations.streaming() == frozenset()
    assert "Nothing has changed" in notices[-1].text


async def test_while_it_runs_the_conversation_is_busy_and_the_lane_taken(service, server):
    conversation = await talked(service, server)
    work = await begun(service, server, conversation)
    asked = service.turns.send(conversation.id, Question("hey"))
    for act in (asked, service.compactor.compact(conversation.id), service.branches.undo(conversation.id)):
        with pytest.raises(ChatError, match="being compacted"):
            await act
    other = await service.new_conversations.create(reuse=False)
    await service.turns.send(other.id, Question("elsewhere"))
    assert other.live is not None
    asked = server.posts
    with pytest.raises(ChatError, match="still running"):
        await service.compactor.compact(other.id)
    await service.conversations.stop(conversation.id)
    await service.conversations.stop(other.id)
    await work
    assert server.posts - asked <= 1  # it waited for the lane


async def test_whoever_waits_for_it_may_be_cancelled_and_so_is_the_request(service, server):
    conversation = await talked(service, server)
    work = await begun(service, server, conversation)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    await server.until_closed()
    assert service.compactor.running is None
    assert len(texts(conversation)) == 10


async def test_closing_the_service_ends_it(service, server):
    conversation = await talked(service, server)
    work = await begun(service, server, conversation)
    await service.aclose()
    assert await work is None


async def test_a_full_window_is_summarised_without_its_last_turn(make):
    async with ToyServer(context_size=1500) as server:
        service = make(server.url)
        conversation = await talked(service, server)
        await service.compactor.compact(conversation.id)
        sent = server.chats[-1].json["messages"]
        assert sent[-2]["content"] == "answer 3"
        assert texts(conversation) == ["question 4", "answer 4"]
        assert "question 4" not in str(sent)


async def test_when_it_is_due(make):
    async with ToyServer(context_size=1500) as server:
        service = make(server.url)
        conversation = await service.new_conversations.create()
        assert not service.servers.is_nearly_full(conversation)
        server.on_chat(tokens("a", prompt=1200), tokens("a", prompt=1280))
        due = []
        for text in ("one", "two"):
            await service.turns.send(conversation.id, Question(text))
            await service.conversations.wait(conversation.id)
            due.append(service.servers.is_nearly_full(conversation))
        assert due == [False, True]
        service.core.settings = changed(service.settings, "cache.compact_at", 90)
        assert not service.servers.is_nearly_full(conversation)


async def test_the_price_is_told_before(service, server):
    conversation = await talked(service, server)
    price = service.compactor.price(conversation.id)
    assert (price.plan.turns, price.plan.keep, price.plan.before, price.window) == (5, 2, 1261, 4096)
    assert price.plan.after < price.plan.before
    assert price.summary_seconds and price.read_seconds
    assert server.posts == 5


async def test_a_prompt_that_the_server_cut_raises_a_red_notice(service, server, notices):
    server.on_chat(tokens("a", prompt=3900), tokens("b", prompt=2048), tokens("c", prompt=2200))
    conversation = await service.new_conversations.create()
    for text in ("one", "two", "three"):
        await service.turns.send(conversation.id, Question(text))
        await service.conversations.wait(conversation.id)
    assert [(n.severity, "2,048 tokens" in n.text) for n in notices] == [("error", True)]
    assert "The server dropped old text of this conversation" in notices[0].text


async def test_another_model_may_count_other_tokens(service, server, notices):
    server.on_chat(tokens("a", prompt=3900), tokens("b", prompt=2048, model="other"))
    conversation = await service.new_conversations.create()
    for text in ("one", "two"):
        await service.turns.send(conversation.id, Question(text))
        await service.conversations.wait(conversation.id)
    assert not notices


async def test_reasoning_that_a_template_leaves_out_raises_no_alarm(service, server, notices):
    thought = ["so "] * 300
    server.on_chat(tokens("a", prompt=400, reasoning=thought), tokens("b", prompt=420))
    conversation = await service.new_conversations.create()
    for text in ("one", "two"):
        await service.turns.send(conversation.id, Question(text))
        await service.conversations.wait(conversation.id)
    assert not notices
    assert dropped_on(conversation.path(), hidden_reasoning=False) is None


@pytest.mark.engine
async def test_on_a_real_server_it_costs_one_miss_and_then_every_turn_is_reused(tmp_path, clock):
    with running_server(context=1024) as running:
        settings = changed(changed(Settings(), "server.base_url", running.base_url), "cache.compact_at", 60)
        service = ChatService(Store.open(tmp_path / "data"), settings, clock=clock)
        conversation = await service.new_conversations.create()
        await service.options.set_parameters(conversation.id, Parameters(temperature=0.0, max_tokens=12))

        async def say(text):
            await service.turns.send(conversation.id, Question(text))
            await service.conversations.wait(conversation.id)
            answer = conversation.path()[-1]
            assert answer.state in (State.DONE, State.LENGTH), note_sentence(answer.note)
            return answer.figures

        number = 0
        while not service.servers.is_nearly_full(conversation):
            number += 1
            await say(f"Day {number}: " + f"we sailed {number + 3} miles and saw {number + 7} birds. " * 7)
        record, head = conversation.record, conversation.record.head
        before = exported(conversation, record, head)
        done = await service.compactor.compact(conversation.id)
        assert len(conversation.tree) == len(conversation.tree.path(head)) + len(conversation.path()) - 1
        assert done.spent.reuse >= 0.99  # the request for the summary is a suffix
        assert done.spent.new_tokens < 200
        assert done.after < 0.4 * 1024
        assert not service.servers.is_nearly_full(conversation)
        first = await say("How many birds did we see on the last day?")
        assert abs(first.prompt_tokens - done.after) < 120
        turns = [await say(f"And day {n}?") for n in range(5)]
        assert all(turn.reuse >= 0.99 for turn in turns)
        assert not service.servers.is_nearly_full(conversation)
        assert exported(conversation, record, head) == before
        await service.aclose()
