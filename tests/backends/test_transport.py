"""Connections that do not come about, encrypted ones, and what an exchange leaves behind."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
from backend_kit import Heard, a_turn, endpoint_of, openai_at

from kvchat.backends.base import OneTokenWarmUp
from kvchat.backends.dialect import BackendError, HostClass, Trouble
from kvchat.backends.http.endpoint import BaseUrl, Endpoint, ResolvedServer
from kvchat.backends.http.transport import Exchange, _socket_options
from kvchat.backends.identify import connect
from kvchat.prompt.message import State
from kvchat.text.notes import note_sentence
from toyserver import SSE_HEAD, ToyServer, Visit, chunked, event, hang, raw


def at(port: int, scheme: str = "http", host: str = "127.0.0.1", **options: str) -> OneTokenWarmUp:
    place = ResolvedServer(HostClass.LOOPBACK, ("127.0.0.1",))
    return OneTokenWarmUp(Endpoint(BaseUrl(scheme, host, port), place, **options))


@pytest.fixture
def deaf_port() -> Iterator[int]:
    """A port on which connections are neither accepted nor refused."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        fillers = [socket.socket() for _ in range(8)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]
        for filler in fillers:
            filler.close()


async def test_a_connection_that_does_not_come_about_is_told(
    deaf_port: int, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvchat.backends.http.transport.CONNECT_LOOPBACK_S", 0.1)
    ended = await at(deaf_port).chat(a_turn(), heard)
    assert ended.error and ended.error.trouble is Trouble.UNREACHABLE
    assert "no answer to the connection" in note_sentence(ended.note)


async def test_two_first_requests_at_once_both_go_out(heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()

    class Slowly(SourceFileLoader):
        def exec_module(self, module: ModuleType) -> None:
            begun.set()
            go_on.wait(60)
            super().exec_module(module)

    class Finder:
        @staticmethod
        def find_spec(name: str, *_: object) -> ModuleSpec | None:
            if name != "httpx":
                return None
            return spec_from_file_location(name, httpx.__file__, loader=Slowly(name, httpx.__file__))

    monkeypatch.delitem(sys.modules, "httpx")
    monkeypatch.setattr(sys, "meta_path", [Finder, *sys.meta_path])
    monkeypatch.setattr("kvchat.backends.http.transport._imported", None)
    async with ToyServer() as server:
        first = asyncio.create_task(at(server.port).chat(a_turn(), heard))
        await asyncio.to_thread(begun.wait, 60)
        second = asyncio.create_task(at(server.port).chat(a_turn(), Heard()))
        await asyncio.wait({second}, timeout=0.1)
        go_on.set()
        assert [ended.state for ended in (await first, await second)] == [State.DONE] * 2


@pytest.mark.slow
async def test_a_machine_that_stands_still_for_a_moment_is_no_server_that_is_off(
    heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    connects = loop.create_connection

    async def stalled(*arguments: Any, **options: Any) -> Any:
        time.sleep(2.5)  # noqa: ASYNC251 - all of the process stands still
        return await connects(*arguments, **options)

    async with ToyServer() as server:
        monkeypatch.setattr(loop, "create_connection", stalled)
        ended = await at(server.port).chat(a_turn(), heard)
    assert ended.state is State.DONE and server.posts == 1


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_a_cancel_while_the_connection_is_made_leaves_no_task(deaf_port: int, times: int) -> None:
    before = asyncio.all_tasks()
    task = asyncio.create_task(at(deaf_port).chat(a_turn(), Heard()))
    await asyncio.sleep(0.05)
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() <= before


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_a_cancel_in_the_handshake_closes_the_connection(times: int) -> None:
    async with ToyServer() as server:  # it never answers a TLS greeting
        task = asyncio.create_task(at(server.port, "https", "localhost").chat(a_turn(), Heard()))
        await server.until(lambda: server.open == 1)
        await asyncio.sleep(0.02)
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.until_closed()


async def test_leaving_an_exchange_early_closes_it() -> None:
    async with ToyServer() as server:
        server.on_chat(hang())
        async with Exchange(endpoint_of(server), "POST", "/x", body=b"{}"):
            await server.until(lambda: server.posts == 1)
        await server.until_closed()


async def test_a_stuck_close_shuts_the_socket_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvchat.backends.http.transport.CLOSE_S", 0.05)
    async with ToyServer() as server:
        server.on_chat(hang())
        never = asyncio.Event()
        exchange = Exchange(endpoint_of(server), "POST", "/x", body=b"{}")
        async with exchange:
            await server.until(lambda: server.posts == 1)
            for stream in exchange._streams:
                monkeypatch.setattr(stream, "aclose", never.wait)
        await server.until_closed()


async def test_every_connection_has_keepalive_on() -> None:
    async with ToyServer() as server:
        server.on_chat(hang())
        exchange = Exchange(endpoint_of(server), "POST", "/x", body=b"{}")
        async with exchange:
            await server.until(lambda: server.posts == 1)
            sock = exchange._streams[0].get_extra_info("socket")
            for level, name, value in _socket_options(remote=False):
                assert sock.getsockopt(level, name) == value
    assert len(_socket_options(remote=True)) > len(_socket_options(remote=False)) or not hasattr(
        socket, "TCP_USER_TIMEOUT"
    )


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for llm.localhost that signs itself, with its key beside it."""
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=llm",
            "-addext",
            "subjectAltName=DNS:llm.localhost",
            "-keyout",
            folder / "key.pem",
            "-out",
            folder / "cert.pem",
        ],
        check=True,
        capture_output=True,
    )
    return folder / "cert.pem"


async def encrypted(server: ToyServer, certificate: Path) -> asyncio.Server:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))
    return await asyncio.start_server(server._handle, "127.0.0.1", 0, ssl=context)


async def test_an_own_authority_is_trusted_for_its_name_only(certificate: Path, heard: Heard) -> None:
    async with ToyServer() as server:
        listener = await encrypted(server, certificate)
        async with listener:
            port = listener.sockets[0].getsockname()[1]
            backend = await connect(f"https://llm.localhost:{port}", ca_file=str(certificate))
            assert backend.info.kind == "llama.cpp"
            ended = await backend.chat(a_turn(), heard)
            assert (ended.state, heard.text) == (State.DONE, "Hello")
            assert server.chats[0].headers["host"] == f"llm.localhost:{port}"
            for url, ca_file in ((f"https://llm.localhost:{port}", None), (f"https://localhost:{port}", certificate)):
                with pytest.raises(BackendError) as caught:
                    await connect(url, ca_file=str(ca_file) if ca_file else None)
                assert "cannot be trusted" in caught.value.sentence and url in caught.value.sentence
                assert caught.value.trouble is Trouble.BAD_ADDRESS
            assert server.posts == 1


async def test_a_server_without_encryption_at_an_https_url_is_told(heard: Heard) -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read()
        writer.close()

    listener = await asyncio.start_server(plain, "127.0.0.1", 0)
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        ended = await at(port, "https", "localhost").chat(a_turn(), heard)
    assert ended.error and ended.error.trouble is Trouble.BAD_ADDRESS
    assert "does not encrypt. Write its address with http://" in note_sentence(ended.note)


@pytest.mark.parametrize(
    "answer",
    [
        b"\x15\x03\x01\x00\x02\x02\x46",
        b"HTTP/1.1 400 Bad Request\r\nContent-Length: 48\r\n\r\nClient sent an HTTP request to an HTTPS server.\n",
        b"HTTP/1.1 400 Bad Request\r\nContent-Length: 61\r\n\r\n"
        b"<html>The plain HTTP request was sent to HTTPS port</html>\n\n\n",
    ],
)
async def test_an_encrypting_server_at_an_http_url_is_told(answer: bytes, heard: Heard) -> None:
    async with ToyServer() as server:
        server.on_chat(raw(answer))
        ended = await openai_at(server).chat(a_turn(), heard)
    assert ended.error and ended.error.trouble is Trouble.BAD_ADDRESS
    assert "encrypted connections only. Write its address with https://" in note_sentence(ended.note)


async def test_an_answer_that_says_stop_from_its_first_part_is_heard_to_its_end(
    heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ends the wait is silence behind the finish, not time."""
    monkeypatch.setattr("kvchat.backends.base.TAIL_S", 0.5)

    async def answer(visit: Visit) -> None:
        await visit.send(SSE_HEAD)
        for word in ("so ", "it ", "goes ", "on ", "and on"):
            choice = {"index": 0, "delta": {"content": word}, "finish_reason": "stop"}
            await visit.send(chunked(event({"choices": [choice]})))
            await asyncio.sleep(0.2)
        await visit.send(b"0\r\n\r\n")

    async with ToyServer() as server:
        server.on_chat(answer)
        ended = await openai_at(server).chat(a_turn(), heard)
    assert (ended.state, heard.text) == (State.DONE, "so it goes on and on")


async def test_a_certificate_file_that_cannot_be_read_is_named(tmp_path: Path, heard: Heard) -> None:
    for name, content in (("missing.pem", None), ("bad.pem", "not a certificate")):
        path = tmp_path / name
        if content:
            path.write_text(content)
        ended = await at(1, "https", ca_file=str(path)).chat(a_turn(), heard)
        assert name in note_sentence(ended.note) and "server.ca_file" in note_sentence(ended.note)
        assert ended.error and ended.error.trouble is Trouble.BAD_ADDRESS
