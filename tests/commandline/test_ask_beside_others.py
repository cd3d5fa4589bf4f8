"""`kvchat ask` on a conversation that another kvchat is busy with."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
import sys

import pytest

from toyserver import ToyServer, tokens
from two_windows_kit import Slow, history

pytestmark = pytest.mark.process


async def begun(run, server):
    done = await run("--base-url", server.url, "ask", "--json", "first")
    return json.loads(done.out)["conversation"]


async def started(environment, *arguments):
    command = (sys.executable, "-m", "kvchat.cli", *arguments)
    return await asyncio.create_subprocess_exec(
        *command,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


@pytest.mark.parametrize("named", [False, True], ids=["continue", "conversation"])
async def test_it_waits_for_the_reply_of_another_one_and_says_so_once(run, environment, named):
    async with ToyServer() as server:
        id, slow = await begun(run, server), Slow()
        server.on_chat(slow, tokens("Third."))
        which = ("--conversation", id) if named else ("-c",)
        one = await started(environment, "--base-url", server.url, "ask", "-c", "second")
        await server.until(lambda: bool(slow.began))
        await one.stdout.readexactly(4)
        other = await started(environment, "--base-url", server.url, "ask", *which, "third")
        said = await other.stderr.readline()
        assert said == (b"kvchat: Another window is answering in this conversation. Waiting for it; Ctrl+C gives up.\n")
        slow.go.set()
        out, err = await other.communicate()
        assert (out, err, other.returncode) == (b"Third.\n", b"", 0)
        assert (await one.communicate())[0] == b" and whole\n" and one.returncode == 0
        assert history(server.chats[-1]) == ["first", "Hello", "second", "half and whole", "third"]


async def test_ctrl_c_gives_the_wait_up_and_nothing_was_asked(run, environment):
    async with ToyServer() as server:
        id, slow = await begun(run, server), Slow()
        server.on_chat(slow)
        one = await started(environment, "--base-url", server.url, "ask", "-c", "second")
        await server.until(lambda: bool(slow.began))
        await one.stdout.readexactly(4)
        other = await started(environment, "--base-url", server.url, "ask", "-c", "third")
        await other.stderr.readline()
        other.send_signal(signal.SIGINT)
        out, err = await other.communicate()
        assert (out, err, other.returncode) == (b"", b"kvchat: The message was not sent.\n", 130)
        slow.go.set()
        await one.communicate()
        shown = await run("show", id)
        assert "third" not in shown.out and "half and whole" in shown.out
        assert server.posts == 2


async def test_when_the_other_one_is_killed_it_goes_on(run, environment):
    async with ToyServer() as server:
        _, slow = await begun(run, server), Slow()
        server.on_chat(slow, tokens("Third."))
        one = await started(environment, "--base-url", server.url, "ask", "-c", "second")
        await server.until(lambda: bool(slow.began))
        await one.stdout.readexactly(4)
        other = await started(environment, "--base-url", server.url, "ask", "-c", "third")
        await other.stderr.readline()
        one.kill()
        await one.wait()
        assert (await other.communicate())[0] == b"Third.\n"
        assert history(server.chats[-1])[-1] == "third" and len(server.chats[-1].json["messages"]) == 6


async def test_six_at_once_end_in_one_line_of_turns(run, spawn):
    async with ToyServer() as server:
        id = await begun(run, server)
        server.on_chat(tokens("Yes", ".", delay=0.02))
        done = await asyncio.gather(
            *(spawn("--base-url", server.url, "ask", "-c", "--json", f"q{number}") for number in range(6))
        )
        assert [one.status for one in done] == [0] * 6, [one.err for one in done]
        answers = [json.loads(one.out) for one in done]
        assert {answer["conversation"] for answer in answers} == {id}
        assert {answer["text"] for answer in answers} == {"Yes."}
        assert len({answer["message_ids"]["assistant"] for answer in answers}) == 6
        sent = [history(visit) for visit in server.chats]
        assert len(sent[-1]) == 13 and sorted(sent[-1][2::2]) == [f"q{number}" for number in range(6)]
        assert all(later[: len(earlier)] == earlier for earlier, later in itertools.pairwise(sent))
        assert all(all(texts) for texts in sent)
        shown = await run("export", id, "--format", "json")
        assert shown.out.count('"Yes."') == 6
