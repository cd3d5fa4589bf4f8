"""The command line: `kvchat` opens the app, `kvchat ask` answers in the terminal, the rest looks things up.

A command is a module of its name, with its arguments and all that it says, and is imported when it is used.
Every failure is one sentence on stderr. Exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

from kvchat import __version__

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

logging.getLogger("kvchat").addHandler(logging.NullHandler())  # else Python writes warnings to the terminal

COMMANDS: Mapping[str, str] = {
    "ask": "ask one question and print the answer as it streams",
    "list": "list the conversations, newest first; --tag archive lists the archived, --trash the deleted",
    "show": "print a conversation",
    "search": "search all conversations; tag:NAME keeps to those with a tag",
    "tag": "put tags on a conversation, or list the tags; favourite and archive are two of them",
    "rename": "give a conversation another title",
    "delete": "move conversations to the trash",
    "restore": "bring conversations back from the trash",
    "keep": "keep a conversation's state on the disk, always warm; or list what is kept, and the room it takes",
    "cache": "show what the server's cache did for a conversation",
    "stats": "prefill time saved, reuse by day and causes of waste, over all conversations",
    "backends": "list the model servers of this machine, of the settings, and in use, with whether they answer",
    "pull": "fetch a model (GGUF) from Hugging Face, into the cache that llama-server -hf uses too",
    "doctor": "examine a server: what it reuses, how fast it prefills, what to change",
    "export": "write conversations to a file or standard output",
    "import": "take in conversations of other programs: ChatGPT, Claude, Open WebUI, llama.cpp, LM Studio, oterm, llm, "
    "aichat",
    "memory": "what is remembered of you: look at it, change it",
    "documents": "folders of files to search: index, look, find",
    "trunk": "files that are prefilled once, with which conversations begin warm",
    "config": "look at the settings and change them",
    "serve": "the app in a browser of this machine",
    "completion": "print a script that completes commands, options and names in your shell",
}
"""What each command does, in the order of the help."""
EXAMPLES: Mapping[str, str] = {
    "ask": 'git diff | kvchat ask "review this"',
    "list": "kvchat list --json",
    "show": "kvchat show 4097b73d",
    "search": "kvchat search lighthouse lamp",
    "cache": "kvchat cache 4097b73d",
    "stats": "kvchat stats --days 30 --svg cache.svg",
    "backends": "kvchat backends",
    "pull": "kvchat pull Qwen/Qwen3-4B-GGUF:Q4_K_M",
    "doctor": "kvchat doctor http://127.0.0.1:9931",
    "export": "kvchat export --all -f html -o chats.html",
    "memory": 'kvchat memory add "I prefer metric units."',
    "documents": "kvchat documents add notes",
    "trunk": "kvchat trunk add handbook docs README.md",
    "config": "kvchat config show",
    "serve": "kvchat serve --port 8000",
    "import": "kvchat import conversations.json",
    "completion": "kvchat completion bash",
    "tag": "kvchat tag 4097b73d work",
    "keep": "kvchat keep 4097b73d",
    "rename": "kvchat rename 4097b73d Lighthouse log",
    "delete": "kvchat delete 4097b73d",
    "restore": "kvchat restore 4097b73d",
}
"""One line for the end of each command's help."""


class Parser(argparse.ArgumentParser):
    """Says what is wrong with the arguments in two lines: what, and where the help is."""

    @property
    def arguments(self) -> Sequence[argparse.Action]:
        """Its options and arguments; argparse itself has no public name for them."""
        return self._actions

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self._given = [*(args or ())]
        return super().parse_known_args(args, namespace)

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        """As argparse's own, which says nothing of a disk that is full."""
        (file or sys.stderr).write(message)

    def error(self, message: str) -> NoReturn:
        if missing := re.fullmatch(r"the following arguments are required: (.*)", message):
            known = [name for action in self._actions if missing[1] == action.metavar for name in action.choices or ()]
            message = f"{missing[1]} is missing{'; choose from ' if known else ''}{', '.join(known)}"
        elif unknown := re.fullmatch(r"unrecognized arguments: (.*)", message):
            message = f"unknown here: {unknown[1]}"
        elif wrong := re.fullmatch(r"argument (\S+): invalid choice: (.*) \(choose from (.*)\)", message):
            message = self._not_a_choice(wrong[2].strip("'"), wrong[3].replace("'", "").split(", "))
        self.exit(2, f"{self.prog}: {message}\nTry: {self.prog} --help\n")

    def _not_a_choice(self, word: str, known: Sequence[str]) -> str:
        """What is wrong with a word in the place of one of these: it may belong to an option that is unknown."""
        before = self._given[: self._given.index(word)] if word in self._given else []
        options = [given.partition("=")[0] for given in before if given.startswith("--")]
        wrong = next((name for name in options if not any(one.startswith(name) for one in self._options)), "")
        if not wrong and len(word.split()) > 1 and "ask" in known:
            from shlex import quote

            return f"that is no command; to ask it: kvchat ask {quote(word)}"
        from difflib import get_close_matches

        meant = get_close_matches(wrong or word, self._options if wrong else known, 1)
        if meant or wrong:
            return f"{wrong or word} is unknown{f'; did you mean {meant[0]}?' if meant else ''}"
        return f"{word} is unknown; choose from {', '.join(known)}"

    @property
    def _options(self) -> list[str]:
        return [name for action in self._actions for name in action.option_strings]


def parser(arguments: Sequence[str] | None = None) -> Parser:
    """The command line. `arguments`: what it is for; only the commands that are named in it get theirs, the others are
    listed alone. None: all."""
    top = Parser(
        prog="kvchat",
        parents=[common_options()],
        description="Chat with a local language model; the server never prefills a conversation twice.",
        epilog="Without a command the app opens. KVCHAT_DATA_DIR, KVCHAT_CONFIG and KVCHAT_BASE_URL are honoured.",
    )
    top.add_argument("--version", action="version", version=f"kvchat {__version__}")
    top.add_argument("--man", action=_Manual, nargs=0, help="print the manual page, for man -l")
    choosing_options(top)
    top.add_argument(
        "--plain",
        action="store_true",
        help="line by line in place of the app, for screen readers: no escape sequence is written",
    )
    commands = top.add_subparsers(prog="kvchat", dest="command", metavar="COMMAND", title="commands")
    for name, help in COMMANDS.items():
        if arguments is not None and name not in arguments:
            commands.add_parser(name, help=help, add_help=False)
            continue
        command = commands.add_parser(
            name,
            parents=[common_options(of_command=True)],
            help=help,
            description=f"{help[0].upper()}{help[1:]}.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            epilog=f"Options for the server and the settings: kvchat --help\nExample: {EXAMPLES[name]}",
        )
        _module(name).add_arguments(command)
    return top


class _Manual(argparse.Action):
    """Prints the manual page of the whole command line, and ends."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from kvchat.cli.manual import manual

        print(manual(globals()["parser"]()), end="")
        parser.exit()


def common_options(*, of_command: bool = False) -> Parser:
    """The options that stand before or after a command. A command's own parser must not reset them, and its help has
    only its own."""
    parser = Parser(add_help=False, argument_default=argparse.SUPPRESS if of_command else None)
    group = parser.add_argument_group("server and settings")
    group.add_argument("--base-url", metavar="URL", help="the server to talk to, e.g. http://127.0.0.1:9931")
    group.add_argument("--profile", metavar="NAME", help="a server of the settings, by its name")
    group.add_argument("-m", "--model", metavar="NAME|FILE", help="a model of the server, or a GGUF file to run here")
    group.add_argument("--api-key-env", metavar="VAR", help="the environment variable that holds the API key")
    group.add_argument("--data-dir", metavar="DIR", help="where conversations are kept")
    group.add_argument("--config", metavar="FILE", help="the settings file")
    group.add_argument("-s", "--system", metavar="TEXT|@FILE", help="the system prompt of a new conversation")
    group.add_argument("--theme", metavar="NAME", help="the theme of the app")
    group.add_argument("--incognito", action="store_true", help="write nothing: conversations end with the program")
    group.add_argument("--log", metavar="FILE", type=Path, help="log sizes and timings to FILE, never contents")
    for option in parser.arguments if of_command else ():
        option.help = argparse.SUPPRESS
    return parser


def choosing_options(parser: argparse.ArgumentParser) -> argparse._MutuallyExclusiveGroup:
    """Adds the options for which conversation to continue or begin, of which one may be given: `continue_`,
    `conversation`, `persona` and `trunk`. Returns their group, for a command that has one more."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "-c",
        "--continue",
        dest="continue_",
        action="store_true",
        default=argparse.SUPPRESS,
        help="continue the latest conversation; in the app, the one with what you wrote last and did not send",
    )
    which.add_argument(
        "--conversation",
        metavar="ID",
        default=argparse.SUPPRESS,
        help="continue this conversation (the first digits of its id are enough)",
    )
    which.add_argument(
        "--persona",
        metavar="NAME",
        default=argparse.SUPPRESS,
        help="begin a new conversation with a persona: its system prompt, model and parameters",
    )
    which.add_argument(
        "--trunk",
        metavar="NAME",
        default=argparse.SUPPRESS,
        help="begin a new conversation with a trunk, whose files are prefilled",
    )
    return which


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    _open_streams()
    try:
        status = _run(_parse(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _print_no_more()
        return 1
    except OSError as error:
        _print_no_more()
        what = error.filename or "The output cannot be written"
        say(f"{what}: {(error.strerror or str(error)).lower()}.")
        return 1
    except ImportError as error:
        say(_missing(error))
        return 1


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    try:
        args = parser(arguments).parse_args(arguments)
    except SystemExit:  # of --help and --man, too
        sys.stdout.flush()
        raise
    args.continue_ = getattr(args, "continue_", False)
    args.conversation = getattr(args, "conversation", None)
    args.persona = getattr(args, "persona", None)
    args.trunk = getattr(args, "trunk", None)
    os.umask(0o077)
    return args


def say(sentence: str) -> None:
    """Say something on standard error, if that takes it: the status of the command tells it too."""
    with suppress(OSError, ValueError):
        print(f"kvchat: {sentence}", file=sys.stderr, flush=True)


def _print_no_more() -> None:
    """Standard output leads nowhere from here on: Python would complain at the exit, when it flushes."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _missing(error: ImportError) -> str:
    """What to do where a module cannot be imported."""
    name = (error.name or "").lstrip("_").partition(".")[0]
    if name in sys.stdlib_module_names:
        return (
            f"This Python ({sys.executable}) was built without {name}, which kvchat needs here. Install one that has "
            "it (uv python install, or your system's python3), and kvchat for that one."
        )
    file = getattr(sys.modules.get(name), "__file__", None)
    found = f" {file} was found in its place; is its folder on PYTHONPATH?" if file else ""
    return f"{error}.{found} Install kvchat again if that does not explain it."


def _run(args: argparse.Namespace) -> int:
    from kvchat.cli.session import CommandError, open_session
    from kvchat.text.format import on_command_line

    place = on_command_line.set(args.command is not None)
    try:
        command, session = _module(args.command or "app"), open_session(args)
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # until here it ended the process
            signal.signal(signal.SIGINT, signal.default_int_handler)
        status: int = command.run(session)
        return status
    except CommandError as failure:
        from kvchat.sanitize import one_line

        say(one_line(str(failure)))
        return failure.status
    finally:
        on_command_line.reset(place)


def _module(command: str) -> ModuleType:
    return import_module(f"kvchat.cli.{command}")


def _open_streams() -> None:
    """Let streams that were closed at the start lead nowhere, so that reading and writing them is no special case."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115
