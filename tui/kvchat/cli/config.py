"""`kvchat config`: where the settings are, what is in force, what is wrong in them, and changing them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from kvchat import paths
from kvchat.cli import common_options
from kvchat.cli.session import CommandError, Session, UsageError
from kvchat.commands.command import CommandResult
from kvchat.config import ConfigError, Problem, Settings, load
from kvchat.config.edit import save_setting
from kvchat.sanitize import clean


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest="what", metavar="COMMAND", title="commands", required=True)

    def command(name: str, help: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, parents=[common_options(of_command=True)], help=help)

    command("path", "print where the settings file is")
    command("show", "print every setting that is in force, with what it does")
    command("check", "tell what is wrong in the settings, with its line")
    get = command("get", "print the value of a setting")
    get.add_argument("name", metavar="NAME", help="theme, server.base_url, keys.export …")
    get.add_argument("--json", action="store_true", help="print JSON: with the default, and where the value comes from")
    change = command("set", "change a setting in the file; comments and order stay")
    change.add_argument("name", metavar="NAME", help="theme, server.base_url, keys.export …")
    change.add_argument("value", metavar="VALUE", help="true, 42, a text; a list or a table as in the file")
    unset = command("unset", "take a setting out of the file, back to its default")
    unset.add_argument("name", metavar="NAME", help="theme, server.base_url, keys.export …")
    command("edit", "open the file in your editor, and check what you wrote")


def run(session: Session) -> int:
    """Do it; the exit status of `check` is 1 where something is wrong. Raises CommandError."""
    match session.args.what:
        case "path":
            print(session.places.config)
        case "show":
            from kvchat.config.show import described

            session.print_problems()
            print(clean(described(session.settings)), end="")
        case "check":
            return _check(session)
        case "edit":
            return _edit(session)
        case what:
            try:
                {"get": _get, "set": _set, "unset": _unset}[what](session)
            except ConfigError as error:
                raise UsageError(str(error)) from None
    return 0


def _check(session: Session) -> int:
    file = session.places.config
    problems = [*session.problems, *_of_screen(session.settings, session)]
    for problem in problems:
        print(problem)
    if not problems:
        print(f"{file}: {'nothing is wrong' if file.exists() else 'does not exist; the defaults are used'}")
    return 1 if problems else 0


def _of_screen(settings: Settings, session: Session, file: Path | None = None) -> list[Problem]:
    """What is wrong in keys and theme, and in the user's own themes, personas and snippets."""
    from kvchat.commands.keymap import keymap
    from kvchat.commands.slash import snippets
    from kvchat.config.personas import load_personas
    from kvchat.config.themes import load_themes, theme_problem

    file = file or session.places.config
    themes, broken = load_themes([paths.own_themes(), session.places.themes])
    broken += load_personas(session.places.personas)[1] + snippets(session.places.snippets)[1]
    return [*keymap(settings.keys, file)[1], *broken, *theme_problem(settings.theme, themes, file)]


# -- one setting


def _get(session: Session) -> None:
    from kvchat.commands.setting_rows import row

    found = row(session.layers(), session.args.name)
    if found.problem:
        print(f"kvchat: {found.problem}", file=sys.stderr)
    value = found.shown if found.text or found.secret else ""
    facts = {"name": found.path, "value": value, "default": found.default, "from": found.origin, "about": found.about}
    session.give(CommandResult(facts, [value]))


def _set(session: Session) -> None:
    from kvchat.commands.setting_rows import checked, row

    layers, name = session.layers(), session.args.name
    found = row(layers, name, _themes(session) if name == "theme" else ())
    _save(session, found.path, checked(layers, found, session.args.value))


def _unset(session: Session) -> None:
    from kvchat.commands.setting_rows import row

    _save(session, row(session.layers(), session.args.name).path, None)


def _save(session: Session, path: str, value: object) -> None:
    """Save a setting, and say what it is from now on."""
    from kvchat.commands.setting_rows import given_words, row

    save_setting(session.places.config, path, value)
    found = row(session.layers(), path)
    print(
        f"{path} is saved; {given_words(found)}" if found.given else clean(f"{path} = {found.shown}  ({found.origin})")
    )


def _themes(session: Session) -> list[str]:
    from textual.theme import BUILTIN_THEMES

    from kvchat.config.themes import AUTOMATIC, load_themes

    return [AUTOMATIC, *load_themes([paths.own_themes(), session.places.themes])[0], *BUILTIN_THEMES]


# -- the whole file


def _edit(session: Session) -> int:
    """The file in the user's editor, in a copy: it is put in the file's place when it is right, or the user says
    so. Raises CommandError."""
    import asyncio
    import tempfile

    from kvchat.commands.editor import NO_FILE, EditorError, opened
    from kvchat.config.show import example

    file = session.places.config
    before = _read(file)
    try:
        made = tempfile.TemporaryDirectory(prefix="kvchat-")
    except OSError as error:
        raise CommandError(NO_FILE.format(reason=paths.reason(error))) from None
    with made as folder:
        copy = Path(folder) / file.name
        copy.write_bytes(example().encode() if before is None else before)
        line, begun = 1, copy.read_bytes()
        while True:
            try:
                asyncio.run(opened(copy, line, session.settings.editor))
            except EditorError as error:
                raise CommandError(f"{error} {file} is as it was.") from None
            text = copy.read_bytes()
            if text == begun:
                print(f"{file} is as it was.")
                return 0
            settings, problems = load(copy)
            problems += _of_screen(settings, session, copy)
            for problem in problems:
                print(f"kvchat: {problem}", file=sys.stderr)
            answer = _answer(problems) if problems else "save"
            if answer == "save":
                break
            if answer == "keep":
                raise CommandError(f"{file} is as it was.")
            line = problems[0].line or 1
    if _read(file) != before:
        kept = file.with_name(f"{file.name}.edited")
        paths.write_private(kept, text)
        raise CommandError(f"{file} was changed meanwhile and is left so; what you wrote is in {kept}.")
    paths.write_private(file, text)
    print(f"{file} is saved.")
    return 0


def _read(file: Path) -> bytes | None:
    """What the file holds; None: it does not exist. Raises CommandError."""
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CommandError(f"{file} cannot be read: {paths.reason(error)}.") from None


_ANSWERS: Mapping[str, str] = {"": "again", "e": "again", "k": "keep", "s": "save"}


def _answer(problems: Sequence[Problem]) -> str:
    """What to do with a file in which something is wrong. Without a terminal to ask at, the old one is kept."""
    if not sys.stdin.isatty():
        return "keep"
    while True:
        print("Enter edits again, k keeps the old file, s saves it as it is: ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            return "keep"
        if answer := _ANSWERS.get(line.strip().lower()):
            return answer
