"""`kvchat backends`: what is found on this machine and what the settings name, as a table and as JSON."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kvchat.backends import kinds
from kvchat.backends.dialect import BackendError, HostClass
from kvchat.backends.discovery import discover, questions
from kvchat.backends.http.endpoint import ResolvedServer
from kvchat.backends.identify import connect
from kvchat.chat.server.servers import LAST_SERVER
from kvchat.cli import backends as backends_command
from kvchat.cli import main
from kvchat.cli.backends import UsedServer, backends
from kvchat.config import Settings
from kvchat.prompt.conversation import Conversation
from kvchat.prompt.message import new_id, node, system_message
from kvchat.store import Store
from toyserver import ToyServer, error, reply


@pytest.fixture
def ports(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ports that count as usual here: no other server of this machine plays a part."""
    usual: list[int] = []
    monkeypatch.setattr(backends_command, "discover", partial(discover, usual, within=20.0))
    return usual


def settings(main: str = "", profiles: Mapping[str, str] | None = None) -> Settings:
    plain = Settings()
    named = {name: replace(plain.server, base_url=url) for name, url in (profiles or {}).items()}
    return replace(plain, server=replace(plain.server, base_url=main), profiles=named)


async def said(
    capsys: pytest.CaptureFixture[str], given: Settings, *used: UsedServer, as_json: bool = False
) -> tuple[int, str]:
    status = await backends(given, argparse.Namespace(json=as_json), used)
    out, err = capsys.readouterr()
    assert err == ""
    return status, out


async def test_servers_stand_in_a_table_with_what_they_say(capsys: Any, ports: list[int]) -> None:
    async with ToyServer(model="qwen3", context_size=8192, slots=4) as one, ToyServer("openai", model="other") as two:
        two.on(
            "/v1/models",
            reply(
                200,
                {
                    "data": [
                        {"id": "a", "status": {"value": "unloaded"}},
                        {"id": "other", "status": {"value": "loaded"}},
                    ]
                },
            ),
        )
        ports += [one.port, two.port]
        status, out = await said(capsys, settings())
    head, first, second = (line.split("  ") for line in out.splitlines())
    assert status == 0
    assert [title.strip() for title in head if title] == [
        "server",
        "kind",
        "model",
        "context",
        "slots",
        "loaded",
        "state",
        "profile",
        "chats",
    ]
    assert [cell.strip() for cell in first if cell] == [one.url, "llama.cpp", "qwen3", "8,192", "4", "–", "ready", "–"]
    assert [cell.strip() for cell in second if cell] == [
        two.url,
        "OpenAI-compatible",
        "other",
        "–",
        "–",
        "1 of 2",
        "ready",
        "–",
    ]


async def test_json_has_null_for_what_is_not_known(capsys: Any, ports: list[int]) -> None:
    async with ToyServer(model="qwen3", slots=4) as one, ToyServer("openai") as web:
        web.on("/v1/models", reply(200, b"<html>", content_type="text/html"))
        ports += [one.port, web.port]
        status, out = await said(capsys, settings(), as_json=True)
    known, unknown = json.loads(out)["servers"]
    assert status == 0
    assert (known["base_url"], known["kind"], known["model"], known["slots"]) == (one.url, "llama.cpp", "qwen3", 4)
    assert known["models"][0]["id"] == "qwen3" and known["models"][0]["loaded"] is None
    assert known["seconds"] > 0 and known["profile"] is None
    assert (unknown["kind"], unknown["model"], unknown["context_size"], unknown["models"]) == (None, None, None, [])
    assert unknown["state"] == "not a model server"


async def test_profiles_are_listed_with_what_was_found_of_them_and_a_server_elsewhere_is_left_alone(
    capsys: Any, ports: list[int]
) -> None:
    async with ToyServer(model="mine") as server:
        ports.append(server.port)
        status, out = await said(
            capsys,
            settings(
                f"http://localhost:{server.port}/v1",
                {"home": server.url, "gone": "http://127.0.0.1:9", "cluster": "https://llm.example.com/v1"},
            ),
            as_json=True,
        )
    assert status == 0
    rows = json.loads(out)["servers"]
    assert [(row["base_url"], row["profile"], row["state"]) for row in rows] == [
        (server.url, "[server], home", "ready"),
        ("http://127.0.0.1:9", "gone", "no answer"),
        ("https://llm.example.com/v1", "cluster", "not asked"),
    ]


async def test_servers_that_conversations_use_are_listed_with_whether_they_answer(
    capsys: Any, ports: list[int], tmp_path: Path
) -> None:
    file = tmp_path / "mine.gguf"
    file.touch()
    async with ToyServer(model="mine") as server, ToyServer(model="used") as other:
        ports.append(server.port)
        used = (
            UsedServer(f"{other.url}/v1", 3, is_last=True),
            UsedServer("box", 2),
            UsedServer("", 4),
            UsedServer("http://127.0.0.1:9", 1),
            UsedServer("https://api.example.com", 5),
            UsedServer(str(file), 1),
            UsedServer("/gone/model.gguf", 1),
        )
        given = settings(profiles={"box": server.url})
        status, out = await said(capsys, given, *used, as_json=True)
        assert status == 0
        assert [
            (row["base_url"], row["model"], row["state"], row["conversations"], row["used_last"])
            for row in json.loads(out)["servers"]
        ] == [
            (server.url, "mine", "ready", 2, False),
            (other.url, "used", "ready", 3, True),
            ("http://127.0.0.1:9", None, "no answer", 1, False),
            ("https://api.example.com", None, "not asked", 5, False),
            (None, None, "on demand", 4, False),
            (None, str(file), "on demand", 1, False),
            (None, "/gone/model.gguf", "file is gone", 1, False),
        ]
        _, out = await said(capsys, given, *used)
        assert "3, last" in out and "the built-in engine" in out and "  mine.gguf  " in out and str(file) not in out


@pytest.mark.parametrize(("agreed", "state"), [(True, "ready"), (False, "not asked")])
async def test_a_server_of_the_network_is_asked_where_the_person_agreed_to_use_it(
    capsys: Any, ports: list[int], monkeypatch: pytest.MonkeyPatch, agreed: bool, state: str
) -> None:
    async with ToyServer(model="mine") as server:
        server_class = ResolvedServer(HostClass.LAN, ("127.0.0.1",))

        async def located(*_: object) -> ResolvedServer:
            return server_class

        monkeypatch.setattr(backends_command, "locate", located)
        monkeypatch.setattr("kvchat.backends.http.endpoint.locate", located)
        url = f"http://box.example:{server.port}"
        _, out = await said(capsys, settings(), UsedServer(url, 1, is_agreed=agreed), as_json=True)
        assert [(row["base_url"], row["state"]) for row in json.loads(out)["servers"]] == [(url, state)]
        assert bool(server.visits) is agreed and not any("authorization" in visit.headers for visit in server.visits)
        server_class = ResolvedServer(HostClass.CLOUD, ("127.0.0.1",))
        server.visits.clear()
        _, out = await said(capsys, settings(), UsedServer(url, 1, is_agreed=True), as_json=True)
        assert json.loads(out)["servers"][0]["state"] == "not asked" and not server.visits


async def test_conversations_without_a_name_of_a_server_are_on_that_of_the_settings(
    capsys: Any, ports: list[int]
) -> None:
    async with ToyServer() as server:
        _, out = await said(capsys, settings(server.url), UsedServer("", 2), UsedServer(server.url, 1), as_json=True)
    assert [(row["profile"], row["conversations"]) for row in json.loads(out)["servers"]] == [("[server]", 3)]


def test_the_command_reads_what_is_in_use_from_the_store(capsys: Any, ports: list[int]) -> None:
    store = Store.open(Path(os.environ["KVCHAT_DATA_DIR"]))
    for number, server in enumerate(("http://127.0.0.1:9", "http://127.0.0.1:9", "http://127.0.0.1:10")):
        system = node(None, system_message("Be brief."), 1.0 + number)
        store.create(Conversation(new_id(), system.id, 1.0, 1.0 + number, server=server, turns=1), system)
    store.set_setting(LAST_SERVER, "http://127.0.0.1:11")
    store.close()
    main(["backends", "--json"])
    assert [
        (row["base_url"], row["conversations"], row["used_last"])
        for row in json.loads(capsys.readouterr().out)["servers"]
    ] == [("http://127.0.0.1:10", 1, False), ("http://127.0.0.1:9", 2, False), ("http://127.0.0.1:11", 0, True)]


async def test_where_nothing_is_found_it_is_told_what_was_asked_and_what_to_do(capsys: Any, ports: list[int]) -> None:
    status, out = await said(capsys, settings())
    assert status == 1
    first, asked, advice = out.splitlines()
    assert first == "No model server answers on this machine."
    assert (
        asked.startswith("asked: llama.cpp 9931, llama.cpp / ")
        and "LM Studio 1234" in asked
        and "Ollama 11434" in asked
    )
    assert all(str(port) in asked for port in kinds.ports())
    assert "--base-url" in advice and "kvchat config path" in advice
    status, out = await said(capsys, settings(), as_json=True)
    told = json.loads(out)
    assert status == 1 and told["servers"] == []
    assert {entry["port"] for entry in told["asked"]} == set(kinds.ports())


async def test_a_web_server_that_is_no_model_server_is_shown_and_does_not_count(capsys: Any, ports: list[int]) -> None:
    async with ToyServer("openai") as web:
        web.on("/v1/models", reply(404))
        ports.append(web.port)
        status, out = await said(capsys, settings())
    assert status == 1
    assert "not a model server" in out and "No model server answers on this machine." in out


async def test_a_server_that_wants_a_key_comes_with_what_to_do(capsys: Any, ports: list[int]) -> None:
    async with ToyServer("openai") as server:
        server.on("/v1/models", reply(401))
        ports.append(server.port)
        status, out = await said(capsys, settings())
    assert status == 0
    assert f"{server.url} wants a key: name the variable that holds it with --api-key-env." in out


async def test_names_from_servers_and_settings_cannot_write_to_the_terminal(capsys: Any, ports: list[int]) -> None:
    async with ToyServer("openai", model="evil\x1b]0;owned\x07\nmodel") as server:
        ports.append(server.port)
        _, out = await said(capsys, settings(profiles={"p\x1b[2J": "http://\x1b[2Jhost"}))
        assert "\x1b" not in out and "\x07" not in out and len(out.splitlines()) == 3
        _, out = await said(capsys, settings(), as_json=True)
        assert "\x1b" not in out


def keyed(url: str, variable: str, name: str = "") -> Settings:
    """Settings that name a key for a server, in a profile or not."""
    plain = Settings()
    server = replace(plain.server, base_url=url, api_key_env=variable)
    return replace(plain, profiles={name: server}) if name else replace(plain, server=server)


def locked(server: ToyServer, key: str) -> None:
    """The server tells its models for this key alone."""

    async def models(visit: Any) -> None:
        if visit.headers.get("authorization") == f"Bearer {key}":
            await reply(200, {"data": [{"id": "m"}]})(visit)
        else:
            await error(401, "Invalid API Key", "authentication_error")(visit)

    server.on("/v1/models", models)


@pytest.mark.parametrize("kind", ["llama.cpp", "openai"])
@pytest.mark.parametrize("profile", ["", "home"])
@pytest.mark.parametrize("given", ["sesame", "wrong"])
async def test_a_server_is_asked_with_the_key_that_was_named_for_it(
    capsys: Any, ports: list[int], monkeypatch: pytest.MonkeyPatch, kind: str, profile: str, given: str
) -> None:
    """It said "wants a key: name the variable that holds it with --api-key-env" to who had done so."""
    monkeypatch.setenv("H6_KEY", given)
    async with ToyServer(kind) as server, ToyServer("openai") as other:
        locked(server, "sesame")
        locked(other, "sesame")
        ports += [server.port, other.port]
        _, out = await said(capsys, keyed(server.url, "H6_KEY", profile), as_json=True)
        mine, others = json.loads(out)["servers"]
        assert all("authorization" not in visit.headers for visit in other.visits), "no other server is shown the key"
    assert others["state"] == "needs a key"
    assert mine["state"] == ("ready" if given == "sesame" else "refuses the key")
    assert [model["id"] for model in mine["models"]] == (["m"] if given == "sesame" else [])


async def test_a_named_variable_that_is_not_set_is_told(capsys: Any, ports: list[int]) -> None:
    async with ToyServer() as server:
        locked(server, "sesame")
        ports.append(server.port)
        _, out = await said(capsys, keyed(server.url, "H6_NOT_SET"))
    assert "The environment variable H6_NOT_SET (server.api_key_env) is not set." in out and "needs a key" in out


@pytest.mark.parametrize("kind", ["llama.cpp", "openai"])
@pytest.mark.parametrize("status", [500, 502, 503])
async def test_a_server_that_fails_answers_with_an_error(capsys: Any, ports: list[int], kind: str, status: int) -> None:
    """It was "not a model server", or "ready"."""
    async with ToyServer(kind) as server:
        server.on("/v1/models", error(status, "out of memory"))
        ports.append(server.port)
        done, out = await said(capsys, settings(server.url))
        both, _ = await said(capsys, settings(server.url), as_json=True)
        async with ToyServer(model="well") as well:
            ports.append(well.port)
            assert (await said(capsys, settings(server.url)))[0] == 0, "another one can be used"
    assert (done, both) == (1, 1), "none can be used"
    assert "answers with an error" in out and "No model server answers" not in out


@pytest.mark.parametrize("body", [b"Unauthorized", b'{"detail":"Not authenticated"}', b""])
async def test_basic_auth_is_named(capsys: Any, ports: list[int], body: bytes) -> None:
    """A proxy asks for a name and a password: an API key does not help."""
    async with ToyServer("openai") as server:
        asks = reply(401, body, headers={"WWW-Authenticate": 'Basic realm="models"'})
        for path in questions(server.port):
            server.on(path, asks)
        ports.append(server.port)
        _, out = await said(capsys, settings(server.url))
        with pytest.raises(BackendError) as failed:
            await connect(server.url)
    assert "needs a password" in out and "wants a key" not in out
    assert "wants a user name and a password (401, Basic auth)" in failed.value.sentence


@pytest.mark.parametrize("listing", [{"data": []}, {"object": "list", "data": None}, [], {"models": []}])
async def test_an_empty_list_of_models_hides_no_server(capsys: Any, ports: list[int], listing: object) -> None:
    async with ToyServer("openai") as server:
        server.on("/v1/models", reply(200, listing))
        ports.append(server.port)
        done, out = await said(capsys, settings(), as_json=True)
    assert done == 0 and json.loads(out)["servers"][0]["state"] == "ready"


@pytest.mark.parametrize("profile", ["", "home"])
async def test_a_named_server_that_takes_longer_than_a_look_is_waited_for(
    capsys: Any, ports: list[int], monkeypatch: pytest.MonkeyPatch, profile: str
) -> None:
    """A LiteLLM that answers after a second was told not to answer."""
    monkeypatch.setattr(backends_command, "discover", partial(discover, ports, within=0.05))

    async def slowly(visit: Any) -> None:
        await asyncio.sleep(0.5)
        await reply(200, {"data": [{"id": "m"}]})(visit)

    async with ToyServer("openai") as server:
        for path in questions(server.port):
            server.on(path, slowly)
        named = settings("", {profile: server.url}) if profile else settings(server.url)
        monkeypatch.setattr(backends_command, "ELSEWHERE_S", 20.0)
        done, out = await said(capsys, named, as_json=True)
    row = json.loads(out)["servers"][0]
    assert done == 0 and row["state"] == "ready" and [model["id"] for model in row["models"]] == ["m"]
