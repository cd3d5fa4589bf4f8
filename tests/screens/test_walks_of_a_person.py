"""A person who types, clicks, goes among the messages and back over a conversation with branches: whatever changes
something was asked of what is marked on the screen, by a key that is meant for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import wraps
from random import Random
from time import monotonic
from typing import Any

import pytest
from app_kit import Drive, Driven
from test_cache_in_app import LARGE, costs
from textual import events
from textual.keys import _character_to_key

from kvchat.ui.controllers.questions import Questions
from kvchat.ui.screens.kit.confirm import ConfirmScreen
from kvchat.ui.widgets.transcript.widget import Transcript
from toyserver import ToyServer, tokens
from tries import tries

pytestmark = pytest.mark.slow

STEPS = 30
BAR = "▎"
"""Stands before each row of a marked message."""
GAP = 0.125
"""Seconds between two letters of who types eight in a second."""
WORDS = [
    "do you know",
    "run it again",
    "every day",
    "drop that",
    "fine, yes",
    "call me",
    "2 of 3",
    "yet another",
    "n y",
]
COMMANDS = ["/regenerate", "/copy", "/drop", "/fork", "/edit", "/undo", "/find two"]
ACTING = {"d": "delete", "r": "regenerate", "e": "edit", "f": "fork", "left": "walk", "right": "walk"}
OF_COMMANDS = {"/regenerate": "regenerate", "/drop": "delete", "/fork": "fork", "/edit": "edit", "/undo": "undo"}


class Walk:
    """One walk: what was done, and what of it was allowed to change something."""

    def __init__(self, app: Driven, seed: int) -> None:
        self.app = app
        self.random = Random(seed)
        self.done: list[str] = []
        self.acts: list[tuple[str, str]] = []
        """Acts that came through, each with the message that it is about."""
        self.asked: tuple[str, str] | None = None
        """The act that the box in front asks about, with the question of its turn."""
        self.changed = 0
        branches, turns, drafts = app.service.branches, app.service.turns, app.chat.drafts
        for owner, method, name in (
            (branches, "delete_turn", "delete"),
            (branches, "fork", "fork"),
            (branches, "walk", "walk"),
            (turns, "regenerate", "regenerate"),
        ):
            setattr(owner, method, self._watched(getattr(owner, method), name, 1))
        drafts.begin_edit = self._watched(drafts.begin_edit, "edit", 0)  # type: ignore[method-assign]

    def _watched(self, act: Callable[..., Any], name: str, at: int) -> Callable[..., Any]:
        @wraps(act)
        def watched(*args: Any, **options: Any) -> Any:
            self.acts.append((name, self.turn(args[at])))
            return act(*args, **options)

        return watched

    def turn(self, node: str) -> str:
        """The question of the turn that a message belongs to."""
        return self.app.conversation.tree.turn_of(node)[0].id

    @property
    def meant(self) -> str:
        """What a command is about: the turn that is marked on the screen, else the last one."""
        transcript, path = self.app.chat.transcript, self.app.path
        marked = transcript.marked if BAR in self.app.text else None
        return self.turn(marked or path[-1].id) if path else ""

    @property
    def is_among_messages(self) -> bool:
        return self.app.front == "ChatScreen" and self.app.chat.transcript.has_focus

    def state(self) -> tuple[object, ...]:
        app = self.app
        listed = frozenset(one.id for one in app.service.conversations.all())
        return app.conversation.id, app.conversation.record.head, app.chat.workspace.editing, listed

    async def rests(self) -> None:
        app = self.app
        await app.until(
            lambda: (
                (app.front != "ChatScreen" and getattr(app.app.screen, "can_be_answered", True))
                or all(one.is_finished for one in app.app.workers if one.group in ("dialog", "send"))
            )
        )
        await app.settled()

    async def step(self, name: str, do: Any, may: tuple[str, str] | None = None, *, free: bool = False) -> None:
        """Do it. `may`: the act that it may lead to, with its turn; `free`: it may change what it likes."""
        self.done.append(name)
        self.acts.clear()
        before, front = self.state(), self.app.front
        await do
        await self.rests()
        told = f"{self.done}\n{self.acts} instead of {may}\n{self.app.text}"
        if not free:
            assert all(act == may for act in self.acts), told
            assert self.state() == before or self.acts or (may is not None and may[0] in ("undo", "send", "leave")), (
                told
            )
        if self.app.front == "ConfirmScreen" and front != "ConfirmScreen" and not free:
            assert may is not None, told
            question = self.app.conversation.tree[may[1]].text
            assert f"“{question}”" in self.app.text, told
            self.asked = may
        self.changed += self.state() != before

    async def key(self, key: str, character: str | None = None) -> None:
        """Press a key as who looks at the screen, and check what it did."""
        app, may, free = self.app, None, False
        if self.is_among_messages and key in ACTING and app.chat.transcript.marked:
            may = ACTING[key], self.turn(app.chat.transcript.marked)
        elif (app.front == "BranchTreeScreen" and key in ("f", "enter")) or (
            app.front == "ChatScreen" and app.chat.sidebar.has_focus and key in ("d", "m", "r", "enter")
        ):
            free = True  # of what the cursor there is on
        elif key == "escape" and app.front == "ChatScreen" and app.chat.workspace.editing:
            may = None if self.is_among_messages else ("leave", "")
        elif app.front == "ChatScreen" and app.chat.composer.has_focus_within and key == "enter" and app.draft.strip():
            may = OF_COMMANDS.get(app.draft.strip(), "send"), self.meant
        await self.step(key, self._press(key, character), may, free=free)

    async def _press(self, key: str, character: str | None) -> None:
        self.app.app.post_message(events.Key(key, character if character or len(key) > 1 else key))
        await self.app.rest()

    async def type(self, text: str) -> None:
        """Eight letters a second; where the composer has them it does not matter."""
        at = monotonic()
        for place, letter in enumerate(text):
            if self.app.front == "ConfirmScreen":
                rest = text[place:]
                await self.step(f"types {rest}", self._burst(rest), free=self.asked is None and len(rest) == 1)
                return
            if not self.app.chat.composer.has_focus_within or self.app.front != "ChatScreen":
                await asyncio.sleep(max(0.0, at + GAP - monotonic()))
            at = monotonic()
            await self.key(_character_to_key(letter), letter)

    async def _burst(self, text: str) -> None:
        """Letters that do not wait for what each of them does."""
        for letter in text:
            self.app.app.post_message(events.Key(_character_to_key(letter), letter))
            await asyncio.sleep(GAP)
        await self.app.rest()

    async def click(self) -> None:
        transcript = self.app.chat.transcript
        if not transcript.items:
            return
        x, y = self.random.randrange(2, transcript.size.width - 2), self.random.randrange(transcript.size.height)
        codes = [at for at, line in enumerate(self.app.transcript_rows) if "copy" in line]
        if codes and self.random.random() < 0.5:
            x, y = transcript.text_width - 1, self.random.choice(codes)
        focused = self.app.app.focused
        await self.step(f"click {x} {y}", self.app.pilot.click(Transcript, offset=(x, y)))
        assert self.app.app.focused is focused or self.app.front != "ChatScreen"

    async def search(self) -> None:
        app = self.app
        await self.step("search", app.press("ctrl+r"))
        if app.front == "SearchScreen":
            await app.type(self.random.choice(["one", "two", "three"]))
            await self.step("hit", app.press("enter"), free=True)
            if app.front == "ChatScreen":
                assert app.chat.composer.has_focus_within
            else:
                await self.key("escape")

    async def scroll(self) -> None:
        self.app.chat.transcript.scroll_relative(y=self.random.choice([-8, -3, 3, 8]), animate=False)
        await self.app.rest()

    async def go(self) -> None:
        app, random = self.app, self.random
        if app.front == "ConfirmScreen":
            if self.asked is None:  # the menu of the list
                await self.key("escape")
            elif random.random() < 0.4:
                asked, self.asked = self.asked, None
                await self.step("y and a pause", self._answer(), asked)
            elif random.random() < 0.5:
                await self.type(random.choice(WORDS))
            else:
                await self.key("escape")
            return
        if app.front != "ChatScreen":
            await self.key("escape")
            return
        match random.choice(
            ["type", "type", "click", "tab", "arrows", "esc", "search", "scroll", "command", "send", "act"]
        ):
            case "type":
                await self.type(random.choice(WORDS))
            case "click":
                await self.click()
            case "tab":
                await self.key("tab")
            case "arrows":
                for _ in range(random.randrange(1, 5)):
                    await self.key(random.choice(["up", "down", "shift+up"]))
            case "esc":
                await self.key("escape")
            case "search":
                await self.search()
            case "scroll":
                await self.scroll()
            case "command" if not app.chat.workspace.editing:
                app.chat.composer.replace_text("")
                await app.write(f"{random.choice(COMMANDS)} ")
                await self.key("enter")
            case "send" if app.chat.composer.has_focus_within:
                await self.key("enter")
            case "act" if self.is_among_messages:
                await self.key(random.choice([*ACTING, "y", "1"]))

    async def _answer(self) -> None:
        await self.app.press("y")
        await self.app.until(lambda: self.app.front == "ChatScreen")


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of kvchat, in which a letter stands alone and a question opens."""
    monkeypatch.setattr(ConfirmScreen, "alone_s", 0.3)
    monkeypatch.setattr(Questions, "quiet_s", 0.7)


@pytest.mark.parametrize("seed", range(tries("person_walks", 3)))
async def test_what_changes_something_was_asked_of_what_is_marked(
    drive: Drive, server: ToyServer, seed: int, record_property: Callable[[str, object], None]
) -> None:
    server.on_chat(tokens("```\nx = 1\n```\n\n" + "\n\n".join(f"line {n}" for n in range(seed % 3 * 6))))
    async with drive(size=(100, 30)) as app:
        id = await app.begin("one", "two", "three", "four")
        await app.service.turns.regenerate(id, app.path[3].id)
        await app.settled()
        await app.grow("five", "six")
        await app.service.branches.walk(id, app.path[3].id, -1)
        await app.rest()
        if seed % 4:
            costs(app, LARGE)
        walk = Walk(app, seed)
        for _ in range(STEPS):
            await walk.go()
        record_property("steps", len(walk.done))
        record_property("changes", walk.changed)
