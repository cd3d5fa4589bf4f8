"""Pipes on both sides of a command: a reader that goes away, and files that are pipes."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from kvchat.cli.ask import question
from kvchat.cli.ask.question import read_question
from toyserver import ToyServer, Visit, tokens

PROGRAM = f"{sys.executable} -m kvchat"


async def shell(environment: dict[str, str], line: str, stdin: bytes = b"") -> tuple[int, str, str]:
    """Status, standard output and standard error of a line of bash, in the home folder."""
    process = await asyncio.create_subprocess_exec(
        "bash",
        "-c",
        line,
        env=environment,
        cwd=environment["HOME"],
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate(stdin)
    return process.returncode or 0, out.decode(), err.decode()


def sent(server: ToyServer) -> str:
    return json.dumps([visit.json["messages"] for visit in server.chats], ensure_ascii=False)


async def test_what_came_before_the_reader_went_away_is_kept(environment: dict[str, str]) -> None:
    async with ToyServer() as server:
        server.on_chat(tokens("one\n", "two\n", hang_after=2))  # the rest never comes
        line = f'{PROGRAM} --base-url {server.url} ask hi | head -1; echo "${{PIPESTATUS[0]}}"'
        assert await shell(environment, line) == (0, "one\n0\n", "")
    [kept] = json.loads((await shell(environment, f"{PROGRAM} list --json"))[1])
    assert "one" in (await shell(environment, f"{PROGRAM} show {kept['id']}"))[1]


@pytest.mark.parametrize("options", ["", "--json", "-x", "--alternatives 2"])
async def test_a_reader_that_goes_away_ends_a_request_of_which_nothing_came(
    environment: dict[str, str], options: str
) -> None:
    async def answer(visit: Visit) -> None:
        (Path(environment["HOME"]) / "asked").touch()
        await visit.gone.wait()

    async with ToyServer() as server:
        server.on_chat(answer)
        reader = "until test -e asked; do sleep .05; done"
        line = f"{PROGRAM} --base-url {server.url} ask {options} hi | ({reader}); exit ${{PIPESTATUS[0]}}"
        assert await shell(environment, line) == (0, "", "") and server.chats[0].gone.is_set()


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("ask -a <(echo The lamp is red) Which?", "The lamp is red"),
        ("ask -a <(echo one) -a <(echo two) Which?", "two"),
        ("ask --no-stdin -a /dev/stdin Which?", "piped in"),
        ("ask --no-stdin -a /dev/fd/0 Which?", "piped in"),
        ("ask -a named Which?", "by name"),
        ("""--config <(echo 'system_prompt = "Be a keeper."') ask --no-stdin Which?""", "Be a keeper."),
        ("""--config /dev/stdin ask --no-stdin Which?""", "Be a lamp."),
        ("-s @<(echo Be brief) ask Which?", "Be brief"),
    ],
)
async def test_a_pipe_that_is_named_is_read_like_a_file(environment: dict[str, str], line: str, wanted: str) -> None:
    stdin = b'system_prompt = "Be a lamp."\n' if "/dev/stdin ask" in line else b"piped in\n"
    before = "mkfifo named; echo by name >named & " if "named" in line else ""
    async with ToyServer() as server:
        status, out, err = await shell(environment, f"{before}{PROGRAM} --base-url {server.url} {line}", stdin)
        assert status == 0 and out and wanted in sent(server), err


async def test_what_a_pipe_gives_is_bounded_and_a_settings_file_in_it_may_be_wrong(
    environment: dict[str, str],
) -> None:
    async with ToyServer() as server:
        ask = f"{PROGRAM} --base-url {server.url}"
        for line, said in (
            (f"{ask} ask -a /dev/zero hi", "More than 16,384 KiB came from /dev/zero"),
            (f"{ask} --config /dev/zero ask hi", "More than 256 KiB came from /dev/zero"),
            (f"{ask} --config <(echo theme = day) ask hi", "not valid TOML"),
            (f"{ask} ask -a /dev/null hi", "there is no text in it"),
        ):
            status, _, err = await shell(environment, line)
            assert status in (1, 2) and said in err and err.count("\n") == 1
        assert server.posts == 0


async def test_an_import_comes_through_a_pipe(environment: dict[str, str]) -> None:
    async with ToyServer() as server:
        await shell(environment, f"{PROGRAM} --base-url {server.url} ask hello")
    line = f"{PROGRAM} --data-dir other import <({PROGRAM} export --all -f json -o -)"
    status, _, err = await shell(environment, line)
    assert (status, err) == (0, "")
    assert "hello" in (await shell(environment, f"{PROGRAM} --data-dir other list"))[1]


async def test_an_export_is_written_to_what_it_names(environment: dict[str, str]) -> None:
    home = Path(environment["HOME"])
    async with ToyServer() as server:
        await shell(environment, f"{PROGRAM} --base-url {server.url} ask hello")
    export = f"{PROGRAM} export --all"
    assert "hello" in (await shell(environment, f"{export} -o -"))[1] and not (home / "-").exists()
    status, out, _ = await shell(environment, f"mkfifo pipe; cat pipe & {export} -o pipe --force >&2; wait")
    assert status == 0 and "hello" in out and (home / "pipe").is_fifo()
    await shell(environment, f"{export} -o chats.json; {export} -o chats.JSONL -f md; {export} -o chats.txt")
    assert (home / "chats.json").read_text().startswith("{"), "the suffix names the format"
    assert (home / "chats.JSONL").read_text().startswith("---"), "what -f names goes first"
    assert (home / "chats.txt").read_text().startswith("---")
    (home / "kept").mkdir()
    (home / "kept" / "chat.md").write_text("old")
    (home / "chat.md").symlink_to("kept/chat.md")
    await shell(environment, f"{export} -o chat.md --force")
    assert (home / "chat.md").is_symlink() and "hello" in (home / "kept" / "chat.md").read_text()
    (home / "chat.md").chmod(0o400)
    status, _, err = await shell(environment, f"{export} -o chat.md --force")
    assert status == 1 and "is read-only" in err


def test_a_standard_input_that_stays_open_and_silent_is_left_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(question, "SILENT_S", 0.01)
    monkeypatch.setattr(question, "IDLE_S", 0.02)
    reading, writing = os.pipe()
    with os.fdopen(reading) as stream, os.fdopen(writing, "wb"):
        monkeypatch.setattr(sys, "stdin", stream)
        assert read_question("Which?").blocks == ()
    assert capsys.readouterr().err.splitlines() == [
        "kvchat: Waiting for standard input … (--no-stdin to skip it)",
        "kvchat: Nothing came from standard input. Asking without it.",
    ]


@pytest.mark.parametrize("text", ["", '"""\nabc\n', "Who?\r\n", "Who?\r\nAnd why?\r\n/quit\r\n", "Who?\r"])
async def test_plain_mode_on_a_pipe_sends_lines_without_their_ends_and_ends_without_noise(
    environment: dict[str, str], text: str
) -> None:
    async with ToyServer() as server:
        status, _, err = await shell(environment, f"{PROGRAM} --base-url {server.url} --plain", text.encode())
        assert (status, err) == (0, "") and "\\r" not in sent(server)
        assert len(server.chats) == text.count("?")
