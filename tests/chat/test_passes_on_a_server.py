"""Skills and episodes with a real model: each costs its instruction, and the turn after them costs nothing more."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("xllamacpp")

from remembering_kit import remembering, said, until

from engine_fixture import running_server
from recorder import recording

pytestmark = pytest.mark.engine


class Clock:
    now = datetime(2026, 11, 16, 9, 0, tzinfo=UTC)

    def __call__(self):
        self.now += timedelta(seconds=1)
        return self.now


async def test_each_pass_is_a_suffix_and_the_next_turn_is_served_from_the_cache(tmp_path):
    with running_server(slots=1, context=8192, cache_ram=0) as server:
        async with (
            recording(server.base_url) as recorder,
            remembering(
                recorder.base_url, tmp_path, skills=True, episodes=True, every_messages=1000, max_tokens=32
            ) as service,
        ):
            service.clock = service.core.clock = clock = Clock()
            id = (await service.new_conversations.create("You are the keeper's clerk. " * 40)).id
            await said(service, id, "My kiln in Bergen trips the breaker when I start it. What do I do?")
            clock.now += timedelta(hours=20)
            await said(service, id, "That worked, thank you. And what about the glaze?")
            await service.extraction.request(id)
            spent = service.store.side_requests
            await until(
                service,
                lambda: spent.all(kind="skills") and spent.all(kind="episodes") and not service.jobs.at_work(),
                seconds=900,  # three answers of a real model, on whatever machine
            )
            await said(service, id, "And which clay?")
            answer = service.conversations.get(id).path()[-1].figures
    passes = [one for one in recorder.requests if one.is_background and one.is_whole]
    names = {one.body["response_format"]["json_schema"]["name"] for one in passes}
    assert names == {"facts", "skills", "episodes"}
    for one in passes:
        assert not one.beside and one.figures["cache_n"] > 250 and one.figures["prompt_n"] < 300, one.figures
    assert answer.evaluated_tokens - answer.new_tokens <= 1, answer
