"""What is advised fits the place where it is read."""

from __future__ import annotations

import pytest

from kvchat.cli import main
from kvchat.prompt.message import NoteKind
from kvchat.text.faults import Fault, fault_sentence
from kvchat.text.format import filled, on_command_line
from kvchat.text.notes import note_sentence
from kvchat.values import said

URL = "http://127.0.0.1:8080"
FAULTS = {
    Fault.NOT_CONNECTED: {"url": URL, "reason": "refused"},
    Fault.NO_MODEL: {"url": URL, "status": 404},
    Fault.NO_KEY: {"url": URL},
    Fault.NO_SERVER: {"embedded": True},
    Fault.NO_SUCH_MODEL: {"url": URL, "model": "m", "models": "n"},
    Fault.URL_WITH_USER: {"url": "host"},
    Fault.BAD_KEY: {},
}


def sentences() -> list[str]:
    return [
        *(fault_sentence(fault, words) for fault, words in FAULTS.items()),
        note_sentence(said(NoteKind.NOT_AGREED, url=URL)),
    ]


def test_the_app_names_no_option_of_the_command_line() -> None:
    assert not [sentence for sentence in sentences() if " --" in sentence or "(--" in sentence]


def test_the_command_line_names_its_options_and_nothing_of_the_app() -> None:
    place = on_command_line.set(True)
    try:
        told = sentences()
    finally:
        on_command_line.reset(place)
    assert all("--" in sentence for sentence in told)
    assert not [sentence for sentence in told if "/model" in sentence]


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["show"], "kvchat show: ID is missing"),
        (["list", "--nosuch"], "kvchat: unknown here: --nosuch"),
        (["nosuch"], "kvchat: nosuch is unknown; choose from ask"),
        (["config", "nosuch"], "kvchat config: nosuch is unknown; choose from path"),
        (["stats", "--days", "x"], "kvchat stats: argument --days: x is not"),
    ],
)
def test_wrong_usage_is_told_in_two_lines(
    arguments: list[str],
    what: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    said, where = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2
    assert said.startswith(what)
    assert where.startswith("Try: kvchat") and where.endswith(" --help")


def test_a_form_takes_its_parts_by_what_is_given_and_reads_no_argument_again() -> None:
    form = "{n:tokens}<took: in {took:took}|<free=1: is| are> free>. <cli:Type {what}|Press {what}>"
    assert filled(form, {"n": 1, "free": 1, "what": "x"}) == "1 token is free. Press x"
    assert filled(form, {"n": 2000, "took": 1.5, "what": "{n}<n:y>"}) == "2,000 tokens in 1.5 s. Press {n}<n:y>"
    place = on_command_line.set(True)
    try:
        assert filled(form, {"n": 2, "free": 2, "what": "x"}) == "2 tokens are free. Type x"
    finally:
        on_command_line.reset(place)
