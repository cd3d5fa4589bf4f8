"""The course of `kvchat ask`, from its arguments to the exit status.

In the order in which they are called:

1. `run`: checks the arguments and reads the question, before a server is looked for.
2. `ask`: has the user agree to what the tools need, finds or begins the conversation, and reaches its server.
3. `kvchat.cli.ask.turn.AskedTurn.run`: sends, prints the answer as it comes, and says how it ended.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.question import Question
from kvchat.cli import say
from kvchat.cli.ask.arguments import check
from kvchat.cli.ask.consent import agree_to_programs, allow_calls, ask_about_calls
from kvchat.cli.ask.question import files_to_attach, read_question
from kvchat.cli.ask.stream import WaitNotices
from kvchat.cli.ask.turn import AskedTurn
from kvchat.cli.session import CommandError, Session, print_notices, tell_fallback, tell_notice
from kvchat.config.personas import NOBODY, Persona
from kvchat.prompt.drafts import filled
from kvchat.prompt.message import tools_of
from kvchat.text.options import changed_words

if TYPE_CHECKING:
    from kvchat.chat.service import ChatService
    from kvchat.cli.ask.answer_shape import AnswerSchema


def run(session: Session) -> int:
    """Ask, print, and return the exit status. The question is read before the service is opened, so that Ctrl+C ends
    the reading at once. Raises CommandError."""
    args = session.args
    check(args)
    if args.continue_answer:
        session.print_problems(sends=True)
        return session.with_service(lambda service: ask(service, args, None))
    schema: AnswerSchema | None = None
    if args.schema:
        from kvchat.cli.ask.answer_shape import AnswerSchema

        schema = AnswerSchema(args.schema)
        schema.prepare()
    if args.attach:
        args.attach = files_to_attach(args.attach)
    question = read_question(args.text, not args.no_stdin)
    session.print_problems(sends=True)

    async def work(service: ChatService) -> int:
        return await ask(service, args, question, schema, _persona(session, service))

    return session.with_service(work)


def _persona(session: Session, service: ChatService) -> Persona:
    """What a new conversation begins with."""
    if not (name := session.args.persona):
        return NOBODY
    from kvchat.chat.conversations.personas import Personas

    personas = Personas(session.places.personas, service.options)
    found = personas.find(name)
    print_notices(personas.problems(name))
    return found.below(session.layers().options)


async def ask(
    service: ChatService,
    args: argparse.Namespace,
    question: Question | None,
    schema: AnswerSchema | None = None,
    persona: Persona = NOBODY,
) -> int:
    """Ask, print, and return the exit status. None: go on with the last answer. `persona`: what a new conversation
    begins with. Raises ChatError, CommandError and StoreError."""
    service.events.subscribe(tell_fallback)
    service.servers.links.is_brief, service.servers.links.wait_seconds = True, args.wait
    service.events.subscribe(WaitNotices(service))
    await allow_calls(service, args.allow)
    await agree_to_programs(service, args.tools or ())
    unsubscribe = service.events.subscribe(tell_notice) if args.tools else None
    conversation = await _reach_conversation(service, args, persona, is_answered=question is None)
    if unsubscribe is not None:
        unsubscribe()
    if tools_of(conversation.path()):
        service.servers.links.is_brief = False  # several requests may follow
        ask_about_calls(service)
    if question is not None:
        question = replace(question, text=filled(persona.first_message, question.text), calls=not args.no_tools)
    return await AskedTurn(service, conversation, args, schema).run(question)


async def _reach_conversation(
    service: ChatService, args: argparse.Namespace, persona: Persona, *, is_answered: bool
) -> OpenConversation:
    """The conversation to ask in, its server reached: a question that reaches none changes nothing. `is_answered`: one
    that has an answer. Raises ChatError and CommandError."""
    known = service.conversations.find(args.conversation) if args.conversation else None
    if known is None and (args.continue_ or is_answered):
        known = service.conversations.latest()
    if known is None and is_answered:
        raise CommandError("There is no answer to continue yet.")
    if known is not None:
        conversation = await service.conversations.open(known.id)
        await service.servers.reach(conversation.id)
        return conversation
    if args.trunk:
        return await _from_trunk(service, args.trunk)
    await service.servers.reach(name=service.new_conversations.server_of(persona) if persona.profile else "")
    return await service.new_conversations.create(persona=persona, tools=args.tools, reuse=False)


async def _from_trunk(service: ChatService, name: str) -> OpenConversation:
    """A new conversation that begins with a trunk, its server reached. Raises ChatError, CommandError."""
    if service.trunks is None:
        raise CommandError("An incognito run has no trunks; leave out --incognito.")
    await service.trunks.find(name)
    await service.servers.reach()
    conversation, changed = await service.trunks.begin(name)
    if changed:
        say(changed_words(name, changed))
    return conversation
