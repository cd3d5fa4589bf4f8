"""A turn of `kvchat ask` in its conversation: sent, printed as it comes, and judged at the end."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.errors import GivenUp
from kvchat.chat.question import Question
from kvchat.chat.turns.alternatives import AlternativesRequest
from kvchat.cli import say
from kvchat.cli.ask.arguments import parameters
from kvchat.cli.ask.consent import look_up_mentions
from kvchat.cli.ask.report import report, sources_given
from kvchat.cli.ask.sending import INTERRUPTED, reader_is_gone, send_and_wait
from kvchat.cli.ask.stream import AnswerStream
from kvchat.cli.plain_output import Printer
from kvchat.cli.session import CommandError, NotInTimeError, UsageError, tell_notice
from kvchat.prompt.citations import guess_in
from kvchat.prompt.message import Node, NoteKind, State
from kvchat.sanitize import one_line
from kvchat.text.faults import Fault
from kvchat.text.notes import note_sentence

if TYPE_CHECKING:
    from kvchat.chat.service import ChatService
    from kvchat.cli.ask.answer_shape import AnswerSchema

WHOLE = frozenset({State.DONE, State.LENGTH, State.CONTEXT_FULL})
"""States of an answer that is good."""


class AskedTurn:
    """A turn in a conversation whose server is reached."""

    def __init__(
        self,
        service: ChatService,
        conversation: OpenConversation,
        args: argparse.Namespace,
        schema: AnswerSchema | None,
    ) -> None:
        self._service = service
        self._conversation = conversation
        self._args = args
        self._schema = schema
        self._is_streamed = not (args.json or args.extract or schema or args.alternatives)
        self._printer = Printer(sys.stdout)
        self._stream = AnswerStream(service, conversation, self._printer, is_printed=self._is_streamed)

    async def run(self, question: Question | None) -> int:
        """Ask, print, and return the exit status. None: go on with the last answer. Raises ChatError, CommandError and
        StoreError."""
        conversation, events = self._conversation, self._service.events
        events.subscribe(self._stream.on_event)
        last = conversation.path()[-1]
        unsubscribe = events.subscribe(tell_notice) if question is None else None
        if question is not None:
            question = await self._complete(question)
        sent = parameters(conversation.record.parameters, self._args, self._schema)
        wanted = AlternativesRequest(self._args.alternatives) if self._args.alternatives else None
        try:
            status, node = await send_and_wait(self._service, conversation, question, sent, wanted)
        except GivenUp as given_up:
            if reader_is_gone():
                return 0
            say(str(given_up))
            return INTERRUPTED
        finally:
            if unsubscribe is not None:
                unsubscribe()
        choices = self._service.turns.choices(conversation.id)
        if self._service.turns.is_undecided(conversation.id):
            await self._service.turns.choose(conversation.id)
            node = conversation.record.head or node
        if status == 0:
            return 0
        answer = conversation.tree[node]
        self._say_of_question(answer)
        self._print(answer, choices, last if question is None and answer.parent == last.parent else None)
        return status if status is not None else self._finish(answer)

    async def _complete(self, question: Question) -> Question:
        """The question with all that goes with it. Raises ChatError and CommandError."""
        for path in self._args.attach:
            block = await self._service.retrieval.attach(self._conversation.id, path)
            question = replace(question, blocks=(*question.blocks, block))
        return await look_up_mentions(self._service, self._conversation, question)

    def _say_of_question(self, answer: Node) -> None:
        """What the user should know of what was sent: calls that were refused, encodings that are a guess."""
        tools = self._service.tools
        if tools.refused and not tools.can_ask:
            allow = ",".join(dict.fromkeys(map(str, tools.refused)))
            say(f"Not carried out, for want of your yes: {allow}. To allow it: --allow {shlex.quote(allow)}")
        for block in self._conversation.tree[answer.parent].message.blocks if answer.parent else ():
            if guess_in(block.source):
                say(f"{one_line(block.source)}: the encoding is a guess; save it as UTF-8 if it is wrong.")

    def _print(self, answer: Node, choices: Sequence[Node], cut: Node | None) -> None:
        """Print what is not printed yet. `choices`: the alternatives; `cut`: the answer that was continued."""
        if self._args.json:
            found = dict(report(self._conversation, answer))
            if self._args.alternatives:
                found["alternatives"] = [report(self._conversation, one) for one in choices]
            print(json.dumps(found, ensure_ascii=True))
        elif self._args.alternatives:
            for number, one in enumerate(choices, 1):
                head = f"## Answer {number} of {len(choices)}{' (goes on)' if one.id == answer.id else ''}"
                self._printer.line(f"{head}\n\n{one.text or note_sentence(one.note)}\n")
        elif self._is_streamed:
            self._stream.write(answer.text, answer.message.reasoning_field, cut.message if cut is not None else None)
            self._printer.end()

    def _finish(self, answer: Node) -> int:
        """Say how the answer ended, and print what a script takes of it. Raises CommandError where it is not good."""
        note, args = answer.note, self._args
        is_damaged = note is not None and bool(note.is_a(NoteKind.PART_LOST) or note["damaged"])
        if answer.state not in WHOLE or not answer.text.strip() or is_damaged:
            raise _failure(answer)
        if note and not (note.is_a(NoteKind.LONGEST) and args.max_tokens):
            say(note_sentence(note))
        if self._schema is not None:
            fitting = self._schema.fitting(answer.text)
            if not args.json:
                self._printer.line(fitting)
        elif args.extract:
            self._printer.line(_code(answer))
        if not args.json and (sources := sources_given(self._conversation, answer)):
            print(*(f"[{number}] {one_line(title)}" for number, title in sources.items()), sep="\n", file=sys.stderr)
        return 0


def _failure(answer: Node) -> CommandError:
    """What to raise for an answer that is not good; its class has the exit status."""
    note = answer.note
    is_of_a_name = note is not None and note.is_a(Fault.NO_SUCH_MODEL)
    is_late = note is not None and (note.is_a(Fault.LOADING) or note["seconds"] is not None)
    kind = UsageError if is_of_a_name else NotInTimeError if is_late else CommandError
    return kind(note_sentence(note) or "The answer did not complete.")


def _code(answer: Node) -> str:
    """The first code block of an answer. Raises CommandError."""
    from kvchat.cli.ask.answer_shape import first_code

    if (code := first_code(answer.text)) is None:
        raise CommandError("The answer has no code block. It is stored; kvchat show has it.")
    return code.removesuffix("\n")
