"""What the tests of the modal screens share: an app that pushes one, and values to show."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from textual import events
from textual.app import App
from textual.pilot import Pilot
from textual.screen import Screen

import cache_samples
import corpus
from cache_samples import figures as figures
from kvchat.chat.conversations.drafts import Drafts
from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.errors import ChatError
from kvchat.chat.events import EventBus, ServiceEvent
from kvchat.config.themes import variable_defaults
from kvchat.figures.accounting import TurnFigures
from kvchat.prompt.conversation import Conversation
from kvchat.prompt.message import Message, Node, Role, State, node, system_message
from kvchat.prompt.tree import Tree
from kvchat.reports.cache_report import CacheReport
from kvchat.ui.bindings import UserKeys
from kvchat.ui.key_queue import KeyQueue
from kvchat.ui.screens.kit.manager import ManagerScreen

NOW = datetime(2026, 11, 21, 14, 30, tzinfo=UTC)
T = NOW.timestamp()
HOSTILE: list[str] = [
    entry["text"] for entry in json.loads((Path(__file__).parents[1] / "fixtures" / "hostile_text.json").read_text())
]
MARKUP = "[/b] [red]red[/] [@click=app.quit]x[/] ["


class TypedTexts(Drafts):
    """What is written in fields, without a store."""

    def __init__(self) -> None:
        self._fields = {}
        self.texts = defaultdict[str, str](str)

    def left(self, name: str) -> str:
        return self.texts[name]

    def leave(self, name: str, text: str) -> None:
        self.texts[name] = text


class Host(App[None]):
    """An app for one screen; what the screen answers is in `answers`."""

    def __init__(self, keys: Mapping[str, str] | None = None) -> None:
        """`keys`: the person's own, by the ids of actions."""
        super().__init__()
        self.answers: list[Any] = []
        self.keys = UserKeys(self, keys)
        self.key_queue = KeyQueue(self, super().on_event)
        self.queues = False
        """Whether what is typed waits for the screen that it is meant for, as in the real app."""

    def on_mount(self) -> None:
        self.set_keymap(self.keys.changed)
        self.key_queue.begin()

    async def on_event(self, event: events.Event) -> None:
        if self.queues and isinstance(event, events.Key | events.Paste) and not event.is_forwarded:
            await self.key_queue.take(event)
        else:
            await super().on_event(event)

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return variable_defaults(self.current_theme)


@dataclass
class Shown:
    """A screen on the terminal."""

    app: Host
    pilot: Pilot[None]

    @property
    def lines(self) -> list[str]:
        return [strip.text.rstrip() for strip in self.app.screen._compositor.render_strips()]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def prose(self) -> str:
        """All words on the screen in one line, as if nothing was wrapped."""
        return " ".join(" ".join(line.strip(" │").split()) for line in self.lines if line.strip(" │"))

    @property
    def answers(self) -> list[Any]:
        return self.app.answers

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def type(self, text: str) -> None:
        await self.press(*text)

    def line(self, words: str) -> str:
        """The one line with these words."""
        found = [line for line in self.lines if words in line]
        assert len(found) == 1, f"{words!r} is on {len(found)} lines of\n{self.text}"
        return found[0]

    @property
    def cursor_line(self) -> str:
        """The line the cursor of the list stands on."""
        return self.line("▌")


@asynccontextmanager
async def showing(
    screen: Screen[Any], size: tuple[int, int] = (80, 24), keys: Mapping[str, str] | None = None
) -> AsyncIterator[Shown]:
    app = Host(keys)
    async with app.run_test(size=size) as pilot:
        app.push_screen(screen, app.answers.append)
        await pilot.pause()
        await pilot.pause()
        yield Shown(app, pilot)


Seen = str | Callable[[Shown], object]
"""Words on the screen, or what else holds of it."""


async def triples(*rows: tuple[Callable[[], Screen[Any]], str, Seen], size: tuple[int, int] = (80, 24)) -> None:
    """Try states of a dialog one after the other in one app: what makes the dialog, what is pressed in it, and what is
    seen then. Keys are parted by blanks; what stands in quotes is typed: `'life rust' down enter`. Those that fail are
    told together."""
    failed: list[tuple[dict[str, Any], Exception]] = []
    app = Host()
    async with app.run_test(size=size) as pilot:
        for state, keys, seen in rows:
            app.answers = []
            app.push_screen(state(), app.answers.append)
            shown = Shown(app, pilot)
            await pilot.pause()
            await pilot.pause()
            try:
                for typed, key in re.findall(r"'([^']*)'|(\S+)", keys):
                    await shown.press(*(typed or [key]))
                if isinstance(seen, str):
                    assert seen in shown.prose, f"it shows\n{shown.text}"
                else:
                    seen(shown)
            except Exception as error:
                failed.append(({"state": state, "keys": keys, "seen": seen}, error))
            while len(app.screen_stack) > 1:
                await app.pop_screen()
    corpus.tell(failed, len(rows))


def answered(*answers: object) -> Seen:
    """The dialog has closed with this answer; without one it is open still."""

    def check(shown: Shown) -> None:
        assert shown.answers == [*answers], f"it answered {shown.answers}, not {answers}, and shows\n{shown.text}"

    return check


def under_cursor(words: str, *hidden: str) -> Seen:
    """The row under the cursor has these words, and the screen none of the `hidden` ones."""

    def check(shown: Shown) -> None:
        assert words in shown.cursor_line
        assert not [one for one in hidden if one in shown.text]

    return check


async def settled(shown: Shown) -> None:
    """Wait until no manager looks at anything any more."""
    await shown.pilot.pause()
    while any(isinstance(one, ManagerScreen) and one.is_looking for one in shown.app.screen_stack):
        await shown.pilot.pause()
    await shown.pilot.pause()


def conversation(title: str, *, id: str = "", ago: float = 0, turns: int = 1, **more: Any) -> Conversation:
    return Conversation(id or title, None, T - ago, T - ago, title=title, turns=turns, **more)


def a_report(**changes: Any) -> CacheReport:
    return cache_samples.a_report(T, **changes)


def opened(record: Conversation, tree: Tree, head: str) -> OpenConversation:
    return OpenConversation(replace(record, head=head), tree)


class Source:
    """The parts of the service that the inspector asks."""

    def __init__(self, report: CacheReport | ChatError, server: Any) -> None:
        self.known = report
        self.info = server
        self.asked: list[str] = []
        self.events = EventBus()

    @property
    def parts(self) -> tuple[Any, ...]:
        return self, self, self.events, lambda: NOW

    async def report(self, id: str) -> CacheReport:
        self.asked.append(id)
        if isinstance(self.known, ChatError):
            raise self.known
        return self.known

    def tell(self, event: ServiceEvent) -> None:
        self.events.tell(event)


@dataclass
class Grower:
    """Grows a tree message by message."""

    nodes: list[Node] = field(default_factory=list)

    def system(self, text: str = "Be brief.") -> Node:
        return self._add(node(None, system_message(text), T - 1000 + len(self.nodes)))

    def ask(self, parent: Node, text: str) -> Node:
        return self._add(node(parent, Message(Role.USER, text), T - 1000 + len(self.nodes)))

    def answer(self, parent: Node, text: str, state: State = State.DONE, cost: TurnFigures | None = None) -> Node:
        message = Message(Role.ASSISTANT, text)
        return self._add(node(parent, message, T - 1000 + len(self.nodes), state=state, figures=cost))

    def _add(self, new: Node) -> Node:
        self.nodes.append(new)
        return new

    @property
    def tree(self) -> Tree:
        return Tree(self.nodes)
