"""The panel beside the conversation: there where there is room, live, and taken away by who does not want it."""

from __future__ import annotations

from dataclasses import replace

from app_kit import Drive

from kvchat.config import Settings
from toyserver import ToyServer, tokens

WIDE = (160, 40)


async def test_a_wide_terminal_shows_what_the_server_holds(drive: Drive, server: ToyServer) -> None:
    server.on_chat(tokens("One.", prompt=40, cached=0), tokens("Two.", prompt=60, cached=41))
    async with drive(size=WIDE) as app:
        await app.until(lambda: "Server's cache" in app.text)
        await app.begin("first", "second")
        await app.until(
            lambda: (
                "Last turns" in app.text
                and any(line.split("│")[-1].strip().startswith("2 ") for line in app.text.splitlines())
            )
        )


async def test_it_goes_and_comes_with_the_width(drive: Drive) -> None:
    async with drive(size=WIDE) as app:
        await app.until(lambda: "Server's cache" in app.text)
        await app.pilot.resize_terminal(149, 40)
        await app.until(lambda: "Server's cache" not in app.text)
        await app.pilot.resize_terminal(150, 40)
        await app.until(lambda: "Server's cache" in app.text)


async def test_f2_pins_it_and_takes_it_away(drive: Drive) -> None:
    async with drive(size=WIDE, settings=replace(Settings(), cache_panel=False)) as app:
        await app.begin("one")
        assert "Server's cache" not in app.text
        await app.press("f2")
        await app.opens("InspectorScreen")
        await app.until(lambda: "pin" in app.text)
        await app.press("p", "escape")
        await app.closes()
        await app.until(lambda: "Server's cache" in app.text)
        await app.type("/panel")
        await app.press("enter")
        await app.until(lambda: "Server's cache" not in app.text)


async def test_a_narrow_terminal_says_what_it_takes(drive: Drive) -> None:
    async with drive() as app:
        await app.begin("one")
        await app.type("/panel")
        await app.press("enter")
        await app.until(lambda: app.noticed("The cache panel needs 150 columns (now 100)"))
