"""A title from a real model: it costs its instruction, and the turn after it costs nothing more."""

from __future__ import annotations

import pytest

pytest.importorskip("xllamacpp")

from remembering_kit import remembering, said, until

from engine_fixture import running_server
from kvchat.chat.background.titles import TITLE
from kvchat.config import Settings, changed
from kvchat.memory.learning.title import ANSWER_TOKENS, INSTRUCTION
from kvchat.prompt.conversation import TITLE_LENGTH
from recorder import recording

pytestmark = pytest.mark.engine


async def test_a_title_costs_its_instruction_and_the_next_turn_is_served_from_the_cache(tmp_path):
    with running_server(slots=1, context=8192, cache_ram=0) as server:
        async with (
            recording(server.base_url) as recorder,
            remembering(
                recorder.base_url,
                tmp_path,
                settings=changed(Settings(), "titles.by_model", True),
                enabled=False,
                max_tokens=48,
            ) as service,
        ):
            id = (await service.new_conversations.create("You are the keeper's clerk. " * 40)).id
            await said(service, id, "I keep the log of a lighthouse in Bergen. What should I write down?")
            await until(service, lambda: service.store.side_requests.all(kind=TITLE) and not service.jobs.at_work())
            await said(service, id, "And what about the weather?")
            await until(service, lambda: not service.jobs.at_work())
            answers = [node for node in service.conversations.get(id).path() if node.figures]
            title = service.store.conversation(id).title
    [request] = [one for one in recorder.requests if one.body["messages"][-1]["content"] == INSTRUCTION]
    assert request.figures["prompt_n"] <= 40 and request.figures["cache_n"] > 200, request.figures
    assert request.figures["predicted_n"] <= ANSWER_TOKENS and not request.beside
    wasted = answers[-1].figures.evaluated_tokens - answers[-1].figures.new_tokens
    assert wasted <= 1, answers[-1].figures
    assert 0 < len(title) <= TITLE_LENGTH
