"""`kvchat ask` with a question that does not fit in the server's window."""

from __future__ import annotations

import json
import re

import pytest

from engine_fixture import running_server
from toyserver import ToyServer, error, tokens

REFUSED = error(
    400,
    "the request exceeds the available context size",
    "exceed_context_size_error",
    n_prompt_tokens=13039,
    n_ctx=4096,
)


async def test_a_refused_question_is_told_and_the_conversation_goes_on_without_it(run):
    async with ToyServer() as server:
        server.on_chat(tokens("one"), REFUSED, tokens("three"))
        assert (await run("--base-url", server.url, "ask", "first")).out == "one\n"
        done = await run("--base-url", server.url, "ask", "far too long", "-c")
        assert (done.status, done.out) == (1, "")  # not the answer before it
        assert done.err.startswith("kvchat: This is too long for ") and "has 13,039 tokens" in done.err
        assert done.err.count("\n") == 1
        done = await run("--base-url", server.url, "ask", "shorter", "-c", "--json")
        said = [message["content"].rpartition("\n")[2] for message in server.chats[-1].json["messages"][1:]]
        shown = await run("export", json.loads(done.out)["conversation"], "-f", "md", "--all-branches")
    assert said == ["first", "one", "shorter"]
    assert json.loads(done.out)["text"] == "three"
    assert "far too long" in shown.out


async def test_an_estimate_alone_refuses_nothing(run):
    async with ToyServer() as server:
        server.on_chat(tokens("it fits"))
        done = await run("--base-url", server.url, "ask", "-", stdin=b"1234567890" * 450)
    assert (done.status, done.out) == (0, "it fits\n")


@pytest.mark.engine
async def test_what_the_server_counts_over_its_window_is_not_sent(run):
    with running_server(context=512) as server:
        done = await run("--base-url", server.base_url, "ask", "-", stdin=b"1234567890" * 60)
        assert (done.status, done.out) == (1, "")
        found = re.search(r" has ([\d,]+) tokens, .*holds 512\. ", done.err)
        assert found and 512 < int(found[1].replace(",", "")) < 1200 and done.err.count("\n") == 1
        if done.err.startswith("kvchat: Too long: "):  # not so where the machine is too slow to count in time
            assert json.loads((await run("list", "--json")).out) == []  # nothing was asked
        done = await run("--base-url", server.base_url, "ask", "Say yes.", "--max-tokens", "2", "--temperature", "0")
        assert done.status == 0
