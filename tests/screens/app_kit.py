"""The whole app under test: on a store in a folder, against a toy server, with keys pressed and the screen read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from textual import events
from textual.keys import _character_to_key
from textual.pilot import Pilot

from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.events import ServiceEvent
from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.commands.actions import BY_ID
from kvchat.config import Settings, changed
from kvchat.documents.library import Library
from kvchat.memory.memories import Memories
from kvchat.paths import find
from kvchat.prompt.message import Node, Role
from kvchat.store import Store
from kvchat.ui.app import KvchatApp
from kvchat.ui.chat_screen import ChatScreen
from kvchat.ui.widgets.transcript.styles import GUTTER
from still import still, until
from toyserver import ToyServer, Visit, tokens

SIZE = (100, 22)


class Clock:
    """A clock that stands still but for a millisecond a look, so that two messages never have the very same time."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 21, 9, 16, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.now += timedelta(milliseconds=1)
        return self.now


def messages(visit: Visit) -> bytes:
    """The bytes of a request's messages array, without its brackets."""
    start = visit.body.index(b'"messages":[') + len(b'"messages":[')
    return visit.body[start : visit.body.rindex(b'"}]') + 2]


@dataclass
class Driven:
    """The app on a terminal of its own."""

    app: KvchatApp
    pilot: Pilot[int]
    service: ChatService
    server: ToyServer | None
    notices: list[str] = field(default_factory=list)
    """Everything that was said in the corner of the screen."""
    heard: list[ServiceEvent] = field(default_factory=list)
    way: str = ""
    """How the test has the action done: a key, a slash command, the palette."""

    # -- looking

    @property
    def chat(self) -> ChatScreen:
        return self.app.chat

    @property
    def lines(self) -> list[str]:
        return [strip.text.rstrip() for strip in self.app.screen._compositor.render_strips()]

    @property
    def text(self) -> str:
        """The screen in front, as text."""
        return "\n".join(self.lines)

    @property
    def prose(self) -> str:
        """All words on the screen in one line, as if nothing was wrapped; without the list beside the conversation."""
        lines = self.lines
        if self.app.screen is self.chat and self.chat.sidebar.display:
            left, _, width, height = self.chat.sidebar.region
            lines[1 : 1 + height] = [line[left + width :] for line in lines[1 : 1 + height]]
        return " ".join(" ".join(lines).replace("│", " ").split())

    @property
    def listed(self) -> str:
        """The list beside the conversation."""
        _, top, width, height = self.chat.sidebar.region
        return "\n".join(line[:width] for line in self.lines[top : top + height])

    @property
    def transcript_rows(self) -> list[str]:
        """What the transcript shows now, row by row, without its rail."""
        left, top, width, height = self.chat.transcript.region
        return [line[left + GUTTER : left + width].strip() for line in self.lines[top : top + height]]

    @property
    def front(self) -> str:
        """The class name of the screen in front."""
        return type(self.app.screen).__name__

    @property
    def conversation(self) -> OpenConversation:
        return self.chat.workspace.conversation

    @property
    def path(self) -> list[Node]:
        """The branch in use without its system message."""
        return [node for node in self.conversation.path() if node.role is not Role.SYSTEM]

    @property
    def said(self) -> list[str]:
        """The texts of the branch in use."""
        return [node.text for node in self.path]

    @property
    def shown(self) -> list[str]:
        """The texts that the transcript shows."""
        return [item.text for item in self.chat.transcript.items]

    @property
    def draft(self) -> str:
        """What is in the composer."""
        return self.chat.composer.text

    @property
    def selected(self) -> str | None:
        """The text of the message selected in the transcript."""
        node = self.chat.transcript.selected
        return None if node is None else self.conversation.tree[node].text

    def noticed(self, words: str) -> bool:
        return any(words in notice for notice in self.notices)

    # -- doing

    async def rest(self) -> None:
        """Until every widget has dealt with what was in its queue, and with what that put into the others'."""
        await still(self.app)

    async def press(self, *keys: str) -> None:
        for key in keys:
            self.app.simulate_key(key)
            await self.rest()

    async def type(self, text: str) -> None:
        """Put text where the focus is, in one piece, as a terminal's paste does."""
        assert self.app.screen.focused is not None, "nothing has the focus"
        self.app.post_message(events.Paste(text))
        await self.rest()

    async def paste(self, text: str) -> None:
        """Paste text into the composer."""
        self.chat.composer.focus()
        await self.rest()
        await self.type(text)

    async def write(self, text: str) -> None:
        """Put text into the composer: as a person who types it where it mentions something, else in one piece, typed
        unless it is a command or long."""
        if "@" not in text and (text.startswith("/") or len(text) > 1000):
            await self.paste(text)
            return
        self.chat.composer.focus()
        await self.rest()
        if "@" not in text:
            self.chat.composer.type(text)
            await self.rest()
            return
        for character in text:
            self.app.post_message(events.Key(_character_to_key(character), character))
        await self.rest()

    async def say(self, *texts: str) -> None:
        """Write messages and send them with Enter, each after the answer to the one before has come."""
        for text in texts:
            turns = self.conversation.record.turns
            await self.write(text)
            await self.press("enter")
            await self.until(lambda turns=turns: self.conversation.record.turns > turns)
            await self.settled()

    async def grow(self, *texts: str) -> None:
        """Have the service ask these questions in the open conversation, without a key."""
        for text in texts:
            await self.service.turns.send(self.conversation.id, Question(text))
            await self.service.conversations.wait(self.conversation.id)
        await self.rest()

    async def begin(self, *texts: str) -> str:
        """A new conversation with these questions asked in it; its id."""
        conversation = await self.service.new_conversations.create(reuse=False)
        await self.open(conversation.id)
        await self.grow(*texts)
        return conversation.id

    async def open(self, id: str) -> None:
        await self.chat.conversations.open(id)
        await self.rest()

    async def streaming(self, text: str = "half") -> None:
        """Ask something whose answer stops after `text` and never ends."""
        assert self.server is not None
        self.server.on_chat(tokens(text, hang_after=1))
        await self.service.turns.send(self.conversation.id, Question("go on"))
        await self.until(lambda: self.conversation.live is not None and self.conversation.live.text == text)
        self.server.on_chat(tokens("Hello"))

    async def command(self, text: str) -> None:
        """Write a slash command and give it. The blank after a bare name closes the list of commands."""
        await self.write(text if " " in text else f"{text} ")
        await self.press("enter")

    async def run(self, id: str) -> None:
        """Run an action of the table, as the palette does."""
        await self.app.chat.do_instead(BY_ID[id])
        await self.rest()

    async def settled(self) -> None:
        """Until nothing is being sent, no answer runs, and the screen shows it."""
        await self.until(lambda: all(worker.is_finished for worker in self.app.workers if worker.group == "send"))
        for id in self.service.conversations.streaming():
            await self.service.conversations.wait(id)
        await self.rest()

    async def until(self, condition: Callable[[], object]) -> None:
        """Until the condition holds, looked at whenever the app comes to rest. Fails after two minutes."""
        await until(self.app, condition, lambda: f"{self.front} shows\n{self.text}\n{self.notices}")

    async def opens(self, name: str) -> None:
        """Until a screen of this class is in front, and takes an answer where it asks for one."""
        await self.until(lambda: self.front == name and getattr(self.app.screen, "can_be_answered", True))

    async def closes(self) -> None:
        """Until the main screen is in front."""
        await self.until(lambda: self.app.screen is self.chat)

    async def focus_transcript(self) -> None:
        self.chat.transcript.focus()
        await self.rest()

    async def select(self, at: int) -> None:
        """Select a message of the branch in use by its place."""
        await self.focus_transcript()
        self.chat.transcript.select(self.path[at].id)
        await self.rest()

    async def focus_sidebar(self) -> None:
        self.chat.sidebar.focus()
        await self.rest()


Drive = Callable[..., AbstractAsyncContextManager[Driven]]
"""Starts the app; the options are those of `driving`."""


@asynccontextmanager
async def driving(
    data: Path | None,
    server: ToyServer | None,
    *,
    clock: Clock | None = None,
    size: tuple[int, int] = SIZE,
    settings: Settings | None = None,
    notices: Sequence[str] = (),
    connect: bool = True,
    background: bool = False,
    ahead: bool = False,
    toasts: bool = False,
    **options: Any,
) -> AsyncIterator[Driven]:
    """The app on the store in `data`, connected. None keeps nothing. `background`: whether it works in spare time.
    `ahead`: whether it connects to the server of a conversation that is opened, and waits for one that is off.
    `toasts`: whether notices are drawn."""
    settings = settings or Settings()
    if server is not None and not settings.server.base_url and connect:
        settings = changed(settings, "server.base_url", server.url)
    clock, store = clock or Clock(), Store.open(data)

    def memories() -> Memories | None:
        return (
            None
            if data is None
            else Memories.open(
                store,
                data / "memory",
                data / "index.db",
                session=service.memory.session,
                clock=lambda: clock().timestamp(),
            )
        )

    def library() -> Library | None:
        return None if data is None else Library.open(store, data / "index.db", clock=lambda: clock().timestamp())

    service = ChatService(
        store,
        settings,
        clock=clock,
        incognito=data is None,
        memories=memories,
        library=library,
    )
    service.jobs.enabled = background
    service.servers.connects_ahead = service.servers.waits = ahead
    app = KvchatApp(service, find(), notices=notices, **options)
    app.bell = lambda: None  # type: ignore[method-assign]
    app.animation_level = "none"
    said: list[str] = []
    plain = app.notify

    def notify(message: str, **more: Any) -> None:
        said.append(message)
        plain(message, **more)

    app.notify = notify  # type: ignore[method-assign]
    async with app.run_test(size=size, notifications=toasts) as pilot:
        driven = Driven(app, pilot, service, server, notices=said)
        service.events.subscribe(driven.heard.append)
        await driven.until(lambda: app.has_begun and app.chat.workspace.current is not None)
        driven.chat.composer.cursor_blink = False
        if connect and server is not None:
            await service.servers.connect()
        await driven.rest()
        try:
            yield driven
        finally:
            app.workers.cancel_all()  # a kvchat that is run ends them before its widgets too
