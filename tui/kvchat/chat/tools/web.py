"""`fetch_url` and `web_search`: what the user lets the model read from the internet.

A page comes from public addresses only: its name is resolved once, every address that it has is looked at, and the
connection goes to these very addresses, so that no second answer of a name server leads elsewhere. No cookie and no key
is sent, and no redirection to another host is followed: that is another call, for which the user is asked. A search
server that the user configured may be anywhere.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

from kvchat.backends.dialect import BackendError
from kvchat.backends.http.endpoint import BaseUrl, Endpoint, Resolver, locate, lookup, open_endpoint, parse_base_url
from kvchat.backends.http.transport import Exchange, ResponseHead
from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.tools.public_addresses import is_public
from kvchat.chat.tools.tool import ToolError, must_be_shown, shown_address
from kvchat.config.settings import WebSettings
from kvchat.documents.errors import FileUnreadableError
from kvchat.prompt.context import PASSAGE, ContextBlock
from kvchat.prompt.offered_tools import FETCH_URL, WEB_SEARCH
from kvchat.prompt.tools import Permission
from kvchat.sanitize import one_line

LARGEST = 2 << 20
"""Bytes of a page."""
MOST_REDIRECTS = 5
NOT_READ = ("image/", "audio/", "video/", "font/", "application/zip", "application/gzip", "application/x-tar")
"""How types begin of which nothing is fetched. Any other is decided by what comes: text is sent under many names."""
ACCEPT = "text/html, text/plain, application/pdf;q=0.9, text/*;q=0.8, application/json;q=0.7"
RESULTS = 5
BRAVE = "https://api.search.brave.com"
_SUFFIXES = {"text/html": ".html", "application/xhtml+xml": ".html", "application/pdf": ".pdf"}


# -- a page -----------------------------------------------------------------------------------------------------------


class FetchUrl:
    def __init__(self, resolver: Resolver = lookup) -> None:
        self._resolver = resolver

    def permission(self, given: Mapping[str, Any]) -> Permission:
        must_be_shown(given["url"])
        base, path = _target(given["url"])
        return Permission(FETCH_URL.name, base.host, shown=f"{base}{path}")

    async def run(self, conversation: OpenConversation, given: Mapping[str, Any]) -> Sequence[ContextBlock]:
        url, head, data = await self._fetched(given["url"])
        title, text = await _read(head, data)
        source = f"{one_line(title, 80)}, {url}" if title else url
        return [ContextBlock(PASSAGE, source, text, f"{url}#{hashlib.sha256(data).hexdigest()[:16]}")]

    async def _fetched(self, url: str) -> tuple[str, ResponseHead, bytes]:
        """The address that a page came from at last, its head and its bytes. Raises ToolError."""
        asked = _target(url)[0].host
        for _ in range(MOST_REDIRECTS):
            base, path = _target(url)
            try:
                endpoint = Endpoint(base, await locate(base, self._resolver))
                if not endpoint.place.addresses or not all(map(is_public, endpoint.place.addresses)):
                    raise ToolError(f"{base.host} is not on the internet, and only what is there is fetched.")
                async with Exchange(
                    endpoint, "GET", path, headers={"accept": ACCEPT}, takes_redirections=True, takes_compressed=True
                ) as exchange:
                    head = await exchange.head()
                    if head.is_good:
                        _may_be_text(url, head.content_type)
                        return url, head, await exchange.body(LARGEST)
                    target = head.headers.get("location", "")
            except BackendError as error:
                raise ToolError(error.sentence) from None
            if not 300 <= head.status < 400 or not target:
                raise ToolError(f"{one_line(url, 200)} answers with the status {head.status}.")
            url = urljoin(url, target)
            if _target(url)[0].host.removeprefix("www.") != asked.removeprefix("www."):
                raise ToolError(f"The page is at {one_line(url, 300)} now: call fetch_url with that.")
        raise ToolError(f"{one_line(url, 200)} leads from one address to the next.")


def _target(url: str) -> tuple[BaseUrl, str]:
    """The server of a page, and its path there. Raises ToolError for what is no address of a page."""
    try:
        parts = urlsplit(url.strip())
        base = parse_base_url(f"{parts.scheme}://{parts.netloc}")
    except BackendError as error:
        raise ToolError(error.sentence) from None
    except ValueError:
        raise ToolError(f"{one_line(url, 200)} is no address of a page.") from None
    path = quote(parts.path, safe="/%:@!$&'()*+,;=~-._") or "/"
    return base, path + (f"?{quote(parts.query, safe='/%:@!$&()*+,;=~-._?[]')}" if parts.query else "")


def _may_be_text(url: str, kind: str) -> None:
    """Raises ToolError for a type that is never text."""
    if kind.startswith(NOT_READ) and kind != "image/svg+xml":
        raise ToolError(f"{one_line(url, 200)} is of the type {one_line(kind, 60)}, which is not read.")


async def _read(head: ResponseHead, data: bytes) -> tuple[str, str]:
    """The title and the text of a page. Raises ToolError."""
    from kvchat.documents.reading.decoding import as_utf8
    from kvchat.documents.reading.sandbox import Readers

    name = f"page{_SUFFIXES.get(head.content_type, '.txt')}"
    data = as_utf8(data, head.charset)
    try:
        with Readers() as readers:  # which ends with this call, whatever it is at
            content = await asyncio.to_thread(readers.read, name, data)
    except FileUnreadableError as error:
        cut = f" (only its first {LARGEST >> 20} MB were fetched)" if len(data) >= LARGEST else ""
        raise ToolError(f"The page {error}{cut}.") from None
    text = "\n\n".join(section.text.strip("\n") for section in content.sections)
    if not text:
        raise ToolError("The page has no text.")
    return content.title, text


# -- a search ---------------------------------------------------------------------------------------------------------


Result = tuple[str, str, str]
"""Its title, its address, and some words of it."""


class WebSearch:
    def __init__(self, settings: Callable[[], WebSettings]) -> None:
        self._settings = settings

    def permission(self, given: Mapping[str, Any]) -> Permission:
        settings = self._settings()
        goes_to = "Brave" if settings.brave_key_env else "DuckDuckGo and others (ddgs)"
        if settings.searxng_url:
            goes_to = shown_address(settings.searxng_url)
        must_be_shown(given["query"])
        return Permission(WEB_SEARCH.name, goes_to=goes_to)

    async def run(self, conversation: OpenConversation, given: Mapping[str, Any]) -> Sequence[ContextBlock]:
        settings, query = self._settings(), given["query"]
        try:
            if settings.searxng_url:
                found = await _searxng(settings.searxng_url, query)
            elif settings.brave_key_env:
                found = await _brave(settings.brave_key_env, query)
            else:
                found = await asyncio.to_thread(_ddgs, query)
        except BackendError as error:
            raise ToolError(error.sentence) from None
        if not found:
            raise ToolError("Nothing was found. Try other words.")
        return [
            ContextBlock(PASSAGE, f"{title}, {url}", f"{url}\n{words}", url) for title, url, words in found[:RESULTS]
        ]


async def _searxng(url: str, query: str) -> list[Result]:
    said = await _json(await open_endpoint(url), f"/search?format=json&q={quote(query, safe='')}", {}, "SearXNG")
    return _results(said.get("results"), "content")


async def _brave(variable: str, query: str) -> list[Result]:
    key = os.environ.get(variable, "")
    if not key:
        raise ToolError(f"The environment variable {variable} (web.brave_key_env) is not set.")
    path = f"/res/v1/web/search?count={RESULTS}&q={quote(query, safe='')}"
    said = await _json(await open_endpoint(BRAVE), path, {"x-subscription-token": key}, "Brave")
    web = said.get("web")
    return _results(web.get("results") if isinstance(web, dict) else None, "description")


async def _json(endpoint: Endpoint, path: str, headers: Mapping[str, str], who: str) -> Mapping[str, Any]:
    """What a search server answers. Raises BackendError and ToolError."""
    wanted = {"accept": "application/json", **headers}
    async with Exchange(endpoint, "GET", path, headers=wanted, takes_compressed=True) as exchange:
        head = await exchange.head()
        body = await exchange.body(LARGEST)
    if head.status == 403 and who == "SearXNG":
        raise ToolError(f"{endpoint.shown} gives no JSON: add json to search.formats in its settings.yml.")
    if not head.is_good:
        raise ToolError(f"{endpoint.shown} ({who}) answers with the status {head.status}.")
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ToolError(f"{endpoint.shown} ({who}) does not answer as a search server does.")
    return found


def _results(found: object, words: str) -> list[Result]:
    """Those that have an address, each text on one line."""
    results = []
    for one in found if isinstance(found, list) else ():
        if isinstance(one, dict) and one.get("url"):
            title, url, said = (one_line(str(one.get(name) or ""), 500) for name in ("title", "url", words))
            results.append((title, url, said))
    return results


def _ddgs(query: str) -> list[Result]:
    """Raises ToolError."""
    try:
        from ddgs import DDGS
    except ImportError:
        raise ToolError(
            "No web search is set up: set web.searxng_url, or web.brave_key_env, or install the extra search."
        ) from None
    try:
        found = DDGS(timeout=10).text(query, max_results=RESULTS)
    except Exception as error:  # whatever its engines raise
        raise ToolError(f"The search gave nothing: {one_line(str(error), 200)}.") from None
    return _results([{**one, "url": one.get("href")} for one in found], "body")
