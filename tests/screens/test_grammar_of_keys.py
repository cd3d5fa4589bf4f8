"""Whatever a person types beside questions that open by themselves: a yes only where it was meant, no letter lost."""

from __future__ import annotations

import heapq
from asyncio import CancelledError, Task, create_task
from collections.abc import Callable, Iterable
from itertools import count
from random import Random
from typing import Any

import pytest
from app_kit import Drive, Driven
from textual import events
from textual.keys import _character_to_key

from grammar.keys import ALONE_S, KINDS, QUIET_S, Act, Written, typing, walk
from kvchat.prompt.tools import Permission, ToolCall
from kvchat.text.tools import STARTS, program_lines
from kvchat.ui.chat_screen import ChatScreen
from kvchat.ui.controllers.questions import Questions
from kvchat.ui.key_queue import Coming
from kvchat.ui.screens.kit.confirm import ConfirmScreen
from tries import tries

WALKS = tries("key_walks", 12)
SENTENCES = tries("typed_sentences", 20)

PEOPLE = count()


class Time:
    """The clock of the questions, which goes on when the test has it go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self._due: list[tuple[float, int, Any, Callable[[], object]]] = []
        self._number = count()
        clock = self

        class Due:
            def __init__(self, pump: Any, delay: float, callback: Callable[[], object]) -> None:
                self.is_off = False
                heapq.heappush(clock._due, (clock.now + delay, next(clock._number), pump, self.run))
                self._callback = callback

            def run(self) -> None:
                if not self.is_off:
                    self._callback()

            def stop(self) -> None:
                self.is_off = True

        for name in ("kvchat.ui.controllers.questions", "kvchat.ui.screens.kit.confirm"):
            monkeypatch.setattr(f"{name}.monotonic", lambda: self.now)
        for screen in (ChatScreen, ConfirmScreen):
            monkeypatch.setattr(screen, "set_timer", lambda pump, delay, callback=None, **_: Due(pump, delay, callback))
        monkeypatch.setattr(Questions, "quiet_s", QUIET_S)
        monkeypatch.setattr(ConfirmScreen, "alone_s", ALONE_S)

    async def go_on(self, app: Driven, seconds: float) -> None:
        end = self.now + seconds
        while self._due and self._due[0][0] <= end:
            self.now, _, pump, run = heapq.heappop(self._due)
            pump.call_later(run)
            await app.rest()
        self.now = end
        await app.rest()


class Person:
    """Does what the grammar says, and knows what must come of it."""

    def __init__(self, app: Driven, time: Time) -> None:
        self.app, self.time = app, time
        self.expected = Written()
        self.sent: list[str] = []
        self.log: list[str] = []
        self.asked = 0
        self._name = next(PEOPLE)
        self.answers: list[bool] = []
        """Of the questions: whether it was a yes."""
        self.unmeant = 0
        """How often a letter of a sentence, alone on a question over an empty draft, was a yes: the law has it so."""
        self._answered = 0
        """How many of the answers were looked at."""
        self._passed: set[str] = set()
        """What the user wrote past."""
        self._open: object = None
        """The question in front."""
        self._is_meant = False
        """Whether the user went to it."""
        self._may_answer = False
        """Whether the last key may be an answer."""
        self._is_writing = False
        """Whether it was one of a sentence."""
        self._held = ""
        """A letter that may be one until another follows."""
        self._typed_at = 0.0
        self._call: Task[bool] | None = None
        app.chat.sending.submit = lambda event: self.sent.append(event.question.text.strip())  # type: ignore[method-assign]
        app.service.conversations.stop = self._stop  # type: ignore[method-assign]

    # -- questions

    async def _stop(self, id: str) -> None:
        if self._call is not None:
            self._call.cancel()

    def _ask(self, kind: str) -> None:
        if kind != "call" or self._call is None:  # a conversation calls once at a time
            self.asked += 1
            self.app.chat.run_worker(self._asks(kind, f"{self._name}-{self.asked}.txt"), group="ask")

    async def _asks(self, kind: str, name: str) -> None:
        workspace, service = self.app.chat.workspace, self.app.service
        if kind == "call":
            permission, call = Permission("read_file", name), ToolCall("call", "read_file", f'{{"path": "{name}"}}')
            self._call = create_task(service.tools.agreed(workspace.open_id, permission, call, {"path": name}))
            try:
                self.answers.append(await self._call)
            except CancelledError:
                self.answers.append(False)
            self._call = None
            return
        choices = (
            [("n", "No", False), ("y", "Yes", True)] if kind == "outside" else [("y", "Yes", True), ("n", "No", False)]
        )
        coming = Coming(is_late=True) if kind == "costs" else None
        yes = await workspace.choose(
            STARTS, program_lines(name, "uvx time"), choices, unasked=coming is None, coming=coming
        )
        self.answers.append(bool(yes))

    # -- looking

    @property
    def _quiet(self) -> float:
        return self.time.now - self._typed_at

    def _look(self, *, goes: bool = False) -> None:
        """After anything: a question that opened, an answer that was given."""
        for is_yes in self.answers[self._answered :]:
            assert self._may_answer or not is_yes, self.told("a yes that was not meant")
            if self._held:
                assert self._quiet >= ALONE_S - 0.001, self.told("an answer before another letter could follow")
                self.unmeant += is_yes and self._is_writing
            self._held, self._may_answer = "", False
        self._answered = len(self.answers)
        front = self.app.app.screen if isinstance(self.app.app.screen, ConfirmScreen) else None
        if front is not self._open:
            self._open, self._is_meant = front, goes
            if front is not None and not goes:
                is_quiet = not self.app.draft and self._quiet >= QUIET_S - 0.001
                assert is_quiet, self.told("it opened over what is written")
                assert front.gist not in self._passed, self.told("it opened anew")
        if not self._held:
            assert self.app.draft == self.expected.draft, self.told(f"draft {self.app.draft!r}")
            assert self.sent == self.expected.sent, self.told(f"sent {self.sent}")

    def told(self, what: str) -> str:
        return f"{what}; {self.expected.draft!r}, {self.expected.sent} are right; {self.log[-30:]}\n{self.app.text}"

    def _write_held(self) -> None:
        self.expected.put(self._held)
        self._held, self._may_answer = "", False

    # -- doing

    async def do(self, acts: Iterable[Act]) -> None:
        for act in acts:
            self.log.append(f"+{act.pause:.2f} {act.does} {act.what!r}")
            await self.time.go_on(self.app, act.pause)
            self._look()
            match act.does:
                case "ask":
                    self._ask(act.what)
                    await self.app.rest()
                    self._look()
                case "go":
                    await self._go(act.what)
                case "row" if self._open is not None:
                    await self._key(act.what, act.is_writing)
                case "key":
                    await self._key(act.what, act.is_writing)
                case "paste":
                    self._write_held()
                    self.expected.put(act.what)
                    await self._give(events.Paste(act.what))
                case "burst" if self._is_meant or len(act.what) < 2:
                    for letter in act.what:
                        await self._key(letter, act.is_writing)
                case "burst":
                    self._write_held()
                    self.expected.put(act.what)
                    await self._give(*map(_key, act.what))
        await self.time.go_on(self.app, 5.0)
        self._look()

    async def _give(self, *given: events.Key | events.Paste, goes: bool = False) -> None:
        if self._open is None and any(
            isinstance(one, events.Paste) or one.is_printable or one.key == "enter" for one in given
        ):
            self._passed.add(self.app.chat.question_line._question[1])
        for event in given:
            event.time = self.time.now
            self.app.app.post_message(event)
        self._typed_at = self.time.now
        await self.app.rest()
        self._look(goes=goes)

    async def _key(self, key: str, is_writing: bool) -> None:
        if self._held:
            self._write_held()
            if len(key) == 1:
                self.expected.put(key)
            await self._give(_key(key))
            return
        shown = [choice[0] for choice in getattr(self._open, "_choices", ())]
        self._is_writing = is_writing
        self._may_answer = self._open is not None and (
            self._is_meant or (not self.expected.draft and self._quiet >= QUIET_S)
        )
        self._may_answer &= key == "enter" or key.casefold() in shown
        if self._open is None:
            self.expected.key(key)
        elif key in ("up", "down", "tab"):
            self._is_meant = True
        elif len(key) == 1 and not self._may_answer:
            self.expected.put(key)
        elif len(key) == 1 and not self._is_meant:
            self._held = key
        await self._give(_key(key))

    async def _go(self, way: str) -> None:
        """To the question, where there is one."""
        waits = bool(self.app.chat.question_line.display)
        if way in ("up", "down") and ("\n" in self.expected.draft or len(self.expected.draft) > 40):
            way = "tab"  # the arrow may have a line to go to
        if self._open is not None and way != "click":
            await self._key(way, is_writing=False)
        elif self._open is not None:
            await self.app.pilot.click("#frame")
            self._write_held()
            self._is_meant = self.app.front == "ConfirmScreen"
            self._look()
        elif waits and way == "click":
            await self.app.pilot.click("QuestionLine")
            await self.app.rest()
            self._look(goes=True)
            assert self._is_meant, self.told("a click did not go there")
        elif waits:
            await self._give(_key(way), goes=True)
            assert self._is_meant, self.told(f"{way} did not go there")


def _key(key: str) -> events.Key:
    return events.Key(_character_to_key(key), key) if len(key) == 1 else events.Key(key, None)


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    return Time(monkeypatch)


async def test_a_yes_is_meant_and_no_letter_is_lost(drive: Drive, time: Time) -> None:
    for seed in range(WALKS):
        async with drive() as app:
            person = Person(app, time)
            person.log.append(f"seed {seed}")
            await person.do(walk(Random(seed)))


@pytest.mark.parametrize("kind", KINDS)
async def test_sentences_typed_while_questions_open_give_no_yes(drive: Drive, time: Time, kind: str) -> None:
    sentences = SENTENCES // len(KINDS)
    async with drive() as app:
        person, random = Person(app, time), Random(kind)
        for _ in range(sentences):
            await person.do(typing(random, kind))
            await person.do([Act("go", "tab", 1.0), Act("key", "n", 1.0)])
        assert person.answers == [False] * sentences and len(person.sent) == sentences
