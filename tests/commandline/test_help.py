"""The help of a command: its own options, and an example that works."""

from __future__ import annotations

import shlex

import pytest

from kvchat.cli import COMMANDS, EXAMPLES, main, parser


def helped(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("command", COMMANDS)
def test_a_commands_help_has_its_own_options_only_and_an_example(
    command: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = helped(capsys, command)
    assert "--base-url" not in words and "--theme" not in words
    assert "Options for the server and the settings: kvchat --help" in words
    assert f"Example: {EXAMPLES[command]}" in words
    arguments = shlex.split(EXAMPLES[command].rpartition("| ")[2])
    assert arguments[:2] == ["kvchat", command]
    parser().parse_args(arguments[1:])


def test_the_options_of_all_commands_are_in_the_programs_help_and_work_behind_a_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "--base-url" in helped(capsys)
    assert parser().parse_args(["ask", "--base-url", "http://h", "x"]).base_url == "http://h"
    assert parser().parse_args(["--base-url", "http://h", "ask", "x"]).base_url == "http://h"


def test_a_misspelt_command_names_the_one_that_was_meant(capsys: pytest.CaptureFixture[str]) -> None:
    for typed, meant in (("aks", "ask"), ("lst", "list"), ("serach", "search"), ("docuemnts", "documents")):
        with pytest.raises(SystemExit):
            main([typed])
        assert f"{typed} is unknown; did you mean {meant}?" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["zzzzzz"])
    assert "choose from ask" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        (["What is up?"], "that is no command; to ask it: kvchat ask 'What is up?'"),
        (["--base-ulr", "x"], "--base-ulr is unknown; did you mean --base-url?"),
        (["--base-ulr", "http://h", "list"], "--base-ulr is unknown; did you mean --base-url?"),
        (["--frob=1", "ask", "x"], "unknown here: --frob=1"),
        (["config"], "COMMAND is missing; choose from path, show, check"),
    ],
)
def test_what_is_wrong_is_named_and_not_what_stands_beside_it(
    capsys: pytest.CaptureFixture[str], typed: list[str], sentence: str
) -> None:
    with pytest.raises(SystemExit):
        main(typed)
    assert sentence in capsys.readouterr().err
