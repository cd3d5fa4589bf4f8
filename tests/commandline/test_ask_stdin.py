"""`echo X | kvchat ask "question"`: what is piped in is sent, and nothing is waited for without a word."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import sys

import pytest

from toyserver import ToyServer, calls, tokens

DIFF = "--- a/lamp.py\n+++ b/lamp.py\n-turns = 11\n+turns = 12\n"
COMMAND = (sys.executable, "-m", "kvchat.cli")
WAITING = b"Waiting for standard input"


def content(server: ToyServer) -> str:
    """The question as it was sent last."""
    return str(server.chats[-1].json["messages"][-1]["content"])


async def test_what_is_piped_in_stands_fenced_in_front_of_the_question(run):
    async with ToyServer() as server:
        done = await run("--base-url", server.url, "ask", "Review this.", stdin=DIFF.encode())
        assert (done.status, done.err) == (0, "")
        before, _, rest = content(server).partition('<context source="stdin">\n')
        assert rest == f"{DIFF.strip()}\n</context>\n\nReview this." and DIFF not in before
    assert json.loads((await run("list", "--json")).out)[0]["title"] == "Review this."


async def test_what_is_piped_in_an_encoding_of_old_is_read_and_the_guess_is_told(run):
    text = "Москва: готово\n" * 3
    async with ToyServer() as server:
        done = await run("--base-url", server.url, "ask", "Where?", stdin=text.encode("cp1251"))
        assert text in content(server) and "read as Windows-1251" in done.err and "guess" in done.err


@pytest.mark.parametrize("line", ["</dev/null", "<&-", "--no-stdin <lamp.diff"])
async def test_where_there_is_nothing_to_read_the_question_goes_alone(environment, tmp_path, line):
    (tmp_path / "lamp.diff").write_text(DIFF)
    async with ToyServer() as server:
        process = await asyncio.create_subprocess_shell(
            f"exec {sys.executable} -m kvchat.cli --base-url {server.url} ask Hello {line}",
            env=environment,
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert (await process.communicate())[1] == b"" and process.returncode == 0
        assert content(server).endswith("\nHello") and "stdin" not in content(server)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (("ask", "Review this."), b"kvchat: Waiting for standard input \xe2\x80\xa6 (--no-stdin to skip it)\n"),
        (("ask", "-"), b"kvchat: Waiting for the question on standard input \xe2\x80\xa6\n"),
    ],
)
async def test_a_silent_pipe_is_told_and_waited_for(environment, ask, words):
    async with ToyServer() as server:
        process = await started(environment, "--base-url", server.url, *ask)
        assert await process.stderr.readline() == words
        process.stdin.write(DIFF.encode())
        process.stdin.close()
        assert await process.wait() == 0 and await process.stderr.read() == b""
        assert "+turns = 12" in content(server)


async def test_ctrl_c_ends_the_waiting_and_nothing_is_sent(environment):
    async with ToyServer() as server:
        process = await started(environment, "--base-url", server.url, "ask", "Review this.")
        assert WAITING in await process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 130 and await process.stderr.read() == b""
        assert server.posts == 0


# -- files from outside


async def test_a_file_from_outside_is_refused_where_nobody_can_be_asked(run, own_folders):
    (own_folders / "notes").mkdir()
    (own_folders / "notes" / "key").write_text("secret\n")
    async with ToyServer() as server:
        done = await run("--base-url", server.url, "ask", "what is @~/notes/key ?")
        assert done.status == 1 and server.posts == 0
        assert done.err == (
            f"kvchat: {own_folders}/notes/key is outside the working folder and the collections. Nothing was sent. To "
            "send a file from elsewhere, pipe it in: kvchat ask TEXT < FILE\n"
        )
        with (own_folders / "notes" / "key").open("rb") as file:
            done = await run("--base-url", server.url, "ask", "what is it?", stdin=file.read())
        assert done.status == 0 and "secret" in content(server)


@pytest.mark.parametrize(("answer", "goes"), [(b"y\n", True), (b"\n", False), (b"\x03", False)])
async def test_on_a_terminal_the_person_is_asked_for_it(environment, own_folders, answer, goes):
    (own_folders / ".ssh").mkdir()
    (own_folders / ".ssh" / "key").write_text("secret\n")
    async with ToyServer() as server:
        server.on_chat(tokens("ok"))
        status, shown = await on_a_terminal(
            environment, ("--base-url", server.url, "ask", "what is @~/.ssh/key ?"), b"[y/N]", answer
        )
        assert f"{own_folders}/.ssh/key may hold keys or passwords" in shown
        assert bool(server.posts) is goes and status == (0 if goes else 130 if answer == b"\x03" else 1)
        assert not goes or "secret" in content(server)


@pytest.mark.process
@pytest.mark.parametrize("ahead", [b"y\n", b"yes they do\n", b"a", b"look\ny\n"])
async def test_what_is_typed_before_a_call_is_asked_for_answers_nothing(environment, own_folders, ahead):
    (own_folders / "a.txt").write_text("The lamp turns once in ten seconds.\n")
    terminals = []

    async def call(visit):
        os.write(terminals[0], ahead)
        await calls('{"path": "a.txt"}')(visit)

    async with ToyServer() as server:
        server.on_chat(call, tokens("Fine.", prompt=60))
        ask = ("--base-url", server.url, "ask", "--no-stdin", "--tools", "files", "Look it up.")
        status, shown = await on_a_terminal(environment, ask, b"n no] ", b"n\n", terminals)
        assert status == 0 and shown.count("Let the model read a.txt?") == 1
        assert "The lamp turns" not in json.dumps(server.chats[-1].json)


async def on_a_terminal(
    environment, arguments, until: bytes, answer: bytes, terminals: list[int] | None = None
) -> tuple[int, str]:
    """The command on a terminal of its own, where `answer` is typed at `until`: its status, and what it showed.
    `terminals` gets the terminal."""
    loop = asyncio.get_running_loop()
    pid, leader = pty.fork()
    if not pid:
        os.execve(sys.executable, [*COMMAND, *arguments], environment)
    if terminals is not None:
        terminals.append(leader)
    shown = b""
    answered = False
    try:
        while True:
            try:
                shown += await loop.run_in_executor(None, os.read, leader, 4096)
            except OSError:
                break
            if until in shown and not answered:
                os.write(leader, answer)
                answered = True
        _, status = await loop.run_in_executor(None, os.waitpid, pid, 0)
    finally:
        os.close(leader)
    return os.waitstatus_to_exitcode(status), " ".join(shown.decode().split())


async def started(environment, *arguments):
    return await asyncio.create_subprocess_exec(
        *COMMAND,
        *arguments,
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
