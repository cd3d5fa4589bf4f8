"""The command line: `kvchat` opens the app, `kvchat ask` answers in the terminal, the rest looks things up.

The rule: arguments are read before anything heavy is imported, and every failure is one sentence on stderr.
Exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from kvchat import __version__
from kvchat.transfer import FORMATS

KINDS = ("identity", "preference", "project", "person", "decision", "skill", "fact")
STATUSES = ("live", "proposed", "deleted", "superseded", "all")


def _common(defaults: bool) -> argparse.ArgumentParser:
    """The options that stand before or after a command. A command's own parser must not reset them."""
    parser = argparse.ArgumentParser(add_help=False, argument_default=None if defaults else argparse.SUPPRESS)
    group = parser.add_argument_group("server and settings")
    group.add_argument("--base-url", metavar="URL", help="the server to talk to, e.g. http://127.0.0.1:8080")
    group.add_argument("--profile", metavar="NAME", help="a server of the settings, by its name")
    group.add_argument("--model", metavar="NAME|FILE", help="a model of the server, or a GGUF file to run here")
    group.add_argument("--api-key-env", metavar="VAR", help="the environment variable that holds the API key")
    group.add_argument("--data-dir", metavar="DIR", help="where conversations are kept")
    group.add_argument("--config", metavar="FILE", help="the settings file")
    group.add_argument("--system", metavar="TEXT|@FILE", help="the system prompt of a new conversation")
    group.add_argument("--theme", metavar="NAME", help="the theme of the app")
    group.add_argument("--incognito", action="store_true", help="write nothing: conversations end with the program")
    group.add_argument("--log", metavar="FILE", type=Path, help="log sizes and timings to FILE, never contents")
    return parser


def _which(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group()
    which.add_argument("-c", "--continue", dest="continue_", action="store_true", default=argparse.SUPPRESS,
                       help="go on with the latest conversation")
    which.add_argument("--conversation", metavar="ID", default=argparse.SUPPRESS,
                       help="go on with this conversation (the first digits of its id are enough)")
    if parser.prog.endswith("ask"):
        which.add_argument("--new", action="store_true", help="begin a new conversation (the default)")


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(
        prog="kvchat", parents=[_common(True)],
        description="Chat with a local language model; the server never reads a conversation twice.",
        epilog="Without a command the app opens. KVCHAT_DATA_DIR, KVCHAT_CONFIG and KVCHAT_BASE_URL are honoured.",
    )
    top.add_argument("--version", action="version", version=f"kvchat {__version__}")
    _which(top)
    commands = top.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    common = [_common(False)]

    ask = commands.add_parser("ask", parents=common, help="ask one question and print the answer as it streams")
    ask.add_argument("text", metavar="TEXT|-", help="the question; what is piped in is attached to it; - reads the "
                                                    "question itself from standard input")
    _which(ask)
    ask.add_argument("--json", action="store_true", help="print one JSON object with the text and the figures instead")
    ask.add_argument("--no-stdin", action="store_true", help="attach nothing from standard input")
    ask.add_argument("--max-tokens", type=_positive, metavar="N", help="end the answer after N tokens")
    ask.add_argument("--temperature", type=_temperature, metavar="X", help="the sampling temperature")

    listing = commands.add_parser("list", parents=common, help="list the conversations, newest first")
    listing.add_argument("--json", action="store_true", help="print a JSON array")

    show = commands.add_parser("show", parents=common, help="print a conversation")
    show.add_argument("id", metavar="ID")

    search = commands.add_parser("search", parents=common, help="search all conversations")
    search.add_argument("query", metavar="QUERY", nargs="+")

    cache = commands.add_parser("cache", parents=common, help="show what the server's cache did for a conversation")
    cache.add_argument("id", metavar="ID", nargs="?", help="the conversation; without it the newest one")
    cache.add_argument("--json", action="store_true", help="print one JSON object")

    backends = commands.add_parser("backends", parents=common, help="list the model servers of this machine, of the "
                                                                    "settings, and in use, with whether they answer")
    backends.add_argument("--json", action="store_true", help="print a JSON array")

    doctor = commands.add_parser("doctor", parents=common, help="examine a server: what it reuses, how fast it reads, "
                                                                "what to change")
    doctor.add_argument("url", metavar="URL", nargs="?", help="its address; without it the one kvchat would use")
    doctor.add_argument("--yes", action="store_true", help="do not ask before something is sent to it")
    doctor.add_argument("--json", action="store_true", help="print one JSON object")

    export = commands.add_parser("export", parents=common, help="write conversations to a file or standard output")
    export.add_argument("id", metavar="ID", nargs="?")
    export.add_argument("--all", action="store_true", help="all conversations")
    export.add_argument("-f", "--format", choices=FORMATS, default="md", help=f"{', '.join(FORMATS)} (default: md)")
    export.add_argument("-o", "--output", metavar="PATH", type=Path, help="the file; without it: standard output")
    export.add_argument("--all-branches", action="store_true", help="every branch (JSON always has every branch)")
    export.add_argument("--force", action="store_true", help="overwrite an existing file")

    _memory(commands.add_parser("memory", parents=common, help="what is remembered of you: look at it, change it"))

    _documents(commands.add_parser("documents", parents=common, help="folders of files to search: index, look, find"))

    config = commands.add_parser("config", parents=common, help="look at the settings")
    config.add_argument("what", choices=("path", "show", "check"),
                        help="path: where the file is; show: what is in force; check: what is wrong in it")
    return top


def _memory(memory: argparse.ArgumentParser) -> None:
    """The commands of `kvchat memory`."""
    commands = memory.add_subparsers(dest="what", metavar="COMMAND", title="commands", required=True)

    def command(name: str, help: str) -> argparse.ArgumentParser:
        # After `add`, --profile is a page and not the server's profile.
        conflicts = "resolve" if name == "add" else "error"
        parser = commands.add_parser(name, parents=[_common(False)], conflict_handler=conflicts, help=help)
        parser.add_argument("--json", action="store_true", help="print JSON")
        return parser

    listing = command("list", "list the memories, newest first")
    listing.add_argument("--kind", choices=KINDS)
    listing.add_argument("--status", choices=STATUSES, default="live", help="live (default): what is in the files")
    listing.add_argument("--page", metavar="P", help="profile, or the name of a topic")
    command("search", "find memories by their words").add_argument("words", metavar="WORDS", nargs="+")
    add = command("add", "remember something")
    add.add_argument("text", metavar="TEXT|-", nargs="+", help="the words; - reads them from standard input")
    add.add_argument("--kind", choices=KINDS)
    page = add.add_mutually_exclusive_group()
    page.add_argument("--page", metavar="P", help="the topic it belongs to")
    page.add_argument("--profile", dest="to_profile", action="store_true", help="put it into the profile")
    edit = command("edit", "change the words of a memory; without TEXT in your editor")
    edit.add_argument("id", metavar="ID", help="its id, or a beginning that no other has")
    edit.add_argument("text", metavar="TEXT|-", nargs="*")
    command("delete", "delete memories; they are not noted again").add_argument("ids", metavar="ID", nargs="+")
    accept = command("accept", "say yes to memories that kvchat proposes")
    accept.add_argument("ids", metavar="ID", nargs="*")
    accept.add_argument("--all", action="store_true", help="all proposals")
    log = command("log", "list what was changed, newest first")
    log.add_argument("-n", dest="number", type=_number, metavar="N", default=20, help="so many changes (20)")
    log.add_argument("--conversation", metavar="ID", default=argparse.SUPPRESS, help="what came from a conversation")
    restore = command("restore", "undo a change, or all that kvchat noted by itself")
    which = restore.add_mutually_exclusive_group(required=True)
    which.add_argument("seq", metavar="NO", nargs="?", type=_number, help="the number of a change in the log")
    which.add_argument("--session", action="store_true", help="what the last run that noted something noted")
    which.add_argument("--conversation", metavar="ID", default=argparse.SUPPRESS, help="what came from a conversation")
    which.add_argument("--since", metavar="DATE", help="what was noted since: 2026-11-21, today, yesterday")
    command("rebuild", "make the search index anew from the files")
    command("path", "print the folder of the files")
    queue = command("queue", "show what waits to be noted")
    queue.add_argument("-n", dest="number", type=_number, metavar="N", default=50, help="so many conversations (50)")


def _documents(documents: argparse.ArgumentParser) -> None:
    """The commands of `kvchat documents`."""
    commands = documents.add_subparsers(dest="what", metavar="COMMAND", title="commands", required=True)

    def command(name: str, help: str) -> argparse.ArgumentParser:
        parser = commands.add_parser(name, parents=[_common(False)], help=help)
        parser.add_argument("--json", action="store_true", help="print JSON")
        return parser

    add = command("add", "index a folder or a file; one that is indexed already: what has changed in it")
    add.add_argument("path", metavar="PATH")
    add.add_argument("--name", metavar="NAME", help="what it is called after an @; without it the folder's own name")
    command("list", "list the collections")
    status = command("status", "show what is indexed, what was skipped and whether files have changed")
    status.add_argument("name", metavar="NAME", nargs="?", help="one collection; without it all")
    status.add_argument("--skipped", action="store_true", help="name every file that was skipped")
    search = command("search", "find passages by their words")
    search.add_argument("words", metavar="WORDS", nargs="+")
    search.add_argument("--in", dest="within", metavar="NAME[/PATH]", action="append", default=[],
                        help="a collection, or a folder or file in one; may be given more than once")
    search.add_argument("-n", dest="number", type=_passages, metavar="N", default=8, help="so many passages (8)")
    search.add_argument("--since", metavar="DATE", help="of files changed since: 2026-11-21, today, yesterday")
    search.add_argument("--until", metavar="DATE", help="of files changed until the end of that day")
    rebuild = command("rebuild", "read every file again")
    rebuild.add_argument("name", metavar="NAME", nargs="?", help="one collection; without it all")
    command("remove", "forget a collection; its files stay").add_argument("name", metavar="NAME")


def _passages(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text[:9]) <= 200 and len(text) < 9):
        raise argparse.ArgumentTypeError(f"{text} is not a number of passages; give 1 to 200")
    return int(text)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 16 and int(text)):
        raise argparse.ArgumentTypeError(f"{text} is not such a number; give 1 or more")
    return int(text)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number of tokens; give 1 or more")
    return number


def _temperature(text: str) -> float:
    number = float(text)
    if not 0 <= number <= 10:
        raise argparse.ArgumentTypeError(f"{text} is not a temperature; give 0 to 10")
    return number


def _open_streams() -> None:
    """Let streams that were closed at the start lead nowhere, so that reading and writing them is no special case."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    _open_streams()
    arguments = sys.argv[1:] if argv is None else argv
    args = parser().parse_args(arguments)
    args.continue_ = getattr(args, "continue_", False)
    args.conversation = getattr(args, "conversation", None)
    os.umask(0o077)
    try:
        return _carried_out(args)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output went away; Python would complain at exit when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _carried_out(args: argparse.Namespace) -> int:
    from kvchat import commands

    try:
        return commands.run(args)
    except commands.CommandError as failure:
        from kvchat.display import one_line

        print(f"kvchat: {one_line(str(failure))}", file=sys.stderr)
        return failure.status


if __name__ == "__main__":
    sys.exit(main())
