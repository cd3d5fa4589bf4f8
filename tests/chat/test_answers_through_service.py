"""Every way to write an answer, through the service: several answers to a question, a side request, and what is stored."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise

import pytest

from answer_ways import KEPT, SAID, THOUGHT, WAYS, said
from kvchat.backends.dialect import Emit, Ended, TextDelta, WasThought
from kvchat.chat.conversations.live import LiveAnswer
from kvchat.chat.question import Question
from kvchat.chat.turns.alternatives import AlternativesRequest
from kvchat.chat.turns.answer_run import AnswerRun
from kvchat.prompt.message import Message, Role, State, node
from kvchat.prompt.request import Parameters
from toyserver import ToyServer, raw

STREAMED = pytest.mark.parametrize("streamed", [True, False], ids=["stream", "document"])


@pytest.mark.parametrize(
    ("slots", "streamed"),
    [(2, True), (1, False), *(pytest.param(*more, marks=pytest.mark.slow) for more in [(2, False), (1, True)])],
)
async def test_several_answers_come_whole_and_once(make, slots: int, streamed: bool) -> None:
    """By one request where the server gives several, else by one each."""
    async with ToyServer(slots=slots) as server:
        service = make(server.url)
        for name, way in KEPT.items():
            server.on_chat(raw(way.http(streamed=streamed, answers=slots)))
            conversation = await service.new_conversations.create(reuse=False)
            await service.servers.reach(conversation.id)
            await service.turns.ask_for(conversation.id, AlternativesRequest(2), Question("Say hello"))
            await service.conversations.wait(conversation.id)
            first = service.turns.choices(conversation.id)[0]
            assert (first.text, first.message.reasoning, first.state) == (way.text, way.thought, way.state), name


@STREAMED
async def test_a_side_request_gets_the_text_whole_and_once(make, server: ToyServer, streamed: bool) -> None:
    service = make(server.url)
    conversation = await service.new_conversations.create()
    await service.servers.reach(conversation.id)
    await service.turns.send(conversation.id, Question("Hi"))
    await service.conversations.wait(conversation.id)
    link = service.servers.link(conversation.id)
    for name, way in WAYS.items():
        server.on_chat(raw(way.http(streamed=streamed)))
        path = conversation.path()[:-1]
        async with link.lane.chat(conversation.id):
            answer = await service.side_requests.settled("test", link, conversation, path, Parameters())
        assert (answer.text, answer.message.reasoning, answer.state) == (way.text, way.thought, way.state), name


async def test_what_came_is_sent_again_as_it_came(make, server: ToyServer) -> None:
    """Thoughts in the text stay where they were; the answer is a prefix of every later request, and of that of a run
    that goes on with it from a file."""
    service = make(server.url)
    conversation = await service.new_conversations.create()
    await service.servers.reach(conversation.id)
    ways = [way for way in WAYS.values() if way.state is State.DONE and not way.whole]
    bodies = []
    for way in ways:
        server.on_chat(raw(way.http(streamed=True)))
        await service.turns.send(conversation.id, Question("And?"))
        await service.conversations.wait(conversation.id)
        bodies.append(server.chats[-1].json["messages"])
    for before, after in pairwise(bodies):
        assert after[: len(before)] == before
    for way, (reply, _) in zip(ways, zip(bodies[-1][2::2], bodies[-1][3::2], strict=True), strict=False):
        assert reply["content"].endswith(way.text)
        in_parts = isinstance(way.message.get("reasoning") or way.message["content"], list)
        assert in_parts or any(way.thought in text for text in reply.values())
    again = make(server.url)
    stored = await again.conversations.open(conversation.id)
    assert [node.wire for node in stored.path()] == [node.wire for node in conversation.path()]
    assert [node.message.wire() for node in stored.path()] == [node.wire for node in stored.path()]


@pytest.mark.parametrize(
    ("pieces", "more", "text", "thought"),
    [
        (("<think>\nI p", "onder.\n</think>\n\nHello "), "there.", SAID, THOUGHT),
        (("<think>\nI p",), "onder.\n</think>\n\nHello there.", SAID, THOUGHT),
        (("I ponder.",), "\n</think>\n\nHello there.", SAID, THOUGHT),
        (("Hello ",), "there.", SAID, ""),
    ],
)
async def test_a_cut_answer_goes_on_where_it_was(
    make, server: ToyServer, pieces: tuple[str, ...], more: str, text: str, thought: str
) -> None:
    service = make(server.url)
    conversation = await service.new_conversations.create()
    await service.servers.reach(conversation.id)
    cut, rest = said(*pieces, finish="length"), said(more)
    server.on_chat(raw(cut.http(streamed=True)), raw(rest.http(streamed=True)))
    await service.turns.send(conversation.id, Question("Hi"))
    await service.conversations.wait(conversation.id)
    begun = conversation.path()[-1]
    assert begun.state is State.LENGTH
    await service.turns.go_on(conversation.id, begun.id)
    await service.conversations.wait(conversation.id)
    answer = conversation.path()[-1]
    assert (answer.text, answer.message.reasoning, answer.state) == (text, thought, State.DONE)
    assert json.loads(answer.wire)["content"] == "".join(pieces) + more


@pytest.mark.parametrize("at_once", [False, True])
async def test_the_checkpoints_tell_thought_and_text_apart(at_once: bool) -> None:
    """Though the text proved to be a thought only when some of it was stored."""
    rows: list[tuple[str, str]] = []
    question = node(None, Message(Role.USER, "Hi"), 0.0)
    answer = node(question, Message(Role.ASSISTANT, ""), 1.0, state=State.STREAMING)
    stored = asyncio.Event()

    async def checkpoint(text: str, reasoning: str) -> None:
        rows.append((text, reasoning))
        stored.set()

    async def chat(emit: Emit) -> Ended:
        for event in (TextDelta("I pon"), WasThought(THOUGHT, "{}</think>"), TextDelta("Hello ")):
            emit(event)
            if not (at_once and isinstance(event, WasThought)):
                await stored.wait()
                stored.clear()
        return Ended(State.DONE)

    run = AnswerRun(answer, [question], LiveAnswer(answer.id, 0.0), chat=chat, checkpoint=checkpoint)
    settled = await run.run()
    assert rows == [("I pon", ""), *([("Hello ", THOUGHT)] if at_once else [("", THOUGHT), ("Hello ", "")])]
    assert (settled.text, settled.message.reasoning) == ("Hello ", THOUGHT)
