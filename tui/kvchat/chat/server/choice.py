"""Servers as a user chooses among them: those in use, those of the settings, those found on this machine.

Looking for servers sends no text and wakes no model; choosing one never blocks the screen.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from kvchat.backends import kinds
from kvchat.backends.dialect import BackendError, HostClass
from kvchat.backends.http.payload import Model
from kvchat.chat.cache.warm_up import WarmUp
from kvchat.chat.core import Core
from kvchat.chat.errors import ChatError
from kvchat.chat.events import ServerChanged
from kvchat.chat.server.connection import found_here
from kvchat.chat.server.connection_state import Phase
from kvchat.chat.server.link import DEFAULT, Link, is_file, normal
from kvchat.chat.server.servers import LAST_SERVER
from kvchat.paths import pasted_path
from kvchat.reports.warmth import Heat
from kvchat.sanitize import one_line
from kvchat.text.faults import BUILT_IN
from kvchat.text.problems import ChatProblem

if TYPE_CHECKING:
    from kvchat.backends.discovery import FoundServer
    from kvchat.backends.engine.hub import Fetching as Fetching
    from kvchat.backends.engine.hub import HubModel as HubModel
    from kvchat.backends.engine.models import ModelFile
    from kvchat.doctor.report import DoctorReport


ModelChoice = (
    tuple[Literal["model"], str]
    | tuple[Literal["file"], Path]
    | tuple[Literal["url"], str]
    | tuple[Literal["server"], str, str]
    | tuple[Literal["pull"], str]
)
"""A model of the server in use; a model file; an address; a server by its name, and one of its models (empty: the one
it has loaded); a model to fetch."""


class ServerChoice(Struct, frozen=True):
    """A server that a conversation can go on with. None: not known."""

    name: str
    """What `use` takes."""
    base_url: str
    title: str = ""
    """The kind of server as the screen names it; empty before it was asked."""
    profile: str = ""
    """The name of its profile in the settings; empty where it has none."""
    host_class: HostClass = HostClass.LOOPBACK
    phase: Phase | str = "idle"
    """As `Connection.phase`, or `loading`, `needs a key`, `answers` as it was found."""
    sentence: str = ""
    model: str = ""
    """The model it would answer with."""
    listing: tuple[Model, ...] = ()
    context_size: int | None = None
    slots: int | None = None
    warm: int = 0
    """Conversations that are warm there."""
    current: bool = False
    """Whether the conversation that is looked at uses it."""
    embedded: bool = False


class ServerChooser:
    """Lists servers, has one used, examines the one in use."""

    def __init__(self, core: Core, warm_up: WarmUp) -> None:
        self._core = core
        self._warm_up = warm_up
        self._found: Sequence[FoundServer] = ()
        self._examining = False

    async def use(self, id: str, name: str, model: str = "") -> None:
        """Let a conversation go on with another server: a profile's name, a base URL, the path of a model file, or
        empty for the default one. New conversations begin with it too. `model`: one of that server's; empty: the one
        it has loaded."""
        conversation, before = self._core.conversations.load(id), self._core.servers.link(id)
        await before.lane.stop_spare()
        if (conversation.record.server, conversation.record.model) != (name, model):
            self._core.tracker.did(conversation, "model")
        await self._core.servers.move(conversation, name, model)
        if self._core.conversations.looked_at == id:
            self._core.events.tell(ServerChanged())
        before.connector.release()
        if await self._reached(self._core.servers.links.at(name), id):
            await self._core.servers.used(name)
        if self._core.conversations.looked_at == id:
            self._warm_up.soon(id)

    async def _reached(self, link: Link, id: str) -> bool:
        """Connect to a server; whether it answered. A model file is started only when no answer of another one runs."""
        try:
            if link.connector.model_path is None or link.connector.runs_engine:
                await link.connector.ready()
            elif link.lane.holder or id in self._core.conversations.streaming():
                return True  # the next question starts it
            else:
                async with link.lane.chat(id):
                    await link.connector.ready()
        except BackendError:
            return False  # it is said in the connection
        return True

    async def look(self) -> list[ServerChoice]:
        """Ask the usual ports of this machine, 0.3 s at most, and list all servers there are to choose."""
        self._found = await found_here()
        return self.all()

    def all(self) -> list[ServerChoice]:
        """All servers there are to choose, the one in use first, as far as they are known now."""
        chosen: dict[str, ServerChoice] = {}
        for choice in self._choices():
            known = chosen.setdefault(choice.base_url or choice.name, choice)
            if choice is not known and not known.listing:
                chosen[choice.base_url or choice.name] = replace(
                    known,
                    title=known.title or choice.title,
                    phase=known.phase if known.title else choice.phase,
                    model=known.model or choice.model,
                    listing=choice.listing,
                    slots=known.slots or choice.slots,
                    context_size=known.context_size or choice.context_size,
                )
        return sorted(chosen.values(), key=lambda choice: not choice.current)

    def _choices(self) -> Iterator[ServerChoice]:
        here, named = self._core.servers.link(), set()
        for link in self._core.servers.links:
            is_nothing = link.connector.connection.phase == "none"
            if (link is here and not is_nothing) or link.info is not None:
                named.add(link.name)
                yield self._choice(link, current=link is here)
        for name, server in self._core.settings.profiles.items():
            if name not in named:
                yield ServerChoice(name, server.base_url.rstrip("/"), profile=name, model=server.model)
        if self._core.settings.server.base_url and DEFAULT not in named:
            yield ServerChoice(DEFAULT, self._core.settings.server.base_url.rstrip("/"))
        last = self._core.setting(LAST_SERVER)
        if not any(link.leads_to(last) for link in self._core.servers.links if link.name in named):
            if is_file(last):
                yield ServerChoice(last, "", BUILT_IN, model=last, embedded=True)
            elif "://" in last:
                yield ServerChoice(last, normal(last))
        for found in self._found:
            yield ServerChoice(
                found.base_url,
                found.base_url.rstrip("/"),
                found.title,
                phase=found.phase,
                model=found.model,
                listing=found.listing,
                context_size=found.context_size,
                slots=found.slots,
            )

    def _choice(self, link: Link, *, current: bool) -> ServerChoice:
        info, connection = link.info, link.connector.connection
        profile = link.name if link.name in self._core.settings.profiles else ""
        if info is None:
            return ServerChoice(
                link.name,
                link.connector.base_url.rstrip("/"),
                profile=profile,
                current=current,
                phase=connection.phase,
                sentence=connection.sentence,
            )
        title = BUILT_IN if info.embedded else kinds.title_of(info.kind)
        return ServerChoice(
            link.name,
            "" if info.embedded else info.base_url.rstrip("/"),
            title,
            profile,
            info.host_class,
            connection.phase,
            connection.sentence,
            info.model,
            info.listing,
            info.context_size,
            info.slots,
            self._warm_at(link),
            current,
            info.embedded,
        )

    def _warm_at(self, link: Link) -> int:
        cache = link.cache
        if cache is None:
            return 0
        owners = {held.owner for held in cache.simulated.best.slots if held is not None and held.owner}
        return sum(self._core.tracker.warmth(id).heat is Heat.WARM for id in owners)

    async def examined(self, progress: Callable[[str], None], agreed: bool) -> DoctorReport:
        """What the doctor finds out about the server of the conversation that is looked at. `agreed`: the user has
        agreed to what that costs. Raises ChatError."""
        if self._examining:
            raise ChatError(ChatProblem.EXAMINING)
        link = self._core.servers.link()
        if link.lane.holder:
            raise ChatError(ChatProblem.ANSWERING)
        self._examining = True
        try:
            return await self._examined(link, progress, agreed)
        finally:
            self._examining = False

    async def _examined(self, link: Link, progress: Callable[[str], None], agreed: bool) -> DoctorReport:
        from kvchat.doctor.examine import examine
        from kvchat.doctor.report import Examination, unexamined
        from kvchat.doctor.verdicts import report

        try:
            backend = await link.connector.ready()
        except BackendError as error:
            return report(unexamined(link.connector.base_url, error))
        found: Examination | None = None

        async def look() -> None:
            nonlocal found
            folder = self._core.servers.snapshot_folder if backend.info.embedded else None
            found = await examine(
                backend,
                progress=progress,
                agreed=agreed,
                snapshot_folder=folder,
                model=self._core.servers.asked_model(self._core.conversations.looked_at),
            )

        await link.lane.stop_spare()
        try:
            await link.lane.in_spare_time(look())
        finally:
            if link.cache is not None:
                await link.cache.examined()
        if found is None:
            raise ChatError(ChatProblem.EXAMINATION_ENDED)
        return report(found)

    def meant(self, id: str, name: str) -> ModelChoice:
        """What the user means by a name for a conversation's model: a server, a file, a model of its server, or one to
        fetch. Raises ChatError."""
        info = self._core.servers.link(id).info
        if name in self._core.settings.profiles:
            return "server", name, ""
        if (path := written_path(name)) is not None:
            return "file", path
        nothing_there = self._core.servers.link(id).connector.connection.phase == "none"
        if nothing_there or (info is not None and info.listing and not info.known(name)):
            if hub_name(name) is not None:
                return "pull", name
            raise ChatError(ChatProblem.NO_SUCH_MODEL, model=one_line(name, 80))
        return "model", name

    async def files_at(self, path: Path) -> list[ModelFile]:
        """The model files that a path names: one, or those of a folder. Raises ChatError."""
        from kvchat.backends.engine.gguf import GgufError
        from kvchat.backends.engine.models import models_at

        try:
            return await asyncio.to_thread(models_at, path)
        except GgufError as error:
            raise ChatError.of(error) from None

    async def to_fetch(self, name: str) -> HubModel:
        """The model of this name at Hugging Face, which is asked for it. Raises ChatError."""
        from kvchat.backends.engine import hub

        wanted = hub.hub_name(name)
        assert wanted is not None, name
        try:
            return await hub.find(wanted)
        except hub.HubError as error:
            raise ChatError.of(error) from None

    async def fetched(self, model: HubModel, report: Callable[[Fetching], None]) -> Path:
        """Fetch a model, with its progress to `report`; the path of its file. Raises ChatError."""
        from kvchat.backends.engine import hub

        try:
            return await hub.fetch(model, report)
        except hub.HubError as error:
            raise ChatError.of(error) from None

    def suggested(self) -> list[tuple[str, str]]:
        """Models to fetch for a beginning, each with what is to be known of it; none without the engine to run them."""
        from kvchat.backends.engine import hub

        return hub.suggested() if find_spec("xllamacpp") is not None else []

    async def model_files(self) -> list[ModelFile]:
        """The model files on this machine's disk that the embedded engine can run."""
        return await self._core.servers.link().connector.find_models()

    def model_folders(self) -> list[str]:
        """Where model files are looked for: the folders that are there, and those that the user may put one into."""
        home = os.path.expanduser("~/")  # noqa: PTH111 - it never fails
        return list(
            dict.fromkeys(
                str(folder).replace(home, "~/", 1)
                for source, folder in self._core.servers.link().connector.folders()
                if source in ("models folder", "downloads") or folder.is_dir()
            )
        )


def written_path(text: str) -> Path | None:
    """The path that is written in place of a model's name; None: it is none."""
    text = text.strip()
    path = pasted_path(text) or (text if text.lower().endswith(".gguf") and os.path.isfile(text) else None)  # noqa: PTH113
    return Path(os.path.expanduser(path)).absolute() if path else None  # noqa: PTH111 - it never fails


def hub_name(text: str) -> str | None:
    """The model of Hugging Face that `text` names, in its short spelling."""
    from kvchat.backends.engine import hub

    found = hub.hub_name(text)
    return None if found is None else str(found)
