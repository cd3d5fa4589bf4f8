"""Whether a server saves slots, found out without saving one."""

from __future__ import annotations

import pytest

from kvchat.backends.dialect import SlotFiles
from kvchat.backends.identify import connect
from toyserver import Answer, ToyServer, error


@pytest.mark.parametrize(
    ("answer", "saves"),
    [
        (error(400, "Invalid filename"), True),
        (error(501, "This server does not support slots action. Start it with `--slot-save-path`"), False),
        (error(404, "File Not Found"), None),
        (error(500, "?"), None),
    ],
)
async def test_a_save_without_a_name_tells(answer: Answer, saves: bool | None) -> None:
    async with ToyServer() as server:
        server.on("/slots/0?action=save", answer)
        backend = await connect(server.url)
        assert isinstance(backend, SlotFiles)
        assert await backend.saves_slots() is saves
        assert [visit.json for visit in server.visits if visit.method == "POST"] == [{"filename": ""}]
        await backend.aclose()
