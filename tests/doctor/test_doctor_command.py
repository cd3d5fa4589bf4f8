"""`kvchat doctor`: the report as text and as JSON, the exit status, and what it asks first."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from patient import URL, OpenPatient, Patient, an_info

from kvchat import logs
from kvchat.backends.dialect import Backend, BackendError, Trouble, failure
from kvchat.cache import SlotCount
from kvchat.chat.events import EventBus
from kvchat.cli import doctor as doctor_command
from kvchat.cli.doctor import doctor
from kvchat.config import ServerSettings, Settings
from kvchat.text.faults import Fault
from toyserver import ToyServer, loading, reply, tokens


@dataclass
class Servers:
    """The servers in use, as far as the command asks them."""

    server: Backend | BackendError = field(default_factory=Patient)
    snapshot_folder: Path | None = None

    async def backend(self) -> Backend:
        if isinstance(self.server, BackendError):
            raise self.server
        return self.server


class Service:
    """The service, as far as the command asks it."""

    def __init__(
        self,
        server: Backend | BackendError | None = None,
        settings: Settings | None = None,
        snapshot_folder: Path | None = None,
    ) -> None:
        self.settings = settings or Settings()
        self.events = EventBus()
        self.servers = Servers(server or Patient(), snapshot_folder)


def arguments(url: str = "", **more: Any) -> argparse.Namespace:
    usual = {"url": url, "json": False, "yes": False, "deep": False, "api_key_env": None, "model": None}
    return argparse.Namespace(**(usual | more))


def crowded() -> OpenPatient:
    """A server whose one slot holds somebody's conversation."""
    return OpenPatient(slots=[SlotCount(4321, 7)])


async def test_a_healthy_server_is_told_as_text_and_ends_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    service = Service()
    assert await doctor(service, arguments()) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0] == f"server         vLLM · {URL}, on this machine" and lines[-1] == "All is well."
    assert any(line.startswith("✓ A conversation is read once") for line in lines)
    assert err == "" and not service.servers.server.closed, "it belongs to the service"  # type: ignore[union-attr]


async def test_a_problem_ends_with_1_and_its_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert await doctor(Service(Patient(keeps=1)), arguments()) == 1
    out = capsys.readouterr().out
    assert "✗ A side request" in out and "  → Give vLLM more cache: a larger --gpu-memory-utilization. (saves " in out


async def test_json_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert await doctor(Service(), arguments(json=True)) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["well"] is True and value["server"]["kind"] == "vllm" and len(value["probe"]["turns"]) == 6


async def test_without_a_terminal_nothing_is_tried_that_needs_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    server = crowded()
    assert await doctor(Service(server), arguments()) == 1
    assert not server.turns
    out = capsys.readouterr().out
    assert "holds 4,321 tokens" in out and "→ Agree to it" in out and "All is well" not in out


async def test_yes_is_the_word() -> None:
    server = crowded()
    assert await doctor(Service(server), arguments(yes=True)) == 0
    assert server.turns


@pytest.mark.parametrize(
    ("answer", "goes_on"), [("y\n", True), ("yes\n", True), ("\n", False), ("n\n", False), ("", False)]
)
async def test_at_a_terminal_it_asks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: str, goes_on: bool
) -> None:
    for stream in (doctor_command.sys.stdin, doctor_command.sys.stderr):  # type: ignore[attr-defined]
        monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(doctor_command.sys.stdin, "readline", lambda: answer)  # type: ignore[attr-defined]
    server = crowded()
    assert await doctor(Service(server), arguments()) == (0 if goes_on else 1)
    assert bool(server.turns) is goes_on
    assert "Go on? [y/N]" in capsys.readouterr().err


async def test_no_server_is_a_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    error = failure(Trouble.UNREACHABLE, Fault.TOLD, sentence="No model server answers on this machine.")
    assert await doctor(Service(error), arguments()) == 1
    assert "✗ No model server answers on this machine." in capsys.readouterr().out


async def test_an_address_is_examined_itself_and_let_go(capsys: pytest.CaptureFixture[str]) -> None:
    async with ToyServer() as server:
        server.on_chat(tokens("a", "b", prompt=50, cached=0))
        await doctor(Service(failure(Trouble.UNREACHABLE, Fault.TOLD, sentence="unused")), arguments(server.url))
        assert server.posts >= 2
    assert server.url in capsys.readouterr().out


async def test_a_server_that_loads_is_not_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    async with ToyServer() as server:
        for path in ("/props", "/v1/models"):
            server.on(path, loading())
        assert await doctor(Service(), arguments(server.url)) == 1
    assert "! The server at" in (out := capsys.readouterr().out) and "run the doctor again" in out


async def test_a_key_goes_only_to_the_server_it_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OWN_KEY", "secret-own")
    monkeypatch.setenv("LINE_KEY", "secret-line")
    async with ToyServer() as server:
        server.on("/props", reply(401, {"error": {"message": "no"}}, server="llama.cpp"))

        async def keys(settings: Settings, **more: Any) -> set[str]:
            server.visits.clear()
            await doctor(Service(settings=settings), arguments(**{"url": server.url, **more}))
            return {visit.headers.get("authorization", "") for visit in server.visits}

        other = replace(Settings(), server=ServerSettings(base_url="http://127.0.0.1:1", api_key_env="OWN_KEY"))
        own = replace(Settings(), server=ServerSettings(base_url=server.url + "/", api_key_env="OWN_KEY"))
        profile = replace(other, profiles={"lab": ServerSettings(base_url=server.url, api_key_env="OWN_KEY")})
        assert await keys(other) == {""}
        assert await keys(other, api_key_env="LINE_KEY") == {"Bearer secret-line"}
        assert await keys(own) == {"Bearer secret-own"}
        assert await keys(own, api_key_env="LINE_KEY") == {"Bearer secret-line"}
        assert await keys(profile, url="lab") == {"Bearer secret-own"}


async def test_a_key_that_is_not_there_is_a_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    assert await doctor(Service(), arguments("http://127.0.0.1:9", api_key_env="NOT_SET", json=True)) == 1
    (verdict,) = json.loads(capsys.readouterr().out)["verdicts"]
    assert verdict["topic"] == "key" and "NOT_SET" in verdict["sentence"]


async def test_headers_and_the_key_stay_out_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OWN_KEY", "plainkeyvalue")
    async with ToyServer() as server:
        own = ServerSettings(base_url=server.url, api_key_env="OWN_KEY", headers={"X-Team": "bluewhales"})
        await doctor(Service(settings=replace(Settings(), profiles={"lab": own})), arguments("lab"))
    assert "plainkeyvalue" not in logs.redacted("sent plainkeyvalue") and "[hidden]" in logs.redacted("bluewhales")


async def test_without_an_address_the_report_is_of_the_server_that_answered(capsys: pytest.CaptureFixture[str]) -> None:
    other = ServerSettings(base_url="http://127.0.0.1:1", model="theirs")
    own = ServerSettings(base_url=f"{URL}/v1", model="mine")
    settings = replace(Settings(), default_profile="other", profiles={"other": other, "own": own})
    server = Patient()
    await doctor(Service(server, settings), arguments(json=True))
    found = json.loads(capsys.readouterr().out)
    assert (found["url"], found["server"]["model"]) == (URL, "mine")
    assert {turn.model for turn in server.turns} == {"mine"}


async def test_a_models_path_is_shown_as_its_files_name(capsys: pytest.CaptureFixture[str]) -> None:
    await doctor(Service(Patient(an_info(model="/home/me/models/Qwen3-8B-Q4_K_M.gguf"))), arguments())
    assert "model          Qwen3-8B-Q4_K_M\n" in (out := capsys.readouterr().out) and "/home/me" not in out


async def test_names_from_a_server_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    await doctor(Service(Patient(an_info(model="evil\x1b]52;c;aGk=\x07\n✓ All is well."))), arguments())
    out = capsys.readouterr().out
    assert "\x1b" not in out and "\x07" not in out and out.count("\n✓ All is well.") == 0
