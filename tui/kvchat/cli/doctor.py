"""`kvchat doctor [URL]`: what a server is, what its cache does with a conversation, and what to change.

A server that cannot be reached or refuses the key is a verdict too. Exit status: 0 all is well, 1 a problem, or
unknown. What could cost the user something is only tried with their consent.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from kvchat import logs
from kvchat.backends.dialect import Backend, BackendError, Trouble, failure
from kvchat.backends.http.endpoint import parse_base_url
from kvchat.backends.identify import connect
from kvchat.chat.server.access import server_options
from kvchat.cli.plain_output import Printer
from kvchat.cli.session import Session, UsageError, tell_fallback
from kvchat.config import ConfigError, ServerSettings, Settings, api_key
from kvchat.doctor.examine import examine
from kvchat.doctor.report import DoctorReport, Examination, unexamined
from kvchat.doctor.returns import COST
from kvchat.doctor.verdicts import report
from kvchat.doctor.words import GLYPHS, as_json, facts, headline
from kvchat.sanitize import one_line
from kvchat.text.doctor import deep_cost
from kvchat.text.faults import Fault

if TYPE_CHECKING:
    from kvchat.chat.service import ChatService

LABEL = 15


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", metavar="URL", nargs="?", help="its address; without it the one kvchat would use")
    parser.add_argument("--yes", action="store_true", help="do not ask before something is sent to it")
    parser.add_argument(
        "--deep",
        action="store_true",
        help="prove each way in which a state comes back: from its slot, the host cache, a file",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(session: Session) -> int:
    """Examine a server and print the report. Raises CommandError."""
    session.print_problems(sends=not session.args.url)
    return session.with_service(lambda service: doctor(service, session.args))


async def doctor(service: ChatService, args: argparse.Namespace) -> int:
    """Examine a server, print the report and return the exit status."""
    made = await _made(service, args)
    if args.json:
        print(json.dumps(as_json(made), indent=1))
    else:
        _print(made)
    return 0 if made.well else 1


async def _made(service: ChatService, args: argparse.Namespace) -> DoctorReport:
    server = _server(service.settings, args.url, args.api_key_env) if args.url else None
    service.events.subscribe(tell_fallback)
    try:
        backend = await (_connect(server) if server is not None else service.servers.backend())
    except BackendError as error:
        return report(unexamined(server.base_url if server is not None else "", error))
    try:
        model = args.model or (server or _settings_of(service.settings, backend)).model
        return report(await _examine(service, backend, "" if backend.info.embedded else model, args.yes, args.deep))
    finally:
        if args.url:
            await backend.aclose()


def _server(settings: Settings, named: str, key_variable: str | None) -> ServerSettings:
    """The settings for the server at an address, or of the profile, that was named on the command line. Another
    server's key is never used; a variable named on the command line is. Raises UsageError."""
    own = settings.profiles.get(named) or _known(settings, named) or ServerSettings(base_url=named)
    for said in own.wrong.values():
        raise UsageError(f"{said}.")
    return replace(own, api_key_env=key_variable) if key_variable else own


def _settings_of(settings: Settings, backend: Backend) -> ServerSettings:
    """The settings of the server that kvchat uses."""
    return _known(settings, backend.info.base_url) or ServerSettings()


def _known(settings: Settings, address: str) -> ServerSettings | None:
    """The settings of the server at this address; of the default profile where several have it."""
    first = settings.profiles.get(settings.default_profile, settings.server)
    known = (first, settings.server, *settings.profiles.values())
    return next((server for server in known if _plain(server.base_url) == _plain(address)), None)


def _plain(address: str) -> str:
    """An address in one spelling: with `/v1` or without, it is the same server."""
    try:
        return str(parse_base_url(address))
    except BackendError:
        return address


async def _connect(server: ServerSettings) -> Backend:
    """A server of the command line. Raises BackendError, also while it loads its model, and without its key."""
    try:
        key = await asyncio.to_thread(api_key, server)
    except ConfigError as error:
        raise failure(Trouble.UNAUTHORIZED, Fault.TOLD, sentence=str(error)) from None
    for secret in (key, *server.headers.values()):
        logs.hide(secret)
    return await connect(
        server.base_url,
        api_key=key,
        ca_file=server.ca_file or None,
        proxy=server.proxy or None,
        allow_plain_http_key=server.allow_plain_http_key,
        options=server_options(server),
    )


async def _examine(service: ChatService, backend: Backend, model: str, yes: bool, deep: bool) -> Examination:
    if deep:
        print(deep_cost(COST), file=sys.stderr)
    folder = service.servers.snapshot_folder if backend.info.embedded else None
    found = await examine(backend, progress=_told, agreed=yes, model=model, snapshot_folder=folder, deep=deep)
    if found.question and not yes and await _ask_yes(found.question):
        found = await examine(backend, progress=_told, agreed=True, model=model, snapshot_folder=folder, deep=deep)
    return found


def _told(words: str) -> None:
    """Progress, on a terminal."""
    if _can_overwrite():
        print(f"\r\x1b[K{one_line(words, 76)}", end="", file=sys.stderr, flush=True)


async def _ask_yes(question: str) -> bool:
    """Whether the user agrees; without a terminal they do not."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    _clear()
    print(f"{one_line(question)}\nGo on? [y/N] ", end="", file=sys.stderr, flush=True)
    return (await asyncio.to_thread(sys.stdin.readline)).strip().lower() in ("y", "yes")


def _can_overwrite() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def _clear() -> None:
    if _can_overwrite():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _print(made: DoctorReport) -> None:
    _clear()
    printer = Printer(sys.stdout)
    for name, words in facts(made.examination):
        printer.line(f"{name:<{LABEL}}{one_line(words)}")
    printer.line()
    for verdict in made.verdicts:
        printer.line(f"{GLYPHS[verdict.severity]} {one_line(verdict.sentence)}")
        if verdict.advice:
            saved = verdict.gain
            printer.line(f"  → {one_line(verdict.advice)}{f' ({saved})' if saved else ''}")
    printer.line()
    printer.line(headline(made))
