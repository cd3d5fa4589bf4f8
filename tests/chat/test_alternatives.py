"""Several answers to one question: what is sent, what is stored, which one goes on, and what is counted."""

from __future__ import annotations

import asyncio

import pytest

from kvchat.chat.errors import ChatError
from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.chat.turns.alternatives import AlternativesRequest
from kvchat.figures.stats import span, stats
from kvchat.prompt.message import State
from toyserver import ToyServer, error, several, tokens


@pytest.fixture
async def four():
    async with ToyServer(slots=4) as server:
        yield server


THREE = AlternativesRequest(3)


async def asked(service, wanted=THREE, question="What now?"):
    conversation = await service.new_conversations.create(reuse=False)
    await service.servers.reach(conversation.id)
    await service.turns.ask_for(conversation.id, wanted, Question(question))
    await service.conversations.wait(conversation.id)
    return conversation


def texts(conversation) -> list[str]:
    return [node.text for node in conversation.tree.siblings(conversation.path()[-1].id)]


async def test_one_request_gives_all_and_the_chosen_one_goes_on(make, four):
    service = make(four.url)
    four.on_chat(several(["a", "b"], ["c"], ["d", "e", "f"], prompt=40))
    conversation = await asked(service)
    assert [visit.json.get("n") for visit in four.chats] == [3]
    assert texts(conversation) == ["ab", "c", "def"]
    assert conversation.path()[-1].text == "ab", "the first one, until one is chosen"
    assert service.turns.is_undecided(conversation.id)
    with pytest.raises(ChatError, match="Choose one of the answers first"):
        await service.turns.send_now(conversation.id, Question("too soon"))
    await service.turns.choose(conversation.id, service.turns.choices(conversation.id)[2].id)
    assert conversation.path()[-1].text == "def"
    assert texts(conversation) == ["ab", "c", "def"]
    assert conversation.context_used == 43
    four.on_chat(tokens("ok", prompt=60))
    await service.turns.send_now(conversation.id, Question("and then?"))
    await service.conversations.wait(conversation.id)
    assert [m["content"] for m in four.chats[-1].json["messages"]][2:] == ["def", "and then?"]
    again = make(four.url)  # as after a restart
    stored = await again.conversations.open(conversation.id)
    assert [node.state for node in stored.tree.siblings(stored.path()[2].id)] == [State.DONE] * 3
    await service.branches.walk(conversation.id, conversation.path()[2].id, -1)
    assert conversation.path()[-1].text == "c", "the others are versions beside it"


async def test_each_has_its_own_figures_and_the_prompt_is_counted_once(make, four):
    service = make(four.url)
    four.on_chat(several(["a", "b"], ["c"], ["d", "e", "f"], prompt=40, cached=10))
    conversation = await asked(service)
    nodes = service.turns.choices(conversation.id)
    assert [node.figures.alternative for node in nodes] == [0, 1, 2]
    assert [node.figures.predicted_tokens for node in nodes] == [2, 1, 3]
    assert {(node.figures.prompt_tokens, node.figures.cached_tokens) for node in nodes} == {(40, 10)}
    await service.turns.choose(conversation.id)
    now = service.clock().timestamp()
    found = stats(service.store.answers(), {}, span(now, 7)).totals
    assert (found.turns, found.prompt_tokens, found.evaluated_tokens, found.predicted_tokens) == (1, 40, 30, 6)
    assert conversation.totals().prompt_tokens == 40


async def test_more_than_there_are_slots_come_in_several_requests(make):
    async with ToyServer(slots=2) as server:
        service = make(server.url)
        server.on_chat(several(["a"], ["b"]), tokens("c", cached=19))
        conversation = await asked(service)
        assert [visit.json.get("n") for visit in server.chats] == [2, None]
        assert texts(conversation) == ["a", "b", "c"]
        assert [node.figures.alternative for node in service.turns.choices(conversation.id)] == [0, 1, None]


async def test_where_one_request_gives_one_answer_they_come_one_after_the_other(make):
    async with ToyServer("openai") as server:
        service = make(server.url)
        server.on_chat(tokens("a"), tokens("b"), tokens("c"))
        conversation = await asked(service)
        assert texts(conversation) == ["a", "b", "c"]
        bodies = [visit.json["messages"] for visit in server.chats]
        assert bodies[0] == bodies[1] == bodies[2]
        assert conversation.path()[-1].text == "a"
        await service.turns.choose(conversation.id)
        assert conversation.path()[-1].text == "a"


async def test_the_same_question_to_other_models(make):
    async with ToyServer("openai") as server:
        service = make(server.url)
        server.on_chat(tokens("a", model="one"), tokens("b", model="two"))
        conversation = await asked(service, AlternativesRequest(2, ("one", "two")))
        assert [visit.json["model"] for visit in server.chats] == ["one", "two"]
        assert [node.model for node in service.turns.choices(conversation.id)] == ["one", "two"]
        assert conversation.record.model == ""


async def test_the_last_question_again_keeps_the_answer_that_is_there(make, four):
    service = make(four.url)
    conversation = await service.new_conversations.create()
    await service.turns.send(conversation.id, Question("one"))
    await service.conversations.wait(conversation.id)
    four.on_chat(several(["a"], ["b"]))
    await service.turns.ask_again_for(conversation.id, AlternativesRequest(2), conversation.path()[-1].id)
    await service.conversations.wait(conversation.id)
    assert texts(conversation) == ["Hello", "a", "b"]
    await service.turns.choose(conversation.id, service.turns.choices(conversation.id)[1].id)
    assert conversation.path()[-1].text == "b"
    assert conversation.record.turns == 1
    await service.branches.undo(conversation.id)
    assert conversation.path()[-1].text == "Hello"


async def test_esc_stops_all_and_each_keeps_what_it_has(make, four):
    service = make(four.url)
    four.on_chat(several(["a", "b"], ["c"], ["d", "e"], hang_after=3))
    conversation = await service.new_conversations.create()
    await service.servers.reach(conversation.id)
    await service.turns.ask_for(conversation.id, AlternativesRequest(3), Question("x"))
    await _until(service, lambda: [live.text for live in conversation.alternatives] == ["a", "c", "d"])
    await _until(service, lambda: [live.ended for live in conversation.alternatives] == [None, State.DONE, None])
    await service.conversations.stop(conversation.id)
    await four.until_closed()
    nodes = service.turns.choices(conversation.id)
    assert [(node.text, node.state) for node in nodes] == [
        ("a", State.CANCELLED),
        ("c", State.DONE),
        ("d", State.CANCELLED),
    ]
    await service.turns.choose(conversation.id)
    assert conversation.path()[-1].text == "c", "the one that is whole"
    assert four.posts == 1


async def test_stopped_between_two_requests_no_other_one_goes_out(make):
    async with ToyServer("openai") as server:
        service = make(server.url)
        server.on_chat(tokens("a"), tokens("b", hang_after=1))
        conversation = await service.new_conversations.create()
        await service.turns.ask_for(conversation.id, AlternativesRequest(3), Question("x"))
        await _until(service, lambda: [live.text for live in conversation.alternatives] == ["a", "b"])
        await service.conversations.stop(conversation.id)
        assert [node.state for node in service.turns.choices(conversation.id)] == [State.DONE, State.CANCELLED]
        assert server.posts == 2


async def test_a_refusal_is_one_answer_that_says_why(make, four):
    service = make(four.url)
    four.on_chat(error(400, "Field 'n': Value must be between 1 <= value <= 1, but got 3", "invalid_request_error"))
    conversation = await asked(service)
    await service.turns.choose(conversation.id)
    last = conversation.path()[-1]
    assert last.state is State.ERROR
    assert texts(conversation) == [""], "the wordless ones are gone"


async def test_who_hears_of_turns_and_the_queue_see_the_chosen_one_alone(make, four):
    service = make(four.url)
    heard: list[str] = []

    class Observer:
        def turn_ended(self, conversation, answer):
            heard.append(answer.text)

    service.turns.observers.append(Observer())
    conversation = await service.new_conversations.create()
    await service.servers.reach(conversation.id)
    four.on_chat(several(["a"], ["b"]), tokens("next"))
    await service.turns.ask_for(conversation.id, AlternativesRequest(2), Question("x"))
    await service.turns.queue_up(conversation.id, Question("behind it"))
    await service.conversations.wait(conversation.id)
    assert (heard, four.posts) == ([], 1)
    await service.turns.choose(conversation.id, service.turns.choices(conversation.id)[1].id)
    await service.conversations.wait(conversation.id)
    assert heard == ["b", "next"]
    assert [m["content"] for m in four.chats[-1].json["messages"]][-2:] == ["b", "behind it"]


async def test_a_kill_keeps_what_came_of_each(make, four, tmp_path):
    service: ChatService = make(four.url)
    four.on_chat(several(["a", "b"], ["c", "d"], hang_after=2))
    conversation = await service.new_conversations.create()
    await service.servers.reach(conversation.id)
    await service.turns.ask_for(conversation.id, AlternativesRequest(2), Question("x"))
    nodes = [live.node for live in conversation.alternatives]

    def kept() -> list[str]:
        return [
            b"".join(
                row[0]
                for row in service.store.database.rows("SELECT text FROM delta WHERE node = ? ORDER BY seq", (node,))
            ).decode()
            for node in nodes
        ]

    while kept() != ["a", "c"]:
        await service.core.writer.call(lambda: None)


async def _until(service, true) -> None:
    """Return when it is true, looked at whenever something has happened."""
    happened = asyncio.Event()
    forget = service.events.subscribe(lambda _: happened.set())
    while not true():
        happened.clear()
        await asyncio.wait_for(happened.wait(), 60)
    forget()


async def test_a_choice_leaves_the_branch_on_which_another_window_has_gone_on(make, four):
    service, other = make(four.url), make(four.url)
    four.on_chat(several(["a"], ["b"]), tokens("further"))
    conversation = await asked(service, AlternativesRequest(2))
    await other.conversations.open(conversation.id)
    await other.turns.send(conversation.id, Question("and then?"))
    await other.conversations.wait(conversation.id)
    head = service.store.conversation(conversation.id).head
    await service.turns.choose(conversation.id, service.turns.choices(conversation.id)[1].id)
    assert service.store.conversation(conversation.id).head == head
    assert conversation.path()[-1].text == "b" and conversation.elsewhere == head
