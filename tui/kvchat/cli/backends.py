"""`kvchat backends`: the model servers of this machine, those of the settings and those that conversations use, as
text or as JSON.

A server of the settings that wants a key is asked with the one that is named for it, no other one is. A server
elsewhere is listed and left alone, unless it is one of the user's network that conversations go to already. A password
in an address is not printed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict, replace

from kvchat.backends import kinds
from kvchat.backends.dialect import BackendError, HostClass, Trouble
from kvchat.backends.discovery import FoundServer, discover, is_asked
from kvchat.backends.http.endpoint import LOOPBACK, BaseUrl, is_loopback_name, locate, parse_base_url
from kvchat.backends.identify import connect
from kvchat.chat.server.access import server_options
from kvchat.cli.plain_output import Printer, TableColumn, print_table
from kvchat.cli.session import Session
from kvchat.config import ConfigError, ServerSettings, Settings, api_key
from kvchat.doctor.report import without_user
from kvchat.sanitize import one_line
from kvchat.store import Store
from kvchat.text.faults import Fault
from kvchat.text.format import UNKNOWN, count
from kvchat.text.servers import ENGINE, FAILS

COLUMNS = (
    TableColumn("server"),
    TableColumn("kind"),
    TableColumn("model", shrinks=True),
    TableColumn("context", right=True),
    TableColumn("slots", right=True),
    TableColumn("loaded", right=True),
    TableColumn("state"),
    TableColumn("profile", shrinks=True),
    TableColumn("chats", right=True),
)
NO_ANSWER, NOT_ASKED = "no answer", "not asked"
STARTS, NO_FILE = "on demand", "file is gone"
NEEDS_KEY, NEEDS_PASSWORD, WRONG_KEY = "needs a key", "needs a password", "refuses the key"
ANSWERS = ("ready", "loading", NEEDS_KEY, NEEDS_PASSWORD, WRONG_KEY)
ELSEWHERE_S = 3.0
"""How long a server has to say what it is that is asked with its settings."""
STATES = {"answers": "not a model server", "fails": FAILS}
MAIN = "[server]"
"""How the server of the settings is called that is no profile."""
WHAT_TO_DO = (
    "Start one of these, or name a server: kvchat --base-url URL, or base_url under [server] in the settings "
    "(kvchat config path tells where they are)."
)


class UsedServer(Struct, frozen=True):
    """A server that conversations are on, or that was used last."""

    name: str
    """An address, a profile, the path of a model file for the built-in engine; empty: what is there, else the engine
    with its own model."""
    conversations: int
    is_last: bool = False
    is_agreed: bool = False
    """Whether the user agreed to send to it, though it is on another machine of their network."""


class ServerRow(Struct, frozen=True):
    """A server of the list: found, of the settings, in use, or several of them."""

    found: FoundServer
    """Of the built-in engine without an address."""
    state: str
    profile: str = ""
    used: UsedServer | None = None
    sentence: str = ""
    """What went wrong, and what to do."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print a JSON array")


def run(session: Session) -> int:
    """Print the servers. Raises CommandError."""
    session.print_problems()
    return asyncio.run(backends(session.settings, session.args, _servers_in_use(session)))


def _servers_in_use(session: Session) -> list[UsedServer]:
    """The servers that conversations are on, and the one that was used last."""
    from kvchat.chat.server.consent import has_agreed
    from kvchat.chat.server.servers import LAST_SERVER

    def look(store: Store) -> list[UsedServer]:
        used, last = dict(store.servers_in_use()), store.setting(LAST_SERVER)
        if last:
            used.setdefault(last, 0)
        addresses = {name: server.base_url for name, server in session.settings.profiles.items()}
        return [
            UsedServer(name, number, name == last, has_agreed(store, addresses.get(name, name)))
            for name, number in used.items()
        ]

    return session.look(look)


async def backends(settings: Settings, args: argparse.Namespace, used: Sequence[UsedServer] = ()) -> int:
    """Print the servers and return the exit status: 1 where none can be used: none answers, or with errors."""
    known = _known(settings)
    by_place = _by_place(used, known)
    addresses = list(dict.fromkeys([*known.values(), *(server.name for server in by_place.values())]))
    named = {_same(url): name for name, url in known.items()}
    elsewhere = [place for place, server in by_place.items() if server.is_agreed and not is_asked(server.name)]
    found, asked = await asyncio.gather(
        discover(also=addresses), _ask([(by_place[place].name, place) for place in elsewhere], settings, named)
    )
    open_ones = {_same(server.base_url) for server in found if server.phase in ("ready", "loading")}
    # with its key, or with more time than there is for all ports: a proxy in Python takes a second
    left = [(url, _same(url)) for url in known.values() if is_asked(url) and _same(url) not in open_ones]
    asked |= await _ask(left, settings, named)
    rows = [replace(row, used=by_place.get(_same(row.found.base_url))) for row in _rows(found, known, by_place, asked)]
    rows += [_engine_row(server) for server in used if not _address(server, known)]
    answered = any(row.state in ANSWERS for row in rows)
    is_failing = any(row.state == FAILS and (row.profile or row.found.kind) for row in rows)
    if args.json:
        print(json.dumps({"servers": [_told(row) for row in rows], "asked": _asked_ports()}, indent=1))
        return 0 if answered else 1
    printer = Printer(sys.stdout)
    if rows:
        print_table([_cells(row) for row in rows], COLUMNS)
    if not answered and not is_failing:
        if rows:
            printer.line()
        printer.line("No model server answers on this machine.")
        printer.line("asked: " + ", ".join(f"{' / '.join(titles)} {port}" for port, titles in _kinds_by_port().items()))
        printer.line(WHAT_TO_DO)
    for row in rows:
        if row.sentence:
            printer.line(row.sentence)
        elif row.state == NEEDS_KEY:
            printer.line(f"{row.found.base_url} wants a key: name the variable that holds it with --api-key-env.")
    return 0 if answered else 1


def _known(settings: Settings) -> dict[str, str]:
    """The addresses of the settings, by the name of their profile."""
    known = {MAIN: settings.server.base_url, **{name: server.base_url for name, server in settings.profiles.items()}}
    return {name: url for name, url in known.items() if url}


def _address(server: UsedServer, known: Mapping[str, str]) -> str:
    """The address of a server in use; empty for the built-in engine, and for a profile that is gone."""
    return known.get(server.name or MAIN, server.name if "://" in server.name else "")


def _by_place(used: Sequence[UsedServer], known: Mapping[str, str]) -> dict[str, UsedServer]:
    """The servers in use that have an address, under it in one spelling; the names of one server taken together."""
    found: dict[str, UsedServer] = {}
    for server in used:
        if address := _address(server, known):
            other = found.get(_same(address), UsedServer(address, 0))
            found[_same(address)] = UsedServer(
                other.name,
                other.conversations + server.conversations,
                other.is_last or server.is_last,
                other.is_agreed or server.is_agreed,
            )
    return found


async def _ask(places: Sequence[tuple[str, str]], settings: Settings, named: Mapping[str, str]) -> dict[str, ServerRow]:
    """What servers say that are asked with what the settings have for them. `places`: the address of each, and that in
    one spelling, by which the result and `named`, the names of the settings, have it."""
    rows = await asyncio.gather(*(_visit(address, settings, named.get(place, "")) for address, place in places))
    return {place: row for (_, place), row in zip(places, rows, strict=True) if row is not None}


async def _visit(address: str, settings: Settings, name: str) -> ServerRow | None:
    """What a server of this machine or the user's network says of itself; None where its address leads to the
    internet. One whose settings cannot be used is not asked."""
    shown = FoundServer(without_user(address))
    own = settings.server if name == MAIN else settings.profiles.get(name, ServerSettings())
    if own.wrong:
        return ServerRow(shown, NOT_ASKED)
    try:
        key = await asyncio.to_thread(api_key, own, name="server" if name == MAIN else f"profiles.{name}")
        async with asyncio.timeout(ELSEWHERE_S):
            if (await locate(parse_base_url(address))).host_class is HostClass.CLOUD:
                return None
            backend = await connect(
                address,
                api_key=key,
                ca_file=own.ca_file or None,
                proxy=own.proxy or None,
                allow_plain_http_key=own.allow_plain_http_key,
                options=server_options(own),
            )
            await backend.aclose()
    except TimeoutError:
        return ServerRow(shown, NO_ANSWER)
    except ConfigError as error:
        return ServerRow(shown, NEEDS_KEY, sentence=str(error))
    except BackendError as error:
        return ServerRow(shown, _state(error), sentence=error.sentence if error.status else "")
    info = backend.info
    return ServerRow(
        FoundServer(shown.base_url, info.kind, "ready", info.model, info.listing, info.context_size, info.slots),
        "ready",
    )


def _state(error: BackendError) -> str:
    """The state of a server that did not say what it is."""
    match error.fault:
        case Fault.BASIC_AUTH:
            return NEEDS_PASSWORD
        case Fault.WRONG_KEY:
            return WRONG_KEY
    if error.trouble is Trouble.UNAUTHORIZED:
        return NEEDS_KEY
    if error.trouble is Trouble.LOADING:
        return "loading"
    return NO_ANSWER if error.status is None else FAILS


def _rows(
    found: list[FoundServer], known: Mapping[str, str], used: Mapping[str, UsedServer], asked: Mapping[str, ServerRow]
) -> Iterator[ServerRow]:
    """The servers that were found, then others that the settings name, then others that conversations use."""
    names: dict[str, list[str]] = {}
    for name, text in known.items():
        names.setdefault(_same(text), []).append(name)
    for place in used:
        names.setdefault(place, [])
    for server in found:
        row = asked.get(_same(server.base_url)) or ServerRow(server, STATES.get(server.phase, server.phase))
        yield replace(row, profile=", ".join(names.pop(_same(server.base_url), ())))
    for place, profiles in names.items():
        text = known[profiles[0]] if profiles else used[place].name
        row = asked.get(place) or ServerRow(FoundServer(without_user(text)), NO_ANSWER if is_asked(text) else NOT_ASKED)
        yield replace(row, profile=", ".join(profiles))


def _engine_row(server: UsedServer) -> ServerRow:
    """Conversations on the built-in engine, or on a profile that the settings do not have any more."""
    if server.name and "/" not in server.name and not server.name.endswith(".gguf"):
        return ServerRow(FoundServer(""), "not in the settings", server.name, server)
    there = not server.name or Path(server.name).is_file()
    return ServerRow(FoundServer("", kinds.LLAMACPP, model=server.name), STARTS if there else NO_FILE, used=server)


def _same(text: str) -> str:
    """A base URL in one spelling: this machine has several names."""
    try:
        url = parse_base_url(text)
    except BackendError:
        return text
    here = url.host in LOOPBACK or is_loopback_name(url.host)
    return str(BaseUrl(url.scheme, LOOPBACK[0], url.port, url.path) if here else url)


def _cells(row: ServerRow) -> tuple[str, ...]:
    server = row.found
    loaded = UNKNOWN if server.loaded is None else f"{len(server.loaded)} of {len(server.listing)}"
    used = UNKNOWN if row.used is None else count(row.used.conversations)
    if row.used is not None and row.used.is_last:
        used += ", last"
    return (
        one_line(server.base_url) or ENGINE,
        server.title or UNKNOWN,
        _model_name(server.model) or UNKNOWN,
        count(server.context_size),
        count(server.slots),
        loaded,
        row.state,
        row.profile,
        used,
    )


def _model_name(model: str) -> str:
    """A model by its name: of a path the file's, and `Qwen/Qwen3-8B` as it is."""
    is_path = model.lower().endswith(".gguf") or model.startswith(("/", "~", ".")) or "\\" in model
    return one_line(model.replace("\\", "/").rpartition("/")[2] if is_path else model)


def _told(row: ServerRow) -> dict[str, object]:
    server = row.found
    used = row.used
    return {
        "base_url": server.base_url or None,
        "kind": server.kind or None,
        "title": server.title or None,
        "state": row.state,
        "profile": row.profile or None,
        "model": server.model or None,
        "context_size": server.context_size,
        "slots": server.slots,
        "models": [asdict(model) for model in server.listing],
        "seconds": round(server.seconds, 4) if server.seconds else None,
        "conversations": used.conversations if used is not None else None,
        "used_last": used is not None and used.is_last,
    }


def _kinds_by_port() -> dict[int, list[str]]:
    """The names of the kinds that are usual at each port that is asked."""
    return {port: [kind.title for kind in kinds.KINDS.values() if port in kind.ports] for port in kinds.ports()}


def _asked_ports() -> list[dict[str, object]]:
    return [{"port": port, "kinds": titles} for port, titles in _kinds_by_port().items()]
