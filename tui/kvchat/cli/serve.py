"""`kvchat serve`: the app in a browser of this machine.

What this run was given, each page's kvchat is given too.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import sys

from kvchat.cli.session import CommandError, Session

MISSING = (
    "kvchat serve needs the extra web, which is not installed. Install it: uv tool install 'kvchat[web]', or "
    "pip install 'kvchat[web]'."
)
_WITH_VALUE = ("base_url", "profile", "model", "api_key_env", "data_dir", "config", "system", "theme")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--host", metavar="ADDRESS", default="127.0.0.1", help="the loopback address to listen on (default: 127.0.0.1)"
    )
    parser.add_argument("--port", metavar="N", type=_port, default=0, help="the port (default: any that is free)")


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text[:6]) < 65536):
        raise argparse.ArgumentTypeError(f"{text} is not a port; give 1 to 65535")
    return int(text)


def run(session: Session) -> int:
    """Serve until Ctrl+C. Raises CommandError."""
    args = session.args
    if importlib.util.find_spec("textual_serve") is None:
        raise CommandError(MISSING)
    from kvchat.web.server import AddressError, WebServer

    session.print_problems()
    command = [sys.executable, "-P", "-m", "kvchat"]
    for name in _WITH_VALUE:
        value = session.places.config if args.config and name == "config" else getattr(args, name)
        if value is not None:
            command.append(f"--{name.replace('_', '-')}={value}")
    command += ["--incognito"] if args.incognito else []
    try:
        server = WebServer(command, args.host, args.port)
    except AddressError as error:
        raise CommandError(str(error)) from None
    print(server.url, flush=True)
    print(
        "kvchat: Open this address in a browser of this machine. Whoever has it can use kvchat. Ctrl+C ends it.",
        file=sys.stderr,
        flush=True,
    )
    asyncio.run(server.run())
    return 0
