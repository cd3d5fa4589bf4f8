"""`kvchat completion`: a script that has a shell complete commands, options, files, and the names that kvchat knows.

The script is made from the command line itself. Names are asked of kvchat when they are needed, and what
cannot be looked up is no error at a prompt: nothing is offered.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterable, Mapping

from kvchat.cli.session import CommandError, Session

SHELLS = ("bash", "zsh", "fish")
PLACES = """
kvchat completion bash > ~/.local/share/bash-completion/completions/kvchat
kvchat completion zsh > ~/.zfunc/_kvchat    (fpath+=~/.zfunc before compinit in ~/.zshrc)
kvchat completion fish > ~/.config/fish/completions/kvchat.fish"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="your shell")
    parser.add_argument("--names", choices=tuple(NAMES), help=argparse.SUPPRESS)
    parser.epilog = f"{parser.epilog or ''}{PLACES}"


def run(session: Session) -> int:
    """Print the script, or the names that it asks for."""
    from kvchat.cli import parser

    args = session.args
    if args.names:
        with contextlib.suppress(CommandError, OSError):
            print("\n".join(NAMES[args.names](session)))
        return 0
    import shtab

    whole = parser()
    _complete(whole, "")
    print(shtab.complete(whole, args.shell))
    return 0


def _conversations(session: Session) -> Iterable[str]:
    return [known.id[:8] for known in session.look(lambda store: store.conversations())]


def _settings(session: Session) -> Iterable[str]:
    from kvchat.commands.setting_rows import rows

    return [row.path for row in rows(session.layers())]


def _profiles(session: Session) -> Iterable[str]:
    return session.settings.profiles


def _themes(session: Session) -> Iterable[str]:
    from kvchat import paths
    from kvchat.config.themes import AUTOMATIC, load_themes

    return [AUTOMATIC, *load_themes([paths.own_themes(), session.places.themes])[0]]


def _personas(session: Session) -> Iterable[str]:
    from kvchat.config.personas import load_personas

    return load_personas(session.places.personas)[0]


NAMES: Mapping[str, Callable[[Session], Iterable[str]]] = {
    "conversations": _conversations,
    "settings": _settings,
    "profiles": _profiles,
    "themes": _themes,
    "personas": _personas,
}
"""What the scripts ask for, and who knows it."""

_OF: Mapping[tuple[str, str], str] = {
    ("", "conversation"): "conversations",
    ("", "profile"): "profiles",
    ("", "theme"): "themes",
    ("", "persona"): "personas",
    ("show", "id"): "conversations",
    ("cache", "id"): "conversations",
    ("export", "id"): "conversations",
    ("rename", "id"): "conversations",
    ("delete", "id"): "conversations",
    ("tag", "id"): "conversations",
    ("keep", "id"): "conversations",
    ("config get", "name"): "settings",
    ("config set", "name"): "settings",
    ("config unset", "name"): "settings",
}
"""The names that an argument of a command takes; those of the first are options of every command."""


def _complete(parser: argparse.ArgumentParser, command: str) -> None:
    """Say of every argument what it is completed with."""
    import shtab

    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                _complete(inner, f"{command} {name}".strip())
            continue
        metavar = str(action.metavar or "")
        names = _OF.get((command, action.dest)) or (_OF.get(("", action.dest)) if action.option_strings else None)
        if names:
            vars(action)["complete"] = _asked(names)
        elif "DIR" in metavar:
            vars(action)["complete"] = shtab.DIRECTORY
        elif "FILE" in metavar or "PATH" in metavar:
            vars(action)["complete"] = shtab.FILE


def _asked(names: str) -> dict[str, object]:
    """How each shell asks for names, when they are to be completed and not before: shtab's own way has zsh ask for all
    of them when it loads the script."""
    ask, function = f"kvchat completion bash --names {names} 2>/dev/null", f"_kvchat_{names}"
    return {
        "bash": function,
        "zsh": function,
        "fish": f"({ask})",
        "preamble": {
            "bash": f'{function}() {{ compgen -W "$({ask})" -- "$1"; }}',
            "zsh": f'{function}() {{ compadd -- ${{(f)"$({ask})"}} }}',
        },
    }
