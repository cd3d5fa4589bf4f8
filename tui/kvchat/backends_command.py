"""`kvchat backends`: the model servers of this machine and those of the settings, as text or as JSON.

The rule: only this machine is asked, without a key; a server elsewhere is listed and left alone. A password in an
address is not printed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from kvchat.backends import kinds
from kvchat.backends.dialect import BackendError
from kvchat.backends.discovery import Found, discover, is_asked
from kvchat.backends.hosts import LOOPBACK, BaseUrl, is_loopback_name, parse_base_url
from kvchat.config import Settings
from kvchat.display import one_line
from kvchat.doctor.report import without_user
from kvchat.numbers import UNKNOWN, count
from kvchat.terminal import Column, Printer, print_table

COLUMNS = (Column("server"), Column("kind"), Column("model", shrinks=True), Column("context", right=True),
           Column("slots", right=True), Column("loaded", right=True), Column("state"), Column("profile", shrinks=True))
NO_ANSWER, NOT_ASKED = "no answer", "not asked"
STATES = {"answers": "not a model server"}
MAIN = "[server]"
"""How the server of the settings is called that is no profile."""
WHAT_TO_DO = ("Start one of these, or name a server: kvchat --base-url URL, or base_url under [server] in the settings "
              "(kvchat config path tells where they are).")


@dataclass(frozen=True, slots=True)
class Row:
    """A server of the list: found, of the settings, or both."""

    found: Found
    state: str
    profile: str = ""


async def backends(settings: Settings, args: argparse.Namespace) -> int:
    """Print the servers and return the exit status: 1 where no model server of this machine answers."""
    known = _known(settings)
    found = await discover(also=list(known.values()))
    rows = list(_rows(found, known))
    answered = any(server.phase != "answers" for server in found)
    if args.json:
        print(json.dumps({"servers": [_told(row) for row in rows], "asked": _asked()}, indent=1))
        return 0 if answered else 1
    printer = Printer(sys.stdout)
    if rows:
        print_table([_cells(row) for row in rows], COLUMNS)
    if not answered:
        if rows:
            printer.line()
        printer.line("No model server answers on this machine.")
        printer.line("asked: " + ", ".join(f"{' / '.join(titles)} {port}" for port, titles in _kinds_by_port().items()))
        printer.line(WHAT_TO_DO)
    for row in rows:
        if row.state == "needs a key":
            printer.line(f"{row.found.base_url} wants a key: name the variable that holds it with --api-key-env.")
    return 0 if answered else 1


def _known(settings: Settings) -> dict[str, str]:
    """The addresses of the settings, by the name of their profile."""
    known = {MAIN: settings.server.base_url, **{name: server.base_url for name, server in settings.profiles.items()}}
    return {name: url for name, url in known.items() if url}


def _rows(found: list[Found], known: dict[str, str]) -> Iterator[Row]:
    """What was found, then what the settings name beside."""
    names: dict[str, list[str]] = {}
    for name, text in known.items():
        names.setdefault(_same(text), []).append(name)
    for server in found:
        state = STATES.get(server.phase, server.phase)
        yield Row(server, state, ", ".join(names.pop(_same(server.base_url), ())))
    for profiles in names.values():
        text = known[profiles[0]]
        yield Row(Found(without_user(text)), NO_ANSWER if is_asked(text) else NOT_ASKED, ", ".join(profiles))


def _same(text: str) -> str:
    """A base URL in one spelling: this machine has several names."""
    try:
        url = parse_base_url(text)
    except BackendError:
        return text
    here = url.host in LOOPBACK or is_loopback_name(url.host)
    return str(BaseUrl(url.scheme, LOOPBACK[0], url.port, url.path) if here else url)


def _cells(row: Row) -> tuple[str, ...]:
    server = row.found
    loaded = UNKNOWN if server.loaded is None else f"{len(server.loaded)} of {len(server.listing)}"
    return (one_line(server.base_url), server.title or UNKNOWN, server.model or UNKNOWN, count(server.context_size),
            count(server.slots), loaded, row.state, row.profile)


def _told(row: Row) -> dict[str, object]:
    server = row.found
    return {"base_url": server.base_url, "kind": server.kind or None, "title": server.title or None, "state": row.state,
            "profile": row.profile or None, "model": server.model or None, "context_size": server.context_size,
            "slots": server.slots, "models": [asdict(model) for model in server.listing],
            "seconds": round(server.seconds, 4) if server.seconds else None}


def _kinds_by_port() -> dict[int, list[str]]:
    """The names of the kinds that are usual at each port that is asked."""
    return {port: [kind.title for kind in kinds.KINDS if port in kind.ports] for port in kinds.PORTS}


def _asked() -> list[dict[str, object]]:
    return [{"port": port, "kinds": titles} for port, titles in _kinds_by_port().items()]
