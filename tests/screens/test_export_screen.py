"""Choosing what to export and where to."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from screens_kit import Seen, Shown, answered, conversation, showing, triples
from textual.widgets import Input

from kvchat.commands.acts import ExportRequest
from kvchat.transfer import FORMATS
from kvchat.transfer.formats import format_of
from kvchat.transfer.write import suggested_name
from kvchat.ui.screens.export import ExportScreen

TALK = conversation("lighthouse log")


def export(folder: Path) -> ExportScreen:
    return ExportScreen(TALK, conversations=14, branches=4, folder=folder)


async def write(shown: Shown, path: str) -> None:
    shown.app.screen.query_one(Input).value = path
    await shown.pilot.pause()


async def test_enter_exports_what_is_shown(tmp_path: Path) -> None:
    async with showing(export(tmp_path)) as shown:
        await shown.press("enter")
        request = shown.answers[0]
    assert request == ExportRequest("md", tmp_path / suggested_name(TALK, "md"))
    assert not request.path.exists(), "the screen itself writes nothing"


async def test_every_format_can_be_chosen_and_names_the_file(tmp_path: Path) -> None:
    def chosen(format: str) -> Seen:
        def check(shown: Shown) -> None:
            (request,) = shown.answers
            assert (request.format, request.path.suffix) == (format, f".{format}")
            assert request.all_branches == format_of(format).every_branch

        return check

    opened = partial(export, tmp_path)
    await triples(
        *((opened, "right " * steps, format_of(format).title) for steps, format in enumerate(FORMATS)),
        *((opened, "right " * steps + "enter", chosen(format)) for steps, format in enumerate(FORMATS)),
        (opened, "up right", "[all 4 branches]"),
        (opened, "up right up right", "[all conversations (14)]"),
        (
            opened,
            "up right up right enter",
            answered(ExportRequest("md", tmp_path / "conversations.md", True, True)),
        ),
    )


async def test_a_name_of_ones_own_survives_a_change_of_format(tmp_path: Path) -> None:
    async with showing(export(tmp_path)) as shown:
        await write(shown, "mine.txt")
        await shown.press("right", "enter")
        assert shown.answers[0].path == tmp_path / "mine.txt"
        assert shown.answers[0].format == "html"


async def test_the_home_folder_is_written_as_a_tilde(own_folders: Path) -> None:
    async with showing(export(own_folders)) as shown:
        assert shown.app.screen.query_one(Input).value == f"~/{suggested_name(TALK, 'md')}"
        assert str(own_folders) in shown.prose.replace(" ", "")
        await shown.press("enter")
        assert shown.answers[0].path == own_folders / suggested_name(TALK, "md")


async def test_an_existing_file_is_asked_about_and_then_replaced(tmp_path: Path) -> None:
    (tmp_path / "old.md").write_text("precious")
    async with showing(export(tmp_path)) as shown:
        await write(shown, str(tmp_path / "old.md"))
        await shown.press("enter")
        assert "old.md is there already." in shown.text and shown.answers == []
        await shown.press("enter")
        assert shown.answers == [ExportRequest("md", tmp_path / "old.md", overwrite=True)]


async def test_agreeing_to_replace_one_file_is_not_agreeing_to_replace_another(tmp_path: Path) -> None:
    for name in ("a.md", "b.md"):
        (tmp_path / name).write_text("precious")
    async with showing(export(tmp_path)) as shown:
        await write(shown, str(tmp_path / "a.md"))
        await shown.press("enter")
        await write(shown, str(tmp_path / "b.md"))
        await shown.press("enter")
        assert shown.answers == [] and "b.md is there already." in shown.text
        await write(shown, str(tmp_path / "c.md"))
        await shown.press("enter")
        assert shown.answers == [ExportRequest("md", tmp_path / "c.md")]


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("", "Write the name of a file."),
        ("{}", "This is a folder. Name a file in it."),
        ("{}/nowhere/x.md", "There is no folder"),
        ("a\0b", "not a usable file name"),
        ("{}/" + "x" * 300, "not a usable file name"),
        ("~nobody-of-this-name/x.md", "Write the name of a file."),
    ],
)
async def test_a_path_that_cannot_work_is_said_and_not_taken(tmp_path: Path, path: str, sentence: str) -> None:
    async with showing(export(tmp_path), size=(120, 40)) as shown:
        await write(shown, path.format(tmp_path))
        assert sentence in shown.text
        await shown.press("enter")
        assert shown.answers == []
        await shown.press("escape")
        assert shown.answers == [None]


async def test_every_format_and_every_key_is_in_sight_on_a_small_terminal(tmp_path: Path) -> None:
    async with showing(export(tmp_path), size=(60, 20)) as shown:
        names = [format_of(name).name for name in FORMATS]
        assert [name for name in names if name not in shown.prose] == []
        assert "enter export" in shown.text and "› " in shown.text
        x, y = next((line.index(names[-1]), y) for y, line in enumerate(shown.lines) if names[-1] in line)
        await shown.pilot.click(offset=(x, y))
        assert f"[{names[-1]}]" in shown.prose


async def test_nothing_chooses_all_conversations_in_an_empty_one(tmp_path: Path) -> None:
    async with showing(ExportScreen(None, conversations=14, folder=tmp_path)) as shown:
        await shown.press("enter")
        assert not shown.answers and "This conversation has no messages yet." in shown.text
        await shown.press("right", "enter")
        assert shown.answers[0].all_conversations and shown.answers[0].path.name.startswith("conversations.")
