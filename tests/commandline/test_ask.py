"""`kvchat ask`: the same pipeline as the app, on the command line."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
import sys
from contextlib import closing

import pytest

from kvchat.store import Store
from toyserver import ToyServer, drop, error, loading, raw, reply, several, tokens

KEYS = {
    "conversation",
    "message_ids",
    "text",
    "finish_reason",
    "prompt_tokens",
    "cached_tokens",
    "evaluated_tokens",
    "new_tokens",
    "ttft_ms",
    "prompt_ms",
    "predicted_tokens",
    "predicted_ms",
    "context_size",
    "note",
    "note_kind",
}


async def test_the_answer_is_printed_and_one_object_tells_the_figures(run):
    async with ToyServer() as server:
        server.on_chat(tokens("Twenty", "-six.", prompt=40, cached=0), tokens("Yes", prompt=60, cached=41))
        done = await run("--base-url", server.url, "ask", "How many?")
        assert (done.status, done.out) == (0, "Twenty-six.\n")
        done = await run("ask", "Sure?", "-c", "--json", "--base-url", server.url)
    answer = json.loads(done.out)
    assert done.status == 0
    assert set(answer) >= KEYS
    assert (answer["text"], answer["finish_reason"]) == ("Yes", "stop")
    assert answer["note"] is answer["note_kind"] is None
    assert (answer["prompt_tokens"], answer["cached_tokens"], answer["evaluated_tokens"]) == (60, 41, 19)
    assert (answer["new_tokens"], answer["wasted_tokens"], answer["context_size"]) == (18, 1, 4096)


async def test_the_next_request_extends_the_last_in_another_process(spawn):
    async with ToyServer() as server:
        for text in ("one", "two", "three"):
            assert (await spawn("--base-url", server.url, "ask", text, "-c")).status == 0
        bodies = [visit.json for visit in server.chats]
    assert [len(body["messages"]) for body in bodies] == [2, 4, 6]
    assert all(
        later["messages"][: len(earlier["messages"])] == earlier["messages"]
        for earlier, later in itertools.pairwise(bodies)
    )
    assert len({body["session_id"] for body in bodies}) == 1


async def test_a_question_comes_from_a_pipe_and_parameters_go_along(run, tmp_path):
    (tmp_path / "system.txt").write_text("Be brief.")
    async with ToyServer() as server:
        done = await run(
            "--base-url",
            server.url,
            "ask",
            "-",
            "--max-tokens",
            "5",
            "--temperature",
            "0.5",
            "--system",
            f"@{tmp_path / 'system.txt'}",
            stdin="von ferne: äöü\n".encode(),
        )
        body = server.chats[0].json
    assert done.status == 0
    assert body["messages"][0]["content"].startswith("Be brief.\n")
    assert body["messages"][1]["content"].endswith("von ferne: äöü")
    assert (body["max_tokens"], body["temperature"]) == (5, 0.5)


async def test_nothing_of_an_answer_reaches_the_terminal_raw(run):
    async with ToyServer() as server:
        server.on_chat(tokens("a\x1b]52;c;UFdORUQ=\x07", "\x9b31m", "\u202eb"))
        done = await run("--base-url", server.url, "ask", "hostile")
        shown = [done.out]
        id = json.loads((await run("list", "--json")).out)[0]["id"]
        shown += [
            (await run(*command)).out
            for command in (("list",), ("show", id[:8]), ("search", "hostile"), ("export", id, "-f", "md"))
        ]
    assert "␛" in shown[0]
    for text in shown:
        assert text and not set(text) & {"\x1b", "\x07", "\x9b", "\u202e"}


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (error(401, "Invalid API Key", "authentication_error"), "API key"),
        (error(400, "too long", "exceed_context_size_error", n_prompt_tokens=8123, n_ctx=4096), "8,123 tokens"),
        (reply(200, b"<html>gateway</html>", content_type="text/html"), "not"),
        (reply(502, b"<html>Bad Gateway</html>", content_type="text/html"), "502"),
        (tokens("half", finish=None), "half"),
        (drop(), "connection"),
        (raw(b"garbage\r\n\r\n"), "127.0.0.1"),
    ],
)
async def test_what_goes_wrong_is_one_sentence(run, answer, sentence):
    async with ToyServer() as server:
        server.on_chat(answer)
        done = await run("--base-url", server.url, "ask", "hello")
        assert server.posts == 1
    assert done.status == 1
    assert done.err.startswith("kvchat: ")
    assert done.err.count("\n") == 1
    assert sentence in done.err + done.out
    assert "Traceback" not in done.err


async def test_a_server_that_loads_its_model_is_waited_for(run):
    async with ToyServer() as server:
        server.on_chat(loading(), tokens("ready"))
        done = await run("--base-url", server.url, "ask", "hello")
    assert (done.status, done.out) == (0, "ready\n")


def store_of(home):
    return Store.open(home / "data")


@pytest.mark.process
async def test_a_server_that_is_down_says_what_to_do(run, own_folders):
    done = await run("--base-url", "http://127.0.0.1:9", "ask", "hello")
    assert done.status == 1
    assert "No server answers at http://127.0.0.1:9" in done.err
    assert "--base-url" in done.err
    assert done.out == "" and done.err.count("\n") == 1
    assert json.loads((await run("list", "--json")).out) == []
    assert not any(store_of(own_folders).conversations()), "nothing is left, not even an empty conversation"


@pytest.mark.process
async def test_a_new_question_goes_to_another_server_where_the_one_used_last_is_off_and_says_so(run, own_folders):
    async with ToyServer() as server:
        config = own_folders / "config" / "config.toml"
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(f'[profiles.box]\nbase_url = "{server.url}"\n')
        store = store_of(own_folders)
        store.set_setting("last server", "http://127.0.0.1:9")
        done = await run("ask", "hello")
        assert (done.status, done.out, done.err) == (0, "Hello\n", "kvchat: 127.0.0.1:9 is off · using box\n")
        assert [known.server for known in store.conversations()] == ["box"]


@pytest.mark.process
@pytest.mark.parametrize("way", [("-c",), ("--conversation", "{id}")])
async def test_a_question_that_reached_no_server_changes_no_conversation(run, own_folders, way):
    async with ToyServer() as server:
        answer = json.loads((await run("--base-url", server.url, "ask", "one", "--json")).out)
        id = answer["conversation"]
        before = store_of(own_folders).conversation(id)
        await server.stop()
        done = await run("--base-url", server.url, "ask", "lost", *(part.format(id=id) for part in way), "--json")
        assert done.status == 1 and done.out == "" and "No server answers" in done.err
        assert store_of(own_folders).conversation(id) == before
        await server.start()
        await run("--base-url", server.url, "ask", "two", "-c")
        roles = [message["role"] for message in server.chats[-1].json["messages"]]
        assert roles == ["system", "user", "assistant", "user"] and b"lost" not in server.chats[-1].body


@pytest.mark.process
async def test_a_question_that_may_not_leave_this_machine_leaves_no_conversation(run, own_folders):
    async with ToyServer() as server:
        config = own_folders / "config" / "config.toml"
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(f'[profiles.away]\nbase_url = "{server.url}"\nlocality = "cloud"\n')
        store = store_of(own_folders)
        store.set_setting("last server", "away")  # chosen in the app, and not agreed to
        done = await run("ask", "secret")
        assert done.status == 1 and "you have not agreed" in done.err and server.posts == 0
        assert store.conversations() == []


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("--model", "/nowhere/model.gguf", "ask", "x"), 2, "/nowhere/model.gguf"),
        (("--base-url", "nonsense", "ask", "x"), 2, "--base-url"),
        (("ask", "x", "--conversation", "ffffffff"), 1, "ffffffff"),
        (("show", "ffffffff"), 1, "ffffffff"),
        (("export",), 2, "--all"),
        (("ask", " "), 1, "empty"),
        (("--system", "@/nowhere", "ask", "x"), 1, "/nowhere"),
        (("--api-key-env", "NO_SUCH_KEY", "--base-url", "http://127.0.0.1:9", "ask", "x"), 1, "NO_SUCH_KEY"),
        (("--incognito",), 2, "kvchat ask"),
        (("frobnicate",), 2, "frobnicate"),
    ],
)
async def test_a_wrong_command_line_says_what_and_what_to_do(run, arguments, status, words):
    done = await run(*arguments)
    assert done.status == status
    assert words in done.err
    assert "Traceback" not in done.err


async def test_a_model_file_that_is_none_says_so(run, tmp_path):
    path = tmp_path / "notes.gguf"
    path.write_text("dear diary, this is no model at all, but it is long enough to be looked at")
    done = await run("--model", str(path), "ask", "x")
    assert done.status == 2
    assert "not a GGUF" in done.err


async def test_incognito_writes_nothing(run, own_folders):
    async with ToyServer() as server:
        done = await run("--incognito", "--base-url", server.url, "ask", "secret")
    assert done.status == 0
    assert not list((own_folders / "data").rglob("*")) if (own_folders / "data").exists() else True


async def test_interrupting_keeps_what_came(environment):
    async with ToyServer() as server:
        server.on_chat(tokens("kept ", "text", hang_after=2))
        process = await _started(environment, "--base-url", server.url, "ask", "go on")
        assert await process.stdout.readexactly(9) == b"kept text"
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 130
        await server.until_closed()
        process = await _started(environment, "list", "--json")
        id = json.loads(await process.stdout.read())[0]["id"]
        process = await _started(environment, "show", id)
        assert b"kept text" in await process.stdout.read()
        await process.wait()


async def _started(environment, *arguments):
    command = (sys.executable, "-m", "kvchat.cli", *arguments)
    return await asyncio.create_subprocess_exec(
        *command,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        stdin=asyncio.subprocess.DEVNULL,
    )


async def test_a_cut_answer_is_continued_and_only_what_is_new_is_printed(run):
    async with ToyServer() as server:
        server.on_chat(
            tokens("Once ", "upon", prompt=40, finish="length"),
            tokens(" a time.", prompt=42, cached=41),
            tokens("no more"),
        )
        base = ("--base-url", server.url, "ask")
        assert (await run(*base, "a story", "--max-tokens", "2")).out == "Once upon\n"
        done = await run(*base, "--continue-answer", "--max-tokens", "9", stdin=b"not read")
        assert (done.status, done.out, done.err) == (0, " a time.\n", "")
        sent = server.chats[-1].json
        assert (sent["messages"][-1], sent["max_tokens"]) == ({"role": "assistant", "content": "Once upon"}, 9)
        assert "not read" not in str(sent)
        refused = await run(*base, "--continue-answer")
        assert (refused.status, refused.err) == (1, "kvchat: This answer is complete. To hear more, ask for it.\n")
    shown = await run("list", "--json")
    assert json.loads(shown.out)[0]["title"] == "a story"


async def test_one_object_has_the_whole_of_a_continued_answer(run):
    async with ToyServer() as server:
        server.on_chat(tokens("Half", prompt=40, finish="length"), tokens(" done", prompt=41, cached=40))
        await run("--base-url", server.url, "ask", "one")
        id = json.loads((await run("list", "--json")).out)[0]["id"]
        done = await run("--base-url", server.url, "ask", "--continue-answer", "--conversation", id[:8], "--json")
    answer = json.loads(done.out)
    assert (answer["text"], answer["evaluated_tokens"], answer["new_tokens"]) == ("Half done", 1, 0)


async def test_a_server_that_cannot_continue_is_asked_to_and_that_is_said(run):
    async with ToyServer("openai") as server:
        server.on_chat(tokens("Half", finish="length"), tokens(" done", prompt=60))
        await run("--base-url", server.url, "ask", "one")
        done = await run("--base-url", server.url, "ask", "--continue-answer")
        assert server.chats[-1].json["messages"][-1]["content"].endswith("Continue.")
    assert (done.status, done.out) == (0, " done\n")
    assert "“Continue.” was sent as a message." in done.err


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        (("--continue-answer",), 1, "There is no answer to continue yet."),
        (("--continue-answer", "more"), 2, "Leave out the question."),
        (("--continue-answer", "--new"), 2, "Leave out --new."),
        ((), 2, "The question is missing."),
    ],
)
async def test_what_cannot_be_continued_is_said_in_a_sentence(run, words, status, sentence):
    async with ToyServer() as server:
        done = await run("--base-url", server.url, "ask", *words)
        assert server.posts == 0
    assert (done.status, done.out) == (status, "")
    assert sentence in done.err
    assert "Traceback" not in done.err


async def test_several_answers_are_printed_under_headings_and_the_first_goes_on(run):
    async with ToyServer(slots=4) as server:
        server.on_chat(several(["One", " is."], ["Two."], ["Three."]))
        base = ("--base-url", server.url, "ask", "--no-stdin")
        done = await run(*base, "--alternatives", "3", "How many?")
        assert (done.status, done.out) == (
            0,
            ("## Answer 1 of 3 (goes on)\n\nOne is.\n\n## Answer 2 of 3\n\nTwo.\n\n## Answer 3 of 3\n\nThree.\n\n"),
        )
        server.on_chat(several(["One."], ["Two."]))
        done = await run(*base, "-c", "--alternatives", "2", "--json", "Again?")
        found = json.loads(done.out)
        assert (found["text"], [one["text"] for one in found["alternatives"]]) == ("One.", ["One.", "Two."])
        assert [m["content"] for m in server.chats[-1].json["messages"]][2] == "One is."
        for wrong, why in (
            (("--alternatives", "1", "x"), "give 2 to 9"),
            (("--alternatives", "2", "-x", "x"), "-x"),
            (("--continue-answer", "--alternatives", "2"), "one answer"),
        ):
            refused = await run(*base, *wrong)
            assert refused.status == 2 and why in refused.err
        assert server.posts == 2


async def test_what_is_asked_is_gone_through_for_memories_only_where_it_goes_on_with_what_was_said_in_the_app(
    run, own_folders
):
    async with ToyServer() as server:
        server.on_chat(tokens("Noted."))
        url = ("--base-url", server.url)
        assert (await run(*url, "ask", "I keep bees in Bergen.")).status == 0
        assert (await run(*url, "ask", "-c", "And wasps.")).status == 0
        assert (await run(*url, "ask", "--alternatives", "2", "I keep hornets too.")).status == 0
        server.on_chat(tokens("Half", finish="length"), tokens(" of it."))
        assert (await run(*url, "ask", "I keep ants.")).status == 0
        assert (await run(*url, "ask", "--continue-answer")).status == 0
        assert (await run("memory", "queue")).out == "Nothing waits.\n"
        with closing(Store.open(own_folders / "data")) as store, store.database.write() as connection:
            connection.execute("DELETE FROM covered WHERE node IN (SELECT id FROM node WHERE text = 'And wasps.')")
        waiting = json.loads((await run("memory", "queue", "--json")).out)["pending"]
        assert [row["messages"] for row in waiting] == [1], "as if that had been said in the app"
        assert (await run(*url, "ask", "--conversation", waiting[0]["conversation"], "And flies.")).status == 0
        [now] = json.loads((await run("memory", "queue", "--json")).out)["pending"]
        assert now == {**waiting[0], "messages": 3}


async def test_an_answer_that_lost_a_part_is_printed_and_fails(run):
    body = (
        b'data: {"choices":[{"index":0,"delta":{"content":"First. "}}]}\n\n'
        b'data: {"choices":[{"index":0,"delta":{"content":"say "lost""}}]}\n\n'
        b'data: {"choices":[{"index":0,"delta":{"content":"Last."},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    )
    async with ToyServer() as server:
        server.on_chat(reply(200, body, content_type="text/event-stream"))
        done = await run("--base-url", server.url, "ask", "Go on?")
    assert (done.status, done.out) == (1, "First. Last.\n")
    assert "came damaged and is missing" in done.err


async def test_a_model_that_loads_is_waited_for_with_a_word_and_a_limit(run):
    async with ToyServer() as server:
        server.on_chat(*[loading()] * 30)
        done = await run("--base-url", server.url, "ask", "Hi", "--wait", "1.5")
    assert (done.status, done.out) == (75, "")
    assert done.err.count("is loading its model. Waiting for it; Ctrl+C gives up") == 1
    assert done.err.rstrip().endswith("is still loading its model. Wait until that is done, then try again.")


async def test_a_server_that_loads_its_model_from_the_start_is_waited_for_as_long(run):
    async with ToyServer() as server:
        server.on("/props", loading())
        server.on("/v1/models", loading())
        done = await run("--base-url", server.url, "ask", "Hi", "--wait", "1.5")
        at_once = await run("--base-url", server.url, "ask", "Hi", "--wait", "0")
    assert (done.status, at_once.status, server.posts) == (75, 75, 0)
    assert "Waiting for it" in done.err and "Waiting for it" not in at_once.err


async def test_a_busy_server_is_waited_for_with_a_word(run):
    async with ToyServer() as server:
        server.on_chat(reply(429, {"error": "slow"}, headers={"Retry-After": "1"}), tokens("Hello"))
        done = await run("--base-url", server.url, "ask", "Hi")
    assert (done.status, done.out) == (0, "Hello\n")
    assert "takes no more requests now. Waiting for it" in done.err
