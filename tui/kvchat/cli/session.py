"""What a command works with: arguments, settings with what was given for this run, the store and the service."""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct, structs

from kvchat import paths
from kvchat.cli.plain_output import Printer, print_table
from kvchat.commands.command import CommandError as CommandError
from kvchat.commands.command import CommandResult, TextTable, fields
from kvchat.commands.command import NotInTimeError as NotInTimeError
from kvchat.commands.command import UsageError as UsageError
from kvchat.commands.command import instant as instant
from kvchat.commands.command import number as number
from kvchat.config import Problem, Settings, load
from kvchat.config.load import UNREAD, WHOLE
from kvchat.config.toml import SIZE_LIMIT
from kvchat.paths import Paths
from kvchat.sanitize import one_line

if TYPE_CHECKING:
    from kvchat.chat.events import ServiceEvent
    from kvchat.chat.service import ChatService
    from kvchat.config.layers import Layers
    from kvchat.documents.library import Library
    from kvchat.memory.memories import Memories
    from kvchat.store import Store

T = TypeVar("T")


class Session(Struct, frozen=True):
    """One run of a command."""

    args: argparse.Namespace
    places: Paths
    settings: Settings
    problems: Sequence[Problem]
    """What is wrong in the settings."""

    def look(self, look: Callable[[Store], T]) -> T:
        """What the store holds, without the service: nothing of it is needed to look. Raises CommandError."""
        from kvchat.store import StoreError

        try:
            with closing(self.opened_store()) as store:
                print_notices(store.notices)
                return look(store)
        except StoreError as error:
            raise CommandError(str(error)) from None

    def with_service(self, work: Callable[[ChatService], Awaitable[int]]) -> int:
        """Do `work` with the conversation service, as the app does, and end that. Raises CommandError."""
        import asyncio  # who only looks does without it

        gc.disable()  # until it is there: imports make much that stays and little garbage
        return asyncio.run(self._with_service(work))

    async def _with_service(self, work: Callable[[ChatService], Awaitable[int]]) -> int:
        from kvchat.chat.errors import ChatError
        from kvchat.store import StoreError
        from kvchat.transfer.formats import TransferError

        service: ChatService | None = None
        try:
            service = self.service_on(self.opened_store(), strict=True)
            gc.freeze()
            gc.enable()
            print_notices(service.store.notices)
            # A server that was only ever chosen in the app was agreed to, or not, there; one that is named here or in
            # the settings is meant.
            service.servers.consent.take_named(service.servers.named_address)
            return await work(service)
        except (StoreError, ChatError, TransferError) as error:
            said = error.arguments.get("sentence") if isinstance(error, ChatError) else None
            kind = UsageError if _is_of_a_name(said) else NotInTimeError if _is_loading(said) else CommandError
            raise kind(str(error)) from None
        finally:
            gc.enable()
            if service is not None:
                service.events.subscribe(tell_notice)  # what cannot be written at the end
                await service.aclose()

    def opened_store(self) -> Store:
        """Raises StoreError."""
        from kvchat.store import Store

        return Store.open(None if self.args.incognito else self.places.data)

    def service_on(self, store: Store, *, strict: bool = False) -> ChatService:
        """The service on the store."""
        from kvchat.chat.service import ChatService

        places, settings, incognito = self.places, self.settings, self.args.incognito
        snapshots, lanes = (None, None) if incognito else (places.data / "snapshots", places.data / "lanes")

        def memories() -> Memories | None:
            from kvchat.memory.memories import open_memories

            return open_memories(places, settings, store, service.memory.session)

        def is_untouched() -> bool:
            from kvchat.memory.place import is_untouched

            return is_untouched(places, settings, store)

        def library() -> Library | None:
            from kvchat.documents.library import open_library

            return open_library(places, settings, store)

        service = ChatService(
            store,
            settings,
            incognito=incognito,
            strict=strict,
            snapshots=snapshots,
            lanes=lanes,
            memories=memories,
            memory_is_untouched=is_untouched,
            library=library,
            mcp_file=places.mcp_servers,
            one_server=self._has_one_server(),
            model=self._given_model(),
        )
        return service

    def layers(self) -> Layers:
        """The settings as they are now, with where each comes from. Raises CommandError."""
        from kvchat.config.layers import Layers
        from kvchat.config.load import variables_used
        from kvchat.config.toml import read_toml

        settings, problems, given = _settings(self.args, self.places)
        return Layers(settings, problems, read_toml(self.places.config), variables_used() | given)

    def _has_one_server(self) -> bool:
        """Whether this run was given its server, so that no conversation goes to another one."""
        args = self.args
        in_variables = any(os.environ.get(name) for name in ("KVCHAT_BASE_URL", "KVCHAT_SERVER_BASE_URL"))
        return bool(args.base_url or args.profile or in_variables or (args.model and self.settings.engine.model))

    def _given_model(self) -> str:
        """The model of a server that this run was given; empty: none."""
        in_variables = any(os.environ.get(name) for name in ("KVCHAT_MODEL", "KVCHAT_SERVER_MODEL"))
        return self.settings.server.model if self.args.model or in_variables else ""

    def give(self, outcome: CommandResult) -> int:
        """Print what a command gives, as JSON where that is asked for, and return the exit status."""
        if self.args.json:
            print(json.dumps(outcome.found, indent=1, default=_as_json))
        for one in () if self.args.json else outcome.words:
            if isinstance(one, TextTable):
                print_table(one.rows, one.columns)
            else:
                Printer(sys.stdout).line(one)
        if outcome.failed:
            print(outcome.failed, file=sys.stderr)
        return 1 if outcome.failed else 0

    def print_problems(self, *, sends: bool = False) -> None:
        """Say what is wrong in the settings. `sends`: the command sends words to a server. Raises UsageError where the
        one that was named cannot be used."""
        settings = self.settings
        first = settings.server if self._has_one_server() else settings.profiles.get(settings.default_profile)
        server, file = first or settings.server, settings.engine.model
        wrong = server.wrong if sends else {}
        for problem in self.problems:
            if str(problem) in wrong.values():
                raise UsageError(f"{problem}.")
            print(f"kvchat: {problem}", file=sys.stderr)
        if sends and file and not server.base_url:
            from kvchat.backends.engine.gguf import GgufError
            from kvchat.backends.engine.models import model_at

            try:
                model_at(Path(os.path.expanduser(file)))  # noqa: PTH111 - it never fails
            except GgufError as error:
                raise UsageError(f"{error.sentence.removesuffix('.')} (engine.model).") from None


def _is_of_a_name(error: object) -> bool:
    """Whether a server refused because what names it, or its model, cannot be used."""
    from kvchat.backends.dialect import BackendError, Trouble
    from kvchat.text.faults import Fault

    if not isinstance(error, BackendError):
        return False
    is_told = error.trouble is Trouble.BAD_ADDRESS and error.fault is Fault.TOLD
    names = (Fault.NO_PROFILE, Fault.NO_SUCH_MODEL, Fault.CERTIFICATE_FILE)
    return is_told or error.fault in names or error.fault.name.startswith("URL_")


def _is_loading(error: object) -> bool:
    """Whether a server still loads its model, after as long as it was waited for."""
    from kvchat.backends.dialect import BackendError, Trouble

    return isinstance(error, BackendError) and error.trouble is Trouble.LOADING


def _as_json(value: Any) -> object:
    return fields(value) if isinstance(value, Struct) else str(value)


def print_notices(notices: Sequence[str]) -> None:
    """What happened that the user should know, on standard error."""
    for notice in notices:
        print(f"kvchat: {one_line(notice)}", file=sys.stderr)


def tell_notice(event: ServiceEvent) -> None:
    """A notice of the service, on standard error."""
    from kvchat.chat.events import Noticed

    if isinstance(event, Noticed):
        print_notices([event.text])


def tell_fallback(event: ServiceEvent) -> None:
    """Name the server used in place of the last one, on standard error."""
    from kvchat.chat.events import FallbackChosen
    from kvchat.text.servers import fallback_words

    if isinstance(event, FallbackChosen):
        print_notices([fallback_words(event.off, event.used)])


def tag(text: str) -> str:
    """An argument that is a tag."""
    from kvchat.prompt.tags import TagError, tag_name

    try:
        return tag_name(text)
    except TagError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


# -- settings


def open_session(args: argparse.Namespace) -> Session:
    """The session of a parsed command line. Raises CommandError."""
    try:
        paths.give_home(args.data_dir, incognito=args.incognito)
        places = paths.find(args.data_dir, args.config)
        paths.give_temp(places.data)
        if args.log:
            from kvchat import logs

            logs.start(args.log)
        if args.command != "config":
            _must_be_there(args.config, places.config)
        if args.config:
            places = structs.replace(places, config=paths.read_once(places.config, SIZE_LIMIT))
        settings, problems, _ = _settings(args, places)
        session = Session(args, places, settings, [*problems, *_time_zone_problem()])
    except paths.PathError as error:
        raise CommandError(str(error)) from None
    if args.command not in (None, "config", "completion", "serve") and (
        said := session.settings.server.wrong.get(UNREAD)
    ):
        raise UsageError(f"{said}.")  # the app shows it
    return session


def _time_zone_problem() -> Iterator[Problem]:
    """A problem where TZ gives no valid time zone; UTC then replaces it."""
    try:
        datetime.now().astimezone()
    except (ValueError, OverflowError):
        said = f"TZ is no time zone: {one_line(os.environ.get('TZ', ''), 40)}; UTC is used"
        os.environ["TZ"] = "UTC"
        time.tzset()
        yield Problem(None, None, None, said)


def _must_be_there(option: str | None, config: Path) -> None:
    """Raises UsageError where the settings file that was named is missing: an option's, or that of a variable with its
    folder, where it could still be made."""
    variable = os.environ.get(paths.CONFIG_VARIABLE, "").strip()
    for name, path in (
        (("--config", config),) if option else ((paths.CONFIG_VARIABLE, config.parent),) if variable else ()
    ):
        try:
            path.stat()
        except (FileNotFoundError, NotADirectoryError):
            raise UsageError(f"There is no {path}, which {name} needs. Correct it, or leave it out.") from None
        except OSError:
            pass  # it is said when it is read


def _settings(args: argparse.Namespace, places: Paths) -> tuple[Settings, list[Problem], dict[str, str]]:
    """The settings of this run, what is wrong in them, and the options that gave some, by their paths (`server`: all of
    the server's own)."""
    settings, problems = load(places.config)
    overrides: dict[str, object] = {
        "server.base_url": args.base_url,
        "server.api_key_env": args.api_key_env,
        "theme": args.theme,
        "system_prompt": None if args.system is None else _text_or_file(args.system),
    }
    if args.model:
        overrides.update(_model(args.model))
    if args.profile:
        settings = _with_profile(settings, args.profile.strip(), problems)
    own = settings.server.base_url
    settings, more = _over(settings, overrides)
    for problem in more:
        path, _, wrong = problem.text.partition(" ")
        if problem.file is None and overrides.get(path) is not None:
            raise UsageError(f"{_OPTIONS[path]} {wrong.partition(';')[0]}.")
    given = {path: _OPTIONS[path] for path, value in overrides.items() if value is not None}
    if args.profile:
        given["server"] = "--profile"
    elif args.base_url and own and settings.server.base_url != own:
        given["server"] = "--base-url"
    problems = [
        p for p in (*problems, *more) if p.bars[:1] in ((), ("profiles",)) or ".".join(p.bars) in settings.server.wrong
    ]
    return settings, problems, given


_OPTIONS = {
    "server.base_url": "--base-url",
    "server.api_key_env": "--api-key-env",
    "theme": "--theme",
    "system_prompt": "--system",
    "server.model": "--model",
    "engine.model": "--model",
}
"""The options of the command line that give a setting, by its path."""


def _over(settings: Settings, overrides: Mapping[str, object]) -> tuple[Settings, list[Problem]]:
    """The settings with what was given for this run put over them. Where that names another server than the file does,
    the key, the headers and all else that the file has for its own server are left out; a profile's are taken where
    the address is one of that profile's server."""
    from kvchat.config import ServerSettings, effective

    whole, problems = effective(settings, overrides=overrides)
    own, given = settings.server.base_url, whole.server.base_url
    is_own = own and _origin(own) == _origin(given)
    if is_own or not given or (not own and "server.base_url" not in settings.server.wrong):
        return whole, problems
    profiles = settings.profiles.values()
    server = next((profile for profile in profiles if profile.base_url.rstrip("/") == given.rstrip("/")), None) or next(
        (profile for profile in profiles if _origin(profile.base_url) == _origin(given)), ServerSettings()
    )
    unread = {name: said for name, said in settings.server.wrong.items() if name == UNREAD}
    return effective(replace(settings, server=replace(server, wrong={**server.wrong, **unread})), overrides=overrides)


def _origin(address: str) -> tuple[str, str, int]:
    """Scheme, host and port: what a key belongs to."""
    from kvchat.backends.dialect import BackendError
    from kvchat.backends.http.endpoint import parse_base_url

    try:
        url = parse_base_url(address)
    except BackendError:
        return "", address, 0
    return url.scheme, url.host, url.port


def _with_profile(settings: Settings, name: str, problems: Sequence[Problem]) -> Settings:
    if name not in settings.profiles:
        for problem in problems:
            if problem.bars == WHOLE or problem.bars[:2] == ("profiles", name) or f"profiles.{name} " in problem.text:
                raise UsageError(f"The profile {name} cannot be used: {problem}.")
        known = (
            f"The settings have: {', '.join(settings.profiles)}."
            if settings.profiles
            else ("The settings have none; write one as a section [profiles.NAME].")
        )
        raise UsageError(f"There is no profile {name}. {known}")
    return replace(settings, server=settings.profiles[name])


PROMPT_LIMIT = 1 << 20
"""Bytes of a file with a system prompt."""


def _text_or_file(given: str) -> str:
    if not given.startswith("@"):
        return given
    path = Path(given[1:]).expanduser()
    try:
        path = paths.read_once(path, PROMPT_LIMIT)
        if path.stat().st_size > PROMPT_LIMIT:
            raise CommandError(f"{path} has more than {PROMPT_LIMIT >> 20} MiB. Give a shorter system prompt.")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise CommandError(f"Cannot read the system prompt from {path}: {why}.") from None


def _model(given: str) -> dict[str, object]:
    given = given.strip()
    is_path = given.lower().endswith(".gguf") or given.startswith((".", "~"))
    try:
        path = Path(given).expanduser()
        is_path = is_path or path.is_absolute()
        there = path.absolute() if path.is_file() or (is_path and path.is_dir()) else None
    except (RuntimeError, ValueError, OSError):  # ~ of an unknown user, a NUL, a name too long: no file in any case
        path, there = Path(given), None
    if there is not None:
        return {"engine.model": str(there), "server.base_url": ""}
    if is_path:
        raise UsageError(
            f"There is no model file {path}. Give the path of a GGUF file, or the name of a server's model."
        )
    return {"server.model": given}
