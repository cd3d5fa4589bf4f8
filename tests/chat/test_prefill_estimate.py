"""How far a prefill is between two batches, of which alone llama.cpp tells."""

from __future__ import annotations

import pytest

from kvchat.chat.conversations.live import LiveAnswer
from kvchat.figures.accounting import PromptProgress
from kvchat.ui.runs import Run, plain
from kvchat.ui.view_models import live_row
from kvchat.ui.widgets.status_text import running
from kvchat.ui.widgets.statusline import live_of


def told(progress: PromptProgress) -> LiveAnswer:
    """An answer whose server told this 1 s after the send, at 11 s of the monotonic clock."""
    return LiveAnswer("n", 10.0, progress=progress, progress_at=11.0)


def shown(live: LiveAnswer, now: float, speed: float | None) -> tuple[str, str]:
    """The row below the conversation, and the status line."""
    row = live_row(live, now, speed)
    assert row is not None
    runs: list[Run] = list(row(140))
    return "".join(run.text for run in runs), plain(running(live_of(live, now, speed=speed), 140))


@pytest.mark.parametrize(
    ("seconds", "done", "left"), [(4, "~160", "1 min 3 s"), (30, "~1,200", "37 s"), (60, "~2,400", "7.")]
)
def test_a_prompt_of_one_batch_is_estimated_by_the_measured_speed(seconds: float, done: str, left: str) -> None:
    """It said 0/2,694 for minutes, and in the status line no time at all."""
    for line in shown(told(PromptProgress(2694, 0, 0)), 11.0 + seconds, 40.0):
        assert f"{done}/2,694 new" in line and left in line and " left" in line


def test_a_batch_tells_the_speed_of_what_follows() -> None:
    for line in shown(told(PromptProgress(6000, 0, 2048, 20_480.0)), 21.0, 900.0):
        assert ("~3,048/6,000 new" in line and "29 s left" in line) or "30 s left" in line


def test_what_should_be_over_claims_no_end() -> None:
    for line in shown(told(PromptProgress(2694, 0, 0)), 500.0, 40.0):
        assert "~2,693/2,694 new" in line and "left" not in line


@pytest.mark.parametrize(
    ("progress", "speed"), [(PromptProgress(2694, 0, 0), None), (PromptProgress(90, 90, 90), 40.0)]
)
def test_without_a_speed_or_something_to_read_nothing_is_estimated(
    progress: PromptProgress, speed: float | None
) -> None:
    for line in shown(told(progress), 60.0, speed):
        assert "~" not in line


def test_what_is_cached_is_no_work() -> None:
    for line in shown(told(PromptProgress(3000, 2000, 2000)), 16.0, 40.0):
        assert "~200/1,000 new" in line and "20 s left" in line
