"""A service with documents, and a small handbook to ask about."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.config import Settings, changed
from kvchat.documents.library import Library
from kvchat.prompt.message import Node, Role
from kvchat.prompt.request import Parameters
from kvchat.store import Store

HANDBOOK = {
    "lamp.md": "# The lamp\n\n## Turning\n\nThe lamp turns once in twelve seconds. A brass clockwork drives it.\n\n"
    "## Oil\n\nThe clockwork takes whale-free oil, two drops in the third week of the month.\n",
    "tower/paint.md": "# Paint\n\nThe tower is painted white each fifth summer. Lead paint is forbidden.\n\n"
    "## Ladders\n\nLadders are tied to the rail on the lee side of the tower.\n",
    "tower/stairs.md": "# Stairs\n\nThe tower has one hundred and forty stairs of granite.\n",
    "signals.md": "# Signals\n\n## Fog\n\nIn fog the horn sounds three times a minute.\n\n## Storm\n\nIn a storm two "
    "black cones are hoisted on the mast.\n",
    "cellar/oil.md": "# Oil\n\nThe oil is kept in the cellar, in copper cans, never more than forty litres.\n",
    "boats.txt": "The supply boat Havfrue lands on Tuesdays. It needs two fathoms of water at the pier.\n",
    "keeper.py": 'def watch(hours):\n    """How long a watch of the keeper lasts."""\n    return min(hours, 6)\n',
}


def written(folder: Path, files: dict[str, str] = HANDBOOK) -> Path:
    """The files, in a folder."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@asynccontextmanager
async def documents_service(
    url: str, folder: Path, *, settings: Settings | None = None, max_tokens: int = 12, reads_ahead: bool = False
) -> AsyncIterator[ChatService]:
    """A service on a server, its data in `folder`."""
    settings = changed(settings or Settings(), "server.base_url", url)
    settings = replace(settings, parameters=Parameters(temperature=0.0, max_tokens=max_tokens))
    store = Store.open(folder)
    service = ChatService(
        store, settings, library=lambda: Library.open(store, folder / "index.db"), lanes=folder / "lanes"
    )
    service.servers.connects_ahead = True
    service.warm_up.enabled = reads_ahead
    try:
        await service.servers.connect()
        yield service
    finally:
        await service.aclose()


async def indexed(service: ChatService, folder: Path, name: str = "handbook") -> None:
    """Have a folder indexed to the end."""
    await service.documents.add(str(folder), name)
    await service.documents._indexers[name]
    assert not service.documents.reports[name].trouble, service.documents.reports[name]


async def asked(service: ChatService, id: str, text: str) -> Node:
    """The question as it was sent, once it is answered."""
    await service.turns.send(id, Question(text))
    await service.conversations.wait(id)
    return [node for node in service.conversations.get(id).path() if node.role is Role.USER][-1]
