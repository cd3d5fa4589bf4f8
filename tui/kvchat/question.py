"""The question of `kvchat ask`: the words of the command line, with what was piped in as an attachment in front.

The rule: only the words of the command line mention documents. They may come from a script that put another's text into
them, so a file from outside of the working folder and the collections goes only if a person at the terminal says yes;
what a script means to send from elsewhere it pipes in.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from dataclasses import replace
from threading import Thread
from typing import TYPE_CHECKING

from kvchat import standard_input
from kvchat.chat.errors import ChatError
from kvchat.chat.question import Question
from kvchat.chat.question.mentions import NOTHING, OutsideError
from kvchat.display import one_line
from kvchat.prompt.context import STDIN, ContextBlock
from kvchat.standard_input import InputError

if TYPE_CHECKING:
    from kvchat.chat.live import OpenConversation
    from kvchat.chat.service import ChatService


def read_question(given: str, stdin: bool = True) -> Question:
    """The question of a command line whose words are `given`; `-`: it comes from standard input itself. `stdin` False:
    nothing is read from there to go with it. Raises InputError."""
    if given == "-":
        text = standard_input.piped_text("Waiting for the question on standard input …").rstrip("\n")
        question = Question(text, meant=NOTHING)
    else:
        question = Question(given)
    if not question.text.strip():
        raise InputError("The question is empty. Give it as an argument, or pipe it in with: kvchat ask -")
    if given == "-" or not stdin or not standard_input.is_piped():
        return question
    piped = standard_input.piped_text("Waiting for standard input … (--no-stdin to skip it)")
    return replace(question, blocks=(ContextBlock(STDIN, "stdin", piped),)) if piped.strip() else question


async def prepared(service: ChatService, conversation: OpenConversation, question: Question) -> Question:
    """The question when all that it needs is there: the person's word on files from outside. Raises ChatError."""
    mentions = question.meant is not NOTHING and "@" in question.text
    if not mentions:
        return question
    found = await service.retrieval.consult(conversation.id, question.text, search=False)
    if not found.outside:
        return question
    error = OutsideError(found.outside)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ChatError(f"{error} To send a file from elsewhere, pipe it in: kvchat ask TEXT < FILE")
    for path in error.paths:
        print(f"{one_line(path, 1000)} is outside the working folder and the collections.", file=sys.stderr)
    print(f"Send {'them' if len(error.paths) > 1 else 'it'}? [y/N] ", end="", file=sys.stderr, flush=True)
    if (await _line()).strip().lower() not in ("y", "yes"):
        raise ChatError("Nothing was sent.")
    return replace(question, meant=replace(question.meant, agreed=frozenset(error.paths)))


async def _line() -> str:
    """The next line from the terminal. The thread that waits for it holds up nothing when Ctrl+C ends this."""
    loop = asyncio.get_running_loop()
    came, lines = asyncio.Event(), list[bytes]()

    def read() -> None:
        lines.append(os.read(sys.stdin.fileno(), 1024))
        with suppress(RuntimeError):  # the loop is closed by now
            loop.call_soon_threadsafe(came.set)

    Thread(target=read, name="kvchat-consent", daemon=True).start()
    await came.wait()
    return lines[0].decode(errors="replace")
