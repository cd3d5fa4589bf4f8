"""`fetch_url` and `web_search`: what is fetched, what never is, and what a search server that cannot help says."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from corpus import corpus
from kvchat.apart.process import Process
from kvchat.chat.tools import web
from kvchat.chat.tools.tool import ToolError
from kvchat.chat.tools.web import FetchUrl, WebSearch, is_public
from kvchat.config.settings import WebSettings
from kvchat.documents.reading import sandbox
from kvchat.prompt.tools import ToolCall, ToolQuestion
from kvchat.text.tools import SHOWN, ask_words
from toyserver import Answer, ToyServer, reply

PAGE = b"<html><head><title>The tower</title></head><body><h1>Lamp</h1><p>It was lit in 1874.</p></body></html>"
PUBLIC = "93.184.215.14"


def named(*addresses: str):
    """A resolver: each look at a name gives the next of these, at last always the last one."""
    left = [*addresses]

    async def resolver(host: str, port: int) -> list[str]:
        return [left.pop(0) if len(left) > 1 else left[0]]

    return resolver


async def fetched(url: str, *addresses: str) -> Any:
    tool = FetchUrl(named(*(addresses or (PUBLIC,))))
    tool.permission({"url": url})
    return await tool.run(None, {"url": url})  # type: ignore[arg-type]


@pytest.fixture
async def internet(monkeypatch: pytest.MonkeyPatch):
    """A server on loopback that counts as public; its port stands for the pages' own."""
    async with ToyServer() as server:
        monkeypatch.setattr(web, "is_public", lambda address: address == "127.0.0.1" or is_public(address))
        yield server


def at(server: ToyServer, path: str = "/page") -> str:
    return f"http://tower.example:{server.url.rpartition(':')[2]}{path}"


def html(body: bytes = PAGE, kind: str = "text/html; charset=utf-8") -> Answer:
    return reply(200, body, content_type=kind)


def moved(target: str) -> Answer:
    return reply(302, headers={"Location": target})


# -- a page ------------------------------------------------------------------------------------------------------------


async def test_a_page_is_read_as_text_with_its_title_and_address(internet: ToyServer) -> None:
    internet.on("/page", html())
    [block] = await fetched(at(internet), "127.0.0.1")
    assert block.source == f"The tower, {at(internet)}"
    assert "It was lit in 1874." in block.text and "<p>" not in block.text


async def test_nothing_goes_along_that_tells_who_asks(internet: ToyServer) -> None:
    internet.on("/page?a=b%20c", html())
    await fetched(at(internet, "/page?a=b c"), "127.0.0.1")
    [visit] = internet.visits
    assert visit.method == "GET" and visit.body == b""
    assert not {"cookie", "authorization", "referer", "x-session-id"} & visit.headers.keys()
    assert visit.headers["host"].startswith("tower.example:")


async def test_a_redirection_on_the_same_host_is_followed(internet: ToyServer) -> None:
    internet.on("/page", moved("/other"))
    internet.on("/other", html())
    [block] = await fetched(at(internet), "127.0.0.1")
    assert block.source.endswith("/other")


async def test_a_redirection_to_another_host_is_another_call(internet: ToyServer) -> None:
    internet.on("/page", moved("https://elsewhere.example/x?secret=1"))
    with pytest.raises(ToolError, match=r"is at https://elsewhere\.example/x\?secret=1 now: call fetch_url with that"):
        await fetched(at(internet), "127.0.0.1")


async def test_redirections_end(internet: ToyServer) -> None:
    internet.on("/page", moved("/page"))
    with pytest.raises(ToolError, match="leads from one address to the next"):
        await fetched(at(internet), "127.0.0.1")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (reply(404, b"no"), "answers with the status 404"),
        (html(b"\x89PNG", "image/png"), "of the type image/png, which is not read"),
        (html(b"<html></html>"), "The page has no text"),
        (reply(302), "answers with the status 302"),
    ],
)
async def test_what_is_no_page_is_told(internet: ToyServer, answer: Answer, words: str) -> None:
    internet.on("/page", answer)
    with pytest.raises(ToolError, match=words):
        await fetched(at(internet), "127.0.0.1")


async def test_a_large_page_is_read_to_its_limit(internet: ToyServer) -> None:
    internet.on("/page", html(b"word " * web.LARGEST, "text/plain"))
    [block] = await fetched(at(internet), "127.0.0.1")
    assert len(block.text) <= web.LARGEST


def packed(coding: str, body: bytes, kind: str = "text/html") -> Answer:
    return reply(200, body, content_type=kind, headers={"Content-Encoding": coding})


def raw_deflate(data: bytes) -> bytes:
    pack = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return pack.compress(data) + pack.flush()


@pytest.mark.parametrize(
    "answer",
    [
        packed("gzip", gzip.compress(PAGE)),
        packed("x-gzip", gzip.compress(PAGE)),
        packed("GZIP", gzip.compress(PAGE[:40]) + gzip.compress(PAGE[40:])),
        packed("gzip", gzip.compress(PAGE) + bytes(512)),
        packed("gzip", gzip.compress(PAGE, 0)[:-9]),
        packed("gzip", PAGE),
        packed("deflate", zlib.compress(PAGE)),
        packed("deflate", raw_deflate(PAGE)),
    ],
)
async def test_a_page_that_is_compressed_though_nobody_asked_is_read(internet: ToyServer, answer: Answer) -> None:
    internet.on("/page", answer)
    [block] = await fetched(at(internet), "127.0.0.1")
    assert "It was lit in 1874." in block.text
    assert internet.visits[-1].headers["accept-encoding"] == "identity"


async def test_a_page_that_unpacks_to_any_size_is_read_to_its_limit(internet: ToyServer) -> None:
    bomb = gzip.compress(b"word " * (40 << 20), 9)
    internet.on("/page", packed("gzip", bomb, "text/plain"))
    [block] = await fetched(at(internet), "127.0.0.1")
    assert web.LARGEST - 10 < len(block.text) <= web.LARGEST


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (packed("br", b"\x1b\x00"), r'compressed in a way that is not read here \("br"\)'),
        (packed("zstd", b"\x28\xb5"), r'not read here \("zstd"\)'),
        (packed("gzip, gzip", gzip.compress(gzip.compress(PAGE))), r'not read here \("gzip, gzip"\)'),
        (packed("gzip", b"\x1f\x8b" + bytes(99)), "not whole gzip"),
        (packed("deflate", b"<html>"), "not whole deflate"),
    ],
)
async def test_what_cannot_be_unpacked_is_one_sentence(internet: ToyServer, answer: Answer, words: str) -> None:
    internet.on("/page", answer)
    with pytest.raises(ToolError, match=words):
        await fetched(at(internet), "127.0.0.1")


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/octet-stream", b"# Lamp\n\nlit in 1874\n"),
        ("application/octet-stream", PAGE),
        ("binary/octet-stream", b"lit in 1874"),
        ("", b"lit in 1874"),
        ("application/yaml", b"lit: in 1874\nlamp: lit in 1874\n"),
        ("application/x-ndjson", b'{"lamp": "lit in 1874"}\n{"a": 1}\n'),
        ("application/toml", b'lamp = "lit in 1874"\n'),
        ("application/javascript", b"// lit in 1874\n"),
        ("application/rss+xml", b'<?xml version="1.0"?><rss><item><title>lit in 1874</title></item></rss>'),
        ("application/xml", b"<lamp>lit in 1874</lamp>"),
        ("image/svg+xml", b"<svg xmlns='http://www.w3.org/2000/svg'><text>lit in 1874</text></svg>"),
        ("application/xhtml+xml", b"<html><p>lit in 1874</p></html>"),
    ],
)
async def test_text_is_read_under_whatever_type_it_is_sent(internet: ToyServer, kind: str, body: bytes) -> None:
    internet.on("/page", reply(200, body, content_type=kind))
    [block] = await fetched(at(internet), "127.0.0.1")
    assert "lit in 1874" in block.text and "<p>" not in block.text


@pytest.mark.parametrize(
    ("charset", "words"),
    [
        ("windows-1251", "Маяк зажгли"),
        ("shift_jis", "灯台"),
        ("iso-8859-1", "’tis lit — 5 €"),
        ("UTF-16LE", "lit"),
        ("koi8-r", "Маяк"),
        ("utf-8", "Маяк"),
    ],
)
async def test_the_encoding_that_only_the_server_names_is_taken(internet: ToyServer, charset: str, words: str) -> None:
    body = f"<html><p>{words}</p></html>".encode("cp1252" if charset == "iso-8859-1" else charset)
    internet.on("/page", html(body, f'text/html; Charset="{charset}"'))
    [block] = await fetched(at(internet), "127.0.0.1")
    assert block.text == words


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        ("application/octet-stream", b"\x89PNG\r\n\x1a\n" + bytes(99), "The page is an image"),
        ("application/octet-stream", bytes(range(256)) * 9, "The page is a binary file"),
        ("video/mp4", b"", "which is not read"),
        ("text/plain", b"", "The page has no text"),
        ("application/pdf", b"%PDF-1.7\n" + b"x" * web.LARGEST, r"only its first 2 MB were fetched"),
    ],
)
async def test_what_is_no_text_is_said_by_what_it_is(internet: ToyServer, kind: str, body: bytes, words: str) -> None:
    internet.on("/page", reply(200, body, content_type=kind))
    with pytest.raises(ToolError, match=words):
        await fetched(at(internet), "127.0.0.1")


async def test_a_call_that_is_stopped_ends_what_reads_its_page(
    internet: ToyServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "hanging.py").write_text("import threading\nthreading.Event().wait()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sandbox, "MODULE", "hanging")
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()
    ask = Process.ask

    def asked(self: Process, *questions: bytes) -> bytes:
        loop.call_soon_threadsafe(begun.set)
        return ask(self, *questions)

    monkeypatch.setattr(Process, "ask", asked)
    internet.on("/page", html(PAGE * 1000))
    call = asyncio.create_task(fetched(at(internet), "127.0.0.1"))
    await begun.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await loop.shutdown_default_executor()  # which waits for the thread


# -- what is never fetched -----------------------------------------------------------------------------------------------

INSIDE = (
    "127.0.0.1",
    "127.8.8.8",
    "0.0.0.0",
    "10.0.0.7",
    "172.16.3.4",
    "192.168.1.1",
    "169.254.169.254",
    "169.254.1.1",
    "100.64.0.1",
    "192.0.0.1",
    "198.18.0.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "fe80::1",
    "fc00::1",
    "fd00:ec2::254",
    "fec0::1",
    "ff02::1",
    "2001:db8::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a00:1",
    "2002:7f00:1::",
    "2002:c0a8:101::",
    "2001:0:7f00:1::",
)


@corpus("address", INSIDE)
async def test_no_name_leads_to_an_address_that_is_not_public(address: str) -> None:
    assert not is_public(address)
    async with ToyServer() as server:
        with pytest.raises(ToolError):
            await fetched(at(server), address)
        assert not server.visits


@corpus("address", INSIDE)
async def test_no_such_address_is_fetched_as_it_is(address: str) -> None:
    host = f"[{address}]" if ":" in address else address
    with pytest.raises(ToolError):
        await fetched(f"http://{host}/slots")


@corpus(
    "host",
    [
        "localhost",
        "LOCALHOST",
        "localhost.",
        "a.localhost",
        "127.1",
        "127.0.1",
        "2130706433",
        "0x7f000001",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "017700000001",
        "①②⑦.⓪.⓪.①",
        "127。0。0。1",
        "[::ffff:7f00:1]",
        "[0:0:0:0:0:0:0:1]",
        "[::1%25lo]",
        "[::127.0.0.1]",
        "printer.local",
    ],
)
async def test_no_other_spelling_leads_inside(host: str) -> None:
    async with ToyServer() as server:
        port = server.url.rpartition(":")[2]
        with pytest.raises(ToolError):
            await fetched(f"http://{host}:{port}/slots", "127.0.0.1")
        assert not server.visits


@corpus(
    "url",
    [
        "file:///etc/passwd",
        "ftp://example.org/x",
        "gopher://example.org",
        "data:text/plain,x",
        "javascript:alert(1)",
        "//example.org/x",
        "example.org",
        "",
        "http://",
        "http://user:pass@example.org/",
        "http://example.org@127.0.0.1/",
        "http://127.0.0.1#@example.org/",
        "http://example.org:0/",
        "http://example.org:99999/",
        "http://exa mple.org/",
        "http://exam\nple.org/",
        "http://[::1",
    ],
)
async def test_what_is_no_address_of_a_page_is_told(url: str) -> None:
    with pytest.raises(ToolError):
        await fetched(url, "127.0.0.1")


async def test_a_second_answer_of_a_name_server_leads_nowhere_else(internet: ToyServer, monkeypatch) -> None:
    """DNS rebinding: the name is looked up once, and the connection goes to what was looked at."""
    internet.on("/page", html())
    looks = []

    async def resolver(host: str, port: int) -> list[str]:
        looks.append(host)
        return ["127.0.0.1"] if len(looks) == 1 else ["10.0.0.1"]

    await FetchUrl(resolver).run(None, {"url": at(internet)})  # type: ignore[arg-type]
    assert looks == ["tower.example"]


async def test_nothing_goes_out_whose_end_the_question_would_not_show() -> None:
    long = "x" * SHOWN
    with pytest.raises(ToolError, match="nothing longer goes out"):
        FetchUrl().permission({"url": f"https://tower.example/?{long}"})
    with pytest.raises(ToolError, match="nothing longer goes out"):
        WebSearch(WebSettings).permission({"query": f"{long}!"})
    url = f"https://tower.example/?{long}"[:SHOWN]
    question = ToolQuestion(FetchUrl().permission({"url": url}), ToolCall("1", "fetch_url", json.dumps({"url": url})))
    assert url in ask_words(question)


async def test_one_private_address_among_public_ones_is_enough() -> None:
    async def resolver(host: str, port: int) -> list[str]:
        return [PUBLIC, "192.168.1.1"]

    with pytest.raises(ToolError, match="not on the internet"):
        await FetchUrl(resolver).run(None, {"url": "http://tower.example/"})  # type: ignore[arg-type]


async def test_each_redirection_is_looked_at_anew() -> None:
    async with ToyServer() as server:
        server.on("/page", moved("/inside"))
        first = True

        async def resolver(host: str, port: int) -> list[str]:
            nonlocal first
            first, was = False, first
            return ["127.0.0.1"] if was else ["10.0.0.1"]

        patch = pytest.MonkeyPatch()
        patch.setattr(web, "is_public", lambda address: address == "127.0.0.1")
        try:
            with pytest.raises(ToolError, match="not on the internet"):
                await FetchUrl(resolver).run(None, {"url": at(server)})  # type: ignore[arg-type]
        finally:
            patch.undo()
        assert [visit.path for visit in server.visits] == ["/page"]


# -- a search ------------------------------------------------------------------------------------------------------------


async def searched(settings: WebSettings, query: str = "lamp & sea") -> Any:
    tool = WebSearch(lambda: settings)
    return tool.permission({"query": query}), await tool.run(None, {"query": query})  # type: ignore[arg-type]


BRAVE = "/res/v1/web/search?count=5&q=lamp%20%26%20sea"
SEARCH = "/search?format=json&q=lamp%20%26%20sea"
FOUND = {
    "results": [
        {"title": "The tower", "url": "https://tower.example/", "content": "Lit in\n1874."},
        {"title": "No address"},
        "odd",
    ]
}


async def test_a_searxng_server_of_the_settings_may_be_on_this_machine() -> None:
    async with ToyServer() as server:
        server.on(SEARCH, reply(200, FOUND))
        permission, [block] = await searched(WebSettings(searxng_url=server.url))
        assert (str(permission), permission.goes_to) == ("web_search", server.url)
        assert (block.source, block.text) == (
            "The tower, https://tower.example/",
            "https://tower.example/\nLit in 1874.",
        )
        assert server.visits[-1].path == SEARCH


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (reply(403, b""), "add json to search.formats"),
        (reply(500, b""), "answers with the status 500"),
        (reply(200, b"<html>"), "does not answer as a search server does"),
        (reply(200, {"results": []}), "Nothing was found"),
    ],
)
async def test_what_a_search_server_cannot_do_is_told(answer: Answer, words: str) -> None:
    async with ToyServer() as server:
        server.on(SEARCH, answer)
        with pytest.raises(ToolError, match=words):
            await searched(WebSettings(searxng_url=server.url))


async def test_brave_gets_its_key_and_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ToyServer() as server:
        server.on(BRAVE, reply(200, {"web": {"results": [{"title": "T", "url": "https://t.example/"}]}}))
        monkeypatch.setattr(web, "BRAVE", server.url)
        monkeypatch.setenv("MY_BRAVE", "key")
        permission, [block] = await searched(WebSettings(brave_key_env="MY_BRAVE"))
        assert permission.goes_to == "Brave"
        assert server.visits[-1].headers["x-subscription-token"] == "key"
        assert json.dumps(block.text).count("key") == 0
        monkeypatch.delenv("MY_BRAVE")
        with pytest.raises(ToolError, match="MY_BRAVE"):
            await searched(WebSettings(brave_key_env="MY_BRAVE"))
