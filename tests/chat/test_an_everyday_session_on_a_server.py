"""One conversation with all that people do every day, on the real server: begun from a persona, cut answers gone on
with, a queue, alternatives, a title and memories. Every request keeps the prefix law, to the byte; no turn wastes more
than one token, but for what the person was told before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

import httpx
import pytest

pytest.importorskip("xllamacpp")

from remembering_kit import pending, remembering, until

from engine_fixture import running_server, small_model
from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.chat.turns.alternatives import AlternativesRequest
from kvchat.config import Settings, changed
from kvchat.config.personas import Persona
from kvchat.memory.entry import Kind
from kvchat.memory.learning.title import INSTRUCTION
from kvchat.prompt.context import MEMORY
from kvchat.prompt.drafts import filled
from kvchat.prompt.message import Node, Role, State
from kvchat.prompt.request import Parameters
from recorder import Recorded, Recorder, recording
from tiny_server import tiny_server

pytestmark = [pytest.mark.engine, pytest.mark.slow]

ENDS = (".", "!", "?", "\n")
SENTENCE = Parameters(temperature=0.0, max_tokens=80, stop=ENDS)
CLERK = Persona(
    "clerk",
    system_prompt="You are the keeper's clerk, and you answer in one sentence. " * 20,
    first_message="A line of the log: {{line}} What does it say?",
    parameters=SENTENCE,
)


@dataclass(frozen=True)
class Turn:
    what: str
    node: Node
    told: int | None = None
    """Tokens that the person was told would be wasted."""

    @property
    def row(self) -> tuple[object, ...]:
        one = self.node.figures
        assert one is not None
        return (
            self.what,
            one.new_tokens,
            one.cached_tokens,
            one.evaluated_tokens,
            one.wasted_tokens,
            self.told,
            one.cause,
        )


@dataclass
class Session:
    """A person at a conversation."""

    service: ChatService
    conversation: OpenConversation
    turns: list[Turn] = field(default_factory=list)

    @property
    def id(self) -> str:
        return self.conversation.id

    async def ended(self) -> Node:
        await self.service.conversations.wait(self.id)
        cache = self.service.servers.link(self.id).cache
        assert cache is not None
        await cache.settled()
        return self.conversation.path()[-1]

    async def told(self, act: str, node: Node) -> int | None:
        return (await self.service.prices.exact(self.id, act, node.id)).tokens  # type: ignore[arg-type]

    async def say(self, text: str, what: str = "message", tokens: int = 80, told: int | None = None) -> Node:
        await self.service.turns.send(
            self.id, Question(text), parameters=Parameters(temperature=0.0, max_tokens=tokens, stop=ENDS)
        )
        self.turns.append(Turn(what, await self.ended(), told))
        return self.turns[-1].node

    async def go_on(self, tokens: int) -> Node:
        cut = self.conversation.path()[-1]
        assert cut.state is State.LENGTH, cut
        told = await self.told("continue", cut)
        await self.service.turns.go_on(self.id, cut.id, Parameters(temperature=0.0, max_tokens=tokens, stop=ENDS))
        self.turns.append(Turn("continue", await self.ended(), told))
        assert self.turns[-1].node.text.startswith(cut.text)
        return self.turns[-1].node

    async def queue(self, first: str, *waiting: str) -> None:
        """The others are sent while the answer to the first one streams."""
        before = len(self.conversation.path())
        await self.service.turns.send(self.id, Question(first))
        for text in waiting:
            assert self.service.turns.running
            await self.service.turns.queue_up(self.id, Question(text))
        await self.ended()
        answers = [node for node in self.conversation.path()[before:] if node.role is Role.ASSISTANT]
        assert len(answers) == 1 + len(waiting)
        self.turns += [Turn("queued" if at else "message", node) for at, node in enumerate(answers)]

    async def alternatives(self, count: int, text: str, choice: int) -> int | None:
        """What the choice was said to cost the next turn."""
        asked = await self.service.prices.of_several(self.id, AlternativesRequest(count), Question(text))
        await self.service.turns.ask_for(
            self.id, AlternativesRequest(count), Question(text), parameters=Parameters(temperature=1.0, max_tokens=40)
        )
        await self.service.conversations.wait(self.id)
        answers = self.service.turns.choices(self.id)
        assert len({node.text for node in answers}) == count
        first = answers[0].figures
        assert first is not None and asked.tokens is not None and first.evaluated_tokens is not None
        assert first.evaluated_tokens <= asked.tokens + 1, "told before they were asked for"
        self.turns += [Turn(f"alternative {at + 1}", node) for at, node in enumerate(answers)]
        told = await self.told("alternatives", answers[choice])
        await self.service.turns.choose(self.id, answers[choice].id)
        return told

    async def learnt(self) -> None:
        """All that waited for spare time is done."""
        service = self.service
        await until(service, lambda: not pending(service, self.id) and not service.jobs.at_work())
        await asyncio.wait_for(service.warm_up.ended(), 60)


@asynccontextmanager
async def begun(recorder: Recorder, folder: Path, reads_ahead: bool) -> AsyncIterator[Session]:
    async with remembering(
        recorder.base_url,
        folder,
        settings=changed(Settings(), "titles.by_model", True),
        reads_ahead=reads_ahead,
        max_tokens=80,
    ) as service:
        await service.memory.add("The lamp of Tove's lighthouse was made in Paris.", Kind.FACT)
        yield Session(service, await service.new_conversations.create(persona=CLERK))


async def play(session: Session) -> None:
    first = filled(CLERK.first_message, "My name is Tove and I keep a lighthouse in Bergen.")
    await session.say(first, "persona's first", 3)
    await session.go_on(3)
    await session.go_on(80)
    await session.queue(
        "Say something about the sea.",
        "My sister Ida repairs clocks.",
        "The lamp turns every twelve seconds.",
        "And the moon?",
    )
    told = await session.alternatives(3, "Tell me about an old sailor.", 1)
    await session.say("And then?", "after the choice", told=told)
    await session.say("Was he happy?")
    await session.learnt()
    await session.say("And where do I live?", "after the memory")
    await session.say("Thank you.")


def begins_with_what_was_sent(requests: list[Recorded]) -> None:
    """The prefix law over a branch: every request begins with the bytes of the one before, whose last answer may be
    open (it was gone on with)."""
    before = b""
    for request in requests:
        assert request.messages.startswith(before), f"{before[-200:]!r}\n{request.messages[len(before) - 200 :]!r}"
        if not is_side(request):
            sent = request.messages
            before = sent.removesuffix(b'"}') if is_open(request) else sent


def is_side(request: Recorded) -> bool:
    return request.is_background or request.body["messages"][-1]["content"] == INSTRUCTION


async def new_tokens(url: str, messages: list[object]) -> int:
    """What the last question adds to the branch as it was settled, counted by the server."""
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:

        async def tokens_of(messages: list[object], **more: object) -> list[int]:
            prompt = (await client.post("/apply-template", json={"messages": messages, **more})).json()["prompt"]
            made = await client.post("/tokenize", json={"content": prompt, "add_special": True, "parse_special": True})
            return list(made.json()["tokens"])

        prompt, settled = await tokens_of(messages), await tokens_of(messages[:-1], add_generation_prompt=False)
    return len(prompt) - len(list(takewhile(lambda pair: pair[0] == pair[1], zip(prompt, settled, strict=False))))


def is_open(request: Recorded) -> bool:
    """Whether it has a cut answer gone on with."""
    return bool(request.body["messages"][-1]["role"] == "assistant")


def answers_are_sent_as_they_came(requests: list[Recorded]) -> None:
    came = {INSTRUCTION}
    for request in requests:
        messages = request.body["messages"]
        sent = {one["content"] for one in messages if one["role"] == "assistant"}
        assert sent <= came, sent - came
        begun_with = messages[-1]["content"] if is_open(request) else ""
        came |= {begun_with + text for text in request.replies.values()}


async def figures_are_the_servers(url: str, chats: list[Recorded], turns: list[Turn]) -> None:
    """What the turns say of evaluated and new tokens is what the server reported and counts."""
    told = [
        (one.evaluated_tokens, one.new_tokens)
        for one in (turn.node.figures for turn in turns)
        if one is not None and not one.alternative
    ]
    counted, sent = [], list[object]()
    for at, request in enumerate(chats):
        reported = request.figures
        is_known = is_open(request) or request.body["messages"] in sent  # another answer to a question adds nothing
        sent.append(request.body["messages"])
        new = 0 if is_known else await new_tokens(url, request.body["messages"])
        first = reported["prompt_n"] + reported["cache_n"]
        counted.append((reported["prompt_n"], new if at else first))
    assert told == counted


async def _holds(url: str, folder: Path, reads_ahead: bool) -> None:
    async with recording(url) as recorder, begun(recorder, folder, reads_ahead) as session:
        await play(session)
        recalled = [
            block for node in session.conversation.path() for block in node.message.blocks if block.kind == MEMORY
        ]
    rows = "\n".join(str(turn.row) for turn in session.turns)
    print("what, new, cached, evaluated, wasted, told, cause", rows, sep="\n")
    begins_with_what_was_sent(recorder.requests)
    answers_are_sent_as_they_came(recorder.requests)
    assert not [one for one in recorder.requests if one.beside]
    assert any(one.is_whole and b'"title"' in one.raw for one in recorder.background), "asked for memories and a title"
    assert recalled, "what was remembered came with a question"
    await figures_are_the_servers(url, [one for one in recorder.requests if not is_side(one)], session.turns)
    for turn in session.turns:
        figures = turn.node.figures
        assert figures is not None and figures.wasted_tokens is not None, rows
        assert figures.wasted_tokens <= 1 or (turn.told is not None and abs(figures.wasted_tokens - turn.told) <= 1), (
            rows
        )


@pytest.mark.parametrize("slots", [1, 2, 4])
async def test_nothing_is_prefilled_twice_but_what_was_told(slots: int, tmp_path: Path) -> None:
    with running_server(slots=slots) as server:
        await _holds(server.base_url, tmp_path, True)


@pytest.mark.parametrize(("slots", "unified", "ram"), [(1, False, 0), (2, False, 0), (2, True, 8192), (4, True, 0)])
async def test_nor_on_other_servers_and_without_warm_up(slots: int, unified: bool, ram: int, tmp_path: Path) -> None:
    with tiny_server(small_model(), n_parallel=slots, kv_unified=unified, n_ctx=4096 * slots, cache_ram_mib=ram) as url:
        await _holds(url, tmp_path, False)
