"""Every way to write an answer, through `kvchat ask`: what is printed is the text, whole and once."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from threading import Event

import pytest

from answer_ways import SAID, THOUGHT, WAYS, said
from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.cli import parser
from kvchat.cli.ask.command import ask
from kvchat.cli.ask.stream import WAS_REASONING
from kvchat.cli.ask.turn import WHOLE
from kvchat.cli.plain_output import Printer
from kvchat.cli.session import CommandError
from kvchat.config import Settings, changed
from kvchat.store import Store
from toyserver import SSE_HEAD, ToyServer, Visit, chunked, raw

FITTING = '{"age": 36}'


@pytest.mark.parametrize("options", [(), ("--json",)], ids=["text", "json"])
@pytest.mark.parametrize("streamed", [True, False], ids=["stream", "document"])
async def test_what_is_printed_is_the_text(
    capsys: pytest.CaptureFixture[str], own_folders: Path, streamed: bool, options: tuple[str, ...]
) -> None:
    args = parser().parse_args(["ask", "Say hello", *options])
    vars(args).update({"conversation": None, "continue_": False, "trunk": None} | vars(args))
    async with ToyServer("openai") as server:
        service = ChatService(Store.open(None), changed(Settings(), "server.base_url", server.url))
        for name, way in WAYS.items():
            server.on_chat(raw(way.http(streamed=streamed)))
            status, failed = 0, ""
            try:
                status = await ask(service, args, Question("Say hello"))
            except CommandError as error:
                status, failed = 1, str(error)
            out, err = capsys.readouterr()
            assert (status == 0) == (way.state in WHOLE and bool(way.text)), name
            assert way.note in err + failed, name
            if options:
                found = json.loads(out)
                assert (found["text"], found["reasoning"] or "") == (way.text, way.thought), name
                assert way.note in (found["note"] or ""), name
            else:
                assert out.strip() == way.text.strip(), name
        await service.aclose()


@pytest.mark.parametrize("thought", ["<think>\nIs it {}? No.\n</think>\n\n", "Is it `{}`?\n</think>\n", ""])
async def test_a_thought_in_the_text_is_not_in_the_way(run, tmp_path: Path, thought: str) -> None:
    schema = tmp_path / "age.json"
    schema.write_text('{"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}')
    async with ToyServer("openai") as server:
        server.on_chat(raw(said(thought, FITTING, "<|im_end|>").http(streamed=True)))
        done = await run("--base-url", server.url, "ask", "--schema", schema, "How old?")
        assert (done.status, done.out.strip()) == (0, FITTING), done.err
        server.on_chat(raw(said(thought, f"```\n{FITTING}\n```").http(streamed=True)))
        done = await run("--base-url", server.url, "ask", "-x", "How old?")
        assert (done.status, done.out.strip()) == (0, FITTING), done.err


@pytest.mark.parametrize("terminal", [True, False])
async def test_a_thought_of_which_only_the_end_comes_is_kept_from_a_pipe(
    run, monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    """A terminal has read along by then: it is told."""
    monkeypatch.setattr("kvchat.cli.ask.stream.SURE_S", 1e9)

    async def answer(visit: Visit) -> None:
        first, *rest = said(THOUGHT, "\n</think>\n\n", SAID).parts()
        await visit.send(SSE_HEAD + chunked(b"data: " + json.dumps(first).encode() + b"\n\n"))
        if terminal and len(server.chats) == 1:
            await asyncio.to_thread(printed.wait)
        for part in rest:
            await visit.send(chunked(b"data: " + json.dumps(part).encode() + b"\n\n"))
        await visit.send(b"0\r\n\r\n")

    printed, write = Event(), Printer.write

    def told(printer: Printer, text: str) -> None:
        write(printer, text)
        if text:
            printed.set()

    monkeypatch.setattr(Printer, "write", told)
    async with ToyServer("openai") as server:
        server.on_chat(answer)
        done = await run("--base-url", server.url, "ask", "Say hello", terminal=terminal)
        again = await run("--base-url", server.url, "ask", "Say it again", terminal=terminal)
    assert again.out.strip() == SAID, "it is known now"
    lines = [line.strip() for line in done.out.splitlines() if line.strip()]
    assert lines == ([THOUGHT, f"kvchat: {WAS_REASONING}", SAID] if terminal else [SAID]) and done.status == 0


@pytest.mark.parametrize("command", [("ask", "Hi"), ("rename", "ID", "Another name")], ids=["ask", "rename"])
async def test_a_mirror_that_cannot_be_written_is_said_once_and_takes_nothing(
    run, own_folders: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("no folder")
    async with ToyServer("openai") as server:
        assert (await run("--base-url", server.url, "ask", "Hi")).status == 0
        file = own_folders / "config" / "config.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f'[export]\nmirror_folder = "{in_the_way / "chats"}"\n')
        store = Store.open(own_folders / "data")
        id = store.conversations()[0].id
        store.close()
        arguments = [id if word == "ID" else word for word in command]
        done = await run("--base-url", server.url, *arguments)
    assert done.status == 0 and done.err.count("Conversations are not mirrored: ") == done.err.count("\n") == 1, done
