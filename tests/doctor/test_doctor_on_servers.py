"""The doctor at real llama-servers, each in a situation of its own: the right verdict, the right flag."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from examinations import one

import chat_templates as templates
from engine_fixture import running_server, small_model
from kvchat.backends.dialect import Backend, BackendError, ChatTurn, Reported
from kvchat.backends.identify import connect
from kvchat.doctor.examine import BUDGET, examine
from kvchat.doctor.report import DoctorReport, ReturnWay, Severity, Step, Topic, unexamined
from kvchat.doctor.returns import COST
from kvchat.doctor.verdicts import report
from kvchat.doctor.words import headline
from kvchat.prompt.request import Parameters
from kvchat.prompt.wire import canonical
from tiny_models import tiny_models
from tiny_server import tiny_server

pytestmark = pytest.mark.engine
FINE, NOTE, PROBLEM = Severity
SESSION = "0" * 32


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models(tmp_path_factory.mktemp("models"), small_model(), ("dense",))["dense"]


@asynccontextmanager
async def served(model: Path, **options: Any) -> AsyncIterator[Backend]:
    known: dict[str, Any] = {"n_ctx": 8192, "n_parallel": 1, "kv_unified": False, "chat_template": templates.CHATML}
    with tiny_server(model, **(known | options)) as url:
        yield await connect(url)


async def reported(model: Path, **options: Any) -> DoctorReport:
    async with served(model, **options) as backend:
        made = report(await examine(backend, agreed=True))
    assert made.complete, made.examination.failure
    assert made.examination.spent_tokens <= BUDGET
    return made


def about(made: DoctorReport, topic: Topic) -> Severity | None:
    return next((verdict.severity for verdict in made.verdicts if verdict.topic is topic), None)


async def test_all_is_well_with_a_real_model_on_the_built_in_engines_defaults() -> None:
    with running_server(context=8192) as server:
        made = report(await examine(await connect(server.base_url)))
    assert headline(made) == "All is well." and made.well
    three = made.examination.turn(Step.THREE)
    assert three is not None and three.wasted_tokens is not None and three.wasted_tokens <= 8
    assert made.examination.prefill_speed and made.examination.decode_speed


async def test_one_slot_and_no_ram_cache(model: Path) -> None:
    made = await reported(model, cache_ram_mib=0)
    found = one(list(made.verdicts), Topic.SIDE_REQUEST)
    assert found.severity is PROBLEM and "--cache-ram 8192" in found.advice
    after = made.examination.turn(Step.AFTER_SIDE)
    assert after is not None and found.tokens == after.wasted_tokens and found.tokens > 400
    parked = await reported(model, cache_ram_mib=512)
    assert about(parked, Topic.SIDE_REQUEST) is FINE


async def test_a_window_too_small(model: Path) -> None:
    made = await reported(model, n_ctx=512)
    found = one(list(made.verdicts), Topic.WINDOW)
    assert (
        found.severity is PROBLEM
        and "--ctx-size 16384" in found.advice
        and "512 tokens of the 32,768" in found.sentence
    )


async def test_a_template_with_the_date(model: Path) -> None:
    made = await reported(model, chat_template=templates.DATED)
    found = one(list(made.verdicts), Topic.DATE)
    assert found.severity is NOTE and "date_string" in found.advice


async def test_a_template_that_drops_reasoning_with_and_without_a_switch(model: Path) -> None:
    without = one(list((await reported(model, chat_template=templates.FORGETFUL)).verdicts), Topic.REASONING)
    assert "--chat-template-file" in without.advice and "no switch" in without.advice
    switch = one(list((await reported(model, chat_template=templates.KEEPING)).verdicts), Topic.REASONING)
    assert "--reasoning-preserve" in switch.advice


async def test_a_template_that_moves_the_system_message(model: Path) -> None:
    made = await reported(model, chat_template=templates.MOVING)
    found = one(list(made.verdicts), Topic.SYSTEM)
    assert found.severity is PROBLEM and found.tokens is not None and found.tokens > 150
    assert about(made, Topic.CACHING_OFF) is None, "the template is the cause"


async def test_a_template_without_a_place_for_the_system_message(model: Path) -> None:
    made = await reported(model, chat_template=templates.NO_SYSTEM)
    assert about(made, Topic.SYSTEM) is FINE and not made.of(PROBLEM)


async def test_one_kv_cache_for_all_slots_loses_what_is_pinned(model: Path) -> None:
    made = await reported(model, n_parallel=4, kv_unified=True)
    found = one(list(made.verdicts), Topic.PINNING)
    assert found.severity is NOTE and "--no-kv-unified" in found.advice and made.examination.unified is True
    assert about(made, Topic.SIDE_REQUEST) is FINE and made.well
    apart = await reported(model, n_parallel=2, kv_unified=False)
    assert about(apart, Topic.PINNING) is None and apart.examination.unified is None
    assert apart.examination.pinned is not None and apart.examination.pinned.cached == apart.examination.pinned.tokens


@pytest.mark.parametrize("key", [None, "wrong"])
async def test_a_wrong_key(model: Path, key: str | None) -> None:
    with running_server(api_key="right", model=model) as server:
        with pytest.raises(BackendError) as refused:
            await connect(server.base_url, api_key=key)
        made = report(unexamined(server.base_url, refused.value))
        assert not made.well and [verdict.topic for verdict in made.verdicts] == [Topic.KEY]
        assert report(await examine(await connect(server.base_url, api_key="right"), agreed=True)).complete


async def test_the_engine_saves_and_restores_a_slot_and_no_file_stays(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "slots"
    folder.mkdir()
    with running_server(context=8192, snapshots=folder, model=model) as server:
        made = report(await examine(await connect(server.base_url), snapshot_folder=folder))
    snapshot = made.examination.snapshot
    assert snapshot is not None and snapshot.tokens > 400 and snapshot.restore_seconds is not None
    assert about(made, Topic.SNAPSHOTS) is FINE and not list(folder.iterdir())


async def test_a_conversation_that_fills_the_one_slot_is_asked_about_and_left_alone(model: Path) -> None:
    async with served(model) as backend:
        turn = ChatTurn(
            (canonical({"role": "user", "content": "Say something. " * 30}),),
            SESSION,
            parameters=Parameters(max_tokens=4),
        )
        await backend.chat(turn, lambda event: None)
        before = await backend.slot_counts()  # type: ignore[attr-defined]
        found = await examine(backend)
        assert f"holds {before[0].tokens} tokens" in found.question and not found.turns
        assert await backend.slot_counts() == before, "nothing was touched"  # type: ignore[attr-defined]
        assert (await examine(backend, agreed=True)).turns


PREAMBLE = "You are a quiet model that answers in few words and likes the sea, the wind and all that sails. "


@pytest.mark.parametrize(
    ("slots", "held", "template"),
    [
        (2, 1, templates.CHATML),
        (3, 2, templates.CHATML),
        (4, 3, templates.CHATML),
        (6, 3, templates.CHATML),
        (6, 3, PREAMBLE * 3 + templates.CHATML),
    ],
    ids=["2", "3", "4", "6", "all alike"],
)
async def test_without_a_word_no_conversation_loses_its_slot(model: Path, slots: int, held: int, template: str) -> None:
    async with served(model, n_ctx=2048 * slots, n_parallel=slots, cache_ram_mib=0, chat_template=template) as backend:

        async def ask(number: int) -> Reported:
            text = f"person {number} " + f"word{number} sea boat {number * 7} " * 60
            heard: list[Reported] = []
            turn = ChatTurn(
                (canonical({"role": "user", "content": text}),), f"s{number}", "", Parameters(max_tokens=4), slot=number
            )
            await backend.chat(turn, lambda event: heard.append(event) if isinstance(event, Reported) else None)
            return heard[-1]

        for number in range(held):
            await ask(number)
        found = await examine(backend)
        again = [await ask(number) for number in range(held)]
    assert bool(found.question) is (slots - held < 3) and len(found.turns) == (0 if found.question else len(Step))
    assert all((one.cached_tokens or 0) >= (one.prompt_tokens or 0) - 8 for one in again)


@asynccontextmanager
async def dealt_out(ports: list[int]) -> AsyncIterator[str]:
    """A router that gives each connection to the next server, whatever conversation it belongs to."""
    turn = itertools.cycle(ports)

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def passed_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", next(turn))
        await asyncio.gather(carry(reader, there_writer), carry(there_reader, writer))

    async with await asyncio.start_server(passed_on, "127.0.0.1", 0) as router:
        yield f"http://127.0.0.1:{router.sockets[0].getsockname()[1]}"


async def test_a_router_without_session_affinity_in_front_of_two_servers(model: Path) -> None:
    with (
        tiny_server(model, n_ctx=8192, n_parallel=1, chat_template=templates.CHATML) as one_url,
        tiny_server(model, n_ctx=8192, n_parallel=1, chat_template=templates.CHATML) as other_url,
    ):
        async with dealt_out([int(url.rpartition(":")[2]) for url in (one_url, other_url)]) as url:
            made = report(await examine(await connect(url), agreed=True))
    found = one(list(made.verdicts), Topic.AFFINITY)
    assert made.examination.replicas == 2
    assert found.severity is PROBLEM and found.sentence.startswith("2 servers") and "X-Session-ID" in found.advice
    assert about(made, Topic.CACHING_OFF) is None


async def test_each_way_in_which_a_state_comes_back_is_proved(model: Path, tmp_path: Path) -> None:
    async with served(model, n_parallel=2, slot_save_path=f"{tmp_path}{os.sep}") as backend:
        found = await examine(backend, agreed=True, deep=True, snapshot_folder=tmp_path)
    assert [back.way for back in found.returns] == [*ReturnWay]
    assert {back.way: back.difference for back in found.returns} == dict.fromkeys(ReturnWay, 0.0)
    assert all(back.tokens > 200 and back.ms for back in found.returns)
    assert found.spent_tokens <= BUDGET + COST and not list(tmp_path.glob("*.bin"))
    async with served(model, cache_ram_mib=0) as backend:
        found = await examine(backend, agreed=True, deep=True)
    assert [back.way for back in found.returns if back.ms is not None] == [ReturnWay.SLOT]
    told = one(list(report(found).verdicts), Topic.SNAPSHOTS)
    assert "--slot-save-path" in told.advice and told.tokens is not None and told.tokens > 300
