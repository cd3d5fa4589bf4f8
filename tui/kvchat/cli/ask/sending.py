"""Sending the question of `kvchat ask` and waiting for its answer, until Ctrl+C or a reader that has gone ends that."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import stat
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.errors import TooLongError
from kvchat.chat.events import HeadAwaited, ServiceEvent
from kvchat.chat.question import Question
from kvchat.chat.turns.alternatives import AlternativesRequest
from kvchat.cli import say
from kvchat.prompt.request import Parameters

if TYPE_CHECKING:
    from kvchat.chat.service import ChatService

INTERRUPTED = 130
"""The exit status after Ctrl+C."""
WAITS = "Another window is answering in this conversation. Waiting for it; Ctrl+C gives up."


async def send_and_wait(
    service: ChatService,
    conversation: OpenConversation,
    question: Question | None,
    parameters: Parameters,
    wanted: AlternativesRequest | None = None,
) -> tuple[int | None, str]:
    """Send (None: have the last answer continued) and wait. Ctrl+C, a terminal that is closed, and a reader of standard
    output that is gone, stop the answer and keep what came. Gives the exit status where one of them did, else None, and
    the id of the answer."""
    loop = asyncio.get_running_loop()
    stop: asyncio.Future[int] = loop.create_future()

    def end(status: int) -> None:
        if not stop.done():
            stop.set_result(status)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # under nohup it goes on
            loop.add_signal_handler(number, end, INTERRUPTED)
    with _watch_reader(loop, lambda: end(0)):
        return await _send_until(service, conversation, question, parameters, wanted, stop)


async def _send_until(
    service: ChatService,
    conversation: OpenConversation,
    question: Question | None,
    parameters: Parameters,
    wanted: AlternativesRequest | None,
    stop: asyncio.Future[int],
) -> tuple[int | None, str]:
    is_apart = await service.memory.is_passed_over(conversation.path())
    if question is None:
        await service.turns.go_on(conversation.id, conversation.path()[-1].id, parameters)
    else:
        turns = service.turns
        send = (
            partial(turns.send, conversation.id, question, parameters=parameters)
            if wanted is None
            else partial(turns.ask_for, conversation.id, wanted, question, parameters=parameters)
        )
        try:
            await _send(service, conversation.id, stop, send())
        except TooLongError as error:
            if error.counted:
                raise
            await _send(service, conversation.id, stop, send(anyway=True))
    assert conversation.live is not None
    answer = conversation.live.node
    done = asyncio.create_task(service.conversations.wait(conversation.id))
    either: set[asyncio.Future[Any]] = {done, stop}
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if stop.done():
        await service.conversations.stop(conversation.id)
    await done
    said = [answer]
    if question is not None and (asked := conversation.tree[answer].parent):
        said = [asked, *(node.id for node in conversation.tree.children(asked))]
    if conversation.tree[answer].message.calls:  # the turn went on
        path = conversation.path()
        said += [node.id for node in path[[node.id for node in path].index(answer) :]]
        answer = said[-1]
    if is_apart:  # what is read for memories is said in the app, or goes on there
        await service.memory.pass_over(conversation.id, said)
    return stop.result() if stop.done() else None, answer


async def _send(
    service: ChatService, id: str, stop: asyncio.Future[int], sending: Coroutine[object, object, None]
) -> None:
    """Send. A reply that another kvchat streams in this conversation is waited for; ctrl+c gives that up. Raises
    GivenUp."""
    said = False

    def waits(event: ServiceEvent) -> None:
        nonlocal said
        if not isinstance(event, HeadAwaited) or not service.conversations.awaits_reply(id):
            return
        if not said:
            say(WAITS)
            said = True

    forget = service.events.subscribe(waits)
    stop.add_done_callback(lambda _: service.conversations.give_up(id))
    try:
        await sending
    finally:
        forget()


@contextmanager
def _watch_reader(loop: asyncio.AbstractEventLoop, gone: Callable[[], None]) -> Iterator[None]:
    """Call `gone` when the reader of standard output, a pipe, is gone: the system tells that of the end that writes as
    if there were something to read."""
    try:
        descriptor = sys.stdout.fileno()
        is_pipe = stat.S_ISFIFO(os.fstat(descriptor).st_mode)
    except (OSError, ValueError):
        is_pipe = False
    if not is_pipe:
        yield
        return

    def look() -> None:
        loop.remove_reader(descriptor)  # the loop would call this again and again
        gone()

    with suppress(OSError):
        loop.add_reader(descriptor, look)
    try:
        yield
    finally:
        with suppress(OSError):
            loop.remove_reader(descriptor)


def reader_is_gone() -> bool:
    """Whether standard output is a pipe whose reader has closed it."""
    try:
        descriptor = sys.stdout.fileno()
        if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            return False
        looks = select.poll()
        looks.register(descriptor, 0)  # poll reports errors in any case
        return bool(looks.poll(0))
    except (OSError, ValueError):  # closed, or no file
        return False
