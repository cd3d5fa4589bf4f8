"""The rail beside an answer that streams: the server has computed its words, so they are in the slot."""

from __future__ import annotations

from app_kit import Drive

from toyserver import ToyServer, tokens


async def test_the_words_of_a_running_answer_are_in_the_slot(drive: Drive, server: ToyServer) -> None:
    server.on_chat(tokens("A long way ", "home", prompt=900, hang_after=1))
    async with drive() as app:
        await app.begin()
        await app.type("Short?")
        await app.press("enter")
        await app.until(lambda: any("┃ A long way" in line for line in app.lines))
        assert any("┃ Short?" in line for line in app.lines)
        await app.press("escape")
