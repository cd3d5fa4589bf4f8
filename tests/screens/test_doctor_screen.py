"""The doctor's screen: progress, the report, and the question before what costs something."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from msgspec.structs import replace
from screens_kit import HOSTILE, MARKUP, Shown, showing

from kvchat.backends.dialect import HostClass, ServerInfo
from kvchat.backends.http.payload import Model
from kvchat.chat.errors import ChatError
from kvchat.doctor.report import DoctorReport, Examination, ProbeTurn, Severity, Step, Topic, Verdict
from kvchat.figures.accounting import TurnFigures
from kvchat.sanitize import clean
from kvchat.text.doctor import Advice, Asks, Seen
from kvchat.ui.screens.doctor import DoctorScreen
from kvchat.values import said

SERVER = ServerInfo("llama.cpp", "http://127.0.0.1:8080", HostClass.LOOPBACK, model="m", context_size=8192, slots=1)
TURNS = [
    ProbeTurn(Step.ONE, TurnFigures(340, 0, 16, 340, 900.0, 900.0, 300.0)),
    ProbeTurn(Step.TWO, TurnFigures(390, 355, 16, 34, 90.0, 90.0, 300.0)),
]
EXAMINED = Examination(SERVER.base_url, SERVER, turns=TURNS, spent_tokens=356, seconds=1.2)
LOSS = Verdict(
    Topic.SIDE_REQUEST,
    Severity.PROBLEM,
    said(Seen.PUSHED_OUT),
    (said(Advice.START, where="it", flag="--cache-ram 8192"),),
    455,
    4.55,
    "switch",
)
KEPT = Verdict(Topic.REUSE, Severity.FINE, said(Seen.KEPT, cached=355, old=356))


class Doctor:
    """Examines by giving these reports, one after the other."""

    def __init__(self, *reports: DoctorReport | ChatError, waits: bool = False) -> None:
        self.reports = list(reports)
        self.agreed: list[bool] = []
        self.go = asyncio.Event()
        self.cancelled = False
        if not waits:
            self.go.set()

    async def __call__(self, progress: Callable[[str], None], agreed: bool) -> DoctorReport:
        self.agreed.append(agreed)
        progress("Turn 1 of a conversation …")
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        found = self.reports[min(len(self.agreed), len(self.reports)) - 1]
        if isinstance(found, ChatError):
            raise found
        return found


async def examined(shown: Shown) -> None:
    """Wait until the examination under way has ended and its report is drawn."""
    await shown.app.workers.wait_for_complete()
    await shown.pilot.pause()


async def test_progress_is_shown_until_the_report_takes_its_place() -> None:
    doctor = Doctor(DoctorReport(EXAMINED, (LOSS, KEPT)), waits=True)
    async with showing(DoctorScreen(doctor), (100, 30)) as shown:
        assert "Turn 1 of a conversation" in shown.text
        doctor.go.set()
        await examined(shown)
        assert "Turn 1 of a conversation" not in shown.text
        assert shown.line("✗").strip("│ ").startswith("✗  A side request, or another conversation, pushes")
        assert "--cache-ram 8192. (saves 455 tokens (4.5 s) per switch)" in shown.prose
        assert shown.line("1 problem.") and shown.line("356 tokens of the server's time")


async def test_all_well_is_said_first() -> None:
    async with showing(DoctorScreen(Doctor(DoctorReport(EXAMINED, (KEPT,)))), (100, 30)) as shown:
        await examined(shown)
        assert "All is well." in shown.lines[shown.lines.index(shown.line("╭")) + 2]


@pytest.mark.parametrize("key", ["y", "enter"])
async def test_the_question_is_answered_by_a_key_and_the_probe_goes_on(key: str) -> None:
    asked = Verdict(
        Topic.NOT_PROBED,
        Severity.NOTE,
        said(Seen.NEEDS_WORD, question="The one slot holds 4,321 tokens."),
        (said(Advice.AGREE),),
    )
    doctor = Doctor(
        DoctorReport(replace(EXAMINED, turns=[], asks=[said(Asks.ONE_SLOT, tokens=4321)]), (asked,)),
        DoctorReport(EXAMINED, (KEPT,)),
    )
    async with showing(DoctorScreen(doctor), (100, 30)) as shown:
        await examined(shown)
        assert "holds 4,321 tokens" in shown.text and "enter go on" in shown.text
        assert doctor.agreed == [False]
        await shown.press(key)
        await examined(shown)
        assert doctor.agreed == [False, True] and "All is well." in shown.text


async def test_r_examines_again_and_only_when_nothing_runs() -> None:
    doctor = Doctor(DoctorReport(EXAMINED, (KEPT,)), waits=True)
    async with showing(DoctorScreen(doctor), (100, 30)) as shown:
        await shown.press("r", "y", "enter")
        assert doctor.agreed == [False]
        doctor.go.set()
        await examined(shown)
        await shown.press("y", "r")
        await examined(shown)
        assert doctor.agreed == [False, False]


async def test_escape_ends_the_examination() -> None:
    doctor = Doctor(DoctorReport(EXAMINED, (KEPT,)), waits=True)
    async with showing(DoctorScreen(doctor)) as shown:
        await shown.press("escape")
        await shown.pilot.pause()
        assert doctor.cancelled and shown.answers == [None]


async def test_a_failure_is_a_sentence() -> None:
    async with showing(DoctorScreen(Doctor(ChatError.of("There is no server.")))) as shown:
        await examined(shown)
        assert "There is no server." in shown.text


async def test_a_long_report_is_read_with_the_keys() -> None:
    many = tuple(replace(LOSS, seen=said(Seen.NEEDS_WORD, question=f"Finding {number}.")) for number in range(20))
    async with showing(DoctorScreen(Doctor(DoctorReport(EXAMINED, many))), (80, 24)) as shown:
        await examined(shown)
        assert "Finding 0." in shown.text and "What was found" not in shown.text
        await shown.press("end")
        await shown.pilot.pause()
        assert "Finding 0." not in shown.text and "server's time" in shown.text
        await shown.press("home")
        await shown.pilot.pause()
        assert "Finding 0." in shown.text


async def test_a_model_is_told_by_its_files_name_and_where_it_answers_from() -> None:
    far = replace(SERVER, model="/models/far.gguf", listing=(Model("/models/far.gguf", remote="ollama.com"),))
    async with showing(DoctorScreen(Doctor(DoctorReport(replace(EXAMINED, server=far), (KEPT,)))), (100, 30)) as shown:
        await examined(shown)
        assert "far, answered by ollama.com" in shown.text and "/models" not in shown.text


@pytest.mark.slow
async def test_hostile_names_are_shown_as_text() -> None:
    texts = [*HOSTILE, MARKUP]
    hostile = replace(EXAMINED, server=replace(SERVER, model=MARKUP, build=texts[0]), skipped=texts)
    verdicts = tuple(
        replace(LOSS, seen=said(Seen.NEEDS_WORD, question=text), remedies=(said(Advice.WORDS, words=text),))
        for text in texts
    )
    async with showing(DoctorScreen(Doctor(DoctorReport(hostile, verdicts))), (100, 30)) as shown:
        await examined(shown)
        seen = ""
        while shown.text not in seen:
            seen += shown.text
            assert all(clean(line) == line for line in shown.lines)
            await shown.press("pagedown", "pagedown")
            await shown.pilot.pause()
        assert seen.count("[/b] [red]red") >= 3, "verdict, model and what was left out"
