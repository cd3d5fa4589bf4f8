"""The arguments of `kvchat ask`, which of them do not go together, and the parameters that they set."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kvchat.chat.turns.alternatives import MOST_ANSWERS
from kvchat.cli import choosing_options
from kvchat.cli.session import UsageError
from kvchat.config.option import UnfitError, from_text, json_table
from kvchat.config.settings import BY_PATH
from kvchat.prompt.request import Parameters, merged
from kvchat.text.options import reserved_words

if TYPE_CHECKING:
    from kvchat.cli.ask.answer_shape import AnswerSchema

WAIT_S = 600.0
"""How long a server is waited for that loads its model."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _add_question(parser)
    _add_answer(parser)


def _add_question(parser: argparse.ArgumentParser) -> None:
    """What is asked, in which conversation, and how the answer is printed."""
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


def _add_answer(parser: argparse.ArgumentParser) -> None:
    """What the answer should be, and what the model may do for it."""
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


def check(args: argparse.Namespace) -> None:
    """Raises UsageError where arguments do not go together."""
    if args.continue_answer:
        _check_continuing(args)
    elif args.text is None:
        raise UsageError("The question is missing. Give it as an argument, or pipe it in with: kvchat ask -")
    elif args.text == "-" and args.no_stdin:
        raise UsageError("ask - reads the question from standard input. Leave out --no-stdin, or give the question.")
    elif args.extract and (args.json or args.schema):
        raise UsageError("-x prints the first code block and nothing else. Leave out --json and --schema, or -x.")
    elif args.tools is not None and (args.continue_ or args.conversation or args.trunk):
        raise UsageError(
            "--tools is for a new conversation: other tools are another prefix. Leave it out, or choose them in the "
            "app (/tools), which shows the price."
        )
    elif args.alternatives and (args.extract or args.schema):
        raise UsageError("--alternatives prints every answer. Leave out -x and --schema.")


def _check_continuing(args: argparse.Namespace) -> None:
    for what, is_given in (
        ("the question", args.text is not None),
        ("--new", args.new),
        ("--persona", args.persona),
        ("--trunk", args.trunk),
    ):
        if is_given:
            raise UsageError(f"--continue-answer goes on with an answer that is there. Leave out {what}.")
    if args.alternatives:
        raise UsageError("--continue-answer gives one answer. Leave out --alternatives.")


def parameters(base: Parameters, args: argparse.Namespace, schema: AnswerSchema | None) -> Parameters:
    """The parameters `base` of a conversation with those of this command line, for this turn only."""
    given = dict(args.option)
    named = {name: given.pop(name) for name in [*given] if f"parameters.{name}" in BY_PATH}
    found = merged(base, Parameters(**named, extra=given))
    if schema is not None:
        found = replace(found, response_format=schema.response_format)
    if args.max_tokens is not None:
        found = replace(found, max_tokens=args.max_tokens)
    if args.temperature is not None:
        found = replace(found, temperature=args.temperature)
    return found
