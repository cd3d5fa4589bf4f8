"""What `kvchat ask` needs the user's word for: files from elsewhere, programs of MCP servers, calls of the model."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.errors import ChatError
from kvchat.chat.events import ServiceEvent, ToolAsked
from kvchat.chat.question import Question
from kvchat.chat.question.mentions import NOTHING, OutsideError
from kvchat.cli.session import CommandError, UsageError, print_notices
from kvchat.sanitize import clean
from kvchat.text.tools import STARTS, ask_words, decided, letters, program_lines, question_lines, yes_or_no

if TYPE_CHECKING:
    from kvchat.chat.service import ChatService


async def look_up_mentions(service: ChatService, conversation: OpenConversation, question: Question) -> Question:
    """The question with what goes with it, when all that it needs is there: the user's word on files from outside.
    Raises ChatError and CommandError."""
    mentions = question.meant is not NOTHING and "@" in question.text
    if not mentions:
        return question
    found = await service.retrieval.retrieve(conversation.id, question.text, meant=question.meant)
    if found.problems:
        raise ChatError.of(found.problems[0])
    if found.nothing:
        print_notices([found.nothing])
    question = replace(question, passages=found.picked(question), files=found.files)
    if not found.outside:
        return question
    error = OutsideError(found.outside)
    if not _is_at_terminal():
        raise CommandError(f"{error} To send a file from elsewhere, pipe it in: kvchat ask TEXT < FILE")
    print(*error.sentences, sep="\n", file=sys.stderr)
    if not await _says_yes(f"Send {'them' if len(error.paths) > 1 else 'it'}?"):
        raise CommandError("Nothing was sent.")
    return replace(question, meant=replace(question.meant, agreed=frozenset(error.paths)))


async def allow_calls(service: ChatService, allowed: Sequence[str]) -> None:
    """Allow in this run what `--allow` names; a server's name allows its program and all of its tools.
    Raises ChatError and CommandError."""
    from kvchat.prompt.offered_tools import DEFINITIONS

    names = [name for one in allowed if (name := one.partition(":")[0]) not in DEFINITIONS]
    for name in names:
        if service.mcp.group_of(name) is None:
            raise UsageError(f"There is no tool {name} to allow; kvchat's own are {', '.join(DEFINITIONS)}.")
        if name.lower() in service.mcp.behind([name]):
            service.tools.give([name.lower()])
    service.tools.give(allowed)
    for server in service.mcp.to_agree(names).values() if names else ():
        await service.mcp.agree(server, keep=False)


async def agree_to_programs(service: ChatService, names: Sequence[str]) -> None:
    """Have the user agree to the programs behind these tools. Raises ChatError and CommandError."""
    from kvchat.prompt.offered_tools import own_tools

    if all(map(own_tools, names)):
        return
    for name, server in service.mcp.to_agree(names).items():
        print(*map(clean, program_lines(name, server.shown)), sep="\n", file=sys.stderr)
        if not _is_at_terminal():
            raise CommandError(f"Not started, for want of your yes. To allow it in this run: --allow {name}")
        if not await _says_yes(STARTS):
            raise CommandError("Nothing was sent.")
        await service.mcp.agree(server)


def ask_about_calls(service: ChatService) -> None:
    """Ask for the user's word on calls of tools, where they sit at a terminal; else only what was allowed is done."""
    service.tools.can_ask = _is_at_terminal()

    async def ask(id: str) -> None:
        tools = service.tools
        question, decision = tools.waiting[id], None
        print(*map(clean, question_lines(question, tools.choices)), sep="\n", file=sys.stderr)
        while decision is None and tools.waiting.get(id) is question:
            decision = decided(await _answer(f"{ask_words(question)} [{letters(tools.choices)}] "), tools.choices)
        if decision is not None:
            tools.decide(id, decision, question)

    def on_event(event: ServiceEvent) -> None:
        if isinstance(event, ToolAsked) and event.conversation in service.tools.waiting:
            service.core.in_background(ask(event.conversation))

    service.events.subscribe(on_event)


async def _answer(prompt: str) -> str:
    """The line that answers a question at the terminal; what was typed before it was asked does not. The thread that
    waits for it holds up nothing when Ctrl+C ends this."""
    with suppress(ImportError, OSError):
        import termios

        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
    print(prompt, end="", file=sys.stderr, flush=True)
    loop = asyncio.get_running_loop()
    came, lines = asyncio.Event(), list[bytes]()

    def read() -> None:
        lines.append(os.read(sys.stdin.fileno(), 1024))
        with suppress(RuntimeError):  # the loop is closed by now
            loop.call_soon_threadsafe(came.set)

    Thread(target=read, name="kvchat-consent", daemon=True).start()
    await came.wait()
    return lines[0].decode(errors="replace")


def _is_at_terminal() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


async def _says_yes(question: str) -> bool:
    says_yes = None
    while says_yes is None:
        says_yes = yes_or_no(await _answer(f"{question} [y/N] "))
    return says_yes
