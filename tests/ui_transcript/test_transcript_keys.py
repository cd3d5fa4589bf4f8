"""Keys, clicks and selection."""

from __future__ import annotations

from typing import Any

import pytest

from kvchat.prompt.context import ContextBlock
from kvchat.prompt.message import State
from kvchat.ui.runs import Run
from kvchat.ui.widgets.transcript.render.message import as_text
from kvchat.ui.widgets.transcript.widget import Transcript

SIZE = (80, 24)
CODE = "Two blocks:\n\n```python\na = 1\n```\n\nand\n\n```\n\tindented\nplain <b>\n```\n"


async def test_up_and_down_move_between_messages(make_app: Any, items: Any) -> None:
    keys = ["up", "k", "up", "down", "j", "home", "end"]
    nodes = ["a4", "q4", "a3", "q4", "a4", "q0", "a4"]
    app = make_app(items.turns(5))
    async with app.run_test(size=SIZE) as pilot:
        for key, expected in zip(keys, nodes, strict=True):
            await pilot.press(key)
            assert app.transcript.selected == expected
        assert [m.node for m in app.of(Transcript.Selected)] == nodes


@pytest.mark.parametrize(
    ("key", "act"),
    [
        ("e", ("transcript.edit",)),
        ("r", ("transcript.regenerate",)),
        ("y", ("transcript.copy",)),
        ("1", ("transcript.code", "1")),
        ("2", ("transcript.code", "2")),
        ("o", ("transcript.source",)),
        ("b", ("transcript.branches",)),
        ("f", ("transcript.fork",)),
        ("d", ("transcript.delete",)),
        ("left", ("sibling", -1)),
        ("right", ("sibling", 1)),
    ],
)
async def test_a_key_does_its_act_of_the_table(make_app: Any, items: Any, key: str, act: tuple[object, ...]) -> None:
    app = make_app([items.question(1), items.answer(1, CODE, siblings=(2, 3))])
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("up", key)
        assert (app.done, app.transcript.selected) == ([act], "a1")


@pytest.mark.parametrize("key", ["x", "É", "?"])
async def test_what_is_no_key_here_is_written(make_app: Any, items: Any, key: str) -> None:
    app = make_app([items.question(1), items.answer(1)])
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("up", *(["question_mark"] if key == "?" else [key]))
        assert [message.character for message in app.of(Transcript.TypeThrough)] == [key] and not app.done


async def test_code_is_that_of_the_marked_message_else_of_the_last_that_has_it(make_app: Any, items: Any) -> None:
    app = make_app([items.answer(1, CODE), items.question(2), items.answer(2, "```\nlast\n```")])
    async with app.run_test(size=SIZE) as pilot:
        code = app.transcript.code_text
        assert (code(1), code(2), code(3), code(0)) == ("last", "\tindented\nplain <b>", None, None)
        await pilot.press("up", "up", "up")
        assert (code(1), code(2), code(3)) == ("a = 1", "\tindented\nplain <b>", None)
        await pilot.press("down")
        assert (app.transcript.selected, code(1)) == ("q2", None)


@pytest.mark.parametrize(
    "more",
    ["The lamp turned. " * 20_000, "- a\n" * 15_000, "> " * 100 + "deep"],
    ids=["too long", "too many parts", "too deep"],
)
async def test_code_of_an_answer_that_is_shown_as_written(make_app: Any, items: Any, more: str) -> None:
    text = f"{CODE}\n\n{more}\n\n~~~\na = [\n  1,\n]\n~~~\n{more}\n\n  ```sh\n  ls\n    -la\n"
    app = make_app([items.answer(1, "```\nolder\n```"), items.question(2), items.answer(2, text)])
    async with app.run_test(size=SIZE) as pilot:
        code = app.transcript.code_text
        found = ["a = 1", "\tindented\nplain <b>", "a = [\n  1,\n]", "ls\n  -la", None]
        assert [code(number) for number in range(1, 6)] == found
        await pilot.press("up")
        assert app.transcript.selected == "a2" and "transcript.code" in app.transcript.can
        assert [code(number) for number in range(1, 6)] == found


async def test_a_message_that_is_not_in_view_is_shown_before_anything_is_done_with_it(
    make_app: Any, items: Any
) -> None:
    app = make_app(items.turns(8))
    async with app.run_test(size=SIZE) as pilot:
        assert not app.transcript.shows_selected(), "none is selected"
        await pilot.press("home")
        assert app.transcript.shows_selected()
        app.transcript.scroll_end(animate=False)
        await pilot.pause()
        assert not app.transcript.shows_selected()
        await pilot.pause()
        assert app.transcript.shows_selected() and "question 0" in "\n".join(app.lines())


def barred(app: Any) -> set[str]:
    """The messages that are drawn as selected."""
    return {entry.item.node_id for _, entry in app.transcript._column.made() if entry.selected}


async def test_shift_selects_several_messages_and_y_copies_them_together(make_app: Any, items: Any) -> None:
    app = make_app([items.question(1), items.answer(1), items.question(2), items.answer(2)])
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("up", "shift+up", "shift+up")
        assert (app.transcript.selected, barred(app)) == ("a1", {"a1", "q2", "a2"})
        assert as_text(app.transcript.selected_items) == (
            "## Model\n\nanswer 1\n\n## You\n\nquestion 2\n\n## Model\n\nanswer 2"
        )
        await pilot.press("shift+down")
        assert len(app.transcript.selected_items) == 2 and barred(app) == {"q2", "a2"}
        assert sum("▎" in line for line in app.lines()) == 2 * 2
        await pilot.press("up")
        assert (as_text(app.transcript.selected_items), barred(app)) == ("answer 1", {"a1"})


async def test_a_selection_whose_beginning_is_gone_is_of_one_message(make_app: Any, items: Any) -> None:
    shown = [items.question(1), items.answer(1), items.question(2), items.answer(2)]
    app = make_app(shown)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("up", "shift+up", "shift+up")
        app.transcript.set_items(shown[:3])
        await pilot.pause()
        assert (app.transcript.selected, barred(app)) == ("a1", {"a1"})
        app.transcript.set_items([*shown[:3], items.answer(3)])
        await pilot.press("shift+down")
        assert (len(app.transcript.selected_items), barred(app)) == (2, {"a1", "q2"})


async def test_keys_can_be_rebound_by_id(make_app: Any, items: Any) -> None:
    app = make_app([items.question(1), items.answer(1)])
    async with app.run_test(size=SIZE) as pilot:
        app.set_keymap({"transcript.copy": "c"})
        await pilot.press("up", "c", "y")
        assert app.done == [("transcript.copy",)]
        assert [m.character for m in app.of(Transcript.TypeThrough)] == ["y"]


async def test_enter_unfolds_reasoning_and_context_and_folds_them_again(make_app: Any, items: Any) -> None:
    blocks = (ContextBlock("time", "2026", "Monday 09:16"), ContextBlock("passage", "notes/lamp.md", "the lamp turned"))
    app = make_app([items.question(1, blocks=blocks), items.answer(1, "so", reasoning="first\nsecond thought")])
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        text = "\n".join(app.lines())
        assert "▸ thought in 3 words" in text and "second thought" not in text
        assert "▸ sent with: time, 1 passage from notes/lamp.md" in text and "the lamp turned" not in text
        await pilot.press("up", "enter", "up", "space")
        text = "\n".join(app.lines())
        assert "▾ thought in 3 words" in text and "│ second thought" in text
        assert "▾ sent with" in text and "│ the lamp turned" in text
        await pilot.press("enter", "down", "enter")
        assert "second thought" not in "\n".join(app.lines()) and "the lamp turned" not in "\n".join(app.lines())


async def test_a_click_on_a_fold_toggles_it_and_elsewhere_selects(make_app: Any, items: Any) -> None:
    app = make_app([items.question(1), items.answer(1, "so", reasoning="first\nsecond thought")])
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        row = next(y for y, line in enumerate(app.lines()) if "▸ thought" in line)
        await pilot.click(Transcript, offset=(5, row))
        assert "second thought" in "\n".join(app.lines())
        await pilot.click(Transcript, offset=(5, 1))
        assert app.transcript.selected == "q1"


async def test_dragging_over_wrapped_prose_copies_the_source(make_app: Any, items: Any) -> None:
    prose = "The *log* keeps one row for every night and every row has **three columns** of numbers, no more. " * 2
    app = make_app([items.question(1), items.answer(1, f"{prose.strip()}\n\n- a\n- b")])
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        lines = app.lines()
        first = next(y for y, line in enumerate(lines) if "The log" in line)
        last = next(y for y, line in enumerate(lines) if "• b" in line)
        await pilot.mouse_down(Transcript, offset=(2, first))
        await pilot.hover(Transcript, offset=(4, last))
        await pilot.mouse_up(Transcript, offset=(4, last))
        assert app.screen.get_selected_text() == f"{prose.strip()}\n\n- a\n- b"


async def test_a_selection_stays_on_its_text_while_messages_above_change(make_app: Any, items: Any) -> None:
    app = make_app([items.answer(0, "x", reasoning="one\ntwo\nthree"), items.question(1, "select these words")])
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        y = next(y for y, line in enumerate(app.lines()) if "select these" in line)
        await pilot.mouse_down(Transcript, offset=(2, y))
        await pilot.hover(Transcript, offset=(13, y))
        await pilot.mouse_up(Transcript, offset=(13, y))
        assert app.screen.get_selected_text() == "select these"
        app.transcript._toggle(app.transcript._column.entry(0), "reasoning")
        await pilot.pause()
        assert app.screen.get_selected_text() == "select these"


async def test_a_double_click_selects_the_word(make_app: Any, items: Any) -> None:
    app = make_app([items.question(1, "open notes/lamp.md now")])
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        await pilot.click(Transcript, offset=(12, 1), times=2)
        assert app.screen.get_selected_text() == "notes/lamp.md"


async def test_the_live_row_stands_below_the_last_message_and_goes(make_app: Any, items: Any) -> None:
    app = make_app([items.question(1), items.streaming(1)])
    async with app.run_test(size=SIZE) as pilot:
        app.transcript.set_live("waiting for the server")
        await pilot.pause()
        assert "waiting for the server" in "\n".join(app.lines())
        app.transcript.set_live(lambda width: [Run(f"{width} cells")])
        await pilot.pause()
        assert f"{app.transcript.text_width} cells" in "\n".join(app.lines())
        app.transcript.append(items.question(2))
        await pilot.pause()
        text = "\n".join(app.lines())
        assert text.index("question 2") < text.index(" cells")
        app.transcript.set_items([*app.transcript.items, items.question(3), items.streaming(3)])
        await pilot.pause()
        text = "\n".join(app.lines())
        assert text.count(" cells") == 1 and text.index("question 3") < text.index(" cells")
        app.transcript.set_live(None)
        await pilot.pause()
        assert "cells" not in "\n".join(app.lines())


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (State.CANCELLED, "■ because"),
        (State.INTERRUPTED, "▲ Interrupted: because"),
        (State.LENGTH, "Cut at max tokens"),
        (State.CONTEXT_FULL, "▲ The context window is full: because"),
        (State.EMPTY, "▲ The answer is empty: because"),
    ],
)
async def test_how_an_answer_ended_is_told_with_its_text_kept(
    make_app: Any,
    items: Any,
    state: State,
    words: str,
) -> None:
    app = make_app([items.question(1), items.streaming(1)])
    async with app.run_test(size=SIZE) as pilot:
        app.transcript.stream_text("a1", "half of it")
        app.transcript.end_stream(items.answer(1, "half of it", state=state, note="because"))
        await pilot.pause()
        text = "\n".join(app.lines())
        assert "half of it" in text and words in text


async def test_an_error_is_a_box_with_its_sentence_and_the_retry_key(make_app: Any, items: Any) -> None:
    app = make_app([items.question(1), items.streaming(1)])
    async with app.run_test(size=SIZE) as pilot:
        app.transcript.update_item("a1", items.answer(1, "x", state=State.ERROR, note="The server said [/no] \x1b[2J."))
        await pilot.pause()
        lines = app.lines()
        assert any(line.strip().startswith("╭─ error ") for line in lines)
        assert any("The server said [/no] ␛[2J." in line for line in lines) and any("r retry" in line for line in lines)
        edges = {len(line) for line in lines if line.strip()[:1] in "╭│╰" and line.strip()}
        assert len(edges) == 1


async def test_find_counts_in_all_messages_and_goes_around(make_app: Any, items: Any) -> None:
    app = make_app(
        [
            *items.turns(20),
            items.question(50, "a NEEDLE here"),
            *[items.question(n) for n in range(60, 90)],
            items.answer(91, "one needle and\n\nanother **needle**"),
        ]
    )
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        assert app.transcript.find("needle") == 3
        assert "another needle" in "\n".join(app.lines())
        assert app.transcript.find_next(1) == 1
        await pilot.pause()
        assert "a NEEDLE here" in "\n".join(app.lines())
        y = next(y for y, line in enumerate(app.lines()) if "NEEDLE" in line)
        marked = [segment.text for segment in app.transcript.render_line(y) if segment.style and segment.style.bold]
        assert marked == ["NEEDLE"]
        assert app.transcript.find_next(-1) == 3
        assert app.transcript.find("no such text") == 0 and app.transcript.find_next(1) == 0
        assert app.transcript.find("") == 0


async def test_finding_shifts_no_line(make_app: Any, items: Any) -> None:
    words = "**the lamp** turned more than `x` times, 日本語日本語日本語, and the lamp turned more and more "
    answer = f"{words * 4}\n\n- {words}\n\n```\nx = 1 {words}\n```"
    app = make_app([items.question(1, words * 4), items.answer(1, answer)])
    for width in range(24, 44):
        async with app.run_test(size=(width, 30)) as pilot:
            await pilot.press("home")
            before = app.lines()
            for query in ("a", "lamp", "the lamp", "turned more", "日本語", "x = 1", "`x`"):
                app.transcript.find(query)
                app.transcript.scroll_home(animate=False)
                await pilot.pause()
                assert app.lines() == before, query
        app = make_app(app._items)


async def test_another_conversation_opens_at_its_end_and_the_same_stays_where_it_is(make_app: Any, items: Any) -> None:
    app = make_app(items.turns(30))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.press("home")
        before = app.lines()
        app.transcript.set_items([*items.turns(30), items.question(99)])
        await pilot.pause()
        assert app.lines() == before and app.transcript.selected == "q0"
        app.transcript.set_items([items.question(n) for n in range(100, 140)])
        await pilot.pause()
        assert "question 139" in "\n".join(app.lines()) and app.transcript.selected is None
        app.transcript.set_items([])
        await pilot.pause()
        assert set(app.lines()) == {""}


async def test_a_theme_change_recolours_what_is_shown(make_app: Any, items: Any) -> None:
    app = make_app([items.question(1)])
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        before = app.transcript.render_line(1)._segments[1].style
        app.theme = "textual-light"
        await pilot.pause()
        after = app.transcript.render_line(1)._segments[1].style
        assert before.color != after.color
