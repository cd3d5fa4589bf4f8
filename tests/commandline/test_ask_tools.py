"""`kvchat ask --tools`: calls are carried out only where that was allowed, and said on standard error."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from kvchat.prompt.offered_tools import DEFINITIONS, GROUPS
from toyserver import ToyServer, calls, tokens

READ = '{"path": "a.txt"}'
ASK = ("ask", "--no-stdin", "--tools", "files")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "a.txt").write_text("The lamp turns once in ten seconds.\n")
    monkeypatch.chdir(folder)
    return folder


async def test_what_was_allowed_is_carried_out(run) -> None:
    async with ToyServer() as server:
        server.on_chat(calls(READ, text="Let me look."), tokens("Ten seconds [1].", prompt=60))
        done = await run("--base-url", server.url, *ASK, "--allow", "read_file", "How often?")
        assert done.status == 0
        assert done.out == "Let me look.\nTen seconds [1].\n"
        assert done.err == "kvchat: read_file: a.txt\n[1] a.txt\n"
        assert "The lamp turns" in json.dumps(server.chats[-1].json)


async def test_without_a_yes_nothing_is_read_and_it_is_said_how_to_allow_it(run, folder: Path) -> None:
    async with ToyServer() as server:
        server.on_chat(calls(READ), tokens("I may not.", prompt=60))
        done = await run("--base-url", server.url, *ASK, "How often?")
        assert (done.status, done.out) == (0, "I may not.\n")
        allow = f"--allow read_file:{folder}"
        assert done.err.endswith(f"Not carried out, for want of your yes: read_file:{folder}. To allow it: {allow}\n")
        assert "The lamp turns" not in json.dumps(server.chats[-1].json)
        server.on_chat(calls(READ), tokens("Ten.", prompt=90))
        done = await run("--base-url", server.url, "ask", "--no-stdin", "-c", *allow.split(), "And now?")
        assert done.out == "Ten.\n"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("-c", "--tools", "files"), "--tools is for a new conversation"),
        (("--allow", "shell"), "There is no tool shell"),
    ],
)
async def test_an_option_that_would_do_nothing_is_refused(run, options: tuple[str, ...], words: str) -> None:
    async with ToyServer() as server:
        done = await run("--base-url", server.url, "ask", "--no-stdin", *options, "How often?")
        assert done.status == 2 and words in done.err
        assert not server.posts


async def test_calls_beyond_those_that_are_carried_out_are_said(run) -> None:
    async with ToyServer() as server:
        server.on_chat(calls(*[READ] * 40, text="I look."), tokens("Ten.", prompt=600))
        done = await run("--base-url", server.url, *ASK, "--allow", "read_file", "How often?")
    first, *others = done.err.splitlines()
    assert first == "kvchat: The model made 40 calls at once; only the first 32 are carried out."
    assert others[:32] == ["kvchat: read_file: a.txt"] * 32
    assert done.out == "I look.\nTen.\n"


async def test_the_json_tells_the_calls(run) -> None:
    async with ToyServer() as server:
        server.on_chat(calls(READ), tokens("Ten.", prompt=60))
        done = await run("--base-url", server.url, *ASK, "--json", "--allow", "read_file", "How often?")
    found = json.loads(done.out)
    assert (found["text"], found["calls"]) == ("Ten.", [{"tool": "read_file", "arguments": READ}])
    turn = found["turn"]
    assert turn["requests"] == 2 and turn["prompt_tokens"] > found["prompt_tokens"], "a step with a call counts, too"
    assert turn["evaluated_tokens"] == turn["prompt_tokens"] - turn["cached_tokens"]


async def test_an_unknown_tool_is_said_before_anything_is_sent(run) -> None:
    async with ToyServer() as server:
        done = await run("--base-url", server.url, "ask", "--no-stdin", "--tools", "shell", "How often?")
        assert (done.status, done.out) == (1, "")
        known = ", ".join([*GROUPS, *DEFINITIONS])
        assert done.err == f"kvchat: There is no tool shell. They are {known}.\n"
        assert not server.posts


@pytest.mark.process
async def test_the_program_of_a_server_needs_a_yes_of_its_own(run, own_folders: Path) -> None:
    server_line = {"command": sys.executable, "args": [str(Path(__file__).parent.parent / "mcp_box.py")]}
    file = own_folders / "config" / "mcp.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({"mcpServers": {"box": server_line}}))
    ask = ("ask", "--no-stdin", "--tools", "box")
    async with ToyServer() as server:
        server.on_chat(calls('{"text": "lamp"}', name="box__say"), tokens("Lamp.", prompt=60))
        done = await run("--base-url", server.url, *ask, "What?")
        assert done.status == 1 and "mcp_box.py\n" in done.err
        assert done.err.endswith("Not started, for want of your yes. To allow it in this run: --allow box\n")
        assert not server.posts
        done = await run("--base-url", server.url, *ask, "--allow", "box", "What?")
        assert (done.status, done.out) == (0, "Lamp.\n")
        assert "lamp 1" in json.dumps(server.chats[-1].json)
        assert (await run("--base-url", server.url, *ask, "What?")).status == 1, "it was for that run"


@pytest.mark.process
async def test_what_a_servers_tool_says_of_itself_stands_before_the_question(
    run, own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(prompt: str) -> str:
        print(prompt, file=sys.stderr)
        return "y"

    monkeypatch.setattr("kvchat.cli.ask.consent._is_at_terminal", lambda: True)
    monkeypatch.setattr("kvchat.cli.ask.consent._answer", answer)
    file = own_folders / "config" / "mcp.json"
    file.parent.mkdir(exist_ok=True)
    box = str(Path(__file__).parent.parent / "mcp_box.py")
    file.write_text(json.dumps({"mcpServers": {"box": {"command": sys.executable, "args": [box]}}}))
    async with ToyServer() as server:
        server.on_chat(calls('{"text": "lamp"}', name="box__say"), tokens("Lamp.", prompt=60))
        done = await run("--base-url", server.url, "ask", "--no-stdin", "--tools", "box", "What?")
    assert (done.status, done.out) == (0, "Lamp.\n")
    said = done.err.splitlines()
    (at,) = (at for at, line in enumerate(said) if line.startswith("It says of itself: Say it."))
    assert said[at + 1].startswith("Let the model call box__say with lamp?")


@pytest.mark.process
async def test_how_far_a_call_is_goes_to_standard_error(run, own_folders: Path) -> None:
    box = str(Path(__file__).parent.parent / "mcp_box.py")
    file = own_folders / "config" / "mcp.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(
        json.dumps({"mcpServers": {"box": {"command": sys.executable, "args": [box, "works"], "timeout": 1}}})
    )
    async with ToyServer() as server:
        server.on_chat(calls('{"text": "lamp"}', name="box__say"), tokens("Lamp.", prompt=60))
        options = ("--no-stdin", "--tools", "box", "--allow", "box")
        done = await run("--base-url", server.url, "ask", *options, "What?")
    assert done.out.strip().endswith("Lamp.") and "kvchat: 1 of 10: Looking" in done.err
    assert "kvchat: box: 3 tools cannot be offered" in done.err
