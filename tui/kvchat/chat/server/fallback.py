"""Where a conversation can go while its server is off: another server that answers now, else the built-in engine.

Only servers that the user knows are asked, and those of this machine; one elsewhere only where they agreed
to send to it, and none on the internet. Asking sends no text and wakes no model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path

from kvchat.chat.server.connection import UNUSABLE, best_first, default_model_file, found_here
from kvchat.chat.server.link import DEFAULT, Link, Links, is_file, normal

ASK_S = 3.0
"""Servers that the user knows have this long to answer, all together."""


class ServerFallback:
    """Finds another server, and remembers for this run which one replaces which."""

    def __init__(self, links: Links, known: Callable[[], Iterable[str]], trusts: Callable[[Link], bool]) -> None:
        """`known`: the names of the servers that the user knows, the best first. `trusts`: whether a conversation may
        begin there without a question: asked before a server is, and again once it answered."""
        self._links = links
        self._known = known
        self._trusts = trusts
        self._chosen: dict[Link, str] = {}
        """The name of the server in use, by the one that is off."""
        self.off: Link | None = None
        """The server for which another one is looked for right now."""

    def instead_of(self, name: str) -> str:
        """The name of the server that replaces the one of this name; itself where none does, or it is back."""
        seen = set[Link]()
        while (link := self._links.at(name)) in self._chosen and link not in seen:
            if link.connector.connection.phase == "ready":
                break
            seen.add(link)
            name = self._chosen[link]
        return name

    def use(self, name: str, off: Link) -> None:
        """Replace `off` by `name` from now on."""
        self._chosen[off] = name

    async def find(self, off: Link) -> str | None:
        """The name of a server to go on with; None where nothing is there."""
        names = [name for name in dict.fromkeys(self._known()) if name != DEFAULT]
        asked: dict[Link, str] = {}
        for name in names:
            link = self._links.at(name)
            if not is_file(name) and _is_elsewhere(link, off) and self._trusts(link):
                asked.setdefault(link, name)
        answers = await asyncio.gather(*map(_answers_soon, asked))
        for (link, name), answer in zip(asked.items(), answers, strict=True):
            if answer and self._trusts(link):
                return name
        for found in best_first(await found_here()):
            link = self._links.at(found.base_url)
            if found.phase not in UNUSABLE and link is not off and await _answers_soon(link) and self._trusts(link):
                return found.base_url
        return await self._engine([name for name in names if is_file(name)], off)

    async def _engine(self, files: Iterable[str], off: Link) -> str | None:
        """The built-in engine: with the model file of the settings, the one that was used last, or the one that came
        along."""
        default = self._links.at(DEFAULT)
        is_free = default is not off and not default.connector.base_url and not default.connector.server.wrong
        if find_spec("xllamacpp") is None:
            return None
        if is_free and default.connector.model_path is not None:
            return DEFAULT
        if (lately := _there(files)) is not None:
            return lately
        file = await asyncio.to_thread(default_model_file)
        return None if file is None else DEFAULT if is_free else str(file)


def _there(files: Iterable[str]) -> str | None:
    return next((name for name in files if Path(name).is_file()), None)


def _is_elsewhere(link: Link, off: Link) -> bool:
    """Whether a server has an address, and another one than the server that is off."""
    gone = off.connector.address
    return bool(link.connector.base_url) and normal(link.connector.base_url) != normal(gone)


async def _answers_soon(link: Link) -> bool:
    try:
        async with asyncio.timeout(ASK_S):
            return await link.connector.answers()
    except TimeoutError:
        return False
