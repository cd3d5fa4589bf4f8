"""`kvchat config`: where the settings are, what is in force, and what is wrong in them."""

from __future__ import annotations

import argparse

from kvchat import paths
from kvchat.cli.session import Session
from kvchat.sanitize import clean


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=("path", "show", "check"),
                        help="path: where the file is; show: what is in force; check: what is wrong in it")


def run(session: Session) -> int:
    """Print it; the exit status of `check` is 1 where something is wrong."""
    match session.args.what:
        case "path":
            print(session.places.config)
        case "show":
            from kvchat.config import described

            session.print_problems()
            print(clean(described(session.settings)), end="")
        case _:
            return _check(session)
    return 0


def _check(session: Session) -> int:
    from kvchat.ui.actions import keymap
    from kvchat.ui.themes import load_themes, theme_problem

    settings, file = session.settings, session.places.config
    themes, broken = load_themes([paths.own_themes(), session.places.themes])
    problems = [*session.problems, *keymap(settings.keys, file)[1], *broken,
                *theme_problem(settings.theme, themes, file)]
    for problem in problems:
        print(problem)
    if not problems:
        print(f"{file}: {'nothing is wrong' if file.exists() else 'does not exist; the defaults are used'}")
    return 1 if problems else 0
