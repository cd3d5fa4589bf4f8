"""Choosing the model and the server."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from screens_kit import answered, showing, triples, under_cursor

from corpus import corpus
from kvchat.backends.dialect import HostClass
from kvchat.backends.http.payload import Model
from kvchat.chat.errors import ChatError
from kvchat.chat.server.choice import ServerChoice
from kvchat.ui.screens.servers import ModelPicker, address_of

FILES = [
    SimpleNamespace(
        path=Path("/m/Qwen3-1.7B-Q4_K_M.gguf"),
        name="Qwen3-1.7B",
        size=1_107_000_000,
        quantisation="Q4_K_M",
        context_length=32768,
        source="LM Studio",
    ),
    SimpleNamespace(
        path=Path("/m/odd.gguf"), name="odd", size=4_000, quantisation="", context_length=None, source="downloads"
    ),
]
HERE = ServerChoice(
    "",
    "http://box:8080",
    "llama.cpp",
    phase="ready",
    model="gemma-3",
    current=True,
    context_size=8192,
    slots=4,
    warm=2,
    listing=(Model("SmolLM2"), Model("gemma-3", loaded=True)),
)
OLLAMA = ServerChoice(
    "http://127.0.0.1:11434",
    "http://127.0.0.1:11434",
    "Ollama",
    phase="ready",
    listing=(Model("qwen3:8b", loaded=True, size=4_700_000_000, about="Q4_K_M"), Model("nomic-embed", chats=False)),
)
WORK = ServerChoice("work", "https://llm.example.com", profile="work", host_class=HostClass.CLOUD)


async def files() -> Sequence[Any]:
    return FILES


def picker(**more: Any) -> ModelPicker:
    return ModelPicker([HERE], **{"current": "gemma-3", "files": files, **more})


async def test_a_model_a_file_or_an_address_is_chosen_and_headings_are_passed_over() -> None:
    await triples(
        (picker, "enter", answered(("model", "gemma-3"))),
        (picker, "up enter", answered(("model", "SmolLM2"))),
        (picker, "down enter", answered(("file", FILES[0].path))),
        (picker, "ctrl+end enter", answered(("file", FILES[1].path))),
        (picker, "escape", answered(None)),
        (picker, "'q4'", under_cursor("Qwen3", "SmolLM2", "odd")),  # both groups
        (picker, "'q4' enter", answered(("file", FILES[0].path))),
        (picker, "'box.lan:8080'", under_cursor("http://box.lan:8080")),
        (picker, "'box.lan:8080' enter", answered(("url", "http://box.lan:8080"))),
    )


async def test_a_file_tells_quantisation_size_window_and_source() -> None:
    async with showing(picker()) as shown:
        assert shown.line("Qwen3").split()[2:-1] == ["Q4_K_M", "1.1", "GB", "32,768", "tokens", "LM", "Studio"]
        assert shown.line("odd").split()[2:-1] == ["4.0", "kB", "downloads"]
        assert "gemma-3  in use" in shown.cursor_line


async def at(path: Path) -> Sequence[Any]:
    if path.suffix == ".gguf":
        return [SimpleNamespace(**{**vars(FILES[0]), "path": path, "name": path.stem, "source": ""})]
    raise ChatError.of(f"{path} holds no GGUF model to chat with.")


@pytest.mark.parametrize(
    "written",
    ["/m/my model.gguf", "'/m/my model.gguf' ", "/m/my\\ model.gguf", "file:///m/my%20model.gguf", " /m/my model.gguf"],
)
async def test_a_path_is_offered_as_a_model(written: str) -> None:
    async with showing(picker(at=at)) as shown:
        await shown.type(written)
        await shown.app.workers.wait_for_complete()
        assert "my model" in shown.cursor_line and "Q4_K_M" in shown.cursor_line
        await shown.press("enter")
        assert shown.answers == [("file", Path("/m/my model.gguf"))]


async def test_what_is_at_a_path_and_no_model_is_said() -> None:
    async with showing(picker(at=at, typed="/m/empty")) as shown:
        await shown.app.workers.wait_for_complete()
        assert "/m/empty holds no GGUF model to chat with." in shown.text
        await shown.press("enter")
        assert shown.answers == []


async def test_files_found_late_do_not_move_the_cursor() -> None:
    found = asyncio.Event()

    async def late() -> Sequence[Any]:
        await found.wait()
        return FILES

    async with showing(picker(files=late)) as shown:
        assert "looking …" in shown.line("Model files on this disk")
        await shown.press("up")
        found.set()
        await shown.app.workers.wait_for_complete()
        await shown.pilot.pause()
        assert "SmolLM2" in shown.cursor_line and "Qwen3" in shown.text


async def test_no_files_and_a_failed_search_for_files_are_said() -> None:
    async def none() -> Sequence[Any]:
        return []

    async def broken() -> Sequence[Any]:
        raise OSError("disk on fire")

    async with showing(picker(files=none)) as shown:
        assert "none found" in shown.line("Model files on this disk")
    async with showing(picker(files=broken)) as shown:
        assert "disk on fire" in shown.line("Model files on this disk")
        await shown.type("zzz")
        assert "Nothing of this name." in shown.text
        await shown.press("enter")
        assert shown.answers == []


@corpus(
    ("text", "address"),
    [
        ("http://box:8080", "http://box:8080"),
        ("https://a.example/v1/", "https://a.example/v1"),
        ("box:8080", "http://box:8080"),
        ("localhost", "http://localhost"),
        ("[::1]:8080", "http://[::1]:8080"),
        ("192.168.1.5:1234/v1", "http://192.168.1.5:1234/v1"),
        ("qwen", None),
        ("q4 k", None),
        ("http://", None),
        ("http://box:99999", None),
        ("http://a b", None),
        ("http://[::1", None),
        ("file:///etc/passwd", None),
        ("", None),
    ],
)
def test_an_address_is_recognised(text: str, address: str | None) -> None:
    assert address_of(text) == address


async def test_servers_stand_with_what_is_known_of_them_and_their_models() -> None:
    async with showing(picker(look=found)) as shown:
        await shown.app.workers.wait_for_complete()
        await shown.pilot.pause()
        assert "8,192-token window · 4 slots · 2 warm" in shown.line("llama.cpp · box:8080")
        assert "Q4_K_M · 4.7 GB · loaded" in shown.line("qwen3:8b")
        assert "cloud" in shown.line("work · llm.example.com")
        assert "nomic" not in shown.text and "gemma-3  in use" in shown.cursor_line


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("qwen", ("server", "http://127.0.0.1:11434", "qwen3:8b")),
        ("ollama", ("server", "http://127.0.0.1:11434", "qwen3:8b")),
        ("work", ("server", "work", "")),
    ],
)
async def test_a_model_of_another_server_is_chosen_with_its_server(typed: str, answer: object) -> None:
    async with showing(picker(look=found)) as shown:
        await shown.app.workers.wait_for_complete()
        await shown.type(typed)
        await shown.press("enter")
        assert shown.answers == [answer]


async def test_while_servers_are_looked_for_it_says_so() -> None:
    never = asyncio.Event()

    async def look() -> Sequence[Any]:
        await never.wait()
        return []

    async with showing(picker(look=look)) as shown:
        assert "looking for servers …" in shown.line("On this machine")


async def found() -> Sequence[Any]:
    return [HERE, OLLAMA, WORK]


async def test_a_model_that_is_not_here_can_be_fetched() -> None:
    offering = partial(picker, offers=[("Qwen/Qwen3-4B-GGUF", "~2.5 GB · for 8 GB of memory, as here")])
    await triples(
        (offering, "'qwen3-4b' enter", answered(("pull", "Qwen/Qwen3-4B-GGUF"))),
        (offering, "'org/Some-GGUF:q8_0' enter", answered(("pull", "org/Some-GGUF:q8_0"))),
        (offering, "'https://huggingface.co/org/Some-GGUF' enter", answered(("pull", "org/Some-GGUF"))),
        (offering, "'localhost/v1' enter", answered(("url", "http://localhost/v1"))),
    )
