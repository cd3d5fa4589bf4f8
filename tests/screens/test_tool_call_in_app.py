"""An answer that calls a tool, on the screen and afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from app_kit import Drive, Driven

from kvchat.prompt.message import State
from toyserver import SSE_HEAD, Answer, ToyServer, Visit, calls, chunked, event, sse, tokens

Delta = dict[str, Any]


def calling(*words: str) -> list[bytes]:
    function = {"name": "get_weather", "arguments": '{"city":"Oslo"}'}
    call = {"index": 0, "id": "c", "type": "function", "function": function}
    deltas = [*({"content": word} for word in words), {"tool_calls": [call]}]
    return [
        *(event({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}) for delta in deltas),
        event({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}),
    ]


@pytest.mark.parametrize(("words", "state"), [((), State.EMPTY), (("Let me look.",), State.DONE)])
async def test_a_tool_call_is_told_by_its_name_and_the_conversation_goes_on(
    drive: Drive, server: ToyServer, words: tuple[str, ...], state: State
) -> None:
    server.on_chat(sse(calling(*words)), tokens("Rain."))
    async with drive() as app:
        await app.say("What is the weather in Oslo?")
        assert app.path[-1].state is state
        shown = app.prose.replace("┃ ", "")
        assert 'The model called the tool get_weather({"city":"Oslo"}).' in shown
        assert "This conversation has no such tool; ask for an answer in words." in shown
        assert ("r retry" in app.prose) == (state is State.EMPTY)
        await app.say("In words, please.")
        assert app.said[-1] == "Rain."
        markdown = "".join(app.service.exports.text([app.conversation.id], "md"))
    assert "get_weather" in markdown


# -- while it is written ---------------------------------------------------------------------------------------------


def part(delta: Delta, finish: str | None = None) -> bytes:
    return chunked(event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}))


def fragment(arguments: str, name: str = "", **more: object) -> Delta:
    function = {"arguments": arguments, **({"name": name} if name else {})}
    return {"tool_calls": [{"index": 0, "function": function, **more}]}


def slowly(*deltas: Delta, goes_on: Callable[[int], asyncio.Event], finish: str | None = "tool_calls") -> Answer:
    """An answer of which a delta comes when its event is set; without a `finish` it breaks off."""

    async def answer(visit: Visit) -> None:
        await visit.send(SSE_HEAD)
        for at, delta in enumerate(deltas):
            await goes_on(at).wait()
            await visit.send(part(delta))
        await goes_on(len(deltas)).wait()
        if finish:
            await visit.send(part({}, finish) + b"0\r\n\r\n")

    return answer


class Gates:
    """An event for each delta."""

    def __init__(self) -> None:
        self._events: dict[int, asyncio.Event] = {}

    def __call__(self, at: int) -> asyncio.Event:
        return self._events.setdefault(at, asyncio.Event())


async def asked(app: Driven, *, tools: bool = True) -> None:
    if tools:
        await app.command("/tools files")
        await app.until(lambda: app.conversation.tools)
    await app.write("What does it say?")
    await app.press("enter")


IN_PIECES = fragment("", "read_file", id="c"), fragment('{"path": "no'), fragment('tes.txt"}')
WHOLE_EACH_TIME = tuple(fragment(text, "read_file", id="c") for text in ("", '{"path": "no', '{"path": "notes.txt"}'))
NAME_EACH_TIME = tuple(fragment(text, "read_file") for text in ("", '{"path": "no', 'tes.txt"}'))
OLD = tuple(
    {"function_call": {"arguments": text, **name}}
    for text, name in (("", {"name": "read_file"}), ('{"path": "no', {}), ('tes.txt"}', {}))
)


@pytest.mark.parametrize("tools", [True, False])
@pytest.mark.parametrize("before", [{}, {"content": "Let me look."}, {"reasoning_content": "I shall look."}])
@pytest.mark.parametrize("fragments", [IN_PIECES, WHOLE_EACH_TIME, NAME_EACH_TIME, OLD])
async def test_a_call_is_seen_while_it_is_written(
    drive: Drive, server: ToyServer, fragments: tuple[Delta, ...], before: Delta, tools: bool
) -> None:
    gates = Gates()
    server.on_chat(slowly(before, *fragments, goes_on=gates), tokens("So."))
    async with drive() as app:
        await asked(app, tools=tools)
        for at, shown in enumerate(("", "▸ read_file:▍", '▸ read_file: {"path": "no▍', '▸ read_file: {"path": "notes')):
            gates(at).set()
            await app.until(lambda shown=shown: shown in app.text)
        if text := before.get("content"):
            rows = app.transcript_rows
            assert rows.index(text) == next(at for at, row in enumerate(rows) if row.startswith("▸ read_file")) - 1
        if before.get("reasoning_content"):
            assert "▸ thought in 3 words" in app.text
        assert app.text.count("▍") == 1
        gates(4).set()
        if tools:
            await app.opens("ConfirmScreen")
            await app.press("n")
        await app.settled()
        assert "▍" not in app.text and '{"path": "no▍' not in app.text


async def test_of_a_long_call_the_length_is_seen_to_grow(drive: Drive, server: ToyServer) -> None:
    gates, seen = Gates(), list[str]()
    deltas = [fragment('{"text": "', "read_file", id="c"), *[fragment("The lamp turned. ") for _ in range(200)]]
    server.on_chat(slowly(*deltas, goes_on=gates))
    async with drive(size=(80, 24)) as app:
        await asked(app)
        for at in range(201):
            gates(at).set()
            if at in (0, 20, 100, 200):
                size = len("read_file: ") + 10 + 17 * at
                said = f"{size:,} characters▍" if at else '{"text": "▍'
                await app.until(lambda said=said: said in app.text)
                seen += [row for row in app.transcript_rows if "▸ read_file" in row]
    assert [row[:20] for row in seen] == ['▸ read_file: {"text"'] * 4
    assert max(map(len, seen)) <= 80


async def test_the_next_call_takes_the_place_of_the_one_before(drive: Drive, server: ToyServer, tmp_path: Path) -> None:
    gates = Gates()
    second = {"tool_calls": [{"index": 1, "id": "d", "function": {"name": "read_file", "arguments": '{"path": "b'}}]}
    server.on_chat(slowly(fragment('{"path": "a"}', "read_file", id="c"), second, goes_on=gates))
    async with drive() as app:
        await asked(app)
        gates(0).set()
        await app.until(lambda: '▸ read_file: {"path": "a"}▍' in app.text)
        gates(1).set()
        await app.until(lambda: '▸ read_file: {"path": "b▍' in app.text)
        assert '"a"' not in app.text


@pytest.mark.parametrize("finish", ["stop", "esc", None])
async def test_one_that_is_not_written_to_its_end_leaves_no_line_behind(
    drive: Drive, server: ToyServer, finish: str | None
) -> None:
    gates = Gates()
    deltas = {"content": "Let me look."}, fragment('{"path": "a"}', "read_file", id="c")
    server.on_chat(slowly(*deltas, goes_on=gates, finish=finish))
    async with drive() as app:
        await asked(app, tools=False)
        for at in range(2):
            gates(at).set()
        await app.until(lambda: "▸ read_file" in app.text)
        if finish == "esc":
            await app.press("escape")
        else:
            gates(2).set()
        await app.settled()
        assert "▸ read_file" not in app.text and "▍" not in app.text
        assert "Let me look." in app.text


# -- a broken one ----------------------------------------------------------------------------------------------------

LONG = '{"path": "notes.txt", "more": "' + "the lamp turned." * 20


@pytest.mark.parametrize(
    ("arguments", "finish"),
    [(('{"path": "notes',), "tool_calls"), (("[1]",), "tool_calls"), ((LONG,), "length"), (("{}", LONG), "tool_calls")],
)
@pytest.mark.parametrize("text", ["", "Let me look.\n\nread_file is the tool."])
async def test_a_broken_call_stands_folded(
    drive: Drive, server: ToyServer, arguments: tuple[str, ...], finish: str, text: str
) -> None:
    server.on_chat(calls(*arguments, text=text, finish=finish))
    async with drive(size=(80, 30)) as app:
        await asked(app)
        await app.until(lambda: "cannot be carried out" in app.text)
        await app.settled()
        rows = [row for row in app.transcript_rows if "read_file(" in row]
        assert len(rows) == 1 and rows[0].startswith("▸ read_file(")
        assert ("Let me look." in app.text) == bool(text)
        assert ("characters" in rows[0]) == (LONG in arguments)
        await app.select(-1)
        await app.press("space")
        await app.until(lambda: "▾ read_file(" in app.text)
        assert all(len(one) > 100 or f"│ read_file({one})" in app.text for one in arguments)
        await app.press("space")
        await app.until(lambda: "▸ read_file(" in app.text)
        await app.press("y")
        made = "\n".join(f"read_file({one})" for one in arguments)
        await app.until(lambda: app.app.clipboard == "\n\n".join(filter(None, (text, made))))
        assert app.path[-1].text == app.app.clipboard, "what is stored and sent stays"
