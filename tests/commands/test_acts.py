"""Acts, each on a service, as a surface is told of them. What a surface makes of that is tested where the surface is."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, TypeVar

import pytest

from kvchat.backends.dialect import TemplateFacts
from kvchat.cache import Act
from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.conversations.personas import Personas
from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.commands.acts import REFUSALS, Acts
from kvchat.config import Settings, changed
from kvchat.config.layers import Layers, layered
from kvchat.store import Store
from toyserver import ToyServer

T = TypeVar("T")
THINKS = TemplateFacts(switches_thinking=True, takes_effort=False)
BY_EFFORT = TemplateFacts(switches_thinking=False, takes_effort=True)
NEITHER = TemplateFacts(switches_thinking=False, takes_effort=False)


class NotedSurface:
    """Notes what is said and asked. `answers`: those to its questions, in their order; without one it is a yes."""

    marked: str | None = None

    def __init__(self, service: ChatService, folder: Path, conversation: OpenConversation) -> None:
        self.service = service
        self.personas = Personas(folder / "personas", service.options)
        self.conversation = conversation
        self.heard: list[str] = []
        self.answers = deque[bool]()
        self._file = folder / "config.toml"
        self.acts = Acts(self)

    async def do(self, command: str) -> list[str]:
        """Do `conversations.rename TITLE`; what is said and asked then."""
        name, _, argument = command.partition(" ")
        self.heard.clear()
        act = attrgetter(name)(self.acts)
        try:
            await (act(argument) if argument else act())
        except REFUSALS as error:
            self.heard.append(f"refused: {error}")
        return [*self.heard]

    def layers(self) -> Layers:
        return layered(self._file)

    def say(self, sentence: str, *, warning: bool = False, shown: bool = False, bare: bool = False) -> None:
        self.heard.append(sentence)

    def cut(self, text: str, room: int) -> str:
        return text

    def way_to(self, action: str) -> str:
        return f"<{action}>"

    async def pick(self, action: str, about: str = "") -> str | None:
        self.heard.append(f"picks {action}")
        return None

    async def agreed(
        self, title: str, lines: Sequence[str], yes: str, no: str = "Cancel", *, unasked: bool = False
    ) -> bool:
        self.heard.append(title)
        return self.answers.popleft() if self.answers else True

    async def decided(
        self,
        act: Act,
        node: str | None = None,
        *,
        title: str = "",
        text: str = "",
        instead: str = "",
        options: Mapping[str, object] | None = None,
        unasked: bool = False,
    ) -> Literal["go", "instead"] | None:
        self.heard.append(f"price of {act}")
        return "go" if not self.answers or self.answers.popleft() else None

    async def waited(self, work: Coroutine[Any, Any, T], *, is_long: bool = False) -> T | None:
        return await work

    async def later(self, act: Callable[[], Awaitable[None]]) -> None:
        await act()

    async def connected(self, id: str) -> bool:
        return True

    async def attempt(self, act: Awaitable[object]) -> None:
        await act
        await self.service.conversations.wait(self.conversation.id)

    async def open(self, id: str, node: str | None = None) -> None:
        self.conversation = await self.service.conversations.open(id)

    def begin_message(self, text: str) -> None:
        self.heard.append(f"begins: {text}")

    def act_done(self) -> None: ...

    def act_undone(self) -> None: ...


@pytest.fixture
async def surface(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[NotedSurface]:
    """On an empty conversation."""
    monkeypatch.setattr("kvchat.backends.kinds.ports", lambda: ())
    async with ToyServer() as server:
        settings = changed(Settings(), "server.base_url", server.url)
        service = ChatService(Store.open(tmp_path / "data"), settings)
        try:
            await service.servers.connect()
            yield NotedSurface(service, tmp_path, await service.new_conversations.create())
        finally:
            await service.aclose()


@pytest.mark.parametrize(
    ("facts", "command", "heard", "options"),
    [
        (NEITHER, "", "This model has no thinking switch.", {}),
        (NEITHER, " high", "This model has no thinking effort.", {}),
        (BY_EFFORT, " on", "This model has no thinking switch. It takes /thinking low, medium or high.", {}),
        (THINKS, " low", "This model has no thinking effort. It thinks, or not: /thinking on or off.", {}),
        (BY_EFFORT, " low", "Thinking at low effort", {"reasoning_effort": "low"}),
        (THINKS, "", "Thinking on", {"enable_thinking": True}),
        (THINKS, " off", "Thinking off", {"enable_thinking": False}),
    ],
)
async def test_what_a_template_takes_is_what_is_set(
    surface: NotedSurface, facts: TemplateFacts, command: str, heard: str, options: dict[str, object]
) -> None:
    surface.service.servers.link().template = facts
    prices = ["price of template"] if options else []
    assert await surface.do(f"options.thinking{command}") == [*prices, heard]
    assert surface.conversation.record.template_options == options


@pytest.mark.parametrize(
    ("has_turn", "walk"),
    [
        (False, [("conversations.next", "This is the last conversation of the list")]),
        (False, [("conversations.delete", "This conversation is empty: nothing to delete")]),
        (False, [("messages.regenerate", "No answer to regenerate yet"), ("messages.fork", "Nothing to fork yet")]),
        (False, [("conversations.undo", "Nothing to undo in this conversation")]),
        (
            True,
            [
                ("conversations.delete", "Moved to trash · <undo> brings it back"),
                ("messages.fork", "Nothing to fork yet"),
            ],
        ),
        (True, [("conversations.rename", "picks rename"), ("conversations.rename The log", "Title: The log")]),
        (
            True,
            [
                ("conversations.favourite", "Favourite: first in the list."),
                ("conversations.favourite", "No longer a favourite."),
            ],
        ),
        (
            True,
            [
                ("conversations.tag work", "Tags: #work · <undo> undoes it"),
                ("conversations.tag work", "Tags: #work"),
                ("conversations.undo", "The tags are as they were"),
            ],
        ),
        (
            True,
            [("messages.fork", None), ("conversations.undo", "Back where it was forked · the fork is in the trash")],
        ),
        (
            True,
            [
                ("messages.regenerate", "price of regenerate"),
                ("conversations.undo", None),
                ("conversations.undo", "Nothing to undo in this conversation"),
            ],
        ),
        (True, [("messages.delete_turn", "Turn deleted · <undo> brings it back"), ("conversations.undo", None)]),
        (False, [("memory.remember", "picks remember"), ("options.model", "picks model")]),
        (True, [("options.model another", "refused: This server has no model another. /model lists its models.")]),
    ],
)
async def test_an_act_says_what_it_did(
    surface: NotedSurface, has_turn: bool, walk: list[tuple[str, str | None]]
) -> None:
    if has_turn:
        await surface.attempt(surface.service.turns.send(surface.conversation.id, Question("one")))
    for command, last in walk:
        heard = await surface.do(command)
        assert heard[-1:] == ([last] if last is not None else []), command


@pytest.mark.parametrize(
    ("command", "question"),
    [
        ("options.system Be terse.", "price of system"),
        ("messages.regenerate", "price of regenerate"),
        ("messages.delete_turn", "price of delete"),
    ],
)
async def test_a_no_changes_nothing(surface: NotedSurface, command: str, question: str) -> None:
    await surface.attempt(surface.service.turns.send(surface.conversation.id, Question("one")))
    before = surface.conversation.record, surface.conversation.path(), surface.conversation.instructions
    surface.answers.append(False)
    assert await surface.do(command) == [question]
    assert (surface.conversation.record, surface.conversation.path(), surface.conversation.instructions) == before
