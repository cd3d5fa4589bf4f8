"""The library of the cache against a real llama-server: its example's figures, and the client of `examples`."""

from __future__ import annotations

import random
import re
from importlib.util import module_from_spec, spec_from_file_location
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import kvchat.cache
from engine_fixture import running_server
from kvchat.cache import Shape

pytestmark = pytest.mark.engine

EXAMPLE = spec_from_file_location("predict", Path(__file__).parents[2] / "examples" / "predict.py")
README = (Path(kvchat.cache.__file__).parent / "README.md").read_text()
TURN = re.compile(r'>>> (?:turn\("(\w)", (\d+), cached=(\d+)\)|(slots, tasks = ))')
SAID = re.compile(r"predicted (\d+), cached (\d+), new (\d+), wasted (\d+)(?:: (\w+))?")


def client(url: str) -> Any:
    """That of the example."""
    assert EXAMPLE is not None and EXAMPLE.loader is not None
    EXAMPLE.loader.exec_module(module := module_from_spec(EXAMPLE))
    return module.Client(url)


class Conversations:
    """Those of one client, with invented token ids that begin alike."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self._chance = random.Random(1)
        self._system = self.ids(300)

    def ids(self, count: int) -> list[int]:
        return [self._chance.randrange(1000, 40_000) for _ in range(count)]

    def say(self, name: str, count: int) -> tuple[int, int, int, int, str]:
        """Predicted, cached, new and wasted tokens, and the cause."""
        begins = [] if self.client.ids[name] else self._system
        found = SAID.match(self.client.say(name, begins + self.ids(count), 40))
        assert found is not None
        predicted, cached, new, wasted = map(int, found.groups()[:4])
        return predicted, cached, new, wasted, found[5] or ""


def test_the_server_reports_the_figures_of_the_readme() -> None:
    turns = TURN.findall(README)
    (restart,) = (at for at, turn in enumerate(turns) if turn[3])
    with running_server(slots=2, cache_ram=0) as server:
        talks = Conversations(client(server.base_url))
        talks.client.cache = kvchat.cache.Cache(known=Shape(slots=2, context=8192, ram_bytes=0))
        for name, count, cached, _ in turns[:restart]:
            assert talks.say(name, int(count))[:2] == (int(cached), int(cached))
    with running_server(slots=2, cache_ram=0) as server:
        talks.client.url = server.base_url
        for name, count, cached, _ in turns[restart + 1 :]:
            assert talks.say(name, int(count))[::4] == (int(cached), "restarted")
    assert len(turns) > 9


@pytest.mark.parametrize("cache_ram", [-2, 0])
def test_the_example_predicts_a_server_that_it_knows_nothing_of(cache_ram: int) -> None:
    """Conversations in turns, of which two begin alike; the causes are the acts that were done."""
    with running_server(slots=2, cache_ram=cache_ram) as server:
        talks = Conversations(client(server.base_url))
        names = ["A", "B", "A", "A", "B", "C", "A", "C", "B"]
        found = [(name, *talks.say(name, 40)) for name in names]
    assert [said for _, said, *_ in found] == [cached for _, _, cached, *_ in found]
    causes = {(was, now): cause for (was, *_), (now, *_, cause) in pairwise(found[1:]) if cause}
    assert set(causes.values()) == {"slot_taken"} and ("A", "A") not in causes
