"""Attached files in the composer: chips like those of pastes, and paths that are pasted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual import events
from textual.binding import Binding

from corpus import corpus
from kvchat.documents.attachments import attached
from kvchat.paths import pasted_path
from kvchat.prompt.context import FILE, ContextBlock
from kvchat.prompt.drafts import Draft, decoded, label_of
from kvchat.ui.widgets.composer.widget import Composer

Writing = Callable[..., Any]


def file(path: str, lines: int = 312) -> ContextBlock:
    return ContextBlock(FILE, path.rpartition("/")[2], "line\n" * lines, f"{path}#0123456789abcdef")


SETUP, OTHER = file("/docs/guide/setup.md"), file("/docs/old/setup.md")
LABEL = "[setup.md: 312 lines]"


async def test_an_attached_file_is_a_chip_that_goes_with_the_message(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        composer.insert("see")
        composer.attach(SETUP)
        await pilot.press("o", "k", "enter")
        sent = host.asked[0]
        assert (sent.text, sent.blocks) == (f"see {LABEL} ok", (SETUP,))
        composer.set_history([sent.text])
        await pilot.press("up", "enter")
        assert host.asked[1].blocks == (SETUP,), "recalled with its text"


@pytest.mark.parametrize("keys", [["backspace", "backspace"], ["left", "left", "delete"]])
async def test_the_chip_of_a_file_is_removed_as_a_unit(writing: Writing, keys: list[str]) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        composer.attach(SETUP)
        await pilot.press(*keys)
        assert composer.text.strip() == "" and composer.blocks == ()


async def test_a_draft_keeps_its_files_with_what_they_are_about(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test():
        composer.attach(SETUP)
        composer.attach(OTHER)
        composer.insert("x\n" * 3000)
        stored, blocks = composer.draft, composer.blocks
        assert {SETUP, OTHER} < set(blocks)
        composer.load("", "other")
        composer.load(stored, "mine")
        assert composer.blocks == blocks


async def test_two_files_of_one_name_have_two_labels_and_one_file_has_one(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test():
        for block in (SETUP, OTHER, SETUP):
            composer.attach(block)
        assert composer.text.split("] ") == [
            "[setup.md: 312 lines",
            "[old/setup.md: 312 lines",
            "[setup.md: 312 lines",
            "",
        ]
        draft = Draft(composer.text, composer.spans)
        composer.load("", "other")
        composer.restore(draft)
        assert composer.blocks == (SETUP, OTHER), "a message that could not be sent keeps its files"


@pytest.mark.parametrize("name", ["[x]: 9 lines].md", "\x1b[2J\u202e\n.md", "灯台" * 60 + ".md", "", "]"])
async def test_a_hostile_name_gives_a_label_that_is_whole_and_safe(writing: Writing, name: str) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        block = ContextBlock(FILE, name or "x", "a\nb", f"/docs/{name}#0123456789abcdef")
        composer.attach(block)
        await pilot.pause()
        assert composer.blocks == (block,)
        assert decoded(composer.draft).blocks == (block,)
        drawn = "".join(strip.text for strip in host.screen._compositor.render_strips())
        assert "\x1b" not in drawn and "\u202e" not in drawn
        await pilot.press("backspace", "backspace")
        assert composer.text == ""


async def test_the_chip_names_an_encoding_that_is_a_guess(writing: Writing, tmp_path: Path) -> None:
    path = tmp_path / "plan.txt"
    path.write_bytes("Москва: готово\n".encode("koi8-r") * 9)
    block = attached(path, "plan.txt", 40_000)
    host, composer = writing()
    async with host.run_test() as pilot:
        composer.attach(block)
        assert composer.text.strip() == "[plan.txt, read as KOI8-R: 9 lines]"
        await pilot.press("enter")
        assert host.asked[0].blocks == (block,)


def test_a_change_of_a_file_is_named_as_such() -> None:
    change = ContextBlock(FILE, "change of setup.md since it was attached", "-a\n+b\n", "/docs/setup.md#00..11")
    assert label_of(change) == "[change of setup.md: 2 lines]"


def test_a_damaged_draft_with_a_file_keeps_its_text() -> None:
    assert decoded('see [a.md: 1 line]\x1e[["a.md", "text", "ref"]]').text == "see [a.md: 1 line]"


@corpus(
    ("pasted", "path"),
    [
        ("/home/me/setup.md", "/home/me/setup.md"),
        ("'/home/me/my setup.md' ", "/home/me/my setup.md"),
        ("/home/me/my\\ setup.md ", "/home/me/my setup.md"),
        ("file:///home/me/my%20setup.md", "/home/me/my setup.md"),
        ("~/setup.md\n", "~/setup.md"),
        ("/home/me/it's.md", "/home/me/it's.md"),
        ("hello", None),
        ("/a\n/b", None),
        ("", None),
        ("/" + "x" * 5000, None),
        ("file://[", None),
    ],
)
def test_the_path_that_a_terminal_pastes_is_recognised(pasted: str, path: str | None) -> None:
    assert pasted_path(pasted) == path


async def test_a_pasted_path_stays_as_it_is_and_can_become_the_file(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        composer.insert("look at ")
        composer.query_one("ComposerText").post_message(events.Paste("/docs/guide/setup.md "))
        await pilot.pause()
        heard = host.heard(Composer.PathPasted)[0]
        assert (heard.path, heard.pasted) == ("/docs/guide/setup.md", "/docs/guide/setup.md")
        assert composer.text == "look at /docs/guide/setup.md "
        composer.attach(SETUP, heard.pasted)
        assert composer.text == f"look at {LABEL} "
        await pilot.press("ctrl+z")
        assert composer.text == "look at /docs/guide/setup.md "


async def test_f6_is_left_to_the_app_and_f7_selects_all(writing: Writing) -> None:
    host, composer = writing()
    pressed: list[str] = []
    host.action_note = lambda: pressed.append("f6")
    host._bindings.key_to_bindings["f6"] = [Binding("f6", "note", "")]
    async with host.run_test() as pilot:
        composer.insert("words")
        await pilot.press("f6")
        assert pressed == ["f6"] and not composer.query_one("ComposerText").selected_text
        await pilot.press("f7")
        assert composer.query_one("ComposerText").selected_text == "words"
