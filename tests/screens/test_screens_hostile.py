"""Nothing from outside reaches the terminal as a command, and markup in it is only text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from screens_kit import (
    HOSTILE,
    MARKUP,
    NOW,
    Grower,
    Host,
    Source,
    TypedTexts,
    a_report,
    conversation,
    figures,
    opened,
    showing,
)
from textual.screen import Screen

from kvchat.backends.http.payload import Model
from kvchat.cache.causes.cause import Reason, Remedy
from kvchat.cache.price import Price
from kvchat.chat.server.choice import ServerChoice
from kvchat.prompt.conversation import SavedPrompt, SearchHit
from kvchat.prompt.lint import LintKind, PrefixWarning
from kvchat.prompt.message import State
from kvchat.prompt.request import Parameters
from kvchat.reports.cache_report import HeldState, Ledger, MessageCells, TurnReport
from kvchat.sanitize import clean
from kvchat.ui.screens.branches import BranchTreeScreen
from kvchat.ui.screens.conversations import ConversationPicker, ConversationRowData, SearchScreen, rename_screen
from kvchat.ui.screens.export import ExportScreen
from kvchat.ui.screens.inspector import InspectorScreen
from kvchat.ui.screens.kit.confirm import ConfirmScreen
from kvchat.ui.screens.options import ParametersScreen, SystemPromptScreen
from kvchat.ui.screens.servers import EngineTroubleScreen, ModelPicker, WelcomePanel
from kvchat.values import said


def typed(texts: Sequence[str]) -> TypedTexts:
    left = TypedTexts()
    left.leave("here", texts[-1])
    return left


def models(texts: Sequence[str]) -> list[Any]:
    return [SimpleNamespace(path=Path("/m"), name=t, size=1, quantisation=t, context_length=1, source=t) for t in texts]


def search(texts: Sequence[str]) -> SearchScreen:
    async def found(query: str, limit: int = 50, ranked: bool = False) -> list[SearchHit]:
        return [SearchHit(str(i), "n", t, t, f"{t}\x02{t}\x03{t}", 1) for i, t in enumerate(texts)]

    return SearchScreen(SimpleNamespace(search=found), query="x", now=NOW)


def picker(texts: Sequence[str]) -> ModelPicker:
    async def files() -> list[Any]:
        return models(texts)

    servers = [
        ServerChoice(
            text,
            text,
            text,
            text,
            phase=text,
            sentence=text,
            model=text,
            listing=(Model(text, text, about=text),),
            current=text == texts[0],
        )
        for text in texts
    ]
    return ModelPicker(servers, current=texts[0], files=files)


def grown(texts: Sequence[str]) -> tuple[Grower, str]:
    g = Grower()
    at = g.system(texts[0])
    for text in texts:
        question = g.ask(at, text)
        g.answer(question, text, State.ERROR)
        at = g.answer(question, text, cost=figures(10, 5, 5))
    return g, at.id


def branches(texts: Sequence[str]) -> BranchTreeScreen:
    g, head = grown(texts)
    return BranchTreeScreen(g.tree, head, title=texts[0], now=NOW)


def inspector(texts: Sequence[str]) -> InspectorScreen:
    g, head = grown(texts)
    server = SimpleNamespace(
        kind=texts[0],
        base_url=texts[0],
        host_class=texts[0],
        model=texts[0],
        context_size=1,
        slots=1,
        build=texts[0],
        embedded=False,
    )
    cost = figures(2000, 613, 64)
    report = a_report(
        turns=tuple(
            TurnReport(
                text,
                replace(
                    cost,
                    evidence=said(Reason.MESSAGE_CHANGED, message=1, text=text),
                    remedy=said(Remedy.MORE_SLOTS, flag=text, embedded=False),
                ),
            )
            for text in texts
        ),
        messages=tuple(MessageCells("s", text, text, 12, 12, 0, 0) for text in texts),
        states=tuple(HeldState(text, text, 10) for text in texts),
        rules=texts[0],
        warnings=tuple(PrefixWarning(LintKind.CLOCK, text, 0, 1) for text in texts),
        here=Ledger(misses=dict.fromkeys(texts, (1, 10))),
    )
    return InspectorScreen(
        opened(conversation(texts[0]), g.tree, head), *Source(report, server).parts, pin=lambda: None
    )


class Library:
    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts

    def prompts(self) -> list[SavedPrompt]:
        return [SavedPrompt(text, text) for text in self.texts]

    async def save_prompt(self, prompt: SavedPrompt) -> None: ...

    async def delete_prompt(self, name: str) -> None: ...


MAKERS: dict[str, Callable[[Sequence[str]], Screen[Any]]] = {
    "confirm": lambda t: ConfirmScreen(t[0], t, [("x", text, 1) for text in t]),
    "picker": lambda t: ConversationPicker([conversation(text) for text in t], ConversationRowData(NOW)),
    "search": search,
    "export": lambda t: ExportScreen(conversation(t[0]), folder=Path("/tmp")),
    "prompts": lambda t: SystemPromptScreen("\n".join(t), Price(5), Library(t), typed(t), "here"),
    "parameters": lambda t: ParametersScreen(Parameters(stop=tuple(t))),
    "branches": branches,
    "rename": lambda t: rename_screen(t[0]),
    "inspector": inspector,
    "models": picker,
    "trouble": lambda t: EngineTroubleScreen(t[0], "\n".join(t)),
}

BATCHES = [[text for text in HOSTILE[i : i + 33] if text] for i in range(0, len(HOSTILE), 33)]


def check(text: str) -> None:
    wrong = {char for char in text if clean(char) != char and char != "\n"}
    assert not wrong, f"{[hex(ord(char)) for char in wrong]} on the screen"


@pytest.mark.slow
@pytest.mark.parametrize("name", MAKERS)
async def test_no_control_character_reaches_the_screen(name: str) -> None:
    for texts in BATCHES:
        async with showing(MAKERS[name](texts), size=(100, 60)) as shown:
            await shown.app.workers.wait_for_complete()
            await shown.press("down", "pagedown")
            check(shown.text)
            if name == "inspector":
                for _ in ("messages", "sums"):
                    await shown.press("tab")
                    check(shown.text)
            await shown.press("escape")
            assert shown.answers == [None]


@pytest.mark.parametrize("name", MAKERS)
async def test_markup_in_outside_text_is_only_text(name: str) -> None:
    async with showing(MAKERS[name]([MARKUP, "[/]", "a[b"]), size=(120, 40)) as shown:
        await shown.app.workers.wait_for_complete()
        await shown.pilot.pause()
        if name not in ("export", "parameters"):
            assert "[/b] [red]red" in shown.text
        await shown.press("escape")
        assert shown.answers == [None]


async def test_the_first_run_panel_is_clean_too() -> None:
    for texts in BATCHES:
        app = Host()
        async with app.run_test(size=(80, 30)) as pilot:
            await app.mount(WelcomePanel([*texts, MARKUP], models=models(texts), folders=texts))
            await pilot.pause()
            check("\n".join(strip.text for strip in app.screen._compositor.render_strips()))


async def test_an_untouched_hostile_title_is_not_changed_by_looking_at_it() -> None:
    async with showing(rename_screen("a\x1b[2Jb")) as shown:
        await shown.press("enter")
        assert shown.answers == [None]
