"""Earlier reasoning stays in the prompt where the model's template has an option for it, whatever that is called: the
option is set with a conversation's first message, and its turns only append."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.prompt.message import State
from standins.vllm import BLOCK, VllmStandIn

Maker = Callable[..., ChatService]
THOUGHT = "they ask about the garden again and want one short and simple answer as they did before that"


@pytest.mark.parametrize("option", [("preserve_thinking", True), ("clear_thinking", False), ("drop_thinking", False)])
async def test_ten_turns_with_thoughts_prefill_what_is_new(make: Maker, option: tuple[str, bool]) -> None:
    async with VllmStandIn(details=True, reasoning=THOUGHT, keeps_by=option) as server:
        service = make(server.url)
        id = (await service.new_conversations.create(reuse=False)).id
        await service.conversations.open(id)
        for turn in range(10):
            await service.turns.send(id, Question(f"And what about plant number {turn} in my garden ?"))
            await service.conversations.wait(id)
        answers = [node for node in service.conversations.get(id).path() if node.figures is not None]
        options = {str(sent["chat_template_kwargs"]) for sent in server.asked}
    assert all(answer.state is State.DONE and answer.message.reasoning == THOUGHT for answer in answers)
    assert options == {str(dict([option]))}
    assert max(answer.figures.wasted_tokens or 0 for answer in answers[1:]) < BLOCK
    assert len(answers) == 10


async def test_a_template_without_an_option_is_asked_for_nothing(make: Maker) -> None:
    async with VllmStandIn(details=True, reasoning=THOUGHT) as server:
        service = make(server.url)
        id = (await service.new_conversations.create(reuse=False)).id
        await service.conversations.open(id)
        await service.turns.send(id, Question("Hello ?"))
        await service.conversations.wait(id)
        assert "chat_template_kwargs" not in server.asked[0]
