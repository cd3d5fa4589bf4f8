"""Serves the app to browsers of this machine.

It listens on loopback and nowhere else, and refuses a request without the token, with another host than this one, or
from another page's script. The page fetches nothing from elsewhere. kvchat does not end with its page: it waits some
seconds for one that comes back.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
import re
import secrets
import shlex
import signal
import socket
from collections.abc import Sequence
from contextlib import suppress
from importlib.resources import files
from string import Template

from aiohttp import web
from aiohttp.typedefs import Handler
from textual_serve import server as textual_serve
from textual_serve.app_service import AppService

MOST = 8
"""Pages at the same time: each is a kvchat of its own."""
LINGER_S = 30.0
"""How long a kvchat waits for its page: one that is reloaded, a tab that slept, a tunnel that broke."""
REPAINT_S = 2.0
"""How long a kvchat has to draw for a new page."""
END_S = 2.0
"""How long the kvchats behind the pages are waited for at the end, and then the pages."""
CLOSE_S = 0.5
"""How long a page may take to say that it is closed."""
_MODE = re.compile(rb"\x1b\[\?(\d+)[hl]")
log = logging.getLogger(__name__)
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; font-src 'self'; img-src 'self' "
    "data:; connect-src {websocket}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_TYPES = {"js": "text/javascript", "css": "text/css", "ttf": "font/ttf", "png": "image/png"}
_PLACES = {"127.0.0.1", "localhost", "[::1]"}
"""What the user's browser may call this machine."""


class AddressError(Exception):
    """It cannot listen there; the sentence says why."""


class WebServer:
    """One server: a token, and the pages that came by it."""

    def __init__(self, command: Sequence[str], host: str = "127.0.0.1", port: int = 0) -> None:
        """`command`: of the app behind a page. `port` 0: any that is free. Raises AddressError."""
        self._socket = _listening(host, port)
        found = self._socket.getsockname()
        self._port: int = found[1]
        self._host = f"[{found[0]}]" if ":" in found[0] else found[0]
        self._token = secrets.token_urlsafe(32)
        self._hosts = {f"{place}:{self._port}" for place in _PLACES | {self._host}}
        self._terminals = textual_serve.Server(shlex.join(command))
        self._apps: list[_App] = []
        """Those whose page went last stand last."""

    @property
    def url(self) -> str:
        """Where the app is, with the token: whoever has it can use kvchat."""
        return f"http://{self._host}:{self._port}/{self._token}/"

    async def run(self, ending: asyncio.Event | None = None) -> None:
        """Serve until SIGINT or SIGTERM, or until `ending`."""
        stop, loop = ending or asyncio.Event(), asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            with suppress(RuntimeError, ValueError):  # in a thread
                loop.add_signal_handler(number, stop.set)
        runner = web.AppRunner(self._app(), access_log=None, shutdown_timeout=END_S)
        await runner.setup()
        try:
            await web.SockSite(runner, self._socket).start()
            await stop.wait()
        finally:
            if ends := [asyncio.create_task(app.end()) for app in self._apps]:
                await asyncio.wait(ends, timeout=END_S)  # a slower one goes on to its end without its page
            await runner.cleanup()

    def _app(self) -> web.Application:
        app = web.Application(middlewares=[self._guarded])
        app.add_routes(
            [
                web.get("/{token}/", self._page),
                web.get("/{token}/page.js", self._script),
                web.get("/{token}/ws", self._terminal),
                web.get("/{token}/ws/{tab}", self._terminal),
                web.get("/{token}/static/{folder}/{name}", self._static),
            ]
        )
        return app

    # -- who may

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if not self._may(request):
            return web.Response(status=403)
        try:
            response = await handler(request)
        except web.HTTPException as refused:
            return web.Response(status=refused.status)
        if not response.prepared:
            response.headers.update(
                {
                    "Content-Security-Policy": _POLICY.format(websocket=f"ws://{request.host}"),
                    "Referrer-Policy": "no-referrer",
                    "X-Content-Type-Options": "nosniff",
                    "Cache-Control": "no-store",
                    "Cross-Origin-Resource-Policy": "same-origin",
                    "Cross-Origin-Opener-Policy": "same-origin",
                }
            )
        return response

    def _may(self, request: web.Request) -> bool:
        """Whether a request is from the user's own browser, from our own page or their address line."""
        given = request.path.split("/", 2)[1]
        has_token = hmac.compare_digest(given.encode(errors="replace"), self._token.encode())
        host, origin = request.headers.get("Host", ""), request.headers.get("Origin")
        is_terminal = request.headers.get("Upgrade") is not None
        if not has_token or host not in self._hosts or (is_terminal and origin is None):
            return False
        made_by = request.headers.get("Sec-Fetch-Site", "none")
        return origin in (None, f"http://{host}") and made_by in ("none", "same-origin")

    # -- what there is

    async def _page(self, request: web.Request) -> web.Response:
        if self._is_full and self._known("") is None:
            text = Template(_own("full.html")).substitute(most=MOST)
            return web.Response(text=text, content_type="text/html", status=503)
        text = Template(_own("page.html")).substitute(websocket=f"ws://{request.host}/{self._token}/ws")
        return web.Response(text=text, content_type="text/html")

    async def _script(self, request: web.Request) -> web.Response:
        return web.Response(text=_own("page.js"), content_type=_TYPES["js"])

    async def _static(self, request: web.Request) -> web.Response:
        """A file of the terminal's, by its folder and name."""
        folder, name = request.match_info["folder"], request.match_info["name"]
        there = {(one.parent.name, one.name): one for one in self._terminals.statics_path.glob("*/*") if one.is_file()}
        if (folder, name) not in there:
            return web.Response(status=404)
        data = await asyncio.to_thread(there[folder, name].read_bytes)
        return web.Response(body=data, content_type=_TYPES.get(name.rpartition(".")[2], "application/octet-stream"))

    async def _terminal(self, request: web.Request) -> web.StreamResponse:
        """The terminal of a page: with the kvchat that its tab had, else with one whose page has just gone, else with a
        new one."""
        tab = request.match_info.get("tab", "")
        if self._is_full and self._known(tab) is None:
            return web.Response(status=503)
        page = web.WebSocketResponse(heartbeat=15, timeout=CLOSE_S)
        await page.prepare(request)
        app = self._known(tab)
        if app is None:
            app = _App(self._terminals)
            self._apps.append(app)
        app.tab = tab
        try:
            await app.show_on(page, *(textual_serve.to_int(request.query.get(side, ""), 80) for side in _SIDES))
            await self._terminals._process_messages(page, app.service)
        except Exception:  # of a page that says what no page of ours does
            log.exception("a page was left")
        finally:
            if app.page in (page, None):
                self._apps.remove(app)
                app.page = None
                if app.is_over:
                    await app.end()
                else:
                    self._apps.append(app)
                    app.waiting = asyncio.create_task(self._wait_for_page(app))
        return page

    def _known(self, tab: str) -> _App | None:
        """The kvchat of this tab, else the one whose page went last; None: neither is there."""
        theirs = [app for app in self._apps if tab and app.tab == tab]
        waiting = [app for app in self._apps if app.page is None]
        return next(reversed(theirs or waiting), None)

    @property
    def _is_full(self) -> bool:
        return len(self._apps) >= MOST

    async def _wait_for_page(self, app: _App) -> None:
        await asyncio.sleep(LINGER_S)
        if app.page is None:
            self._apps.remove(app)
            await app.end()


_SIDES = ("width", "height")


class _App:
    """A kvchat, and the page that shows it."""

    def __init__(self, terminals: textual_serve.Server) -> None:
        self.service = AppService(
            terminals.command,
            write_bytes=self._draw,
            write_str=self._say,
            close=self._left,
            download_manager=terminals.download_manager,
        )
        self.tab = ""
        """Which tab of a browser has it; empty: it does not say."""
        self.page: web.WebSocketResponse | None = None
        self.waiting: asyncio.Task[None] | None = None
        """Ends it when no page comes back."""
        self.is_over = False
        self._has_begun = False
        self._modes: dict[bytes, bytes] = {}
        """The modes of the terminal that it has set, which a new page begins with."""
        self._has_drawn = asyncio.Event()

    async def show_on(self, page: web.WebSocketResponse, width: int, height: int) -> None:
        """Draw on this page from now on; one that it was drawn on before is closed."""
        before, self.page = self.page, page
        if before is not None:
            await before.close()
        if self.waiting is not None:
            self.waiting.cancel()
        if not self._has_begun:
            self._has_begun = True
            await self.service.start(width, height)
            return
        await self._draw(b"".join(self._modes.values()))
        # A new size redraws everything.
        self._has_drawn.clear()
        await self.service.set_terminal_size(width, max(1, height - 1))
        with suppress(TimeoutError):
            await asyncio.wait_for(self._has_drawn.wait(), REPAINT_S)
        await self.service.set_terminal_size(width, height)

    async def end(self) -> None:
        """End it, and wait until it is ended."""
        if self.waiting is not None and self.waiting is not asyncio.current_task():
            self.waiting.cancel()
        if self._has_begun:
            await self.service.stop()
        if (process := self.service._process) is not None:
            await process.wait()

    async def _draw(self, data: bytes) -> None:
        self._modes.update((mode[1], mode[0]) for mode in _MODE.finditer(data))
        self._has_drawn.set()
        if self.page is not None:
            with suppress(ConnectionError, RuntimeError):  # it is just going
                await self.page.send_bytes(data)

    async def _say(self, text: str) -> None:
        if self.page is not None:
            with suppress(ConnectionError, RuntimeError):
                await self.page.send_str(text)

    async def _left(self) -> None:
        """The user has left kvchat."""
        self.is_over = True
        if self.page is not None:
            await self.page.close()


def _own(name: str) -> str:
    """A file next to this module."""
    return (files("kvchat.web") / name).read_text(encoding="utf-8")


def _listening(host: str, port: int) -> socket.socket:
    """A socket on loopback. Raises AddressError."""
    name = "127.0.0.1" if host == "localhost" else host.strip("[]")
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        address = None
    if address is None or not address.is_loopback:
        raise AddressError(
            f"kvchat serve listens on this machine only, and {host} is not loopback. From another one, "
            "tunnel to it: ssh -L 8000:127.0.0.1:PORT HOST"
        )
    try:
        return socket.create_server((name, port), family=socket.AF_INET6 if address.version == 6 else socket.AF_INET)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise AddressError(f"Cannot listen on {host}, port {port}: {why}. Choose another one with --port.") from None


for name in ("textual-serve", "aiohttp.server"):  # what fails is said in the page; --log has the rest
    logging.getLogger(name).addHandler(logging.NullHandler())
