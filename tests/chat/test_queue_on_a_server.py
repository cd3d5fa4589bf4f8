"""A queue on a real server with memory at work beside it: nothing is prefilled twice, and nothing comes in between."""

from __future__ import annotations

import itertools

import pytest

pytest.importorskip("xllamacpp")

from remembering_kit import pending, remembering, until

from engine_fixture import running_server
from kvchat.chat.question import Question
from kvchat.config import Settings, changed
from kvchat.prompt.message import Role
from kvchat.prompt.request import Parameters
from recorder import recording

pytestmark = pytest.mark.engine


async def test_a_queue_of_three_wastes_nothing_and_work_in_spare_time_waits_for_its_end(tmp_path):
    with running_server(slots=1, context=8192, cache_ram=0) as server:
        async with (
            recording(server.base_url) as recorder,
            remembering(
                recorder.base_url, tmp_path, reads_ahead=True, settings=changed(Settings(), "time_stamp", False)
            ) as service,
        ):
            id = (await service.new_conversations.create("You are the keeper's clerk. " * 40)).id
            await service.options.set_parameters(id, Parameters(temperature=0.0, max_tokens=80, stop=(".",)))
            for text in ("My name is Tove.", "I keep the log of a lighthouse.", "I live in Bergen."):
                await service.turns.send(id, Question(text))
                await service.conversations.wait(id)
            await until(service, lambda: not pending(service, id) and not service.jobs.at_work())
            before = len(recorder.requests)
            await service.turns.send(id, Question("Say something about the sea."))
            for text in ("My sister Ida repairs clocks.", "The lamp turns every twelve seconds.", "And the moon?"):
                await service.turns.queue_up(id, Question(text))
            await service.conversations.wait(id)
            path = service.conversations.get(id).path()
            await until(service, lambda: not pending(service, id) and not service.jobs.at_work())
    asked, answers = recorder.requests[before:], [node for node in path if node.role is Role.ASSISTANT]
    assert [request.is_background for request in asked[:4]] == [False] * 4, "something came in between"
    assert recorder.background
    assert not [request for request in recorder.requests if request.beside]
    sent = [request.body["messages"] for request in recorder.chats]
    assert all(
        later[: len(earlier) + 1] == [*earlier, later[len(earlier)]] for earlier, later in itertools.pairwise(sent)
    )
    assert [len(messages) for messages in sent] == [2, 4, 6, 8, 10, 12, 14]
    wasted = [node.figures.wasted_tokens for node in answers[1:]]
    assert None not in wasted and max(wasted) <= 1, wasted
