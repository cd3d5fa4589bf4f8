"""Every command in the shell examples of README and docs is carried out, in their order, on one store."""

from __future__ import annotations

import re
import shlex
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from picture_samples import picture
from standins.hub import Hub, running_hub
from toyserver import ToyServer, tokens

Run = Callable[..., Awaitable[Any]]
ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
REFUSED = {
    "restore": "nothing to undo",
    "--schema": "The answer is not JSON",
    "serve": "Cannot listen on 127.0.0.1, port 8000",
    "lamp.png": "the server does not say whether toy can see images",
}
"""What a new store and a server that talks of lamps have to be refused for."""
COMMAND = re.compile(r"(?:^|\| )kvchat\b(.*)")


def examples() -> list[tuple[str, list[str]]]:
    """(the page, the arguments) of each; what is piped in or written to a file is left out."""
    found = []
    for page in PAGES:
        for token in MarkdownIt("commonmark").parse(page.read_text()):
            if token.type == "fence" and token.info.strip() in ("sh", "bash"):
                for line in token.content.replace("\\\n", " ").splitlines():
                    if command := COMMAND.search(line.partition(" #")[0]):
                        found.append((page.name, shlex.split(command[1].partition(" | ")[0].partition(" > ")[0])))
    return found


async def test_each_does_what_it_says(run: Run, own_folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models = {"Qwen3-4B-Q4_K_M.gguf": b"GGUF", "Qwen3-4B-Q8_0.gguf": b"GGUF"}
    async with ToyServer() as server:
        server.on_chat(tokens("Because of its lamp.\n```sh\nls\n```\n"))
        with socket.socket() as taken, running_hub(Hub({"Qwen/Qwen3-4B-GGUF": models})) as hub:
            monkeypatch.setenv("HF_ENDPOINT", hub.url)
            with suppress(OSError):  # somebody else has it
                taken.bind(("127.0.0.1", 8000))
                taken.listen()  # a `kvchat serve` that gets its port would never end
            await _all(run, own_folders, server.url, monkeypatch)


async def _all(run: Run, own_folders: Path, base_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(own_folders)
    for name, text in (("lamp.py", "x = 1"), ("fog.md", "# Fog"), ("person.json", '{"type": "object"}')):
        Path(name).write_text(text)
    Path("lamp.png").write_bytes(picture())
    model = Path("~/models/qwen3-1.7b.gguf").expanduser()
    model.parent.mkdir()
    model.write_bytes(b"GGUF")
    tower = Path("~/notes/handbook/tower").expanduser()
    tower.mkdir(parents=True)
    (tower / "lamp.md").write_text("# The lamp\n\nThe lamp turns once a minute. The fog horn sounds twice.\n")
    done = {}
    for page, arguments in examples():
        ended = await run("--base-url", base_url, *arguments, stdin=b"What is it?" if "-" in arguments else b"")
        opens_the_app = not arguments or (arguments[0].startswith("-") and "--plain" not in arguments)
        refused = "needs a terminal" if opens_the_app else REFUSED.get(next(iter({*arguments} & {*REFUSED}), ""), "")
        assert refused in ended.err if refused else ended.status == 0, (page, arguments, ended)
        done[" ".join(arguments)] = ended.out
    assert len(done) > 10
    assert "Because of its lamp." in done["ask Why is the sky blue?"]
    assert "fog horn" in done["documents search fog horn --in handbook/tower -n 5"]
    assert Path("cache.svg").read_text().startswith("<svg")
