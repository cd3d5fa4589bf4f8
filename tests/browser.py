"""A real browser without a window, driven by its DevTools protocol: what is typed in a page, and what it is sent.

Debian's `chromium` or `chromium-headless-shell`; `.ci/run` installs the latter. Where there is none, a test is skipped.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pyte
import pytest
from aiohttp import ClientSession, ClientWebSocketResponse

from terminal_output import lines_of

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


class Page:
    """A page with a terminal in it."""

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._session = ""
        self._heard = asyncio.Event()
        self._screen = pyte.Screen(200, 60)
        self._terminal = pyte.ByteStream(self._screen)
        self.asked: list[str] = []
        """The addresses that the page asked for, or wanted to."""
        self.status: dict[str, int] = {}
        """What the answers were, by address."""

    async def open(self, url: str) -> None:
        """Go to an address, in a page of its own."""
        target = (await self._call("Target.createTarget", url="about:blank"))["targetId"]
        self._session = (await self._call("Target.attachToTarget", targetId=target, flatten=True))["sessionId"]
        for domain in ("Network", "Page", "Runtime"):
            await self._call(f"{domain}.enable")
        await self._call("Page.navigate", url=url)

    async def run(self, script: str) -> Any:
        """What a script gives in the page; a promise is waited for."""
        found = await self._call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        return found["result"].get("value")

    async def type(self, text: str) -> None:
        """Press keys, as a person does."""
        for char in text:
            key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13} if char == "\r" else {"key": char}
            await self._call("Input.dispatchKeyEvent", type="keyDown", text=char, **key)
            await self._call("Input.dispatchKeyEvent", type="keyUp", **key)

    async def picture(self) -> bytes:
        """The page as a PNG."""
        return base64.b64decode((await self._call("Page.captureScreenshot"))["data"])

    @property
    def lines(self) -> list[str]:
        """What the terminal in the page shows, by all that the page was sent."""
        return lines_of(self._screen)

    async def shows(self, words: str) -> None:
        await self.until(lambda: any(words in line for line in self.lines), f"{words!r} is not shown")

    async def until(self, condition: Callable[[], object], otherwise: str) -> None:
        try:
            async with asyncio.timeout(120):
                while not condition():
                    self._heard.clear()
                    await self._heard.wait()
        except TimeoutError:
            raise AssertionError("\n".join([otherwise, *self.lines])) from None

    async def _call(self, method: str, **arguments: object) -> dict[str, Any]:
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        session = {"sessionId": self._session} if self._session else {}
        await self._socket.send_json({"id": number, "method": method, "params": arguments, **session})
        async with asyncio.timeout(60):
            found: dict[str, Any] = await answer
        assert "error" not in found, found
        return found["result"]

    async def listen(self) -> None:
        async for message in self._socket:
            found = message.json()
            if (number := found.get("id")) is not None:
                self._answers.pop(number).set_result(found)
            self._take(found.get("method", ""), found.get("params", {}))
            self._heard.set()

    def _take(self, event: str, found: dict[str, Any]) -> None:
        match event:
            case "Network.requestWillBeSent":
                self.asked.append(found["request"]["url"])
            case "Network.webSocketCreated":
                self.asked.append(found["url"])
            case "Network.responseReceived":
                self.status[found["response"]["url"]] = found["response"]["status"]
            case "Network.webSocketHandshakeResponseReceived":
                self.status["websocket"] = found["response"]["status"]
            case "Network.webSocketFrameReceived" if found["response"]["opcode"] == 2:
                self._terminal.feed(base64.b64decode(found["response"]["payloadData"]))


@asynccontextmanager
async def browser(folder: Path) -> AsyncIterator[Page]:
    """A page of a browser whose profile is in `folder`."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip("needs a browser: apt-get install chromium-headless-shell")
    process = await asyncio.create_subprocess_exec(
        program,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--remote-debugging-port=0",
        "--window-size=1100,700",
        "--no-first-run",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--disable-component-update",
        f"--user-data-dir={folder}",
        "about:blank",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        port, path = await _address(process, folder / "DevToolsActivePort")
        async with (
            ClientSession() as client,
            client.ws_connect(f"ws://127.0.0.1:{port}{path}", max_msg_size=1 << 26) as socket,
        ):
            page = Page(socket)
            listening = asyncio.create_task(page.listen())
            try:
                yield page
            finally:
                listening.cancel()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def _address(process: asyncio.subprocess.Process, file: Path) -> list[str]:
    """Port and path of the protocol, which the browser writes into a file."""
    async with asyncio.timeout(120):
        while not file.exists() or len(lines := file.read_text().split()) < 2:
            if process.returncode is not None:
                pytest.skip(f"the browser does not start here (exit status {process.returncode})")
            await asyncio.sleep(0.02)
    return lines
