"""Images in the app: a chip in the message, a line in the conversation; what cannot be sent stays where it is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from app_kit import Drive

from kvchat.prompt.message import Role
from picture_samples import picture
from standins.llamacpp_vision import SeeingServer

pytestmark = pytest.mark.slow

CHIP = "[image lamp.png 640x480]"


@pytest.fixture
async def seeing() -> AsyncIterator[SeeingServer]:
    async with SeeingServer() as server:
        yield server


@pytest.fixture
async def blind() -> AsyncIterator[SeeingServer]:
    async with SeeingServer(sees=False, model="blind-1b") as server:
        yield server


@pytest.fixture(autouse=True)
def lamp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    path = folder / "lamp.png"
    path.write_bytes(picture())
    return path


async def test_an_attached_image_is_a_chip_with_its_price_and_goes_out(drive: Drive, seeing: SeeingServer) -> None:
    async with drive(server=seeing) as app:
        await app.command("/attach lamp.png")
        await app.until(lambda: CHIP in app.draft and "at most 1,400 tokens" in app.text)
        await app.type("What is this?")
        await app.press("enter")
        await app.until(lambda: app.conversation.record.turns == 1)
        await app.settled()
        assert "image: lamp.png 640x480" in app.text and CHIP in app.text
        assert any(b"data:image/png;base64," in visit.body for visit in seeing.chats)
        assert app.conversation.record.title == "What is this?"


async def test_ctrl_v_attaches_the_image_in_the_clipboard_and_what_follows_comes_behind_it(
    drive: Drive, seeing: SeeingServer, lamp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SSH_CONNECTION", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setenv("PATH", str(lamp.parent), prepend=":")
    program = lamp.parent / "xclip"
    program.write_text(f'#!/bin/sh\ncase "$*" in *TARGETS*) echo image/png;; *) cat {lamp};; esac\n')
    program.chmod(0o755)
    async with drive(server=seeing) as app:
        await app.press("ctrl+v", *"lit?")
        await app.until(lambda: app.draft == "[image clipboard 640x480] lit?")
        await app.press("enter")
        await app.until(lambda: app.conversation.record.turns == 1)
        await app.settled()
        assert any(b"data:image/png;base64," in visit.body for visit in seeing.chats)
        lamp.write_bytes(b"no image")
        await app.press("ctrl+v")
        await app.until(lambda: app.noticed("The image in the clipboard cannot be attached"))
        program.unlink()
        monkeypatch.setenv("PATH", str(lamp.parent))
        await app.press("ctrl+v")
        await app.until(lambda: app.noticed("xclip is needed"))


@pytest.mark.parametrize("colours", [True, False], ids=["colours", "NO_COLOR"])
async def test_an_image_is_drawn_where_there_are_colours_for_it(
    drive: Drive, seeing: SeeingServer, colours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLORTERM", "truecolor")
    if not colours:
        monkeypatch.setenv("NO_COLOR", "1")
    async with drive(server=seeing) as app:
        await app.command("/attach lamp.png")
        await app.until(lambda: CHIP in app.draft)
        await app.press("enter")
        await app.until(lambda: app.conversation.record.turns == 1)
        await app.settled()
        if colours:
            await app.until(lambda: "▀" * 20 in app.text)
        await app.rest()
        rows = [row for row in app.transcript_rows if "▀" in row]
        assert len(rows) == (12 if colours else 0) and "image: lamp.png 640x480" in app.text


async def test_a_mentioned_image_is_shown_over_the_composer(drive: Drive, seeing: SeeingServer) -> None:
    async with drive(server=seeing) as app:
        await app.write("What is @./lamp.png ?")
        await app.until(lambda: "1 file ≤1,400 tok" in app.text)


@pytest.mark.parametrize("form", ["{0}", "'{0}' ", "file://{0}", "{1}", "./lamp.png\n"])
async def test_a_pasted_path_becomes_the_image_by_itself_and_undo_takes_it_back(
    drive: Drive, seeing: SeeingServer, lamp: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(lamp.parent.parent))
    pasted = form.format(lamp, f"~/{lamp.parent.name}/{lamp.name}")
    async with drive(server=seeing) as app:
        await app.write("see ")
        await app.paste(pasted)
        await app.press(*"lit?")
        await app.until(lambda: app.draft.startswith(f"see {CHIP} ") and app.draft.strip().endswith(" lit?"))
        await app.press(*["ctrl+underscore"] * 2)
        await app.until(lambda: app.draft.strip() == f"see {pasted.strip()}")
        await app.paste("\n")
        await app.press("enter")
        await app.until(lambda: app.conversation.record.turns == 1)
        await app.settled()
        assert app.said[0].strip() == f"see {pasted.strip()}"
        assert not any(b"data:image" in visit.body for visit in seeing.chats)


async def test_a_pasted_path_of_no_image_stays_text(drive: Drive, seeing: SeeingServer, lamp: Path) -> None:
    notes, gone, broken = (lamp.with_name(name) for name in ("notes.md", "gone.png", "broken.png"))
    notes.write_text("Notes.")
    broken.write_bytes(b"no image")
    async with drive(server=seeing) as app:
        for path, told in ((notes, "That is a file's path"), (gone, ""), (broken, "broken.png")):
            await app.paste(f"{path} ")
            await app.until(lambda told=told: not told or app.noticed(told))
            assert app.draft.endswith(f"{path} ")
        assert "[" not in app.draft


async def test_what_a_blind_model_cannot_get_stays_in_the_composer(drive: Drive, blind: SeeingServer) -> None:
    async with drive(server=blind) as app:
        await app.command("/attach lamp.png")
        await app.until(lambda: CHIP in app.draft)
        await app.type("What is this?")
        written = app.draft
        await app.press("enter")
        await app.until(lambda: app.noticed("Nothing was sent: blind-1b cannot see images."))
        await app.until(lambda: app.draft == written)
        assert not [node for node in app.path if node.role is Role.USER]
        assert not any(b"image_url" in visit.body for visit in blind.visits)


async def test_an_image_in_a_draft_is_there_after_a_restart(drive: Drive, seeing: SeeingServer, lamp: Path) -> None:
    async with drive(server=seeing) as app:
        await app.command("/attach lamp.png")
        await app.until(lambda: CHIP in app.draft)
        await app.until(lambda: CHIP in app.conversation.draft)
        id = app.conversation.id
    lamp.unlink()
    async with drive(server=seeing) as app:
        await app.open(id)
        await app.until(lambda: CHIP in app.draft)
        await app.press("enter")
        await app.until(lambda: app.conversation.record.turns == 1)
        await app.settled()
        assert any(b"data:image/png;base64," in visit.body for visit in seeing.chats)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (picture()[:900], "it is a broken image."),
        (b"\x89PNG\r\n\x1a\n" + bytes(50), "it is an image that cannot be read"),
    ],
)
async def test_a_broken_image_is_told_and_the_command_stays(
    drive: Drive, seeing: SeeingServer, lamp: Path, data: bytes, said: str
) -> None:
    lamp.write_bytes(data)
    async with drive(server=seeing) as app:
        await app.command("/attach lamp.png")
        await app.until(lambda: app.noticed(said))
        await app.until(lambda: "/attach lamp.png" in app.draft)
