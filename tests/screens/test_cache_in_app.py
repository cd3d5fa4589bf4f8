"""The cache on the main screen: marks, prices before acts, what is read ahead."""

from __future__ import annotations

import re

import pytest
from app_kit import Drive, Driven
from msgspec.structs import replace

from kvchat.cache.causes.cause import Reason
from kvchat.cache.price import Act, Alternative, CheaperWay, Price
from kvchat.chat.events import WarmthChanged
from kvchat.figures.accounting import PromptProgress
from kvchat.prompt.message import Role
from kvchat.reports.warmth import UNKNOWN, Heat, Warmth
from kvchat.values import said
from toyserver import ToyServer, tokens

LARGE = Price(8120, (35, 35))
CORRECTION = Alternative(CheaperWay.CORRECTION, 48, (0.2, 0.2))


def costs(app: Driven, price: Price) -> list[tuple[Act, str | None]]:
    """Let every act have this price; which ones were asked about is in the list."""
    asked: list[tuple[Act, str | None]] = []

    def told(id: str, act: Act, node_id: str | None = None, text: str = "") -> Price:
        asked.append((act, node_id))
        return price

    app.service.prices.estimate = told  # type: ignore[method-assign]
    return asked


def holds(app: Driven, known: dict[str, Warmth]) -> None:
    """Let the server hold this."""
    app.service.tracker.warmth = lambda id: known.get(id, UNKNOWN)  # type: ignore[method-assign]
    app.chat.sidebar._ask_warmth = app.service.tracker.warmth
    app.service.events.tell(WarmthChanged())


async def test_the_marks_follow_what_the_server_holds(drive: Drive) -> None:
    async with drive(size=(120, 30)) as app:
        first = await app.begin("one")
        second = await app.begin("two")
        known = {first: Warmth(Heat.COLD, 0, 8120), second: Warmth(Heat.WARM, 3843, 1)}
        holds(app, known)
        await app.rest()
        assert "● two" in app.listed and "○ one" in app.listed
        known[first] = Warmth(Heat.PARKED, 7000, 412)
        app.service.events.tell(WarmthChanged())
        await app.rest()
        assert "◐ one" in app.listed
        await app.press("ctrl+s")
        await app.opens("ConversationPicker")
        assert any("one" in line and "◐ 412 to prefill" in line for line in app.lines)
        assert any("two" in line and "● warm" in line for line in app.lines)


async def test_a_cold_conversation_says_what_its_next_turn_reads_and_asks_nothing(drive: Drive) -> None:
    async with drive(size=(120, 30)) as app:
        first = await app.begin("one")
        await app.begin("two")
        costs(app, LARGE)
        holds(app, {first: Warmth(Heat.COLD, 0, 8120)})
        await app.open(first)
        assert app.front == "ChatScreen"
        assert "cold: 8,120 tokens, ~35 s to prefill" in app.lines[-2]


async def test_reading_ahead_is_shown_in_its_conversation_alone(drive: Drive) -> None:
    async with drive(size=(120, 30)) as app:
        first = await app.begin("one")
        await app.begin("two")
        app.service.tracker.warming, app.service.tracker.warmup_progress = first, PromptProgress(4000, 600, 1804)
        app.service.events.tell(WarmthChanged())
        await app.rest()
        assert "warm-up" not in app.text
        await app.open(first)
        assert "warm-up" in app.lines[-2] and "1,204/3,400" in app.lines[-2]
        app.service.tracker.warming, app.service.tracker.warmup_progress = "", None
        app.service.events.tell(WarmthChanged())
        await app.rest()
        assert "warm-up" not in app.text


async def test_a_cause_stays_until_the_inspector_shows_it(drive: Drive, server: ToyServer) -> None:
    async with drive(size=(120, 30)) as app:
        await app.begin("one")
        server.on_chat(tokens("yes", prompt=900, cached=10, prompt_ms=2670))
        await app.grow("two")
        answer = app.path[-1]
        assert answer.figures is not None
        app.conversation.tree.put(
            replace(
                answer,
                figures=replace(
                    answer.figures,
                    new_tokens=40,
                    cause="slot_taken",
                    evidence=said(Reason.OTHER_CONVERSATION, name="weather"),
                ),
            )
        )
        app.chat.view.show()
        await app.press("escape")
        assert "850 wasted" in app.lines[-2] and "“weather” took" in app.lines[-2] and "F2 why" in app.lines[-2]
        await app.press("f2")
        await app.opens("InspectorScreen")
        await app.until(lambda: "“weather” took this conversation's slot" in app.prose)
        await app.press("escape")
        await app.closes()
        assert "“weather”" not in app.lines[-2] and "850 wasted" in app.lines[-2]


@pytest.mark.parametrize("key", ["y", "a", "f", "n"])
async def test_an_edit_that_costs_is_asked_about_with_its_ways(drive: Drive, key: str) -> None:
    async with drive(size=(100, 30)) as app:
        id = await app.begin("one", "two")
        costs(app, replace(LARGE, alternative=CORRECTION))
        await app.select(2)
        await app.press("e")
        await app.opens("ConfirmScreen")
        assert "Edit message 2?" in app.text and "8,120 tokens before the next answer (~35 s)" in app.text
        assert "Append a correction instead (48 tokens, ~0.2 s)" in app.text
        await app.press(key)
        await app.closes()
        await app.until(lambda: key != "f" or app.conversation.id != id)
        await app.rest()
        assert (app.chat.workspace.editing is not None) == (key == "y")
        assert app.draft == {"y": "two", "a": "Correction to my message 2: ", "f": "two", "n": ""}[key]
        assert app.said[:1] == ["one"] and len(app.said) == (2 if key == "f" else 4)


async def test_a_small_edit_begins_at_once(drive: Drive) -> None:
    async with drive() as app:
        await app.begin("one")
        asked = costs(app, Price(40, (0.1, 0.1), CORRECTION))
        await app.select(0)
        await app.press("e")
        assert app.front == "ChatScreen" and app.draft == "one"
        assert asked[0] == ("edit", app.path[0].id)


async def test_a_deletion_can_be_a_word_instead(drive: Drive) -> None:
    async with drive() as app:
        await app.begin("one", "two")
        costs(app, replace(LARGE, alternative=Alternative(CheaperWay.DISREGARD, 48)))
        await app.select(0)
        await app.press("d")
        await app.opens("ConfirmScreen")
        await app.press("a")
        await app.closes()
        await app.rest()
        assert app.draft == "Disregard my message 1 and its answer." and len(app.said) == 4


async def test_a_system_prompt_can_be_said_in_the_next_message_instead(drive: Drive) -> None:
    async with drive() as app:
        await app.begin("one")
        costs(app, replace(LARGE, alternative=Alternative(CheaperWay.NEXT_MESSAGE, 48)))
        before = app.conversation.record.head
        await app.command("/system Answer in rhymes.")
        await app.opens("ConfirmScreen")
        await app.press("a")
        await app.closes()
        await app.rest()
        assert app.draft == "From now on: Answer in rhymes." and app.conversation.record.head == before


@pytest.mark.parametrize(("how", "act"), [("ctrl+t", "template"), ("/model toy", "model")])
async def test_what_rereads_everything_is_asked_about_and_can_be_left(drive: Drive, how: str, act: Act) -> None:
    async with drive() as app:
        await app.begin("one")
        asked = costs(app, LARGE)
        await (app.command(how) if how.startswith("/") else app.press(how))
        await app.opens("ConfirmScreen")
        assert asked[-1][0] == act and "8,120 tokens before the next answer (~35 s)" in app.prose
        await app.press("n")
        await app.closes()
        assert (
            app.conversation.record.model == "toy" and "enable_thinking" not in app.conversation.record.template_options
        )


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_a_large_paste_tells_its_price_until_it_is_sent(drive: Drive, size: tuple[int, int]) -> None:
    async with drive(size=size) as app:
        await app.begin("one")
        await app.write("word " * 3000)
        await app.until(lambda: re.search(r"pasted: ~[\d,]{5,} tokens", app.text))
        await app.press("enter")
        await app.settled()
        await app.until(lambda: "pasted: ~" not in app.text)
        assert [node.role for node in app.path][-2:] == [Role.USER, Role.ASSISTANT]
