"""What has come is drawn, whatever happens between its coming and its drawing, and without anything more coming."""

from __future__ import annotations

import asyncio
from random import Random
from time import monotonic
from typing import Any

import pytest
from textual.screen import ModalScreen

from kvchat.ui.widgets.transcript import streaming
from kvchat.ui.widgets.transcript.streaming import FRAME, Pace
from still import still, until

SIZE = (60, 20)
MOMENTS = (0.0, 1e-9, 1e-7, 1e-6, 1e-4, FRAME)
"""Seconds before a frame is due."""


class Dialog(ModalScreen[None]):
    """Over the transcript; busy until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()


async def shown(app: Any, text: str) -> None:
    """Until the text is drawn, with nothing done for it."""
    await until(app, lambda: text in "\n".join(app.lines()), lambda: "\n".join(app.lines()))


@pytest.mark.parametrize("moment", MOMENTS)
async def test_text_that_comes_just_before_a_frame_is_due_is_drawn(
    make_app: Any, items: Any, monkeypatch: pytest.MonkeyPatch, moment: float
) -> None:
    app, stopped = make_app([items.question(1), items.streaming(1)]), list[float]()
    monkeypatch.setattr(streaming, "monotonic", lambda: stopped[0] if stopped else monotonic())
    async with app.run_test(size=SIZE):
        await still(app)
        app.transcript.stream_text("a1", "one")
        await shown(app, "one")
        await still(app)
        now = monotonic()
        stopped.append(now + max(0.0, app.transcript._stream.pace.delay(now) - moment))
        app.transcript.stream_text("a1", "one and two")
        app.transcript.stream_text("a1", "one, two and three")
        stopped.clear()
        await shown(app, "one, two and three")


async def test_text_is_drawn_after_a_dialog_that_closed_while_a_frame_was_painted(make_app: Any, items: Any) -> None:
    app, dialog = make_app([items.question(1), items.streaming(1)]), Dialog()
    async with app.run_test(size=SIZE):
        await app.push_screen(dialog)
        await still(app)
        dialog.call_later(dialog.go.wait)
        app.transcript.stream_text("a1", "text")
        await asyncio.sleep(0.1)  # what is to be done once it is painted is left to the dialog
        closing = asyncio.ensure_future(dialog.dismiss())
        await asyncio.sleep(0.1)
        dialog.call_later(lambda: None)  # and it has more to do than to close
        dialog.go.set()
        await closing
        app.transcript.stream_text("a1", "text and more")
        await shown(app, "text and more")


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_happens_all_text_is_drawn_in_the_end(make_app: Any, items: Any, seed: int) -> None:
    chance, app = Random(seed), make_app([items.question(1), items.streaming(1)])
    async with app.run_test(size=SIZE) as pilot:
        await still(app)
        text = ""
        for number in range(12):
            for step in range(chance.randrange(1, 12)):
                match chance.randrange(8):
                    case 0:
                        app.transcript.make_way()
                    case 1 if len(app.screen_stack) < 3:
                        await app.push_screen(Dialog())
                    case 2 if len(app.screen_stack) > 1:
                        await app.screen.dismiss()
                    case 3:
                        await pilot.resize_terminal(chance.randrange(40, 90), chance.randrange(12, 30))
                    case 4:
                        app.transcript.set_live(f"{step} tokens")
                    case 5:
                        await asyncio.sleep(chance.choice(MOMENTS))
                    case 6:
                        app.transcript.set_items([items.question(1), items.streaming(1, text)])
                    case _:
                        await still(app)
                text += chance.choice(("word ", "**word** ", "\n\n", "\n- item ", "`code` "))
                app.transcript.stream_text("a1", text)
            text += f"end{number}"
            app.transcript.stream_text("a1", text)
            await shown(app, f"end{number}")


def test_the_next_frame_waits_for_one_that_is_being_painted_but_not_for_ever() -> None:
    pace = Pace()
    pace.flushed(100.0)
    assert pace.delay(100.0 + FRAME) > 0
    assert pace.delay(101.0) == 0
    pace.painted(100.01, 0.001)
    assert pace.delay(100.0) == pytest.approx(0.01 + FRAME)


async def test_painted_code_has_few_styles_and_the_mouse_finds_its_place_in_the_text(make_app: Any, items: Any) -> None:
    app = make_app([items.question(1), items.streaming(1)])
    async with app.run_test(size=SIZE):
        code = "".join(f"value{n} = f({n}, 'a')  # note\n" for n in range(30))
        app.transcript.stream_text("a1", f"```python\n{code}")
        await shown(app, "value29")
        await still(app)
        view = app.transcript
        painted = view.render_lines(view.size.region)
        styles = [segment.style for strip in painted for segment in strip]
        assert len(set(styles)) <= 12 and not any(style.meta for style in styles)
        assert max(len(list(strip)) for strip in painted) <= 12
        y = next(y for y, line in enumerate(app.lines()) if "value29" in line)
        x = app.lines()[y].index("value29")
        found = {app.screen.get_widget_and_offset_at(x + step, view.region.y + y)[1] for step in range(5)}
        assert len(found) == 5 and len({place.y for place in found}) == 1
