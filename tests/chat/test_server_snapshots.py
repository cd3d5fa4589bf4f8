"""Saved states on a server that is not kvchat's own: a conversation is saved before another one takes its slot, and a
return to it prefills only what is new."""

from __future__ import annotations

import dataclasses
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

pytest.importorskip("xllamacpp")
pytest.importorskip("gguf")

from service_play import Play, shape_of, text

from engine_fixture import small_model
from kvchat.chat.cache.states import snapshots, state_saver
from kvchat.chat.events import Noticed
from kvchat.chat.service import ChatService
from kvchat.config import Settings, changed
from kvchat.figures.accounting import NOISE, TurnFigures
from kvchat.figures.cause import Cause
from kvchat.store import Store
from kvchat.values import Statement
from tiny_models import tiny_models
from tiny_server import tiny_server

pytestmark = pytest.mark.engine
Act = Callable[[Play, str], Awaitable[TurnFigures]]
TINY_BYTES = 300
"""A token of the tiny models takes about so much; they prefill so fast that the usual guess would not pay."""
SYSTEM = "You answer briefly. " * 60


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "TOKEN_BYTES", TINY_BYTES)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return tiny_models(tmp_path_factory.mktemp("models"), small_model(), ("dense", "sliding", "hybrid"))


@asynccontextmanager
async def begun(
    url: str, data: Path, kind: str = "dense", slots: int = 1, *, knows: bool = True, **server: object
) -> AsyncIterator[Play]:
    """A kvchat on the server at `url`, with its data in `data`. `knows`: what the server's cache is like."""
    settings = changed(Settings(), "server.base_url", url)
    for name, value in server.items():
        settings = changed(settings, f"server.{name}", value)
    settings = changed(settings, "memory.enabled", False)
    service = ChatService(Store.open(data), settings, snapshots=data / "snapshots")
    shape = shape_of(kind, slots=slots, ram=0, batch=2048)
    if knows:
        service.servers.link().connector.cache_shape = lambda: replace(shape, micro_batch=512)  # type: ignore[method-assign]
    service.warm_up.enabled = False
    play = Play(service)
    try:
        await play.begin()
        yield play
    finally:
        await service.aclose()


@asynccontextmanager
async def serving(model: Path, slots: int = 1, folder: Path | None = None) -> AsyncIterator[str]:
    where = {"slot_save_path": f"{folder}{os.sep}"} if folder is not None else {}
    with tiny_server(model, n_parallel=slots, kv_unified=False, n_ctx=4096 * slots, cache_ram_mib=0, **where) as url:
        yield url


async def there_and_back(play: Play, chance: random.Random, *, keep: bool = False) -> TurnFigures:
    """A long conversation, perhaps kept, a look at another one that begins alike, unless it is kept, and the turn
    back."""
    one = await play.service.new_conversations.create(SYSTEM, reuse=False)
    for _ in range(3):
        await play.say(one.id, text(chance, [60]))
    if keep:
        await play.service.kept.keep(one.id)
        await play.service.kept.settled()
    other = await play.service.new_conversations.create("Write at length. " * 60 if keep else SYSTEM, reuse=False)
    await play.say(other.id, text(chance, [10]))
    return await play.say(one.id, text(chance, [10]))


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("kind", ["dense", "sliding", "hybrid"])
async def test_a_turn_back_prefills_what_is_new(tmp_path: Path, models: dict[str, Path], kind: str, slots: int) -> None:
    folder = tmp_path / "slots"
    folder.mkdir()
    async with serving(models[kind], slots, folder) as url, begun(url, tmp_path / "data", kind, slots) as play:
        told: list[object] = []
        play.service.events.subscribe(told.append)
        back = await there_and_back(play, random.Random(kind))
        assert back.evaluated_tokens is not None and back.new_tokens is not None
        assert back.evaluated_tokens <= back.new_tokens + (8 if kind == "dense" else 40), back
        assert not any(isinstance(event, Noticed) for event in told), told
        assert all(abs((turn.predicted_cached or 0) - (turn.cached_tokens or 0)) <= NOISE for turn in play.turns[1:])
        if slots == 1:
            assert {path.name[:7] for path in folder.iterdir()} == {"kvchat-"}


@pytest.mark.parametrize("kind", ["dense", "hybrid"])
async def test_what_is_kept_comes_back_at_the_first_return_though_the_cache_is_only_guessed(
    tmp_path: Path, models: dict[str, Path], kind: str
) -> None:
    folder = tmp_path / "slots"
    folder.mkdir()
    async with serving(models[kind], 1, folder) as url, begun(url, tmp_path / "data", knows=False) as play:
        back = await there_and_back(play, random.Random(kind), keep=True)
        assert back.wasted_tokens is not None and back.wasted_tokens <= NOISE, back


async def test_what_a_restore_ran_over_is_told(tmp_path: Path, models: dict[str, Path]) -> None:
    folder = tmp_path / "slots"
    folder.mkdir()
    async with serving(models["dense"], 1, folder) as url, begun(url, tmp_path / "data") as play:
        back = await there_and_back(play, random.Random(1), keep=True)
        assert back.wasted_tokens is not None and back.wasted_tokens <= NOISE, "the state that is kept was restored"
        first, other = list(play.service.conversations.loaded)
        await play.service.servers.links.forget([other])
        figures = await play.say(other, "And then?")
        assert figures.cause == Cause.SLOT_TAKEN, figures
        assert isinstance(figures.evidence, Statement) and figures.evidence["name"] == play.service.conversations.title(
            first
        )


async def test_without_the_flag_or_with_the_setting_off_nothing_is_saved(
    tmp_path: Path, models: dict[str, Path]
) -> None:
    folder = tmp_path / "slots"
    folder.mkdir()
    async with serving(models["dense"]) as url, begun(url, tmp_path / "data") as play:
        back = await there_and_back(play, random.Random(1))
        assert (back.evaluated_tokens or 0) > 100
    async with serving(models["dense"], folder=folder) as url, begun(url, tmp_path / "other", snapshots=False) as play:
        assert ((await there_and_back(play, random.Random(1))).evaluated_tokens or 0) > 100
    assert not list(folder.iterdir())


async def test_a_file_that_changed_at_the_server_is_not_used_and_the_person_is_told(
    tmp_path: Path, models: dict[str, Path]
) -> None:
    folder, chance = tmp_path / "slots", random.Random(2)
    folder.mkdir()
    async with serving(models["dense"], folder=folder) as url, begun(url, tmp_path / "data") as play:
        told: list[str] = []
        play.service.events.subscribe(lambda event: told.append(event.text) if isinstance(event, Noticed) else None)
        one = await play.service.new_conversations.create(SYSTEM, reuse=False)
        for _ in range(3):
            await play.say(one.id, text(chance, [60]))
        other = await play.service.new_conversations.create(SYSTEM, reuse=False)
        await play.say(other.id, text(chance, [10]))
        for file in folder.iterdir():
            data = bytearray(file.read_bytes())
            for at in range(len(data) // 3, len(data) // 3 + 4000, 2):
                data[at] ^= 0x40
            file.write_bytes(data)
        back = await play.say(one.id, text(chance, [10]))
        assert back.cached_tokens is not None and back.cached_tokens < (back.prompt_tokens or 0) // 2
        assert told == [
            "The snapshot of this conversation did not come back as it was saved; the conversation is read "
            "by the server instead."
        ]
        again = await play.say(one.id, text(chance, [10]))
        assert (again.wasted_tokens or 0) <= 8


async def test_a_conversation_outlives_a_restart_of_the_server(tmp_path: Path, models: dict[str, Path]) -> None:
    folder, chance = tmp_path / "slots", random.Random(3)
    folder.mkdir()
    async with serving(models["dense"], folder=folder) as url:
        port = int(url.rsplit(":", 1)[1])
        async with begun(url, tmp_path / "data") as play:
            one = await play.service.new_conversations.create(SYSTEM, reuse=False)
            for _ in range(3):
                await play.say(one.id, text(chance, [60]))
            other = await play.service.new_conversations.create(SYSTEM, reuse=False)
            await play.say(other.id, text(chance, [10]))
    with tiny_server(
        models["dense"],
        n_parallel=1,
        kv_unified=False,
        n_ctx=4096,
        cache_ram_mib=0,
        port=port,
        slot_save_path=f"{folder}{os.sep}",
    ) as url:
        async with begun(url, tmp_path / "data") as play:
            await play.service.conversations.open(one.id)
            back = await play.say(one.id, text(chance, [10]))
            assert (back.evaluated_tokens or 0) <= (back.new_tokens or 0) + 8, back


async def regenerate(play: Play, id: str) -> TurnFigures:
    await play.service.turns.regenerate(id, play.service.conversations.load(id).path()[-1].id)
    return await play.answered(id)


async def edit(play: Play, id: str) -> TurnFigures:
    await play.service.turns.edit(id, play.questions(id)[-1], "Something else, then?")
    return await play.answered(id)


async def fork(play: Play, id: str) -> TurnFigures:
    return await play.say((await play.service.branches.fork(id, play.questions(id)[-1])).id, "And then?")


async def append(play: Play, id: str) -> TurnFigures:
    return await play.say(id, "And then?")


async def go_on(play: Play, id: str) -> TurnFigures:
    await play.service.turns.go_on(id, play.service.conversations.load(id).path()[-1].id)
    return await play.answered(id)


@pytest.mark.parametrize(
    "act", [append, regenerate, *(pytest.param(act, marks=pytest.mark.slow) for act in (edit, fork, go_on))]
)
@pytest.mark.parametrize("kind", ["dense", "sliding", "hybrid"])
async def test_an_act_after_a_restart_goes_on_from_what_was_saved(
    tmp_path: Path, models: dict[str, Path], kind: str, act: Act
) -> None:
    """Also one that goes back in it: the last answer, of 100 tokens, is not evaluated again."""
    folder, chance = tmp_path / "slots", random.Random(3)
    folder.mkdir()
    async with serving(models[kind], folder=folder) as url, begun(url, tmp_path / "data", kind, knows=False) as play:
        port, service = int(url.rsplit(":", 1)[1]), play.service
        id = (await service.new_conversations.create(SYSTEM, reuse=False)).id
        for words in (60, 60, 10):
            await play.say(id, text(chance, [words]))
        answers(play, 100)
        await play.say(id, "Why?")
        await saved(play)
        assert list(folder.iterdir()), "it is saved"
    where = {"cache_ram_mib": 0, "slot_save_path": f"{folder}{os.sep}"}
    with tiny_server(models[kind], n_parallel=1, kv_unified=False, n_ctx=4096, port=port, **where) as url:
        async with begun(url, tmp_path / "data", kind, knows=False) as play:
            answers(play, 12)
            await play.service.conversations.open(id)
            figures = await act(play, id)
    assert figures.predicted_cached == figures.cached_tokens, figures
    assert figures.evaluated_tokens is not None and figures.new_tokens is not None
    assert figures.evaluated_tokens <= figures.new_tokens + NOISE, figures


async def saved(play: Play) -> None:
    """What the slots hold is saved, as after a minute's rest."""
    service = play.service
    await service.saver.ready(await service.servers.link().connector.ready())
    await play.cache.settled()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state_saver, "IDLE_S", 0.0)
        service.saver.save_soon()
        await service.saver.ended()


@pytest.mark.parametrize("kind", ["dense", "hybrid"])
async def test_a_state_comes_back_beside_another_one_where_all_slots_share_a_cache(
    tmp_path: Path, models: dict[str, Path], kind: str
) -> None:
    """llama-server's default. It lies elsewhere among the cells then, and answers with other last bits."""
    folder, chance, port = tmp_path / "slots", random.Random(5), 0
    folder.mkdir()
    told, ids = list[object](), list[str]()
    for _ in range(2):
        where = {"port": port, "slot_save_path": f"{folder}{os.sep}"}
        with tiny_server(models[kind], n_parallel=4, kv_unified=True, n_ctx=8192, **where) as url:
            port = int(url.rsplit(":", 1)[1])
            async with begun(url, tmp_path / "data", kind, knows=False) as play:
                play.service.events.subscribe(told.append)
                other = await play.service.new_conversations.create("Write at length. " * 60, reuse=False)
                await play.say(other.id, text(chance, [200]))
                if not ids:
                    ids.append((await play.service.new_conversations.create(SYSTEM, reuse=False)).id)
                    for _ in range(3):
                        await play.say(ids[0], text(chance, [60]))
                    await saved(play)
                    assert list(folder.iterdir()), "it is saved"
                else:
                    figures = await play.say(ids[0], text(chance, [10]))
    assert figures.predicted_cached == figures.cached_tokens, figures
    assert (figures.wasted_tokens or 0) <= NOISE, figures
    assert not [event for event in told if isinstance(event, Noticed)]


def answers(play: Play, tokens: int) -> None:
    core = play.service.core
    parameters = replace(core.settings.parameters, max_tokens=tokens)
    core.settings = dataclasses.replace(core.settings, parameters=parameters)


async def test_two_stores_on_one_server_leave_each_other_their_files(tmp_path: Path, models: dict[str, Path]) -> None:
    folder = tmp_path / "slots"
    folder.mkdir()
    async with serving(models["dense"], folder=folder) as url:
        async with begun(url, tmp_path / "one") as play:
            await there_and_back(play, random.Random(4))
            first = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
        async with begun(url, tmp_path / "two") as play:
            await there_and_back(play, random.Random(5))
        now = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
        assert first and first.items() < now.items()


async def test_a_folder_at_hand_loses_the_files_of_a_deleted_conversation(
    tmp_path: Path, models: dict[str, Path]
) -> None:
    folder = tmp_path / "slots"
    folder.mkdir()
    async with (
        serving(models["dense"], folder=folder) as url,
        begun(url, tmp_path / "data", snapshot_folder=str(folder)) as play,
    ):
        await there_and_back(play, random.Random(6))
        assert list(folder.iterdir())
        await play.service.servers.links.forget(list(play.service.conversations.loaded))
        assert not list(folder.iterdir())
