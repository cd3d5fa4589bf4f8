"""`kvchat serve` in a real browser: a question is typed and its answer read; another page's script gets nothing."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from browser import browser
from engine_fixture import running_server
from toyserver import ToyServer, reply, tokens


@asynccontextmanager
async def serving(base_url: str) -> AsyncIterator[str]:
    """`kvchat serve` as a process, with this server; the address that it prints."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "kvchat.cli",
        "serve",
        "--base-url",
        base_url,
        env=dict(os.environ),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(120):
            yield (await process.stdout.readline()).decode().strip()
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.process
@pytest.mark.engine
async def test_a_question_is_typed_and_its_answer_read(own_folders: Path, tmp_path: Path) -> None:
    config = own_folders / "config" / "config.toml"
    config.parent.mkdir(exist_ok=True)
    config.write_text("[parameters]\nmax_tokens = 16\ntemperature = 0.0\n")
    with running_server() as server:
        async with serving(server.base_url) as url, browser(tmp_path / "profile") as page:
            await page.open(url)
            await page.shows("this machine")
            await page.type("What is a lighthouse?\r")
            await page.shows("Cut at max tokens")
            await page.shows("lighthouse is")
            assert {urlsplit(asked).netloc for asked in page.asked} == {urlsplit(url).netloc}
            assert {*page.status.values()} == {200, 101}
            assert await page.run("document.querySelectorAll('canvas').length") > 0
            assert await page.run("document.fonts.check('16px \"Roboto Mono\"')")


ATTACK = """<!DOCTYPE html><script>
window.found = [];
const url = %s;
const say = (what) => window.found.push(what);
const asked = [
  fetch(url).then((r) => r.text()).then((t) => say("fetched " + t.length), () => say("no fetch")),
  fetch(url, {mode: "no-cors"}).then((r) => r.text()).then((t) => say("opaque " + t.length), () => say("no opaque")),
  new Promise((done) => {
    const socket = new WebSocket(url.replace("http", "ws") + "ws?width=80&height=24");
    socket.onmessage = () => say("message");
    socket.onopen = () => say("open");
    socket.onclose = () => { say("closed"); done(); };
  }),
  new Promise((done) => {
    const script = document.createElement("script");
    script.src = url + "static/js/textual.js";
    script.onload = () => { say("script"); done(); };
    script.onerror = () => { say("no script"); done(); };
    document.head.append(script);
  }),
];
window.all = Promise.all(asked).then(() => window.found.sort().join(", "));
</script>"""

WAITS = """new Promise((done) => {
  const look = () => window.all ? done(window.all) : setTimeout(look, 10);
  look();
})"""


@pytest.mark.process
async def test_the_script_of_another_page_gets_nothing_even_with_the_token(own_folders: Path, tmp_path: Path) -> None:
    async with ToyServer() as server, ToyServer() as other:
        server.on_chat(tokens("Hello"))
        async with serving(server.url) as url, browser(tmp_path / "profile") as page:
            other.on("/", reply(200, (ATTACK % json.dumps(url)).encode(), content_type="text/html"))
            await page.open(f"{other.url}/")
            await page.until(lambda: page.status.get(f"{other.url}/"), "the other page did not come")
            assert await page.run(WAITS) == "closed, no fetch, no script, opaque 0"
    assert server.visits == [], "no kvchat was started"
