"""Plain mode from beginning to end.

The user's lines are read on the main thread, where Ctrl+C arrives; the service lives on a thread of its
own, so that a prompt that waits holds up nothing.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from msgspec import Struct

from kvchat import __version__
from kvchat.chat.errors import ChatError
from kvchat.commands.acts import REFUSALS
from kvchat.commands.command import CommandError
from kvchat.commands.slash import parse
from kvchat.paths import Paths, last_resorts
from kvchat.plain.answers import STATE_S, Answers
from kvchat.plain.chat import PlainChat, Typed
from kvchat.plain.commands import Commands
from kvchat.plain.lines import Dropped, Lines
from kvchat.plain.signals import ENDING, INTERRUPT, Signals
from kvchat.plain.speaker import Output, Speaker
from kvchat.store import StoreError
from kvchat.text.problems import ChatProblem, draft_lines, rescued_sentence

if TYPE_CHECKING:
    from kvchat.chat.service import ChatService
    from kvchat.config.layers import Layers

T = TypeVar("T")
HOUSEKEEPING_S, HOUSEKEEPING_EVERY_S = 20.0, 3600.0
"""Seconds after the start, and between two times."""
LEAVES = "Ctrl+C again leaves, and so do Ctrl+D and /exit."


class First(Struct, frozen=True):
    """What is open at the start; nothing of it: a new conversation."""

    continues: bool = False
    """The latest one."""
    conversation: str | None = None
    """The first digits of its id."""
    persona: str | None = None
    trunk: str | None = None


class PlainMode:
    """Conversations on the loop of the service: what begins, what a typed text does, what ends."""

    def __init__(
        self,
        service: ChatService,
        speaker: Speaker,
        paths: Paths,
        layers: Callable[[], Layers],
        state_seconds: float = STATE_S,
    ) -> None:
        self._service = service
        service.tools.can_ask = True
        self.speaker = speaker
        self._answers = Answers(service, speaker, state_seconds)
        self.chat = PlainChat(service, speaker, self._answers)
        self.commands = Commands(self.chat, paths, layers, self._in_editor)
        self._housekeeping: asyncio.Task[None] | None = None
        self._editing: asyncio.Future[None] | None = None

    @property
    def is_over(self) -> bool:
        return self.commands.is_over

    async def begin(self, first: First, notices: Iterable[str]) -> None:
        """Open the first conversation. Raises ChatError where not even a new one can be begun."""
        self.speaker.say(f"kvchat {__version__}, plain mode. /help lists the commands, /exit leaves.", *notices)
        for place in self._service.store.unread_drafts():
            self.speaker.say(*draft_lines(place))
        try:
            await self._open(first)
        except ChatError as error:
            self.speaker.say(str(error))
            await self.chat.acts.conversations.new()
        self._service.core.in_background(self._service.servers.meet())
        self._service.begin_background()
        self._housekeeping = asyncio.create_task(self._keep_house())

    async def _open(self, first: First) -> None:
        conversations = self._service.conversations
        if first.persona:
            await self.chat.acts.conversations.new_with_persona(first.persona)
        elif first.trunk:
            await self.chat.acts.conversations.begin_with_trunk(first.trunk)
        elif first.conversation:
            await self.chat.open(conversations.find(first.conversation).id)
        elif first.continues and (latest := conversations.to_continue()) is not None:
            await self.chat.open(latest.id)
        else:
            await self.chat.acts.conversations.new()

    async def take(self, typed: Typed) -> None:
        """Do what was typed: a command, or a message that is sent; nothing is said of an empty line."""
        self._service.jobs.typed()
        self._service.refresh()
        self.speaker.say_what_waits()
        command, text = (None, typed.text) if typed.is_pasted else parse(typed.text)
        try:
            if command is not None:
                self.chat.line = None
                await self.commands.carry_out(command, text)
            elif text.strip():
                await self.chat.send(Typed(text, typed.is_pasted))
            else:
                self.dropped()
        except (*REFUSALS, CommandError, StoreError) as error:
            self.speaker.say(str(error))
        self.speaker.say_what_waits()

    def typing(self, line: Typed) -> None:
        """This is typed so far."""
        if line != self.chat.line:
            self.chat.line = line
            self._service.core.in_background(self._keep())

    async def _keep(self) -> None:
        await self._service.drafts.keep()

    def dropped(self) -> None:
        """The user dropped what was typed."""
        self.chat.line, self.chat.unsent = None, ""

    def stop(self) -> None:
        """Ctrl+C, while something is done."""
        self._answers.stop()

    def leave(self) -> None:
        """The system wants an end: what runs is stopped, an editor too."""
        self.stop()
        if self._editing is not None:
            self._editing.cancel()

    async def taken_press(self) -> bool:
        """Whether a press of Ctrl+C has stopped nothing yet: it counts at the prompt. True once for each press."""
        return self._answers.taken_press()

    async def _in_editor(self, text: str, command: str) -> str:
        from kvchat.commands.editor import EditorError, OutsideText

        chat = self.chat
        try:
            chat.outside = OutsideText(text)
            self._editing = asyncio.ensure_future(chat.outside.edit(command, self._service.drafts.keep))
            await asyncio.wait([self._editing])
            if self._editing.cancelled():
                raise ChatError(ChatProblem.NOT_SENT)
            self._editing.result()
        except EditorError as error:
            raise ChatError.of(error) from None
        finally:
            if chat.outside is not None and chat.outside.saved is not None:
                text = chat.unsent = chat.outside.saved
            chat.outside = None
            self._answers.taken_press()  # it was the editor's
        return text

    async def _keep_house(self) -> None:
        await asyncio.sleep(HOUSEKEEPING_S)
        while True:
            await self._service.housekeeping.run()
            await asyncio.sleep(HOUSEKEEPING_EVERY_S)

    async def aclose(self) -> str:
        """End all; what went wrong, in a sentence."""
        if self._housekeeping is not None:
            self._housekeeping.cancel()
        rescued = await self._service.aclose(last_resorts())
        return "" if rescued is None else rescued_sentence(rescued.conversations, rescued.path, rescued.reason)


def run(
    begin: Callable[[], ChatService],
    output: Output,
    paths: Paths,
    layers: Callable[[], Layers],
    first: First,
    notices: Sequence[str],
) -> str:
    """Converse until the user leaves; what went wrong, in a sentence, empty: nothing. `begin` opens the service.
    Raises ChatError and StoreError."""
    with _Loop() as loop:
        lines = Lines(output.line)
        main_thread = _MainThread(loop, lines)
        mode = loop.wait(_opened(begin, Speaker(output, main_thread.ask), paths, layers))
        main_thread.mode = mode
        with Signals(
            loop.loop,
            {INTERRUPT: main_thread.interrupted, **dict.fromkeys(ENDING, main_thread.ended)},
            main_thread.look,
        ):
            try:
                main_thread.carry_out(mode.begin(first, notices))
                main_thread.converse()
            finally:
                main_thread.is_leaving = True
                failure = loop.wait(mode.aclose())
    return failure


async def _opened(
    begin: Callable[[], ChatService], speaker: Speaker, paths: Paths, layers: Callable[[], Layers]
) -> PlainMode:
    return PlainMode(begin(), speaker, paths, layers)


class _Loop:
    """An event loop on a thread of its own."""

    def __enter__(self) -> _Loop:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="kvchat-service", daemon=True)
        self._thread.start()
        return self

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def __exit__(self, *_: object) -> None:
        self.wait(_end_others())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        with suppress(RuntimeError):
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()


async def _end_others() -> None:
    """Cancel what still runs on this loop, and wait for it."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class _Left(Exception):  # noqa: N818
    """The system, or the window, asks kvchat to end."""


class _MainThread:
    """The main thread: reads lines, hands them over, and reads those that are asked for meanwhile.

    What Ctrl+C means is decided here, by what goes on. While a line is read it ends that: what is typed is dropped, and
    where nothing is, a second one leaves. While something is done, that is stopped; where there is nothing to stop, it
    counts as pressed at the next prompt.
    """

    def __init__(self, loop: _Loop, lines: Lines) -> None:
        self._loop = loop.loop
        self._lines = lines
        self.mode: PlainMode | None = None
        self._requests: SimpleQueue[tuple[str, str, asyncio.Future[str | None]] | None] = SimpleQueue()
        """Lines that are asked for while something is done; None: that is done."""
        self._is_reading = False
        """Whether a signal ends the reading; once, then it is over."""
        self._ended_by: type[Exception] | type[KeyboardInterrupt] = KeyboardInterrupt
        """What a signal that ends the reading means: readline may leave a mere interrupt of what its handler raises."""
        self._is_ended = False
        """Whether the system wants an end."""
        self._is_kept = False
        """Whether what is read is a message, or the edit of one."""
        self.is_leaving = False

    def converse(self) -> None:
        """Until the user leaves."""
        assert self.mode is not None
        interrupted = False
        while not (self.mode.is_over or self._is_ended):
            try:
                typed = self._read(self._next_message)
            except KeyboardInterrupt:
                self.mode.speaker.say("")
                if interrupted:
                    return
                interrupted = True
                self.mode.speaker.say(LEAVES)
                continue
            except Dropped:
                self.mode.dropped()
                self.mode.speaker.say("", "Dropped.")
                interrupted = False
                continue
            except (EOFError, _Left, OSError):
                self.mode.speaker.say("")
                return
            interrupted = False
            self.carry_out(self.mode.take(typed))

    def _next_message(self) -> Typed:
        assert self.mode is not None
        self._is_kept = True
        return self._lines.message(self.mode.chat.unsent)

    def carry_out(self, work: Coroutine[Any, Any, None]) -> None:
        """Have it done on the loop, and read the lines that it asks for."""
        task = asyncio.run_coroutine_threadsafe(work, self._loop)
        task.add_done_callback(lambda _: self._requests.put(None))
        while (request := self._requests.get()) is not None:
            prompt, text, answer = request
            line: str | None = None
            with suppress(KeyboardInterrupt, Dropped, EOFError, _Left, OSError):
                self._is_kept = self.mode is not None and bool(self.mode.chat.editing)
                line = self._read(lambda: self._lines.answer(prompt, text))  # noqa: B023
            self._loop.call_soon_threadsafe(answer.set_result, line)
        task.result()

    async def ask(self, prompt: str, text: str) -> str | None:
        """A line of the user's, asked for on the loop."""
        answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._requests.put((prompt, text, answer))
        return await answer

    def _read(self, read: Callable[[], T]) -> T:
        assert self.mode is not None
        self._lines.begin()
        self._ended_by = KeyboardInterrupt
        self._is_reading = True  # before the looks at what came: a signal that comes after them ends the reading
        try:
            if self._is_ended:
                raise _Left
            if asyncio.run_coroutine_threadsafe(self.mode.taken_press(), self._loop).result():
                raise KeyboardInterrupt
            return read()
        except KeyboardInterrupt:
            raise self._ended_by from None
        finally:
            self._is_reading = self._is_kept = False

    # -- signals

    def look(self) -> None:
        """Have what is typed so far kept. On the main thread, between two keys."""
        if self.mode is not None and self._is_kept and self._is_reading and self._lines.is_written_in:
            self._loop.call_soon_threadsafe(self.mode.typing, self._lines.written)

    def interrupted(self) -> None:
        """Ctrl+C."""
        if self._is_reading:
            self._end_reading(Dropped if self._lines.is_written_in else KeyboardInterrupt)
        self._stop()

    def ended(self) -> None:
        """The system wants an end: stop what runs, keep what came."""
        self._is_ended = True
        self.look()
        if self._is_reading:
            self._end_reading(_Left)
        if self.mode is not None and not self.is_leaving:
            self._loop.call_soon_threadsafe(self.mode.leave)

    def _end_reading(self, by: type[Exception] | type[KeyboardInterrupt]) -> NoReturn:
        self._is_reading = False
        self._ended_by = by
        raise KeyboardInterrupt

    def _stop(self) -> None:
        if self.mode is not None and not self.is_leaving:
            self._loop.call_soon_threadsafe(self.mode.stop)
