"""Engines with a prefix cache among all the others: each is found for what it is by whoever just connects."""

from __future__ import annotations

import pytest
from engine_talk import ENGINES, recorded_answers, recordings

from kvchat.backends.identify import connect
from kvchat.backends.recognition import recognised

ALIASES = {"llama-server": "llama.cpp"}


@pytest.mark.parametrize("name", ENGINES)
async def test_whoever_connects_finds_what_it_is(name: str) -> None:
    async with ENGINES[name]() as server:
        assert (await connect(server.url)).info.kind == name.partition(",")[0].partition(" behind")[0]


@pytest.mark.parametrize("name", recordings())
def test_recorded_answers_of_a_real_server_tell_what_it_is(name: str) -> None:
    found = recognised(recorded_answers(name))
    assert found is not None and found.name == ALIASES.get(name, name)
