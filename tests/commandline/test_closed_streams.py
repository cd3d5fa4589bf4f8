"""Commands whose input, output or error stream was closed before they began."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from terminal_output import Terminal
from toyserver import ToyServer


async def started(environment: dict[str, str], line: str) -> tuple[int, str, str]:
    """Status, standard output and standard error of `kvchat LINE` in a shell."""
    process = await asyncio.create_subprocess_shell(
        f"exec {sys.executable} -m kvchat.cli {line}",
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


@pytest.mark.parametrize(
    ("line", "sentence"), [("ask - <&-", "question is empty"), ("<&-", "needs a terminal"), (">&-", "needs a terminal")]
)
async def test_without_input_it_is_one_sentence(environment: dict[str, str], line: str, sentence: str) -> None:
    status, out, err = await started(environment, line)
    assert status in (1, 2) and out == ""
    assert err.startswith("kvchat: ") and err.count("\n") == 1 and sentence in err


@pytest.mark.parametrize("line", ["backends >&-", "list --json >&-", "--version >&-", "doctor http://127.0.0.1:9 >&-"])
async def test_without_output_nothing_is_said(environment: dict[str, str], line: str) -> None:
    assert (await started(environment, line))[1:] == ("", "")


async def test_without_an_error_stream_the_result_is_printed(environment: dict[str, str]) -> None:
    async with ToyServer() as server:
        status, out, _ = await started(environment, f"doctor {server.url} --yes --json 2>&-")
    assert json.loads(out)["url"] == server.url and status in (0, 1)


async def test_without_any_stream_a_question_is_kept(environment: dict[str, str]) -> None:
    async with ToyServer() as server:
        status, _, _ = await started(environment, f"--base-url {server.url} ask hello <&- >&- 2>&-")
        assert (status, server.posts) == (0, 1)
    stored = json.loads((await started(environment, "list --json"))[1])
    assert [conversation["turns"] for conversation in stored] == [1]


async def test_the_app_is_drawn_on_the_terminal_where_errors_go_to_a_file(
    environment: dict[str, str], tmp_path: Path
) -> None:
    code = f"import os, sys; os.dup2(os.open({str(tmp_path / 'errors')!r}, os.O_CREAT | os.O_WRONLY), 2);"
    command = f"{code} os.execv(sys.executable, [sys.executable, '-m', 'kvchat.cli'])"
    with Terminal(["-c", command], environment) as terminal:
        await terminal.shows("newline")
        await terminal.press("\x11")
        assert await terminal.ended() == 0
        assert terminal.left_on == []
    assert (tmp_path / "errors").read_text() == ""
