"""What the benches of the whole app stand on: folders of their own, and a toy llama-server that can be followed.

Nothing here knows how the conversation service is made: the app is driven by `app_kit`, by keys and by what is on the
screen.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "screens"))

from app_kit import Driven

import indexing_here
import patience
import still
from kvchat.config import Settings, changed
from standins.llamacpp_router import LlamaModel
from toyserver import Answer, ToyServer, Visit, reply

HANDBOOK = {
    "lamp.md": "# The lamp\n\nThe lamp turns once in twelve seconds. A brass clockwork drives it.\n",
    "signals.md": "# Signals\n\nIn fog the horn sounds three times a minute. In a storm two black cones are hoisted.\n",
    "stairs.md": "# Stairs\n\nThere are one hundred and forty stairs of granite.\n",
    "tower/paint.md": "# Paint\n\nThe tower is painted white each fifth summer. Lead paint is forbidden.\n",
}
Says = Callable[[Mapping[str, Any]], str]
"""The answer to a request's body."""


def words(text: str) -> list[str]:
    """The text in pieces of a word each."""
    return re.findall(r"\s*\S+", text)


class LlamaServer(ToyServer):
    """A llama-server with one slot whose prompts have a token per word. `says` makes its answers."""

    def __init__(self, says: Says) -> None:
        super().__init__()
        self.model = LlamaModel("toy", context_size=4096, process="toy")
        self.says = says
        self.at_chat: Callable[[Visit], None] = lambda visit: None
        """Called when a chat request has arrived, before anything is answered."""
        self.last_words = asyncio.Event()
        """While it is not set, answers stop before their last words: finish, figures and end."""
        self.last_words.set()

    def _answer_to(self, visit: Visit) -> Answer:
        if visit.method == "GET":
            return reply(200, {"status": "ok"}) if visit.path == "/health" else self.model.get(visit.path)
        body = json.loads(visit.body)
        if not visit.path.endswith("/chat/completions"):
            return self.model.post(visit.path, body)
        self.at_chat(visit)
        answer, send = self.model.chat(body, (*words(self.says(body)), "")), visit.send
        del self.model.held[-1:]  # the empty text is the token that ended the answer: it is not decoded

        async def sending(data: bytes) -> None:
            if b'"finish_reason":"stop"' in data:
                await self.last_words.wait()
            await send(data)

        visit.send = sending  # type: ignore[method-assign]
        return answer


def settings_of(server: ToyServer, **values: object) -> Settings:
    """Settings for a server, with others by their paths: `memory__rest_seconds=0`."""
    settings = changed(Settings(), "server.base_url", server.url)
    for name, value in values.items():
        settings = changed(settings, name.replace("__", "."), value)
    return settings


@contextmanager
def own_folders() -> Iterator[Path]:
    """A folder for data, settings and documents, in which nothing depends on this machine or on who runs it: no other
    server is looked for, documents are indexed in this process, and nothing is given up because the machine is slow."""
    for name in ("KVCHAT_BASE_URL", "EDITOR", "VISUAL", "NO_COLOR", "TEXTUAL_THEME"):
        os.environ.pop(name, None)
    still.use()
    patience.use()
    with (
        tempfile.TemporaryDirectory() as made,
        patch.dict(
            os.environ,
            {
                "HOME": made,
                "KVCHAT_DATA_DIR": f"{made}/data",
                "TZ": "UTC",
                "KVCHAT_CONFIG": f"{made}/config.toml",
                "TEXTUAL_ANIMATIONS": "none",
            },
        ),
        patch("kvchat.backends.kinds.ports", lambda: ()),
        patch("kvchat.documents.indexing.process.indexed", indexing_here.indexed),
    ):
        folder = Path(made)
        for name, text in HANDBOOK.items():
            path = folder / "handbook" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        yield folder


async def searching(app: Driven, folder: Path) -> None:
    """Index the handbook, and have the open conversation search in it for every question."""
    await app.command(f"/documents add {folder / 'handbook'}")
    await app.until(lambda: app.noticed(f"handbook: {len(HANDBOOK)} files"))
    await app.command("/documents always handbook")
    await app.until(lambda: "▤ handbook" in app.lines[0])
