"""Who looks elsewhere is called when an answer ends: by the bell, and by a notification while the window is behind."""

from __future__ import annotations

import pytest
from app_kit import Drive, Driven, driving
from textual import events

from kvchat.config import Settings, changed
from kvchat.ui.terminal.desktop import Desktop
from toyserver import Answer, ToyServer, error, tokens

NOTIFY = "\x1b]777;notify;kvchat;"


class Heard:
    """What reaches the desktop and the ear."""

    def __init__(self, app: Driven) -> None:
        self.written: list[str] = []
        self.bells = 0
        app.app.desktop = Desktop(self.written.append, {"TERM": "xterm-256color"})
        app.app.bell = self._ring  # type: ignore[method-assign]

    def _ring(self) -> None:
        self.bells += 1

    @property
    def notices(self) -> list[str]:
        return [text.removeprefix(NOTIFY).removesuffix("\x1b\\") for text in self.written if text.startswith(NOTIFY)]


async def answered(app: Driven, server: ToyServer, answer: Answer, *, in_front: bool) -> None:
    server.on_chat(answer)
    app.app.post_message(events.AppFocus() if in_front else events.AppBlur())
    await app.rest()
    await app.begin("one; two")


@pytest.mark.parametrize(
    ("answer", "in_front", "notices"),
    [
        (tokens("Hello"), True, []),
        (tokens("Hello"), False, ["Answer ready: one, two"]),
        (error(500, "no"), False, ["Answer failed: one, two"]),
    ],
)
async def test_a_window_behind_others_notifies(
    drive: Drive, server: ToyServer, answer: Answer, in_front: bool, notices: list[str]
) -> None:
    async with drive() as app:
        heard = Heard(app)
        await answered(app, server, answer, in_front=in_front)
        assert heard.notices == notices
        assert heard.bells == (not in_front)


async def test_an_incognito_run_leaves_no_title_with_the_system(server: ToyServer) -> None:
    async with driving(None, server) as app:
        heard = Heard(app)
        await answered(app, server, tokens("Hello"), in_front=False)
        assert heard.notices == ["Answer ready"]


async def test_neither_where_the_person_wants_none(drive: Drive, server: ToyServer) -> None:
    async with drive(settings=changed(Settings(), "notify", False)) as app:
        heard = Heard(app)
        await answered(app, server, tokens("Hello"), in_front=False)
        assert (heard.notices, heard.bells) == ([], 0)
