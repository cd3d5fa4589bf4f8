"""What each command does: through the conversation service, as the app does, unless it only looks something up."""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from kvchat import paths
from kvchat.config import Problem, Settings
from kvchat.display import clean, one_line
from kvchat.paths import Paths

if TYPE_CHECKING:
    from kvchat.backends_command import UsedServer
    from kvchat.chat.question import Question
    from kvchat.chat.service import ChatService
    from kvchat.documents.library import Library
    from kvchat.memory.memories import Memories
    from kvchat.store import Store

T = TypeVar("T")
Work = Callable[["ChatService", argparse.Namespace], Awaitable[int]]


class CommandError(Exception):
    """A command failed; the text is the one sentence for the person."""

    def __init__(self, sentence: str, status: int = 1) -> None:
        super().__init__(sentence)
        self.status = status


def run(args: argparse.Namespace) -> int:
    """Carry out the parsed command line and return the exit status. Raises CommandError."""
    try:
        places = paths.find(args.data_dir, args.config)
        if args.log:
            from kvchat import logs

            logs.start(args.log)
        settings, problems = _settings(args, places)
        return _carried_out(args, places, settings, problems)
    except paths.PathError as error:
        raise CommandError(str(error)) from None


def _carried_out(args: argparse.Namespace, places: Paths, settings: Settings, problems: list[Problem]) -> int:
    match args.command:
        case None:
            return _app(args, places, settings, problems)
        case "config":
            return _config(args, places, settings, problems)
        case "list":
            _print_problems(problems)
            return _list(args, places)
        case "search":
            _print_problems(problems)
            return _search(args, places)
        case "ask":
            from kvchat.asking import ask as work

            args.question = _question(args)
        case "cache":
            from kvchat.cache_command import cache as work
        case "backends":
            import asyncio

            from kvchat.backends_command import backends

            _print_problems(problems)
            return asyncio.run(backends(settings, args, _servers_in_use(args, places, settings)))
        case "memory":
            _print_problems(problems)
            return _memory(args, places, settings)
        case "documents":
            _print_problems(problems)
            return _documents(args, places, settings)
        case "doctor":
            from kvchat.doctor_command import doctor as work
        case "show":
            work = _show
        case _:
            work = _export
    _print_problems(problems)
    import asyncio  # list and search do without it

    return asyncio.run(_with_service(args, places, settings, work))


def _question(args: argparse.Namespace) -> Question:
    """The question, read before the service is opened: Ctrl+C ends the reading at once."""
    from kvchat.question import read_question
    from kvchat.standard_input import InputError

    if args.text == "-" and args.no_stdin:
        raise CommandError("ask - reads the question from standard input. Leave out --no-stdin, or give the question.",
                           2)
    try:
        return read_question(args.text, not args.no_stdin)
    except InputError as error:
        raise CommandError(str(error)) from None


def _print_problems(problems: list[Problem]) -> None:
    for problem in problems:
        print(f"kvchat: {problem}", file=sys.stderr)


def _print_notices(notices: list[str]) -> None:
    for notice in notices:
        print(f"kvchat: {one_line(notice)}", file=sys.stderr)


# -- settings ---------------------------------------------------------------------------------------------------------


def _settings(args: argparse.Namespace, places: Paths) -> tuple[Settings, list[Problem]]:
    from kvchat.config import load

    settings, problems = load(places.config)
    overrides: dict[str, object] = {
        "server.base_url": args.base_url, "server.api_key_env": args.api_key_env, "theme": args.theme,
        "system_prompt": None if args.system is None else _text_or_file(args.system),
    }
    if args.model:
        overrides.update(_model(args.model))
    if args.profile:
        settings = _with_profile(settings, args.profile)
    settings, more = _over(settings, overrides)
    for problem in more:
        if problem.file is None and args.base_url and str(problem).startswith("server.base_url"):
            raise CommandError(f"--base-url {problem.text.removeprefix('server.base_url ').partition(';')[0]}.", 2)
    return settings, [*problems, *more]


def _over(settings: Settings, overrides: Mapping[str, object]) -> tuple[Settings, list[Problem]]:
    """The settings with what was given for this run put over them. Where that names another server than the file does,
    the key, the headers and all else that the file has for its own server are left out; a profile's are taken where
    the address is one of that profile's server."""
    from kvchat.config import ServerSettings, effective

    whole, problems = effective(settings, overrides=overrides)
    own, given = settings.server.base_url, whole.server.base_url
    if not own or not given or _origin(own) == _origin(given):
        return whole, problems
    profiles = settings.profiles.values()
    server = next((profile for profile in profiles if profile.base_url.rstrip("/") == given.rstrip("/")), None) or next(
        (profile for profile in profiles if _origin(profile.base_url) == _origin(given)), ServerSettings())
    return effective(replace(settings, server=server), overrides=overrides)


def _origin(address: str) -> tuple[str, str, int]:
    """Scheme, host and port: what a key belongs to."""
    from kvchat.backends.dialect import BackendError
    from kvchat.backends.hosts import parse_base_url

    try:
        url = parse_base_url(address)
    except BackendError:
        return "", address, 0
    return url.scheme, url.host, url.port


def _with_profile(settings: Settings, name: str) -> Settings:
    if name not in settings.profiles:
        known = f"The settings have: {', '.join(settings.profiles)}." if settings.profiles else (
            "The settings have none; write one as a section [profiles.NAME].")
        raise CommandError(f"There is no profile {name}. {known}", 2)
    return replace(settings, server=settings.profiles[name])


def _text_or_file(given: str) -> str:
    if not given.startswith("@"):
        return given
    path = Path(given[1:]).expanduser()
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise CommandError(f"Cannot read the system prompt from {path}: {reason}.") from None


def _model(given: str) -> dict[str, object]:
    path = Path(given).expanduser()
    if path.is_file():
        return {"engine.model": str(path.resolve()), "server.base_url": ""}
    if given.endswith(".gguf") or given.startswith((".", "~")) or path.is_absolute():
        raise CommandError(f"There is no model file {path}. "
                           "Give the path of a GGUF file, or the name of a server's model.")
    return {"server.model": given}


# -- running the service -------------------------------------------------------------------------------------------


async def _with_service(args: argparse.Namespace, places: Paths, settings: Settings, work: Work) -> int:
    from kvchat.chat.errors import ChatError
    from kvchat.store import StoreError
    from kvchat.transfer import TransferError

    service: ChatService | None = None
    try:
        service, notices = opened(args, places, settings, strict=True)
        _print_notices(notices)
        return await work(service, args)
    except (StoreError, ChatError, TransferError) as error:
        raise CommandError(str(error)) from None
    finally:
        if service is not None:
            await service.aclose()


def opened(
    args: argparse.Namespace, places: Paths, settings: Settings, *, strict: bool = False,
) -> tuple[ChatService, list[str]]:
    """The service on the store of this command line, and what happened at opening. Raises StoreError."""
    from kvchat.chat.service import ChatService
    from kvchat.store import Store

    store = Store.open(None if args.incognito else places.data)
    snapshots, lanes = (None, None) if args.incognito else (places.data / "snapshots", places.data / "lanes")

    def memories() -> Memories | None:
        from kvchat.memory.memories import open_memories

        return open_memories(places, settings, store, service.memory.session)

    def library() -> Library | None:
        from kvchat.documents.opening import open_library

        return open_library(places, settings, store)

    service = ChatService(store, settings, incognito=args.incognito, strict=strict, snapshots=snapshots, lanes=lanes,
                          memories=memories, library=library, one_server=_one_server(args, settings))
    return service, store.notices


def _one_server(args: argparse.Namespace, settings: Settings) -> bool:
    """Whether this run was given its server, so that no conversation goes to another one."""
    in_variables = any(os.environ.get(name) for name in ("KVCHAT_BASE_URL", "KVCHAT_SERVER_BASE_URL"))
    return bool(args.base_url or args.profile or in_variables or (args.model and settings.engine.model))


def _app(args: argparse.Namespace, places: Paths, settings: Settings, problems: list[Problem]) -> int:
    if not (sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()):  # it is drawn on the last one
        raise CommandError("The app needs a terminal. To use kvchat in a script: kvchat ask TEXT", 2)
    gc.disable()  # until the first paint, when the app turns it on: imports make much that stays and little garbage
    from kvchat.late_service import late
    from kvchat.ui.app import KvchatApp

    def begin() -> ChatService:
        from kvchat.chat.errors import ChatError
        from kvchat.store import StoreError

        try:
            service, _ = opened(args, places, settings)
        except StoreError as error:
            raise ChatError(str(error)) from None
        service.warm_up.enabled = service.servers.connects_ahead = service.servers.waits = service.jobs.enabled = True
        return service

    app = KvchatApp(late(settings, begin, incognito=args.incognito), places, notices=map(str, problems),
                    continue_=args.continue_, conversation=args.conversation)
    try:
        app.run(mouse=settings.mouse)
    except Exception as error:
        app.ending.crash(error)
    if app.ending.failure:
        raise CommandError(app.ending.failure)
    if app.ending.last_word:
        print(f"kvchat: {one_line(app.ending.last_word)}", file=sys.stderr)
    return app.return_code or 0


# -- looking things up ---------------------------------------------------------------------------------------------


def _config(args: argparse.Namespace, places: Paths, settings: Settings, problems: list[Problem]) -> int:
    match args.what:
        case "path":
            print(places.config)
        case "show":
            from kvchat.config import described

            _print_problems(problems)
            print(clean(described(settings)), end="")
        case _:
            from kvchat.ui.actions import keymap
            from kvchat.ui.themes import load_themes, theme_problem

            themes, broken = load_themes([paths.own_themes(), places.themes])
            problems = [*problems, *keymap(settings.keys, places.config)[1], *broken,
                        *theme_problem(settings.theme, themes, places.config)]
            for problem in problems:
                print(problem)
            if not problems:
                told = "nothing is wrong" if places.config.exists() else "does not exist; the defaults are used"
                print(f"{places.config}: {told}")
            return 1 if problems else 0
    return 0


def _list(args: argparse.Namespace, places: Paths) -> int:
    from kvchat.numbers import day_time
    from kvchat.terminal import print_table

    conversations = _looked_up(args, places, lambda store: [c for c in store.conversations() if c.turns])
    if args.json:
        rows = [{"id": c.id, "title": c.title, "created": c.created, "updated": c.updated, "turns": c.turns,
                 "context_used": c.context_used} for c in conversations]
        print(json.dumps(rows, indent=1))
        return 0
    if not conversations:
        print("There are no conversations yet.")
        return 0
    print_table([(c.id[:8], day_time(c.updated), f"{c.turns} turns" if c.turns != 1 else "1 turn", one_line(c.title))
                 for c in conversations])
    return 0


def _servers_in_use(args: argparse.Namespace, places: Paths, settings: Settings) -> list[UsedServer]:
    """The servers that conversations are on, and the one that was used last."""
    from kvchat.backends_command import UsedServer
    from kvchat.chat.consent import has_agreed
    from kvchat.chat.servers import LAST_SERVER

    def look(store: Store) -> list[UsedServer]:
        used, last = dict(store.servers_in_use()), store.setting(LAST_SERVER)
        if last:
            used.setdefault(last, 0)
        addresses = {name: server.base_url for name, server in settings.profiles.items()}
        return [UsedServer(name, number, name == last, has_agreed(store, addresses.get(name, name)))
                for name, number in used.items()]

    return _looked_up(args, places, look)


def _search(args: argparse.Namespace, places: Paths) -> int:
    hits = _looked_up(args, places, lambda store: store.search(" ".join(args.query), 50, ranked=True))
    for hit in hits:
        snippet = one_line(hit.snippet.replace("\x02", "").replace("\x03", ""))
        print(f"{hit.conversation[:8]}  {one_line(hit.title, 40)}  {hit.role}: {snippet}")
    if not hits:
        print("Nothing found.", file=sys.stderr)
    return 0 if hits else 1


def _looked_up(args: argparse.Namespace, places: Paths, look: Callable[[Store], T]) -> T:
    """What the store holds, without the service: nothing of it is needed to look. Raises CommandError."""
    from kvchat.store import Store, StoreError

    try:
        with closing(Store.open(None if args.incognito else places.data)) as store:
            _print_notices(store.notices)
            return look(store)
    except StoreError as error:
        raise CommandError(str(error)) from None


def _memory(args: argparse.Namespace, places: Paths, settings: Settings) -> int:
    from kvchat.memory.entry import MemoryTrouble
    from kvchat.memory_command import memory
    from kvchat.memory_words import UsageError
    from kvchat.store import StoreError

    try:
        return memory(places, settings, args)
    except UsageError as error:
        raise CommandError(str(error), 2) from None
    except (MemoryTrouble, StoreError) as error:
        raise CommandError(str(error)) from None


def _documents(args: argparse.Namespace, places: Paths, settings: Settings) -> int:
    from kvchat.documents.errors import DocumentError
    from kvchat.documents_command import documents
    from kvchat.memory_words import UsageError
    from kvchat.store import StoreError

    try:
        return documents(places, settings, args)
    except UsageError as error:
        raise CommandError(str(error), 2) from None
    except (DocumentError, StoreError) as error:
        raise CommandError(str(error)) from None


async def _show(service: ChatService, args: argparse.Namespace) -> int:
    record = service.conversations.find(args.id)
    print(clean("".join(service.exports.text([record.id], "md"))), end="")
    return 0


async def _export(service: ChatService, args: argparse.Namespace) -> int:
    if bool(args.id) == bool(args.all):
        raise CommandError("Give the id of one conversation, or --all.", 2)
    every = service.conversations
    ids = [c.id for c in every.all() if c.turns] if args.all else [every.find(args.id).id]
    if args.output is None:
        sys.stdout.writelines(service.exports.text(ids, args.format, all_branches=args.all_branches))
        return 0
    path = await service.exports.write(ids, args.format, args.output, all_branches=args.all_branches,
                                       overwrite=args.force)
    print(path)
    return 0
