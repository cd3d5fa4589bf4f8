"""The engine of one's own for vectors: when it runs, when it ends, and what is told when it does not."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from kvchat.backends import embeddings, local_embeddings
from kvchat.backends.dialect import BackendError, Trouble
from kvchat.backends.embeddings import REST_S
from kvchat.backends.engine.log import EngineError
from kvchat.backends.engine.options import EngineOptions
from kvchat.backends.engine.process import EngineAddress, EngineExit
from kvchat.backends.http.transport import Clock
from kvchat.backends.local_embeddings import BATCH, LocalEmbeddings
from kvchat.config.settings import EmbeddingSettings
from kvchat.text.engine import EngineProblem
from standins.embeddings import EmbeddingsStandIn, vector
from toyserver import drop, hang


class ToyEngine:
    """An engine whose server is a stand-in; it can be slow to start, fail, and die."""

    def __init__(self, server: EmbeddingsStandIn) -> None:
        self.server = server
        self.endpoint: EngineAddress | None = None
        self.started: list[EngineOptions] = []
        self.stops = 0
        self.gone = asyncio.Event()
        self.begun = asyncio.Event()
        self.loaded = asyncio.Event()
        self.loaded.set()
        self.error: EngineError | None = None
        self.on_exit: Callable[[EngineExit], None] = lambda _: None

    async def start(self, options: EngineOptions) -> EngineAddress:
        self.started.append(options)
        self.begun.set()
        await self.loaded.wait()
        if self.error:
            raise self.error
        self.gone.clear()
        self.endpoint = EngineAddress(self.server.url, self.server.key)
        return self.endpoint

    async def stop(self) -> None:
        self.stops += 1
        self.endpoint = None
        self.gone.set()

    async def wait(self) -> int:
        await self.gone.wait()
        return -9

    def die(self) -> None:
        self.endpoint = None
        self.gone.set()
        self.on_exit(EngineExit(-9, ["last words"]))


def gguf(path: Path, **facts: int | str) -> Path:
    """A model file's header."""
    body = b""
    for key, value in facts.items():
        name = key.replace("__", ".").encode()
        body += struct.pack("<Q", len(name)) + name
        body += (
            struct.pack("<II", 4, value)
            if isinstance(value, int)
            else struct.pack("<IQ", 8, len(value)) + value.encode()
        )
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 1, len(facts)) + body + bytes(64))
    return path


@pytest.fixture
async def engine(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ToyEngine]:
    async with EmbeddingsStandIn(key="its-own-key") as server:
        toy = ToyEngine(server)

        def made(on_exit: Callable[[EngineExit], None]) -> ToyEngine:
            toy.on_exit = on_exit
            return toy

        monkeypatch.setattr(local_embeddings, "Engine", made)
        yield toy


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return gguf(tmp_path / "nomic-embed-text.gguf", general__architecture="bert", bert__pooling_type=1)


async def refused(source: LocalEmbeddings) -> BackendError:
    with pytest.raises(BackendError) as caught:
        await source.vectors(["a cat"])
    assert caught.value.sentence.endswith((".", ")")) and caught.value.sentence.isprintable()
    return caught.value


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_the_engine_runs_from_the_first_text_on_and_gives_its_vectors(engine: ToyEngine, model: Path) -> None:
    source = LocalEmbeddings(model)
    assert await source.vectors([]) == [] and engine.started == [] and not source.is_running
    texts = [f"text number {number}" for number in range(2 * BATCH + 1)]
    assert await source.vectors(texts) == [pytest.approx(vector(f"search_document: {text}")) for text in texts]
    assert await source.vector("which cat?") == pytest.approx(vector("search_query: which cat?"))
    [options] = engine.started
    assert source.is_running and options.embeds and options.model == model and options.cache_ram == 0
    assert max(len(asked) for asked in engine.server.asked) <= BATCH
    await source.aclose()


async def test_two_who_ask_at_once_start_one_engine(engine: ToyEngine, model: Path) -> None:
    source = LocalEmbeddings(model)
    engine.loaded.clear()
    asking = asyncio.gather(source.vectors(["a cat"]), source.vectors(["a dog"]))
    await settled()
    engine.loaded.set()
    assert len(await asking) == 2 and len(engine.started) == 1
    await source.aclose()


async def test_vectors_are_kept_under_the_name_of_the_very_file(engine: ToyEngine, model: Path) -> None:
    name = LocalEmbeddings(model).model
    assert model.name in name and name == LocalEmbeddings(model).model
    model.write_bytes(model.read_bytes() + b"more")
    assert LocalEmbeddings(model).model != name
    assert LocalEmbeddings(model.with_name("gone.gguf")).model == "gone.gguf"


# Its end.


async def test_it_ends_when_idle_and_is_started_again_when_needed(engine: ToyEngine, model: Path) -> None:
    source = LocalEmbeddings(model, idle=0.0)
    await source.vectors(["a cat"])
    await engine.gone.wait()
    assert not source.is_running
    assert await source.vectors(["a cat"]) and len(engine.started) == 2
    await source.aclose()


async def test_it_does_not_end_while_it_works(engine: ToyEngine, model: Path) -> None:
    source = LocalEmbeddings(model, idle=0.0)
    engine.server.once(hang())
    asking = asyncio.create_task(source.vectors(["a cat"]))
    await engine.server.until(lambda: engine.server.posts == 1)
    await asyncio.sleep(0.01)
    assert engine.stops == 0
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await source.aclose()


async def test_closed_it_has_ended_and_starts_no_more(engine: ToyEngine, model: Path) -> None:
    source = LocalEmbeddings(model)
    await source.vectors(["a cat"])
    await source.aclose()
    assert engine.endpoint is None and not source.is_running
    await refused(source)
    with pytest.raises(BackendError):
        await source.vector("which cat?")
    await source.aclose()
    assert len(engine.started) == 1


async def test_closed_while_it_starts_it_does_not_come_up(engine: ToyEngine, model: Path) -> None:
    source = LocalEmbeddings(model)
    engine.loaded.clear()
    asking = asyncio.create_task(source.vectors(["a cat"]))
    await engine.begun.wait()
    await source.aclose()
    with pytest.raises((BackendError, asyncio.CancelledError)):
        await asking
    engine.loaded.set()
    await settled()
    assert engine.endpoint is None


# Questions.


async def test_a_question_does_not_wait_for_a_slow_start_and_the_next_one_finds_it_done(
    engine: ToyEngine, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embeddings, "QUERY_S", 0.01)
    source = LocalEmbeddings(model)
    engine.loaded.clear()
    for _ in range(2):
        with pytest.raises(BackendError) as caught:
            await source.vector("which cat?")
        assert caught.value.trouble is Trouble.LOADING
    engine.loaded.set()
    monkeypatch.setattr(embeddings, "QUERY_S", 5.0)
    assert await source.vector("which cat?") and len(engine.started) == 1
    await source.aclose()


async def test_a_question_that_is_given_up_leaves_the_start_going(engine: ToyEngine, model: Path) -> None:
    source = LocalEmbeddings(model)
    engine.loaded.clear()
    asking = asyncio.create_task(source.vector("which cat?"))
    await engine.begun.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    engine.loaded.set()
    await settled()
    assert source.is_running
    await source.aclose()


async def test_after_a_failed_start_questions_do_not_start_it_again_for_a_while(engine: ToyEngine, model: Path) -> None:
    seconds = 0.0
    source = LocalEmbeddings(model, clock=Clock(now=lambda: seconds))
    engine.error = EngineError(EngineProblem.NO_MEMORY, path="it")
    for _ in range(3):
        with pytest.raises(BackendError, match="memory"):
            await source.vector("which cat?")
    assert len(engine.started) == 1
    engine.error, seconds = None, REST_S + 1
    assert await source.vector("which cat?")
    await source.aclose()


# What goes wrong.


@pytest.mark.parametrize(("name", "said"), [("missing", "missing.gguf"), ("garbage", "GGUF"), ("ranker", "ranks")])
async def test_a_file_that_makes_no_vectors_is_told_with_the_setting(
    name: str, said: str, engine: ToyEngine, tmp_path: Path
) -> None:
    path = tmp_path / f"{name}.gguf"
    if name == "garbage":
        path.write_bytes(b"garbage" * 100)
    elif name == "ranker":
        gguf(path, general__architecture="bert", bert__pooling_type=4)
    told = await refused(LocalEmbeddings(path))
    assert said in told.sentence and "embeddings.model" in told.sentence and engine.started == []


async def test_an_engine_that_dies_is_told_and_started_again_by_the_next_texts(engine: ToyEngine, model: Path) -> None:
    source = LocalEmbeddings(model)
    await source.vectors(["a cat"])
    engine.server.once(drop(), drop())
    asking = asyncio.create_task(refused(source))
    await engine.server.until(lambda: engine.server.posts == 3)
    engine.die()
    told = await asking
    assert "SIGKILL" in told.sentence and str(model) in told.sentence and "http" not in told.sentence
    assert await source.vectors(["a cat"]) and len(engine.started) == 2
    await source.aclose()


@pytest.mark.parametrize(
    ("base_url", "model", "file"),
    [
        ("", "~/models/nomic.gguf", "~/models/nomic.gguf"),
        ("", "/models/E5.GGUF", "/models/E5.GGUF"),
        ("", "", ""),
        ("", "nomic-embed-text", ""),
        ("http://127.0.0.1:8081", "nomic.gguf", ""),
    ],
)
def test_a_model_file_is_run_here_where_the_settings_name_no_server(base_url: str, model: str, file: str) -> None:
    assert EmbeddingSettings(base_url=base_url, model=model).local_model == file
