"""Attaching a file: its path is completed, and what cannot be attached is said where it can be mended."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from rich.cells import cell_len
from screens_kit import HOSTILE, MARKUP, Shown, showing
from textual.widgets import Input

from kvchat.chat.errors import ChatError
from kvchat.documents.mentions import Mention, MentionKind, on_disk
from kvchat.prompt.context import FILE, ContextBlock
from kvchat.ui.screens.context import AttachScreen


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "guide").mkdir()
    for name in ("guide/setup.md", "guide/a b.md", "notes.md", "notes.md.old"):
        (tmp_path / name).write_text("text\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@asynccontextmanager
async def attaching(taken: list[str], size: tuple[int, int] = (80, 24)) -> AsyncIterator[Shown]:
    async def complete(beginning: str) -> list[Mention]:
        return on_disk(beginning, 100)

    async def attach(path: str) -> ContextBlock:
        taken.append(path)
        if not Path(path).expanduser().is_file():
            raise ChatError.of(f"There is no file {path}.")
        return ContextBlock(FILE, Path(path).name, "text\n", f"{path}#0")

    async with showing(AttachScreen(complete, attach), size) as shown:
        await shown.pilot.pause()
        yield shown


def written(shown: Shown) -> str:
    return shown.app.screen.query_one(Input).value


async def test_tab_goes_into_a_folder_and_enter_attaches_the_file(folder: Path) -> None:
    taken: list[str] = []
    async with attaching(taken) as shown:
        assert "guide/" in shown.cursor_line and "notes.md" in shown.text
        await shown.type("gu")
        await shown.press("tab")
        assert written(shown) == "guide/" and "setup.md" in shown.text
        await shown.press("down", "enter")
        assert taken == ["./guide/setup.md"] and [one.source for one in shown.answers] == ["setup.md"]


@pytest.mark.parametrize("written_as", ["notes.md", "./notes.md", "{}/notes.md"])
async def test_a_path_that_is_written_in_full_is_what_enter_takes(folder: Path, written_as: str) -> None:
    taken: list[str] = []
    async with attaching(taken) as shown:
        path = written_as.format(folder)
        shown.app.screen.query_one(Input).value = path
        await shown.pilot.pause()
        await shown.press("enter")
        assert [Path(one).resolve() for one in taken] == [folder / "notes.md"]


async def test_a_path_in_quotes_as_a_terminal_drops_it_is_understood(folder: Path) -> None:
    taken: list[str] = []
    async with attaching(taken) as shown:
        shown.app.screen.query_one(Input).value = f"'{folder}/guide/a b.md' "
        await shown.pilot.pause()
        await shown.press("enter")
        assert taken == [f"{folder}/guide/a b.md"] and len(shown.answers) == 1


async def test_what_cannot_be_attached_is_said_and_can_be_mended(folder: Path) -> None:
    async with attaching([]) as shown:
        await shown.type("gone.md")
        assert "Nothing begins like this." in shown.text
        await shown.press("enter")
        assert "There is no file gone.md." in shown.text and shown.answers == []
        await shown.press("backspace")
        assert "There is no file" not in shown.text
        await shown.press("escape")
        assert shown.answers == [None]


@pytest.mark.parametrize("size", [(80, 24), (40, 14)])
async def test_hostile_names_and_sentences_only_stand_there(size: tuple[int, int]) -> None:
    async def complete(beginning: str) -> list[Mention]:
        return [Mention(f"./{name}", name, MentionKind.FILE) for name in (*HOSTILE, "灯台" * 80, "[@click=x]y[/]")]

    async def attach(path: str) -> ContextBlock:
        raise ChatError.of(f"{MARKUP}{path}")

    async with showing(AttachScreen(complete, attach), size) as shown:
        await shown.app.workers.wait_for_complete()
        await shown.press("end", "enter")
        await shown.app.workers.wait_for_complete()
        await shown.pilot.pause()
        assert "[red]red[/]" in shown.text, "why it could not be attached stays"
        assert "\x1b" not in shown.text and "\u202e" not in shown.text
        assert "╯" in shown.text and all(cell_len(line) <= size[0] for line in shown.lines)
