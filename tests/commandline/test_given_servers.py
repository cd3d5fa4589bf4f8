"""The server that is named for one run: whose key and headers it gets, and what of an address is printed."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from toyserver import ToyServer

Run = Callable[..., Awaitable[Any]]
OTHER = '[server]\nbase_url = "https://api.example.com"\napi_key_env = "OTHER"\nheaders = {X-Team = "blue"}\n'
OTHERS_KEY = {"OTHER": "sk-verysecret"}


def write(home: Path, text: str) -> None:
    file = home / "config" / "config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def sent(server: ToyServer) -> set[tuple[str | None, str | None]]:
    """The keys and teams that a server was sent."""
    return {(visit.headers.get("authorization"), visit.headers.get("x-team")) for visit in server.visits}


@pytest.mark.parametrize("by", ["option", "KVCHAT_BASE_URL", "KVCHAT_SERVER_BASE_URL"])
async def test_a_server_named_for_this_run_gets_no_other_servers_key_or_headers(
    run: Run,
    own_folders: Path,
    by: str,
) -> None:
    write(own_folders, OTHER)
    async with ToyServer() as server:
        given = ("--base-url", server.url) if by == "option" else ()
        more = {} if by == "option" else {by: server.url}
        done = await run(*given, "ask", "hi", env={**OTHERS_KEY, **more})
        assert done.status == 0 and sent(server) == {(None, None)}


@pytest.mark.parametrize("by", ["option", "variable"])
async def test_a_key_that_is_named_for_this_run_goes_to_the_server_that_is(
    run: Run,
    own_folders: Path,
    by: str,
) -> None:
    write(own_folders, OTHER)
    async with ToyServer() as server:
        given = ("--api-key-env", "MINE") if by == "option" else ()
        more = {} if by == "option" else {"KVCHAT_SERVER_API_KEY_ENV": "MINE"}
        await run("--base-url", server.url, *given, "ask", "hi", env={**OTHERS_KEY, **more, "MINE": "sk-minealone"})
        assert sent(server) == {("Bearer sk-minealone", None)}


@pytest.mark.parametrize("section", ["server", "profiles.lab"])
async def test_a_server_of_the_settings_gets_its_own_key_whatever_way_its_address_is_written(
    run: Run,
    own_folders: Path,
    section: str,
) -> None:
    async with ToyServer() as server:
        own = f'[{section}]\nbase_url = "{server.url}/v1"\napi_key_env = "OWN"\nheaders = {{X-Team = "red"}}\n'
        write(own_folders, own if section == "server" else OTHER + own)
        await run("--base-url", f"{server.url}/", "ask", "hi", env={**OTHERS_KEY, "OWN": "sk-ownkeyonly"})
        assert sent(server) == {("Bearer sk-ownkeyonly", "red")}


async def test_a_profiles_key_stays_with_its_server_where_an_address_is_given_beside_it(
    run: Run,
    own_folders: Path,
) -> None:
    write(own_folders, OTHER.replace("[server]", "[profiles.work]"))
    async with ToyServer() as server:
        await run("--profile", "work", "--base-url", server.url, "ask", "hi", env=OTHERS_KEY)
        assert sent(server) == {(None, None)}


async def test_settings_without_an_address_are_for_the_server_that_is_given(run: Run, own_folders: Path) -> None:
    write(own_folders, '[server]\napi_key_env = "OWN"\n')
    async with ToyServer() as server:
        await run("--base-url", server.url, "ask", "hi", env={"OWN": "sk-ownkeyonly"})
        assert sent(server) == {("Bearer sk-ownkeyonly", None)}


@pytest.mark.parametrize("command", [("backends",), ("backends", "--json")])
@pytest.mark.parametrize("secret", ["tops3cret", "tops@3cret"])
async def test_passwords_in_addresses_are_not_printed(
    run: Run,
    own_folders: Path,
    command: tuple[str, ...],
    secret: str,
) -> None:
    write(own_folders, f'[profiles.home]\nbase_url = "http://me:{secret}@box.example:1"\n')
    done = await run(*command)
    assert "http://box.example:1" in done.out and "3cret" not in done.out + done.err


@pytest.mark.parametrize("as_json", [(), ("--json",)])
@pytest.mark.parametrize("address", ["http://me:tops3cret@127.0.0.1:9", "me:tops3cret@127.0.0.1:9"])
async def test_the_doctor_prints_no_password(run: Run, as_json: tuple[str, ...], address: str) -> None:
    done = await run("doctor", address, *as_json)
    assert done.status == 1 and "127.0.0.1:9" in done.out and "tops3cret" not in done.out + done.err


async def test_without_an_address_the_doctor_examines_the_server_that_new_conversations_go_to(
    run: Run,
    own_folders: Path,
) -> None:
    async with ToyServer() as server:
        write(
            own_folders,
            f'default_profile = "work"\n[server]\nbase_url = "http://127.0.0.1:9"\n'
            f'[profiles.work]\nbase_url = "{server.url}"\n',
        )
        found = json.loads((await run("doctor", "--json", "--yes")).out)
        assert found["url"] == server.url and server.posts > 0


async def test_a_missing_key_is_json_too(run: Run) -> None:
    async with ToyServer() as server:
        done = await run("doctor", server.url, "--api-key-env", "NOPE", "--json")
    assert done.status == 1 and "NOPE" in json.dumps(json.loads(done.out)) and not server.visits
