"""Jump letters: one on everything that can be seen and gone to, drawn over the rows."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.app import App, ComposeResult

from kvchat.config.themes import variable_defaults
from kvchat.prompt.context import ContextBlock
from kvchat.prompt.message import Role
from kvchat.ui.widgets.jump import LETTERS, JumpLetters, labels
from kvchat.ui.widgets.sidebar import Sidebar
from kvchat.ui.widgets.sidebar_rows import SidebarRow
from kvchat.ui.widgets.transcript.render.message import TranscriptItem
from kvchat.ui.widgets.transcript.widget import Transcript

SIZE = (80, 24)
CODE = "Read [1].\n\n```python\na = 1\n```\n\nand\n\n```\nls\n```"
SOURCE = ContextBlock("passage", "1 notes/lamp.md", "The lamp turns.")


@given(st.integers(0, len(LETTERS) ** 2))
def test_no_label_begins_with_another_one(number: int) -> None:
    found = labels(number)
    assert len(set(found)) == number
    assert max(map(len, found), default=1) == (1 if number <= len(LETTERS) else 2)
    singles = {label for label in found if len(label) == 1}
    assert not singles & {label[0] for label in found if len(label) == 2}


class Jump(App[None]):
    """A transcript, a list, and the letters."""

    def __init__(self, items: list[TranscriptItem], rows: int = 0) -> None:
        super().__init__()
        self.items, self.rows = items, rows
        self.told: list[Any] = []

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return variable_defaults(self.current_theme)

    def compose(self) -> ComposeResult:
        self.transcript, self.sidebar = Transcript(), Sidebar()
        self.sidebar.display = bool(self.rows)
        self.jump = JumpLetters(self.transcript, self.sidebar)
        yield self.sidebar
        yield self.transcript
        yield self.jump

    def on_mount(self) -> None:
        self.screen.styles.layout = "horizontal"
        self.transcript.set_items(self.items)
        self.sidebar.set_rows([SidebarRow(f"c{n}", f"title {n}", 0.0) for n in range(self.rows)])
        self.transcript.focus()

    def text(self) -> list[str]:
        strips = self.screen._compositor.render_strips()
        return ["".join(segment.text for segment in strip).rstrip() for strip in strips]

    def _keep(self, message: Any) -> None:
        self.told.append(message)

    on_transcript_code_copy_requested = on_transcript_sources_requested = _keep
    on_transcript_branches_requested = on_sidebar_opened = on_jump_letters_nothing_there = _keep


def answer(number: int, text: str, **more: Any) -> TranscriptItem:
    return TranscriptItem(f"a{number}", Role.ASSISTANT, "model", "09:16", text, **more)


def question(number: int, text: str = "Why?", **more: Any) -> TranscriptItem:
    return TranscriptItem(f"q{number}", Role.USER, "You", "09:16", text, **more)


@pytest.mark.parametrize(
    ("letter", "kind", "expected"),
    [
        ("d", Transcript.BranchesRequested, {"node": "a1"}),
        ("f", Transcript.SourcesRequested, {"node": "a1", "numbers": (1,)}),
        ("g", Transcript.CodeCopyRequested, {"number": 1, "text": "a = 1"}),
        ("H", Transcript.CodeCopyRequested, {"number": 2, "text": "ls"}),
        ("k", Sidebar.Opened, {"id": "c0"}),
        ("l", Sidebar.Opened, {"id": "c1"}),
    ],
)
async def test_a_letter_does_what_it_stands_on(letter: str, kind: Any, expected: dict[str, Any]) -> None:
    """Small or capital: a, s are the messages; d the versions, f the citation, g, h the code, j the list of sources."""
    app = Jump([question(1), answer(1, CODE, siblings=(2, 3), sources=((1, SOURCE),))], rows=2)
    async with app.run_test(size=SIZE) as pilot:
        app.jump.begin()
        await pilot.press(letter)
        await pilot.pause()
        (told,) = app.told
        assert type(told) is kind
        assert {name: getattr(told, name) for name in expected} == expected
        assert app.focused is app.transcript


async def test_letters_move_nothing_and_go_away_without_a_trace() -> None:
    app = Jump([question(1), answer(1, CODE, siblings=(2, 3), sources=((1, SOURCE),))], rows=2)
    async with app.run_test(size=SIZE) as pilot:
        before = app.text()
        app.jump.begin()
        await pilot.pause()
        shown = app.text()
        places = [
            (a, b)
            for old, new in zip(before, shown, strict=True)
            for a, b in zip(old.ljust(80), new.ljust(80), strict=True)
            if a != b
        ]
        assert "".join(sorted(new for _, new in places)) == "".join(sorted("asdfghjkl"))
        await pilot.press("escape")
        for key in ("escape", "0", "ctrl+n", "space"):
            app.jump.begin()
            await pilot.press(key)
            await pilot.pause()
            assert app.text() == before
            assert app.focused is app.transcript
        assert app.told == []


async def test_where_there_are_more_targets_than_letters_some_have_two() -> None:
    app = Jump([question(1)], rows=40)
    async with app.run_test(size=(80, 45)) as pilot:
        app.jump.begin()
        await pilot.pause()
        line = next(line for line in app.text() if "title 39" in line)
        first, second = line[:2]
        assert first.isalpha()
        assert second.isalpha()
        await pilot.press(first)
        await pilot.pause()
        left = [line for line in app.text() if line[:1].isalpha() and "title" in line]
        assert 1 < len(left) < 40
        assert any(line.startswith(second) and "title 39" in line for line in left)
        await pilot.press(second)
        await pilot.pause()
        assert [told.id for told in app.told] == ["c39"]


async def test_a_letter_on_a_message_selects_it_and_the_view_stays() -> None:
    long = "\n\n".join(f"line {number}" for number in range(30))
    app = Jump([question(1), answer(1, long), question(2), answer(2, "short")])
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        before = app.text()
        app.jump.begin()
        await pilot.press("a")  # the one whose title is above the view
        await pilot.pause()
        assert app.transcript.selected == "a1"
        assert [line[2:79] for line in app.text()] == [line[2:79] for line in before]


async def test_an_answer_may_stream_under_the_letters() -> None:
    app = Jump([question(1), answer(1, "", streaming=True)])
    async with app.run_test(size=SIZE) as pilot:
        app.jump.begin()
        app.transcript.stream_text("a1", "\n\n".join(f"word {number}" for number in range(20)))
        await pilot.pause(0.2)
        assert any(line.startswith("s model") for line in app.text()) or "word 19" in "\n".join(app.text())
        await pilot.press("s")
        assert app.transcript.selected == "a1"


async def test_where_nothing_can_be_jumped_to_that_is_said() -> None:
    app = Jump([])
    async with app.run_test(size=SIZE) as pilot:
        app.jump.begin()
        await pilot.pause()
        assert [type(told) for told in app.told] == [JumpLetters.NothingThere]
        assert app.focused is app.transcript
