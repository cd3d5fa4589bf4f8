"""The shape of a server's cache comes from its model's file, where that is a file of this machine."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

pytest.importorskip("xllamacpp")
pytest.importorskip("gguf")

from service_play import playing, serving, shape_of

from engine_fixture import small_model
from kvchat.backends.dialect import HostClass, ServerInfo
from kvchat.cache.llamacpp.cache_config import Rewind, Shape
from kvchat.chat.cache import model_file
from kvchat.chat.cache.model_file import model_in_file
from tiny_models import WINDOW, tiny_models

pytestmark = pytest.mark.engine
HERE = ServerInfo("llama.cpp", "http://127.0.0.1:8080", HostClass.LOOPBACK)


@pytest.fixture(autouse=True)
def all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_file, "READ_S", 60.0)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return tiny_models(tmp_path_factory.mktemp("models"), small_model(), ("dense", "hybrid", "sliding"))


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("dense", {(Rewind.ANYWHERE, 0)}),
        ("hybrid", {(Rewind.NOWHERE, 0)}),
        ("sliding", {(Rewind.WINDOW, WINDOW)}),
    ],
)
async def test_nothing_is_guessed_about_the_model_of_a_server_here(
    models: dict[str, Path], tmp_path: Path, kind: str, found: set[tuple[Rewind, int]]
) -> None:
    async with serving(models[kind], shape_of(kind)) as url, playing(url, tmp_path / "data") as play:
        assert {(shape.rewind, shape.window) for shape in play.cache.simulated.guesses.shapes} == found
        assert play.cache.simulated.best.shape.rewind is shape_of(kind).rewind


async def test_a_file_that_another_machines_server_names_is_not_opened(
    models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await model_in_file(HERE, str(models["hybrid"])) == Shape(rewind=Rewind.NOWHERE)
    monkeypatch.setattr(model_file, "_read", lambda file: pytest.fail(f"{file} was opened"))
    for host in (HostClass.LAN, HostClass.CLOUD):
        assert await model_in_file(replace(HERE, host_class=host), str(models["hybrid"])) is None
    assert await model_in_file(HERE, "models/model.gguf") is None, "it is not known where that lies"
    assert await model_in_file(HERE, "") is None


async def test_what_is_no_model_that_can_be_read_is_guessed_about(tmp_path: Path) -> None:
    pipe, text, locked = tmp_path / "pipe", tmp_path / "text.gguf", tmp_path / "locked"
    os.mkfifo(pipe)
    text.write_text("no model")
    locked.symlink_to(locked)
    for path in (pipe, text, locked, tmp_path, tmp_path / "gone.gguf", Path("/dev/zero"), "/\0"):
        assert await model_in_file(HERE, str(path)) is None


async def test_a_drive_that_hangs_makes_nobody_wait(models: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    over = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hanging(file: Path) -> None:
        asyncio.run_coroutine_threadsafe(over.wait(), loop).result()

    monkeypatch.setattr(model_file, "_read", hanging)
    monkeypatch.setattr(model_file, "READ_S", 0.01)
    assert await model_in_file(HERE, str(models["dense"])) is None
    over.set()
