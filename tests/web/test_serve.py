"""`kvchat serve`: who gets something, and what; the page needs nothing from elsewhere."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType, WSServerHandshakeError

from kvchat.cli import main
from kvchat.web import server as serving
from kvchat.web.server import WebServer

APP = r"""
import json, sys
out, typed = sys.stdout.buffer, sys.stdin.buffer
def send(kind, data):
    out.write(kind + len(data).to_bytes(4, "big") + data)
    out.flush()
out.write(b"__GANGLION__\n")
send(b"D", b"\x1b[?1049hhello")
while head := typed.read(5):
    data = typed.read(int.from_bytes(head[1:], "big"))
    if head[:1] == b"D" and data != b"q":
        send(b"D", b"typed " + data)
    elif head[:1] == b"M" and json.loads(data)["type"] == "resize":
        send(b"D", f"{json.loads(data)['width']}x{json.loads(data)['height']}".encode())
    elif head[:1] == b"D" or json.loads(data)["type"] == "quit":
        send(b"M", b'{"type": "exit"}')
        break
"""
"""Speaks as an app behind a page does: says hello, tells what was typed and its sizes, and q leaves it."""


@asynccontextmanager
async def served() -> AsyncIterator[tuple[WebServer, ClientSession, list[object]]]:
    """A server whose app is a small one; a client; the apps that run."""
    server, stop = WebServer([sys.executable, "-c", APP]), asyncio.Event()
    opened: list[object] = server._apps  # type: ignore[assignment]
    running = asyncio.create_task(server.run(stop))
    try:
        async with ClientSession() as client:
            yield server, client, opened
    finally:
        stop.set()
        await running


def addresses(server: WebServer) -> tuple[str, str]:
    """The root of the server, and where its terminals are."""
    root = server.url.rsplit("/", 2)[0]
    return root, server.url.replace("http", "ws", 1) + "ws"


async def test_the_page_is_whole_and_names_no_other_host() -> None:
    async with served() as (server, client, _), client.get(server.url) as answer:
        text = await answer.text()
        assert answer.status == 200 and "kvchat" in text
        assert set(re.findall(r"\w+://[^/\"']+", text)) == {addresses(server)[1].rsplit("/", 2)[0]}
        policy = answer.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'self';") and "http" not in policy
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        for name in re.findall(r'(?: src| href|[^-]url)[=(]"((?!data:)[^"]+)"', text):
            async with client.get(server.url + name) as found:
                assert found.status == 200 and await found.read(), name


async def test_nothing_comes_without_the_token_or_under_another_name() -> None:
    async with served() as (server, client, opened):
        root, terminal = addresses(server)
        token = server.url.split("/")[3]
        assert len(token) >= 43
        wrong = token[:-1] + ("A" if token[-1] != "A" else "B")
        for path in (
            "",
            "/",
            "/ws",
            f"/{wrong}/",
            f"/{wrong}/ws",
            f"/{wrong}/static/js/textual.js",
            "/static/js/a.js",
            f"/{token.lower()}/",
            f"/{token}x/",
            "/%ff/",
            f"/?token={token}",
        ):
            async with client.get(root + path) as answer:
                assert (answer.status, await answer.read()) == (403, b""), path
        for headers in (
            {"Host": "kvchat.example"},
            {"Host": f"evil.example:{server._port}"},
            {"Host": "127.0.0.1:1"},
            {"Origin": "http://evil.example"},
            {"Origin": "null"},
            {"Origin": "http://127.0.0.1:1"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
        ):
            for address in (server.url, f"{server.url}page.js", f"{server.url}static/js/textual.js"):
                async with client.get(address, headers=headers) as answer:
                    assert (answer.status, await answer.read()) == (403, b""), headers
        for headers in (
            {},
            {"Origin": "http://evil.example"},
            {"Origin": f"https://127.0.0.1:{server._port}"},
            {"Origin": root, "Host": "evil.example"},
            {"Origin": "http://127.0.0.1:1"},
        ):
            with pytest.raises(WSServerHandshakeError):
                await client.ws_connect(terminal, headers=headers)
        with pytest.raises(WSServerHandshakeError):
            await client.ws_connect(terminal.replace(token, wrong), headers={"Origin": root})
        async with client.post(server.url, data=b"x") as answer:
            assert (answer.status, await answer.read()) == (405, b"")
        for path in ("static/js/..%2f..%2fserver.py", "static/../server.py", "static/js/", "static/"):
            async with client.get(server.url + path) as answer:
                assert answer.status in (403, 404) and not await answer.read(), path
        assert opened == []
        async with client.ws_connect(terminal, headers={"Origin": root}) as socket:
            assert b"hello" in await socket.receive_bytes()
        assert len(opened) == 1


async def test_so_many_pages_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "MOST", 2)
    async with served() as (server, client, opened):
        root, terminal = addresses(server)
        async with (
            client.ws_connect(terminal, origin=root) as first,
            client.ws_connect(terminal, origin=root) as second,
        ):
            assert b"hello" in await first.receive_bytes() and b"hello" in await second.receive_bytes()
            async with client.get(server.url) as answer:
                assert answer.status == 503 and "open in 2 pages" in await answer.text()
            with pytest.raises(WSServerHandshakeError) as refused:
                await client.ws_connect(terminal, origin=root)
            assert refused.value.status == 503
        assert len(opened) == 2


async def until(socket: ClientWebSocketResponse, text: bytes) -> bytes:
    """What comes, up to this text."""
    came = b""
    while text not in came:
        came += await socket.receive_bytes()
    return came


async def test_a_page_that_comes_back_finds_its_kvchat_drawn_anew() -> None:
    async with served() as (server, client, opened):
        root, terminal = addresses(server)
        async with client.ws_connect(terminal, origin=root) as page:
            await until(page, b"hello")
            await page.send_json(["stdin", "one"])
            await until(page, b"typed one")
        async with client.ws_connect(f"{terminal}?width=90&height=30", origin=root) as page:
            assert await until(page, b"90x30") == b"\x1b[?1049h90x2990x30"
            await page.send_json(["stdin", "two"])
            await until(page, b"typed two")
            assert len(opened) == 1
            async with client.ws_connect(terminal, origin=root) as other:
                await until(other, b"hello")
                assert len(opened) == 2, "another page beside it has its own"


async def test_a_tab_comes_back_to_its_own_kvchat_also_where_its_connection_is_not_known_to_be_broken() -> None:
    async with served() as (server, client, opened):
        root, terminal = addresses(server)
        async with (
            client.ws_connect(f"{terminal}/a", origin=root) as one,
            client.ws_connect(f"{terminal}/b", origin=root) as other,
        ):
            await until(one, b"hello")
            await until(other, b"hello")
            async with client.ws_connect(f"{terminal}/a", origin=root) as again:
                await until(again, b"x")
                assert (await one.receive()).type is WSMsgType.CLOSE and len(opened) == 2
                await other.send_json(["stdin", "still"])
                await until(other, b"typed still")


@pytest.mark.parametrize("is_left", [True, False])
async def test_a_kvchat_that_was_left_or_is_not_come_back_to_ends(
    monkeypatch: pytest.MonkeyPatch, is_left: bool
) -> None:
    monkeypatch.setattr(serving, "LINGER_S", 0.05)
    async with served() as (server, client, opened):
        root, terminal = addresses(server)
        async with client.ws_connect(terminal, origin=root) as page:
            await until(page, b"hello")
            process = server._apps[0].service._process
            if is_left:
                await page.send_json(["stdin", "q"])
                assert (await page.receive()).type is WSMsgType.CLOSE
        assert process is not None and await asyncio.wait_for(process.wait(), 20) == 0
        assert opened == []


async def test_each_server_has_a_token_of_its_own() -> None:
    async with served() as (one, _, _), served() as (other, _, _):
        assert one.url.split("/")[3] != other.url.split("/")[3]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.com", "10.0.0.1", ""])
def test_it_listens_on_loopback_only(host: str, capsys: pytest.CaptureFixture[str], own_folders: object) -> None:
    assert main(["serve", "--host", host]) == 1
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith("kvchat: kvchat serve listens on this machine only")
    assert said.err.count("\n") == 1


def test_a_port_that_is_taken_is_told(capsys: pytest.CaptureFixture[str], own_folders: object) -> None:
    there = WebServer(["false"])
    assert main(["serve", "--port", str(there._port)]) == 1
    assert "Choose another one with --port." in capsys.readouterr().err
    there._socket.close()


def test_without_the_extra_it_says_how_to_install_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, own_folders: object
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["serve"]) == 1
    assert "kvchat[web]" in capsys.readouterr().err


@pytest.mark.process
async def test_a_page_that_does_not_hear_of_the_end_holds_nothing_up() -> None:
    server, stop = WebServer([sys.executable, "-c", APP]), asyncio.Event()
    running = asyncio.create_task(server.run(stop))
    async with ClientSession() as client:
        root, terminal = addresses(server)
        page = await client.ws_connect(terminal, origin=root, autoclose=False)
        await until(page, b"hello")
        stop.set()
        async with asyncio.timeout(8):  # aiohttp's own patience is 60 s, that of a page 10 s
            await running
        page._response.close()  # type: ignore[union-attr]
