"""While an answer streams nothing moves but the answer: over 200 frames everything around it stays where it was."""

from __future__ import annotations

import asyncio

import pytest
from app_kit import Drive, Driven

from toyserver import SSE_HEAD, ToyServer, Visit, chunked, event, tokens

FRAMES = 200


def fixed(app: Driven) -> dict[str, object]:
    """Where everything stands that is not the answer: the widgets, and the rows around the conversation."""
    chat = app.chat
    widgets = {
        widget.__class__.__name__: tuple(widget.region)
        for widget in (chat.header, chat.sidebar, chat.transcript, chat.composer, chat.status, chat.keybar)
    }
    lines = app.lines
    edge = chat.sidebar.region.right if chat.sidebar.display else 0
    listed = [line[2:edge] for line in lines[1 : chat.sidebar.region.bottom]] if edge else []
    composer = lines[chat.composer.region.y : chat.composer.region.bottom]
    status = lines[chat.status.region.y]
    marks = [at for at, sign in enumerate(status) if sign == "·"]
    return {**widgets, "list": listed, "composer": composer, "keys": lines[chat.keybar.region.y], "status": marks}


@pytest.mark.slow
@pytest.mark.parametrize("size", [(80, 24), (120, 36), (160, 40)])
async def test_nothing_moves_while_an_answer_streams(drive: Drive, server: ToyServer, size: tuple[int, int]) -> None:
    go, seen = asyncio.Semaphore(0), 0

    async def stream(visit: Visit) -> None:
        nonlocal seen
        await visit.send(SSE_HEAD)
        while not visit.gone.is_set():
            await go.acquire()
            seen += 1
            text = f"w{seen} " + ("\n\n" if seen % 12 == 0 else "")
            await visit.send(chunked(event({"choices": [{"index": 0, "delta": {"content": text}}]})))

    server.on_chat(tokens("Hello"))
    async with drive(size=size) as app:
        await app.begin("one")
        server.on_chat(stream)
        await app.write("and two?")
        await app.press("enter")
        go.release()
        await app.until(lambda: "w1" in app.text)
        await app.until(lambda: "answering" in app.text)
        before = {name: value for name, value in fixed(app).items() if name != "status"}
        for frame in range(2, FRAMES + 2):
            go.release()
            await app.until(lambda frame=frame: f"w{frame}" in app.text)
            now = fixed(app)
            marks = now.pop("status")
            assert now == before, frame
            assert marks, frame
        await app.press("escape")
        await app.settled()
