"""`kvchat ask`: one question on the command line, its answer streamed to standard output.

Only the words of the command line mention documents; what was piped in goes as an attachment in front. They
may come from a script that put another's text into them, so a file from outside of the working folder and the
collections goes only if a user at the terminal says yes; what a script means to send from elsewhere it pipes in.
Standard input is read before anything else begins, so that Ctrl+C ends it at once. A terminal, a device and a closed
input give nothing. A silent one is waited for, with a notice after SILENT_S; one from which nothing comes at all is
left after IDLE_S, unless TEXT is `-`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import select
import shlex
import signal
import stat
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from kvchat.chat.conversations.live import OpenConversation
from kvchat.chat.errors import GivenUp, TooLongError
from kvchat.chat.events import AnswerProgressed, HeadAwaited, ServerChanged, ServiceEvent
from kvchat.chat.question import Question
from kvchat.chat.question.mentions import NOTHING
from kvchat.chat.server.connection_state import Connecting
from kvchat.chat.turns.alternatives import MOST_ANSWERS, AlternativesRequest
from kvchat.cli import choosing_options
from kvchat.cli.ask_consent import agree_to_programs, allow_calls, ask_about_calls, prepared
from kvchat.cli.ask_report import given, report
from kvchat.cli.plain_output import Printer, width_of
from kvchat.cli.session import (
    CommandError,
    NotInTimeError,
    Session,
    UsageError,
    print_notices,
    tell_fallback,
    tell_notice,
)
from kvchat.config.option import UnfitError, from_text, json_table
from kvchat.config.personas import NOBODY, Persona
from kvchat.config.settings import BY_PATH
from kvchat.documents.errors import DocumentError, FileUnreadableError
from kvchat.documents.reading.decoding import read_as
from kvchat.paths import PathError, read_once
from kvchat.prompt.citations import guess_in, with_guess
from kvchat.prompt.context import STDIN, ContextBlock
from kvchat.prompt.drafts import filled
from kvchat.prompt.message import Message, Node, NoteKind, Role, State, has_end_only, tools_of
from kvchat.prompt.request import Parameters, merged
from kvchat.sanitize import one_line
from kvchat.text.faults import Fault
from kvchat.text.notes import note_sentence
from kvchat.text.options import changed_words, reserved_words
from kvchat.text.tools import shown_call

if TYPE_CHECKING:
    from kvchat.chat.service import ChatService
    from kvchat.cli.answer_shape import AnswerSchema

MOST = 16 << 20
"""Bytes that are read at most."""
SILENT_S = 2.0
"""Seconds without a byte after which a notice says what is waited for."""
IDLE_S = 6.0
"""Seconds after which an empty standard input is left: a service or an editor has started kvchat."""

_AT_ONCE = 1 << 18


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "text",
        metavar="TEXT|-",
        nargs="?",
        help="the question; what is piped in is attached to it; - reads the question itself from standard input",
    )
    choosing_options(parser).add_argument("--new", action="store_true", help="begin a new conversation (the default)")
    parser.add_argument(
        "--continue-answer",
        action="store_true",
        help="go on with the last answer, which was cut, of the latest conversation or of the one that "
        "is named; prints what is new",
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object with the text and the figures instead"
    )
    parser.add_argument(
        "--wait",
        metavar="SECONDS",
        type=_seconds,
        default=WAIT_S,
        help="how long a server is waited for that loads its model or takes no requests now (default: 600); then the "
        "exit status is 75",
    )
    parser.add_argument("--no-stdin", action="store_true", help="attach nothing from standard input")
    parser.add_argument(
        "-a",
        "--attach",
        metavar="FILE",
        action="append",
        default=[],
        help="attach a file or an image, as it is now; can be given several times",
    )
    parser.add_argument("-x", "--extract", action="store_true", help="print only the first code block of the answer")
    parser.add_argument(
        "--schema", metavar="FILE", type=Path, help="ask for JSON by the JSON schema in FILE; print it only if it fits"
    )
    parser.add_argument(
        "-o",
        "--option",
        metavar="KEY=VALUE",
        type=_option,
        action="append",
        default=[],
        help="a parameter for this answer, as in [parameters]; what is none of them is sent as it is",
    )
    parser.add_argument(
        "--tools",
        metavar="NAMES",
        type=_names,
        help="the tools that the model of a new conversation may call, by names or groups: files,web; none",
    )
    parser.add_argument(
        "--allow",
        metavar="NAMES",
        type=_names,
        default=(),
        help="carry out calls of these tools without asking: read_file, or read_file:FOLDER",
    )
    parser.add_argument("--no-tools", action="store_true", help="let the model call no tool for this answer")
    parser.add_argument(
        "--alternatives",
        metavar="N",
        type=_several,
        help="ask for N answers, of one prefill where the server can; prints each under a heading; the "
        "first whole one goes on",
    )
    parser.add_argument("--max-tokens", type=_max_tokens, metavar="N", help="end the answer after N tokens")
    parser.add_argument("--temperature", type=_temperature, metavar="X", help="the sampling temperature")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip() not in ("", "none"))


def _several(text: str) -> int:
    number = int(text)
    if not 2 <= number <= MOST_ANSWERS:
        raise argparse.ArgumentTypeError(f"{text} answers cannot be asked for; give 2 to {MOST_ANSWERS}")
    return number


def _max_tokens(text: str) -> object:
    return _option(f"max_tokens={text}")[1]


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds < 1e6:
        raise argparse.ArgumentTypeError(f"{text} is no time to wait; give seconds")
    return seconds


def _temperature(text: str) -> object:
    return _option(f"temperature={text}")[1]


def _option(text: str) -> tuple[str, object]:
    """A parameter of the settings, or a further field, with its value."""
    name, equals, value = text.partition("=")
    name = name.strip()
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text} is no parameter; write it as temperature=0.2")
    if why := reserved_words(name):
        raise argparse.ArgumentTypeError(f"{name} {why}")
    option = BY_PATH.get(f"parameters.{name}") if name != "extra" else None
    try:
        if option is None:
            return name, json_table({name: _json_or_text(value)})[name]
        return name, from_text(option.spec, value)
    except UnfitError as unfit:
        raise argparse.ArgumentTypeError(f"{name} {unfit}") from None


def _json_or_text(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def run(session: Session) -> int:
    """Ask, print, and return the exit status. The question is read before the service is opened, so that Ctrl+C ends
    the reading at once. Raises CommandError."""
    args = session.args
    if args.continue_answer:
        if args.text is not None or args.new or args.persona or args.trunk:
            what = next(
                name
                for name, given in (
                    ("the question", args.text is not None),
                    ("--new", args.new),
                    ("--persona", args.persona),
                    ("--trunk", args.trunk),
                )
                if given
            )
            raise UsageError(f"--continue-answer goes on with an answer that is there. Leave out {what}.")
        if args.alternatives:
            raise UsageError("--continue-answer gives one answer. Leave out --alternatives.")
        session.print_problems(sends=True)
        return session.with_service(lambda service: ask(service, args, None))
    if args.text is None:
        raise UsageError("The question is missing. Give it as an argument, or pipe it in with: kvchat ask -")
    if args.text == "-" and args.no_stdin:
        raise UsageError("ask - reads the question from standard input. Leave out --no-stdin, or give the question.")
    if args.extract and (args.json or args.schema):
        raise UsageError("-x prints the first code block and nothing else. Leave out --json and --schema, or -x.")
    if args.tools is not None and (args.continue_ or args.conversation or args.trunk):
        raise UsageError(
            "--tools is for a new conversation: other tools are another prefix. Leave it out, or choose them in the "
            "app (/tools), which shows the price."
        )
    if args.alternatives and (args.extract or args.schema):
        raise UsageError("--alternatives prints every answer. Leave out -x and --schema.")
    schema: AnswerSchema | None = None
    if args.schema:
        from kvchat.cli.answer_shape import AnswerSchema

        schema = AnswerSchema(args.schema)
        schema.prepare()
    if args.attach:
        args.attach = _there(args.attach)
    question = read_question(args.text, not args.no_stdin)
    session.print_problems(sends=True)

    async def work(service: ChatService) -> int:
        persona = NOBODY
        if args.persona:
            from kvchat.chat.conversations.personas import Personas

            personas = Personas(session.places.personas, service.options)
            found = personas.find(args.persona)
            print_notices(personas.problems(args.persona))
            persona = found.below(session.layers().options)
        return await ask(service, args, question, schema, persona)

    return session.with_service(work)


def _there(paths: Sequence[str]) -> list[str]:
    """The files that are to be attached; pipes among them are read here, before standard input is. Raises CommandError
    where one is missing: before a server is waited for."""
    from kvchat.documents.attachments import must_be_there
    from kvchat.documents.loading import path_meant

    try:
        found = [read_once(path_meant(path.strip()), MOST) for path in paths]
        for path in found:
            must_be_there(path)
    except (DocumentError, PathError, OSError, RuntimeError) as error:
        raise CommandError(str(error)) from None
    return [*map(str, found)]


def read_question(given: str, stdin: bool = True) -> Question:
    """The question of a command line whose words are `given`; `-`: it comes from standard input itself. `stdin` False:
    nothing is read from there to go with it. Raises CommandError."""
    if given == "-":
        text = _piped_text("Waiting for the question on standard input …", gives_up=False)[0].rstrip("\n")
        question = Question(text, meant=NOTHING)
    else:
        question = Question(given)
    if not question.text.strip():
        raise CommandError("The question is empty. Give it as an argument, or pipe it in with: kvchat ask -")
    if given == "-" or not stdin or not _is_piped():
        return question
    piped, encoding = _piped_text("Waiting for standard input … (--no-stdin to skip it)", gives_up=True)
    block = ContextBlock(STDIN, with_guess("stdin", encoding), piped)
    return replace(question, blocks=(block,)) if piped.strip() else question


def _is_piped() -> bool:
    """Whether standard input is a pipe, a socket or a file: what somebody put there to be read."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISREG(mode)


def _piped_text(waiting: str, *, gives_up: bool) -> tuple[str, str]:
    """All of standard input, to its end, in lines that end with a newline character, and its encoding where that is a
    guess. `waiting`: the notice on standard error while nothing comes, except from a terminal, where the user types.
    `gives_up`: leave it after IDLE_S where nothing comes at all. Raises CommandError."""
    data = _data(waiting, gives_up=gives_up)
    try:
        return read_as(data)
    except FileUnreadableError as error:
        raise CommandError(f"Standard input {error}. Pipe in text, or skip it with --no-stdin.") from None


def _data(waiting: str, *, gives_up: bool) -> bytes:
    descriptor = sys.stdin.fileno()
    parts: list[bytes] = []
    size, waits = 0, _is_piped()
    while size <= MOST:
        if waits and not _comes(descriptor, SILENT_S):
            waits = False
            _say(waiting)
            if gives_up and not parts and not _comes(descriptor, IDLE_S - SILENT_S):
                _say("Nothing came from standard input. Asking without it.")
                return b""
        try:
            part = os.read(descriptor, _AT_ONCE)
        except BlockingIOError:  # whoever has the other end set it so
            select.select([descriptor], [], [])
            continue
        if not part:
            return b"".join(parts)
        parts.append(part)
        size += len(part)
    raise CommandError(
        f"More than {MOST >> 20} MiB came from standard input. Pipe in less, for instance with "
        f"head -c {MOST >> 20}M, or index the files with kvchat documents add."
    )


def _comes(descriptor: int, seconds: float) -> bool:
    """Whether there is something to read, or the end, within this time."""
    return bool(select.select([descriptor], [], [], seconds)[0])


def _say(text: str) -> None:
    with suppress(OSError):
        print(f"kvchat: {text}", file=sys.stderr, flush=True)


GOOD = frozenset({State.DONE, State.LENGTH, State.CONTEXT_FULL})
INTERRUPTED = 130
FINISHES = "kvchat: The server is finishing a cancelled batch. Waiting for it; Ctrl+C gives up."
WAS_THOUGHT = "kvchat: What came so far was the model's reasoning; its answer follows."
PROGRESS_S = 5.0
"""Seconds between two lines on how far a call is."""
SURE_S = 1.5
"""Seconds for which the beginning of an answer is kept from a pipe: it may prove to be a thought of which only the end
is marked. Whoever sits at a terminal reads along. After a model's first such answer, no thought is printed."""
LOADS = "The server is loading its model. Waiting for it; Ctrl+C gives up (--wait sets a limit)."
IS_BUSY = "The server takes no more requests now. Waiting for it; Ctrl+C gives up (--wait sets a limit)."
WAIT_S = 600.0
"""How long a server is waited for that loads its model."""
SILENT_LOADING_S = 1.0
"""Seconds after which it is said that a model is being loaded."""
WAITS = "kvchat: Another window is answering in this conversation. Waiting for it; Ctrl+C gives up."


async def ask(
    service: ChatService,
    args: argparse.Namespace,
    asked: Question | None,
    schema: AnswerSchema | None = None,
    persona: Persona = NOBODY,
) -> int:
    """Ask, print, and return the exit status. None: go on with the last answer. `persona`: what a new conversation
    begins with. Raises ChatError, CommandError and StoreError."""
    if asked is not None:
        asked = replace(asked, text=filled(persona.first_message, asked.text), calls=not args.no_tools)
    service.events.subscribe(tell_fallback)
    service.servers.links.is_brief, service.servers.links.wait_seconds = True, args.wait
    service.events.subscribe(_Waits(service))
    await allow_calls(service, args.allow)
    await agree_to_programs(service, args.tools or ())
    end_notices = service.events.subscribe(tell_notice) if args.tools else None
    conversation = await _conversation(service, args, persona, answered=asked is None)
    if end_notices is not None:
        end_notices()
    if tools_of(conversation.path()):
        service.servers.links.is_brief = False  # several requests may follow
        ask_about_calls(service)
    printer = Printer(sys.stdout)
    shown, told, streams = 0, False, not (args.json or args.extract or schema or args.alternatives)
    turned, is_terminal = False, width_of(sys.stdout) is not None
    sure: bool | None = None
    step, says_progress = "", 0.0

    def put(text: str, field: str, begun: Message | None) -> None:
        """Print what is new of an answer. `field`: of its reasoning; `begun`: the cut answer that it goes on with."""
        nonlocal shown, turned
        if begun is not None and has_end_only(begun.reasoning_field) == has_end_only(field):
            shown = max(shown, len(begun.text))
        elif has_end_only(field) and not turned:
            if shown:
                printer.end()
                print(WAS_THOUGHT, file=sys.stderr, flush=True)
            shown, turned = 0, True
        printer.write(text[shown:])
        shown = len(text)

    def go_on(node: str) -> None:
        """Another step of the turn has begun: what came before it is printed whole."""
        nonlocal step, shown, turned
        before = conversation.tree[step] if step else None
        if before is not None and before.role is Role.ASSISTANT:
            if streams and before.text:
                with suppress(OSError):
                    put(before.text, before.message.reasoning_field, None)
                    printer.end()
            if before.note is not None:
                _say(note_sentence(before.note))
        step, shown, turned = node, 0, False
        if conversation.tree[node].role is Role.TOOL:
            _say(shown_call(conversation.tree[node].message.call))

    def show(event: ServiceEvent) -> None:
        nonlocal told, sure, says_progress
        live = conversation.live
        if live is not None and live.node != step:
            go_on(live.node)
        if not isinstance(event, AnswerProgressed) or live is None or event.conversation != conversation.id:
            return
        if live.waiting and live.waiting.phase == "cancelled" and not told:
            print(FINISHES, file=sys.stderr, flush=True)
            told = True
        if live.waiting and live.waiting.words and time.monotonic() >= says_progress:
            _say(live.waiting.words)
            says_progress = time.monotonic() + PROGRESS_S
        if not streams or not live.text:
            return
        if sure is None:  # as this model's last answer
            sure = not has_end_only(service.store.last_reasoning_field(conversation.tree[live.node].model))
        waited = time.monotonic() - (live.first_token_at or 0)
        if live.reasoning or (sure and (is_terminal or waited > SURE_S)):
            with suppress(OSError):  # it is said at the end; the answer is kept all the same
                cut = conversation.tree[live.continued].message if live.continued else None
                put(live.text, live.reasoning_field, cut)

    service.events.subscribe(show)
    cut = conversation.path()[-1]
    forget = service.events.subscribe(tell_notice) if asked is None else None
    if asked is not None:
        for path in args.attach:
            asked = replace(asked, blocks=(*asked.blocks, await service.retrieval.attach(conversation.id, path)))
        asked = await prepared(service, conversation, asked)
    try:
        ended, node = await _answered(
            service,
            conversation,
            asked,
            _parameters(conversation, args, schema),
            AlternativesRequest(args.alternatives) if args.alternatives else None,
        )
    except GivenUp as given_up:
        if _reader_is_gone():
            return 0
        print(f"kvchat: {given_up}", file=sys.stderr)
        return INTERRUPTED
    finally:
        if forget is not None:
            forget()
    answers = service.turns.choices(conversation.id)
    if service.turns.is_undecided(conversation.id):
        await service.turns.choose(conversation.id)
        node = conversation.record.head or node
    answer = conversation.tree[node]
    if ended == 0:
        return 0
    if service.tools.refused and not service.tools.can_ask:
        allow = ",".join(dict.fromkeys(map(str, service.tools.refused)))
        _say(f"Not carried out, for want of your yes: {allow}. To allow it: --allow {shlex.quote(allow)}")
    for block in conversation.tree[answer.parent].message.blocks if answer.parent else ():
        if guess_in(block.source):
            guess = f"{one_line(block.source)}: the encoding is a guess; save it as UTF-8 if it is wrong."
            print(f"kvchat: {guess}", file=sys.stderr)
    if args.json:
        found = dict(report(conversation, answer))
        if args.alternatives:
            found["alternatives"] = [report(conversation, one) for one in answers]
        print(json.dumps(found, ensure_ascii=True))
    elif args.alternatives:
        for number, one in enumerate(answers, 1):
            goes_on = " (goes on)" if one.id == answer.id else ""
            printer.line(f"## Answer {number} of {len(answers)}{goes_on}\n\n{one.text or note_sentence(one.note)}\n")
    elif streams:
        begun = cut.message if asked is None and answer.parent == cut.parent else None
        put(answer.text, answer.message.reasoning_field, begun)
        printer.end()
    if ended is not None:
        return ended
    is_damaged = answer.note is not None and bool(answer.note.is_a(NoteKind.PART_LOST) or answer.note["damaged"])
    if answer.state not in GOOD or not answer.text.strip() or is_damaged:
        is_of_a_name = answer.note is not None and answer.note.is_a(Fault.NO_SUCH_MODEL)
        said = note_sentence(answer.note) or "The answer did not complete."
        is_late = answer.note is not None and (answer.note.is_a(Fault.LOADING) or answer.note["seconds"] is not None)
        raise (UsageError if is_of_a_name else NotInTimeError if is_late else CommandError)(said)
    if answer.note and not (answer.note.is_a(NoteKind.LONGEST) and args.max_tokens):
        print(f"kvchat: {note_sentence(answer.note)}", file=sys.stderr)
    if schema is not None:
        fitting = schema.fitting(answer.text)
        if not args.json:
            printer.line(fitting)
    elif args.extract:
        printer.line(_code(answer))
    if not args.json and (sources := given(conversation, answer)):
        print(*(f"[{number}] {one_line(title)}" for number, title in sources.items()), sep="\n", file=sys.stderr)
    return 0


async def _conversation(
    service: ChatService, args: argparse.Namespace, persona: Persona, *, answered: bool = False
) -> OpenConversation:
    """The conversation to ask in, its server reached: a question that reaches none changes nothing. `answered`: one
    that has an answer. Raises ChatError and CommandError."""
    known = service.conversations.find(args.conversation) if args.conversation else None
    if known is None and (args.continue_ or answered):
        known = service.conversations.latest()
    if known is None and answered:
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
        print(f"kvchat: {changed_words(name, changed)}", file=sys.stderr)
    return conversation


class _Waits:
    """Says once what is waited for: that the server loads its model, or takes no requests now."""

    def __init__(self, service: ChatService) -> None:
        self._service = service
        self._told: set[str] = set()

    def __call__(self, event: ServiceEvent) -> None:
        if isinstance(event, ServerChanged):
            for link in self._service.servers.links:
                match link.connector.connection:
                    case Connecting(loading_s=seconds) if (seconds or 0.0) >= SILENT_LOADING_S:
                        self._tell(LOADS)
        elif isinstance(event, AnswerProgressed) and (one := self._service.conversations.get(event.conversation)):
            waiting = one.live.waiting if one.live is not None else None
            if waiting is not None and waiting.phase == "loading" and waiting.seconds >= SILENT_LOADING_S:
                self._tell(LOADS)
            elif waiting is not None and waiting.phase == "busy":
                self._tell(IS_BUSY)

    def _tell(self, words: str) -> None:
        if words not in self._told:
            self._told.add(words)
            _say(words)


def _code(answer: Node) -> str:
    """The first code block of an answer. Raises CommandError."""
    from kvchat.cli.answer_shape import first_code

    if (code := first_code(answer.text)) is None:
        raise CommandError("The answer has no code block. It is stored; kvchat show has it.")
    return code.removesuffix("\n")


def _parameters(conversation: OpenConversation, args: argparse.Namespace, schema: AnswerSchema | None) -> Parameters:
    """The conversation's parameters with those of this command line, for this turn only."""
    given = dict(args.option)
    named = {name: given.pop(name) for name in [*given] if f"parameters.{name}" in BY_PATH}
    parameters = merged(conversation.record.parameters, Parameters(**named, extra=given))
    if schema is not None:
        parameters = replace(parameters, response_format=schema.response_format)
    if args.max_tokens is not None:
        parameters = replace(parameters, max_tokens=args.max_tokens)
    if args.temperature is not None:
        parameters = replace(parameters, temperature=args.temperature)
    return parameters


async def _answered(
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
    with _gone_reader(loop, lambda: end(0)):
        return await _answer_until(service, conversation, question, parameters, wanted, stop)


def _reader_is_gone() -> bool:
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


@contextmanager
def _gone_reader(loop: asyncio.AbstractEventLoop, gone: Callable[[], None]) -> Iterator[None]:
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


async def _answer_until(
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
            await _sent(service, conversation.id, stop, send())
        except TooLongError as error:
            if error.counted:
                raise
            await _sent(service, conversation.id, stop, send(anyway=True))
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


async def _sent(
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
            print(WAITS, file=sys.stderr, flush=True)
            said = True

    forget = service.events.subscribe(waits)
    stop.add_done_callback(lambda _: service.conversations.give_up(id))
    try:
        await sending
    finally:
        forget()
