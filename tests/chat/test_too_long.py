"""Questions that are longer than the server's window: refused by it, or counted before they are sent."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_fixture import running_server
from kvchat.chat.errors import TooLongError
from kvchat.chat.events import AnswerEnded, QuestionRefused
from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.config import Settings, changed
from kvchat.prompt.branching import before_refused
from kvchat.prompt.message import Message, Role, State, node, system_message
from kvchat.prompt.request import Parameters
from kvchat.prompt.tree import Tree
from kvchat.store import Store
from kvchat.text.notes import note_sentence
from toyserver import SSE_HEAD, chunked, drop, error, event, hang, raw, reply, sse, tokens

LLAMACPP = error(
    400,
    "the request exceeds the available context size",
    "exceed_context_size_error",
    n_prompt_tokens=13039,
    n_ctx=4096,
)
REFUSALS = {
    "llama.cpp": (LLAMACPP, 13039, 4096),
    "vllm": (
        reply(
            400,
            {
                "error": {
                    "message": "This model's maximum context length is 4096 tokens. However, your "
                    "prompt has 13039 tokens",
                    "type": "BadRequestError",
                }
            },
        ),
        13039,
        4096,
    ),
    "without figures": (reply(400, {"error": "the input length exceeds the context length"}), None, None),
    "a failure of the server": (reply(500, {"error": "the context size has been exceeded"}), None, None),
    "a proxy": (reply(413, b"<html>Request Entity Too Large</html>", content_type="text/html"), None, None),
    "in a stream": (
        raw(
            SSE_HEAD
            + chunked(
                b'event: error\ndata: {"message":"Trying to keep the first 13039 tokens '
                b"when context the overflows. However, the model is loaded with context length of only 4096 "
                b'tokens, which is not enough."}\n\n'
            )
            + b"0\r\n\r\n"
        ),
        13039,
        4096,
    ),
}


def wires(visit):
    return [message["content"].rpartition("\n")[2] for message in visit.json["messages"][1:]]


async def asked(service, id, text, **options):
    await service.turns.send(id, Question(text), **options)
    await service.conversations.wait(id)


@pytest.fixture
def refused(service):
    found: list[QuestionRefused] = []
    service.events.subscribe(lambda event: found.append(event) if isinstance(event, QuestionRefused) else None)
    return found


@pytest.mark.parametrize("kind", REFUSALS)
async def test_a_refused_question_is_a_sibling_and_the_next_one_goes_on_from_the_branch(
    service, server, make, refused, kind
):
    answer, tokens_told, window = REFUSALS[kind]
    server.on_chat(tokens("one", prompt=50), answer, tokens("three", prompt=70, cached=50))
    conversation = await service.new_conversations.create()
    await asked(service, conversation.id, "first")
    head, used, record = conversation.record.head, conversation.context_used, conversation.record
    assert used == 51

    await asked(service, conversation.id, "far too long")
    assert conversation.record.head == head
    assert (conversation.context_used, conversation.record.context_used) == (used, record.context_used)
    assert service.servers.window_share(conversation) == used / 4096
    (question,) = conversation.tree.children(head)
    (failed,) = conversation.tree.children(question.id)
    assert (question.text, failed.state, failed.text) == ("far too long", State.ERROR, "")
    assert note_sentence(failed.note) and [leaf.id for leaf in conversation.tree.leaves()] == [failed.id]
    assert refused == [QuestionRefused(conversation.id, question.id, tokens_told, window)]

    other = make(server.url)  # all of it is there after a restart
    again = await other.conversations.open(conversation.id)
    assert again.record.head == head and question.id in again.tree and failed.id in again.tree

    await asked(service, conversation.id, "shorter")
    assert wires(server.chats[-1]) == ["first", "one", "shorter"]
    first, last = (visit.body.partition(b'"messages":[')[2] for visit in (server.chats[0], server.chats[-1]))
    assert last.startswith(first.rpartition(b'"}]')[0])
    assert conversation.tree.version(conversation.path()[-2].id) == (2, 2)
    assert conversation.path()[-1].figures.new_tokens == 70 - 51


async def test_a_first_question_that_is_refused_leaves_the_conversation_at_its_beginning(service, server, make):
    server.on_chat(LLAMACPP, tokens("fine"))
    conversation = await service.new_conversations.create()
    root = conversation.record.head
    await asked(service, conversation.id, "far too long")
    assert conversation.record.head == root and conversation.context_used is None
    other = make(server.url)
    await other.conversations.open((await other.new_conversations.create()).id)
    again = await other.conversations.open(conversation.id)  # it was not taken for an empty one
    assert "far too long" in [n.text for n in again.tree]
    await asked(service, conversation.id, "short")
    assert wires(server.chats[-1]) == ["short"]


async def test_an_edit_and_another_answer_that_are_refused_leave_the_branch_that_was_there(service, server, refused):
    server.on_chat(tokens("one"), tokens("two"), LLAMACPP)
    conversation = await service.new_conversations.create()
    await asked(service, conversation.id, "first")
    await asked(service, conversation.id, "second")
    head = conversation.record.head
    first, _, second, two = conversation.path()[1:]
    await service.turns.edit(conversation.id, first.id, "far too long")
    await service.conversations.wait(conversation.id)
    assert conversation.record.head == head
    assert [n.text for n in conversation.tree.siblings(first.id)] == ["first", "far too long"]
    await service.turns.regenerate(conversation.id, two.id)
    await service.conversations.wait(conversation.id)
    assert conversation.record.head == head and len(conversation.tree.siblings(two.id)) == 2
    assert [event.question for event in refused] == [conversation.tree.siblings(first.id)[1].id, second.id]
    assert await service.branches.undo(conversation.id) is False  # nothing was left


async def test_a_question_that_failed_before_and_is_refused_at_the_second_try_is_left(service, server):
    server.on_chat(tokens("one"), drop(), LLAMACPP, tokens("three"))
    conversation = await service.new_conversations.create()
    await asked(service, conversation.id, "first")
    head = conversation.record.head
    await asked(service, conversation.id, "far too long")
    assert conversation.record.head != head  # it may be tried again
    await service.turns.regenerate(conversation.id, conversation.record.head)
    await service.conversations.wait(conversation.id)
    assert conversation.record.head == head
    await asked(service, conversation.id, "shorter")
    assert wires(server.chats[-1]) == ["first", "one", "shorter"]


async def test_a_conversation_whose_head_was_refused_by_an_older_kvchat_gets_out(service, server):
    """There the refused question stayed the head, so that every question after it was too long."""
    server.on_chat(tokens("one"), error(500, "boom"), LLAMACPP, LLAMACPP, tokens("four"))
    conversation = await service.new_conversations.create()
    await asked(service, conversation.id, "first")
    head = conversation.record.head
    for text in ("far too long", "short"):
        await asked(service, conversation.id, text)
    assert conversation.record.head == head


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (
            sse(
                [
                    event({"choices": [{"delta": {"content": "half"}}]}),
                    event({"error": {"code": 500, "message": "Context size has been exceeded."}}),
                ]
            ),
            State.ERROR,
        ),
        (sse([event({"error": {"code": 500, "message": "Context size has been exceeded."}})]), State.ERROR),
        (tokens("full", finish="length", prompt=4090, cached=0), State.LENGTH),
        (error(500, "boom"), State.ERROR),
        (drop(), State.INTERRUPTED),
    ],
)
async def test_what_is_no_refusal_for_length_stays_the_head(service, server, refused, answer, state):
    server.on_chat(tokens("one"), answer)
    conversation = await service.new_conversations.create()
    await asked(service, conversation.id, "first")
    await asked(service, conversation.id, "second")
    assert [n.text for n in conversation.path()[1:4]] == ["first", "one", "second"]
    assert conversation.path()[-1].state is state and refused == []


async def test_the_events_come_in_order(service, server):
    heard: list[object] = []
    service.events.subscribe(heard.append)
    server.on_chat(LLAMACPP)
    conversation = await service.new_conversations.create()
    await asked(service, conversation.id, "far too long")
    kinds = [type(event) for event in heard]
    assert kinds.index(AnswerEnded) < kinds.index(QuestionRefused)


FAILED = (State.ERROR, "")
WORDED = (State.DONE, "word")


@given(st.lists(st.sampled_from([FAILED, WORDED, (State.CANCELLED, ""), (State.ERROR, "half")]), max_size=6))
def test_wherever_it_goes_back_to_it_is_on_the_branch_and_no_worded_turn_is_left(turns):
    root = node(None, system_message("x"), 0.0)
    tree, head = Tree([root]), root
    for at, (state, text) in enumerate([*turns, FAILED]):
        before = head
        question = node(head, Message(Role.USER, f"q{at}"), float(at))
        head = node(question, Message(Role.ASSISTANT, text), at + 0.5, state=state)
        tree.put(question)
        tree.put(head)
    went = before_refused(tree, head, before.id)
    path = [n.id for n in tree.path(before.id)]
    assert went in path
    left = [tree[id] for id in path[path.index(went) + 1 :]]
    assert not any(n.text for n in left if n.role is Role.ASSISTANT)
    assert all(n.state is State.ERROR for n in left if n.role is Role.ASSISTANT)
    assert tree[went].role is Role.SYSTEM or (tree[went].state, tree[went].text) != FAILED


# -- before it is sent


async def test_a_question_that_is_estimated_over_the_window_is_not_sent_before_the_person_agrees(service, server):
    conversation = await service.new_conversations.create()
    await service.servers.connect()
    nodes, record = len(conversation.tree), conversation.record
    with pytest.raises(TooLongError) as raised:
        await service.turns.send(conversation.id, Question("1234567890" * 450))
    assert (raised.value.window, raised.value.counted) == (4096, False)
    assert 4096 < raised.value.tokens < 5500
    assert str(raised.value).startswith(
        f"Too long: the prompt has about {raised.value.tokens:,} tokens, the server's window holds 4,096. "
    )
    assert (len(conversation.tree), conversation.record, server.posts) == (nodes, record, 0)
    await asked(service, conversation.id, "1234567890" * 450, anyway=True)
    assert server.posts == 1 and conversation.path()[-1].text == "Hello"


async def test_an_edit_is_held_back_as_well(service, server):
    server.on_chat(tokens("one", prompt=220))
    conversation = await service.new_conversations.create()
    await asked(service, conversation.id, "first")
    head, question = conversation.record.head, conversation.path()[1]
    with pytest.raises(TooLongError):
        await service.turns.edit(conversation.id, question.id, "1234567890" * 450)
    assert conversation.record.head == head and len(conversation.tree) == 3
    assert await service.branches.undo(conversation.id) is False
    await service.turns.edit(conversation.id, question.id, "1234567890" * 450, anyway=True)
    await service.conversations.wait(conversation.id)
    assert server.posts == 2


@pytest.mark.parametrize("words", [1, 600])
async def test_what_is_far_below_the_window_is_not_counted(service, server, words):
    conversation = await service.new_conversations.create()
    await service.servers.connect()
    await asked(service, conversation.id, "counted? " * words)
    before = server.visits[: server.visits.index(server.chats[0])]
    assert not any(b"counted?" in visit.body for visit in before)


@pytest.mark.slow
async def test_a_server_that_keeps_the_count_waiting_is_not_waited_for(service, server, monkeypatch):
    monkeypatch.setattr("kvchat.chat.question.prompt_size.COUNT_S", 0.05)
    server.on("/apply-template", hang())
    conversation = await service.new_conversations.create()
    await service.servers.connect()
    await asked(service, conversation.id, "1234567890" * 280)  # estimated below the window: sent
    assert server.posts == 1


MIXED = "\n".join(
    [
        *(f"2026-11-21T09:{n % 60:02}:{n * 7 % 60:02}.{n * 13 % 1000:03}Z INFO id={n * 7919:08x}" for n in range(40)),
        json.dumps([{"id": n, "x": n / 7, "ok": True} for n in range(40)]),
        "当村里的人们聚集在大厅里," * 20,
        "🚀🎉" * 40,
    ]
)


@pytest.mark.engine
async def test_the_servers_own_count_decides_and_a_refusal_costs_its_cache_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("kvchat.chat.question.prompt_size.COUNT_S", 60.0)
    with running_server(context=4096) as server:
        service = ChatService(Store.open(tmp_path / "data"), changed(Settings(), "server.base_url", server.base_url))
        service.warm_up.enabled = False
        short = Parameters(max_tokens=4, temperature=0.0)
        try:
            conversation = await service.new_conversations.create()
            await service.servers.connect()
            await asked(service, conversation.id, "Which flower opens first? " * 20, parameters=short)
            used = conversation.context_used
            await asked(service, conversation.id, MIXED * 2, parameters=short, anyway=True)
            (question,) = conversation.tree.children(conversation.record.head)
            real = int(dict(conversation.tree.children(question.id)[0].note.arguments)["prompt"])
            assert real > 4096

            cache = service.servers.link().cache
            await cache.settled()
            assert cache.heads[conversation.id] == tuple(n.digest.hex() for n in conversation.path())

            with pytest.raises(TooLongError) as raised:
                await service.turns.send(conversation.id, Question(MIXED * 2))
            assert raised.value.counted and abs(raised.value.tokens - real) <= 1
            path = [*conversation.path(), question]
            estimated = service.sizes.estimated(conversation, path)
            assert 0.75 * real < estimated < 1.4 * real  # four bytes to a token: 0.4
            assert conversation.context_used == used

            await asked(service, conversation.id, "And the last?", parameters=short)
            figures = conversation.path()[-1].figures
            assert figures.wasted_tokens is not None and figures.wasted_tokens <= 8
            assert figures.cached_tokens >= used - 1

            await cache.settled()
            exact = (cache.simulated.predictions, cache.simulated.exact)
            assert exact[0] >= 2 and exact[0] == exact[1]
        finally:
            await service.aclose()


@pytest.mark.engine
async def test_a_prompt_of_the_very_size_of_the_window_is_told_as_the_server_does(tmp_path, monkeypatch):
    """One token less than the window is answered, as many are refused."""
    monkeypatch.setattr("kvchat.chat.question.prompt_size.COUNT_S", 60.0)
    with running_server(context=512) as server:
        service = ChatService(Store.open(tmp_path / "data"), changed(Settings(), "server.base_url", server.base_url))
        service.warm_up.enabled = False
        try:
            conversation = await service.new_conversations.create()
            await service.servers.connect()
            await asked(service, conversation.id, "7", parameters=Parameters(max_tokens=1))
            base = conversation.path()[-1].figures.prompt_tokens
            for size in (510, 511, 512, 513):
                fresh = await service.new_conversations.create(reuse=False)
                text = "7" * (size - base + 1)
                try:
                    await asked(service, fresh.id, text, parameters=Parameters(max_tokens=1))
                    held_back = False
                except TooLongError as error:
                    held_back = True
                    assert error.tokens == size
                    await asked(service, fresh.id, text, parameters=Parameters(max_tokens=1), anyway=True)
                refused = fresh.record.head == fresh.path()[0].id
                assert held_back == refused == (size >= 512), size
        finally:
            await service.aclose()
