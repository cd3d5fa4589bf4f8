"""`kvchat doctor` without an address examines the server that the next question goes to, and says where another one
stands in."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kvchat.store import Store
from toyserver import ToyServer

Run = Callable[..., Awaitable[Any]]
OFF = "http://127.0.0.1:9"


def used_last(home: Path, name: str, **profiles: str) -> None:
    config = home / "config" / "config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text("".join(f'[profiles.{profile}]\nbase_url = "{url}"\n' for profile, url in profiles.items()))
    store = Store.open(home / "data")
    store.set_setting("last server", name)
    store.close()


async def test_a_server_that_stands_in_for_the_one_used_last_is_examined(run: Run, own_folders: Path) -> None:
    async with ToyServer() as server:
        used_last(own_folders, OFF, box=server.url)
        done = await run("doctor", "--json")
        found = json.loads(done.out)
        assert (found["url"], done.err) == (server.url, "kvchat: 127.0.0.1:9 is off · using box\n")
        assert server.posts >= 2


async def test_a_profile_that_is_off_is_named_as_the_user_named_it(run: Run, own_folders: Path) -> None:
    async with ToyServer() as server:
        used_last(own_folders, "lab", lab=OFF, box=server.url)
        done = await run("doctor")
        assert done.err == "kvchat: lab is off · using box\n"
        assert done.out.startswith("server         llama.cpp") and server.url in done.out


async def test_the_one_used_last_is_examined_where_it_answers(run: Run, own_folders: Path) -> None:
    async with ToyServer() as server, ToyServer() as other:
        used_last(own_folders, server.url, box=other.url)
        done = await run("doctor", "--json")
        assert (json.loads(done.out)["url"], done.err) == (server.url, "")
        assert not other.visits


async def test_a_server_that_was_named_is_examined_though_it_is_off(run: Run, own_folders: Path) -> None:
    async with ToyServer() as server:
        used_last(own_folders, server.url, box=server.url)
        for way in (("--base-url", OFF, "doctor"), ("doctor", OFF)):
            done = await run(*way)
            assert done.status == 1 and "✗ No server answers at http://127.0.0.1:9" in done.out
            assert done.err == ""
        assert not server.visits


@pytest.mark.engine
async def test_the_built_in_engine_is_examined_where_it_stands_in(run: Run, own_folders: Path) -> None:
    used_last(own_folders, OFF)
    done = await run("doctor")
    assert done.err == "kvchat: 127.0.0.1:9 is off · using the built-in engine\n"
    assert "the built-in engine" in done.out.splitlines()[0] and done.status == 0, done.out
