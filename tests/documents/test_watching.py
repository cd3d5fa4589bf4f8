"""Being told of changes by the system, and being told nothing without harm."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from indexing_kit import made

from kvchat.documents.indexing import watching
from kvchat.documents.indexing.watching import changes


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "SETTLED_S", 0.3)
    monkeypatch.setattr(watching, "_STEP_MS", 50)


async def next_of(names: AsyncIterator[str], seconds: float = 20.0) -> str:
    return await asyncio.wait_for(anext(names), seconds)


async def watched(names: AsyncIterator[str], poke: Path) -> asyncio.Task[str]:
    """The next change, once watching has begun: `poke` is written to until it is noticed."""
    task = asyncio.ensure_future(anext(names))
    for _ in range(100):
        if task.done():
            return task
        poke.write_text("poke")
        await asyncio.sleep(0.7)
    raise AssertionError("nothing was told")


async def test_a_change_below_a_root_names_its_collection(tmp_path: Path) -> None:
    pytest.importorskip("watchfiles")
    one, two = made(tmp_path / "one", {"sub/a.md": "x"}), made(tmp_path / "two", {"b.md": "x"})
    names = changes({"one": one, "two": two, "missing": tmp_path / "missing"})
    assert await (await watched(names, one / "poke")) == "one"
    (two / "b.md").write_text("changed")
    assert await next_of(names) == "two"
    (one / "sub" / "a.md").unlink()
    assert await next_of(names) == "one"
    await names.aclose()  # type: ignore[attr-defined]


async def test_a_single_file_that_is_replaced_names_its_collection(tmp_path: Path) -> None:
    pytest.importorskip("watchfiles")
    made(tmp_path, {"plan.md": "x"})
    names = changes({"plan": tmp_path / "plan.md"})
    assert await (await watched(names, tmp_path / "plan.md")) == "plan"
    (tmp_path / "other.md").write_text("not of the collection")
    (tmp_path / "new").write_text("saved as editors do")
    (tmp_path / "new").rename(tmp_path / "plan.md")
    assert await next_of(names) == "plan"
    await names.aclose()  # type: ignore[attr-defined]


class Told:
    """A library that tells what the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *batches: list[str] | BaseException) -> None:
        monkeypatch.setitem(sys.modules, "watchfiles", SimpleNamespace(watch=self._watch))
        self._batches = batches
        self.stopped: Any = None

    def _watch(self, *folders: str, stop_event: Any, **more: object) -> Any:
        self.stopped = stop_event
        for batch in self._batches:
            if isinstance(batch, BaseException):
                raise batch
            yield {(1, path) for path in batch}
        stop_event.wait(120)


async def test_many_changes_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Told(monkeypatch, *([str(tmp_path / f"{i}.md")] for i in range(50)))
    names = changes({"notes": tmp_path})
    assert await next_of(names) == "notes"
    with pytest.raises(TimeoutError):
        await next_of(names, 1.0)


async def test_a_collection_that_never_rests_is_named_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter(i / 10 for i in range(10_000))
    settling = watching._Settling(lambda: next(times))
    named = 0
    for _ in range(1000):
        settling.changed("log")
        named += len(settling.rested())
    assert 1 < named < 20


async def test_what_tools_write_is_no_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Told(monkeypatch, [str(tmp_path / path) for path in (".git/index", "node_modules/a/b.js", "data/index.db-journal")])
    with pytest.raises(TimeoutError):
        await next_of(changes({"notes": tmp_path}), 1.0)


async def test_folders_inside_each_other_are_both_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path, {"sub/a.md": ""})
    Told(monkeypatch, [str(tmp_path / "sub" / "a.md")])
    names = changes({"all": tmp_path, "sub": tmp_path / "sub"})
    assert {await next_of(names), await next_of(names)} == {"all", "sub"}


@pytest.mark.parametrize(
    "error", [OSError(28, "OS file watch limit reached."), FileNotFoundError(), BaseException("panic")]
)
async def test_a_watch_that_cannot_be_kept_ends_quietly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    Told(monkeypatch, error)
    assert [name async for name in changes({"notes": tmp_path})] == []


async def test_without_the_library_nothing_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    assert [name async for name in changes({"notes": tmp_path})] == []


async def test_without_collections_nothing_is_told() -> None:
    assert [name async for name in changes({})] == []


async def test_whoever_stops_listening_ends_the_watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(monkeypatch, [str(tmp_path / "a.md")])
    names = changes({"notes": tmp_path})
    await next_of(names)
    task = asyncio.ensure_future(anext(names))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert told.stopped.is_set()


@pytest.mark.process
def test_the_library_is_not_loaded_before_it_is_used() -> None:
    import subprocess

    code = (
        "import sys; from kvchat.documents.indexing import index_run, process, watching; "
        "print([name for name in ('watchfiles', 'pathspec', 'pypdf', 'httpx', 'textual') if name in sys.modules])"
    )
    assert subprocess.run((sys.executable, "-c", code), capture_output=True, text=True).stdout == "[]\n"
