"""Turns that call tools, on a real server, with prompts of token ids: where a template prints the steps of a turn anew
once the next question is there, nothing of them is prefilled again."""

from __future__ import annotations

import pytest

pytest.importorskip("xllamacpp")

from ids_kit import WORDS, answers, holds_the_law, last, serving, wasted

from chat_templates import CALLING
from engine_fixture import running_server, small_model
from kvchat.chat.events import ToolAsked
from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.prompt.message import Node, State
from kvchat.prompt.request import Parameters
from kvchat.prompt.tools import Decision
from tiny_models import tiny_models

pytestmark = pytest.mark.engine
THOUGHT = f'"<think>\\n" {WORDS}{{20,30}} "\\n</think>\\n\\n"'
ANALYSIS = f'"<|channel|>analysis<|message|>" {WORDS}{{20,30}} "<|end|><|start|>assistant"'
TO_FILE = '"<|channel|>commentary to=functions.read_file <|constrain|>json<|message|>{\\"path\\": \\"a.txt\\"}"'
CALLS = {
    "object": f'root ::= {THOUGHT} call "\\n" call\n'
    'call ::= "<tool_call>\\n{\\"name\\":\\"read_file\\",\\"arguments\\":{\\"path\\":\\"a.txt\\"}}\\n</tool_call>"',
    "parameters": f'root ::= {THOUGHT} "<tool_call>\\n<function=read_file>\\n" path "</function>\\n</tool_call>"\n'
    'path ::= "<parameter=path>\\na.txt\\n</parameter>\\n"',
    "channels": f"root ::= {ANALYSIS} {TO_FILE}",
}
ANSWERS = {
    "object": f'root ::= {THOUGHT} {WORDS}{{30,40}} "end"',
    "parameters": f'root ::= {THOUGHT} {WORDS}{{30,40}} "end"',
    "channels": f'root ::= {ANALYSIS} "<|channel|>final<|message|>" {WORDS}{{30,40}} "end"',
}
SHAPES = ("object", "parameters", "channels")


def held_to(grammar: str) -> Parameters:
    return Parameters(temperature=1.0, seed=5, max_tokens=300, extra={"grammar": grammar})


async def turn(service: ChatService, id: str, shape: str) -> Node:
    """A question, a call, and the answer that follows what it gave."""

    async def answer_next() -> None:
        await service.options.set_parameters(id, held_to(ANSWERS[shape]))
        service.tools.decide(id, Decision.ONCE)

    def on_event(event: object) -> None:
        if isinstance(event, ToolAsked) and id in service.tools.waiting:
            service.core.in_background(answer_next())

    service.tools.can_ask = True
    stop = service.events.subscribe(on_event)
    await service.options.set_parameters(id, held_to(CALLS[shape]))
    await service.turns.send(id, Question("What does the file say?"))
    answer = await last(service, id)
    stop()
    return answer


@pytest.mark.parametrize("shape", SHAPES)
async def test_the_steps_of_a_turn_stay_in_the_cache(shape, tmp_path, monkeypatch):
    work = tmp_path / "work"
    work.mkdir()
    (work / "a.txt").write_text("The lamp turns once in ten seconds, and the keeper writes that down.\n" * 8)
    monkeypatch.chdir(work)
    model = tiny_models(tmp_path, small_model(), (), {shape: CALLING[shape]})[shape]
    with running_server(slots=1, context=16384, cache_ram=0, model=model) as server:
        async with serving(server.base_url, tmp_path / "data", token_ids=True) as service:
            id = (await service.new_conversations.create("Be brief.", tools=["files"], reuse=False)).id
            await service.conversations.open(id)
            for _ in range(2):
                assert (await turn(service, id, shape)).state is State.DONE
        async with serving(server.base_url, tmp_path / "data", token_ids=True) as service:
            await service.conversations.open(id)
            await turn(service, id, shape)
            path = service.conversations.get(id).path()
        async with serving(server.base_url, tmp_path / "data", token_ids=False) as service:
            await service.conversations.open(id)
            await service.options.set_parameters(id, Parameters(max_tokens=8))
            await service.turns.send(id, Question("And as messages?", calls=False))
            as_messages = await last(service, id)
    said = answers(path)
    calls = 2 if shape == "object" else 1
    assert [len(answer.message.calls) for answer in said] == [calls, 0] * 3
    assert {call.arguments.replace(" ", "") for answer in said for call in answer.message.calls} == {'{"path":"a.txt"}'}
    assert all(answer.message.reasoning and "<" not in answer.text for answer in said)
    assert all(answer.message.calls or answer.text.endswith("end") for answer in said)
    holds_the_law(path)
    assert max(wasted(path)) <= 1, wasted(path)
    assert as_messages.figures.wasted_tokens > 300
