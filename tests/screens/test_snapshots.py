"""How the screens look. A picture that changes is looked at before it is accepted with --snapshot-update.

Everything in a picture stands still: the clocks, the ids, the server's figures, the server's address, the cursor.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import shutil
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from app_kit import Clock, Driven
from msgspec.structs import replace
from textual.pilot import Pilot
from textual.widgets import Input, TextArea

from cache_samples import a_report
from kvchat.cache.price import Alternative, CheaperWay, Price
from kvchat.chat.events import WarmthChanged
from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.config import Settings, changed
from kvchat.figures.accounting import PromptProgress
from kvchat.paths import find
from kvchat.prompt.conversation import SavedPrompt
from kvchat.reports.cache_report import CacheReport
from kvchat.reports.warmth import UNKNOWN, Heat, Warmth
from kvchat.store import Store
from kvchat.ui.app import KvchatApp
from kvchat.values import statement
from toyserver import SSE_HEAD, Answer, ToyServer, Visit, chunked, error, event, tokens

Scene = Callable[[Driven], Awaitable[None]]
ADDRESS = "http://127.0.0.1:8080"
MODEL = "SmolLM2-135M-Instruct"
SENT, FIRST_TOKEN, NOW = 1000.0, 1000.14, 1002.4
"""What the monotonic clock says when a question is sent, when its first token comes, and when it is looked at."""

KEEPER = "You are the keeper of a lighthouse. Answer in one or two sentences."
ANSWERS = (
    "Twenty-six nights, from night 34 to night 59.",
    "Night 47, with 140 turns.",
    "The oil of night 47 cost four crowns; of all nights together, eighty-one.",
)
MARKDOWN = """\
## The lamp by night

The lamp turned **more than a hundred times** on 26 nights; see the *log* and `lamp.py`:

| night | turns | oil (l) |
|------:|------:|:-------:|
| 34 | 101 | 2.4 |
| 47 | 140 | 3.1 |
| 59 | 104 | 2.5 |

```python
def turns(log: dict[int, int], limit: int = 100) -> list[int]:
    \"\"\"The nights with more than `limit` turns.\"\"\"
    return [night for night, count in log.items() if count > limit]
```

1. Trim the wick.
2. Fill the tank:
   - to the upper mark,
   - never above it.

> A light that is seen is a light that is kept.

More is in the [keeper's handbook](https://example.org/handbook).
"""


def words(text: str) -> list[str]:
    """`text` in words, each with the blank after it."""
    return re.findall(r"\S+\s*", text)


@dataclass
class Studio:
    """Where the pictures are taken: a server in a thread of its own, and a store with four conversations."""

    data: Path
    server: ToyServer
    compare: Any
    clock: Clock = field(default_factory=Clock)

    def settings(self, theme: str) -> Settings:
        return changed(changed(Settings(), "server.base_url", self.server.url), "theme", theme)

    async def fill(self) -> None:
        service = ChatService(Store.open(self.data), self.settings("kvchat-night"), clock=self.clock)
        for day, questions in (
            (14, ["Which knots hold a boat?"]),
            (20, ["Tax notes for the harbour office", "And the fees?"]),
            (21, ["The weather at sea, in words a child knows"]),
            (
                21,
                [
                    "How many nights did the lamp turn more than a hundred times?",
                    "Which of them was the longest?",
                    "What did it cost in oil?",
                ],
            ),
        ):
            self.clock.now = datetime(2026, 11, day, 8 + day % 3, 40, tzinfo=UTC)
            made = await service.new_conversations.create(KEEPER, reuse=False)
            cached, prompt = 0, 412
            for number, question in enumerate(questions):
                self.server.on_chat(
                    tokens(
                        *words(ANSWERS[number]),
                        prompt=prompt,
                        cached=cached,
                        prompt_ms=3.1 * (prompt - cached),
                        model=MODEL,
                    )
                )
                await service.turns.send(made.id, Question(question))
                await service.conversations.wait(made.id)
                cached, prompt = prompt + 4, prompt + 96 + 31 * number
        await service.options.save_prompt(SavedPrompt("Keeper", KEEPER))
        await service.options.save_prompt(SavedPrompt("Translator", "Translate what I write into English."))
        await service.aclose()

    def picture(
        self,
        scene: Scene,
        *,
        size: tuple[int, int] = (100, 30),
        theme: str = "kvchat-night",
        answer: Answer | None = None,
        connected: bool = True,
        **options: Any,
    ) -> None:
        """Compare the screen after `scene` with the one that was accepted."""
        settings = self.settings(theme) if connected else changed(Settings(), "theme", theme)
        self.clock.now = datetime(2026, 11, 21, 9, 16, tzinfo=UTC)
        service = ChatService(Store.open(self.data if connected else None), settings, clock=self.clock, **options)
        app = KvchatApp(service, find(), continue_=True)
        app.bell = lambda: None  # type: ignore[method-assign]
        app.animation_level = "none"
        if answer is not None:
            self.server.on_chat(answer)

        async def run(pilot: Pilot[int]) -> None:
            driven = Driven(app, pilot, service, self.server)
            await driven.until(lambda: app.has_begun and app.chat.workspace.current is not None)
            if connected:
                await service.servers.connect()
                connector = service.servers.link().connector
                await driven.until(lambda: connector._backend is not None)
                connector._backend._info = replace(connector._backend.info, base_url=ADDRESS)  # type: ignore[union-attr]
                app.chat.server.changed()
            await scene(driven)
            await driven.rest()

        assert self.compare(app, terminal_size=size, run_before=run)


def stand_still(patch: pytest.MonkeyPatch, numbers: Iterator[int]) -> None:
    """Ids by number, and clocks that show always the same."""
    patch.setattr(
        "kvchat.prompt.message.uuid", SimpleNamespace(uuid4=lambda: SimpleNamespace(hex=f"{next(numbers):032x}"))
    )
    for module, now in (
        ("kvchat.chat.turns.turns", SENT),
        ("kvchat.chat.turns.answer_request", SENT),
        ("kvchat.chat.turns.answer_run", FIRST_TOKEN),
        ("kvchat.ui.controllers.view", NOW),
    ):
        patch.setattr(f"{module}.time", SimpleNamespace(monotonic=lambda now=now: now))


@dataclass
class Filled:
    """A data folder with conversations, the server they were led with, and the next number of an id."""

    data: Path
    server: ToyServer
    next: int


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    time.tzset()  # the tests run in UTC
    server = ToyServer(model=MODEL, context_size=8192)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result()
    data, numbers = tmp_path_factory.mktemp("studio") / "data", itertools.count(1)
    with pytest.MonkeyPatch.context() as patch:
        stand_still(patch, numbers)
        asyncio.run(Studio(data, server, None).fill())
    yield Filled(data, server, next(numbers))
    asyncio.run_coroutine_threadsafe(server.stop(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


@pytest.fixture
def studio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snap_compare: Any, filled: Filled) -> Studio:
    stand_still(monkeypatch, itertools.count(filled.next))
    monkeypatch.setattr(Input, "_toggle_cursor", lambda _: None)
    monkeypatch.setattr(TextArea, "_toggle_cursor_blink_visible", lambda _: None)
    shutil.copytree(filled.data, tmp_path / "data")
    return Studio(tmp_path / "data", filled.server, snap_compare)


async def as_it_is(_: Driven) -> None:
    """Nothing is done."""


def keys(*pressed: str, opens: str = "") -> Scene:
    async def scene(app: Driven) -> None:
        await app.press(*pressed)
        if opens:
            await app.opens(opens)
            await app.rest()

    return scene


def runs(id: str, opens: str) -> Scene:
    async def scene(app: Driven) -> None:
        await app.run(id)
        await app.opens(opens)
        await app.rest()

    return scene


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
def test_the_main_screen(studio: Studio, size: tuple[int, int]) -> None:
    studio.picture(as_it_is, size=size)


@pytest.mark.parametrize("theme", ["kvchat-day", "kvchat-contrast"])
def test_the_main_screen_in_another_theme(studio: Studio, theme: str) -> None:
    studio.picture(as_it_is, theme=theme)


def reading(visit_progress: int = 1320) -> Answer:
    """A server that is reading the prompt, and stays there."""

    async def answer(visit: Visit) -> None:
        delta = {"choices": [{"finish_reason": None, "index": 0, "delta": {"role": "assistant", "content": None}}]}
        progress = {"total": 1748, "cache": 647, "processed": visit_progress, "time_ms": 2113}
        await visit.send(SSE_HEAD + chunked(event({**delta, "model": MODEL, "prompt_progress": progress})))
        await visit.gone.wait()

    return answer


async def ask(app: Driven) -> None:
    before = len(app.path)
    await app.write("And how many litres is that?")
    await app.press("enter")
    await app.until(lambda: len(app.path) > before)  # an answer that fails at once may have ended by then
    await app.until(lambda: not_followed(app))


def not_followed(app: Driven) -> bool:
    """Whether kvchat found out that this server does not tell what its cache holds."""
    cache = app.service.servers.link().cache
    return cache is not None and not cache.prompts.works


def test_while_the_prompt_is_read(studio: Studio) -> None:
    async def scene(app: Driven) -> None:
        await ask(app)
        await app.until(lambda: app.conversation.live is not None and app.conversation.live.progress is not None)
        app.conversation.live.progress_at = NOW  # type: ignore[union-attr]
        app.chat.view.tick()

    studio.picture(scene, answer=reading())


def test_while_the_answer_streams(studio: Studio) -> None:
    async def scene(app: Driven) -> None:
        await ask(app)
        await app.until(lambda: app.conversation.live is not None and app.conversation.live.text.endswith("2.4 litres"))
        await app.until(lambda: "2.4 litres" in app.text)
        app.chat.view.tick()

    said = words("On most nights the lamp burnt 2.4 litres")
    studio.picture(
        scene, answer=tokens(*said, prompt=742, cached=647, prompt_ms=310, hang_after=len(said), model=MODEL)
    )


async def with_a_queue(app: Driven) -> None:
    """An answer streams, and four messages wait behind it."""
    await ask(app)
    await app.until(lambda: app.conversation.live is not None and app.conversation.live.text.endswith("2.4 litres"))
    await app.until(lambda: "2.4 litres" in app.text)
    for number, text in enumerate(
        (
            "What does that cost in a year?",
            "And the wicks, how long do they last?",
            "Write both into a table.",
            "In English, please.",
        ),
        1,
    ):
        await app.write(text)
        await app.press("enter")
        await app.until(lambda number=number: len(app.service.queue.of(app.conversation.id)) == number)
    app.chat.view.tick()


def half_an_answer() -> Answer:
    said = words("On most nights the lamp burnt 2.4 litres")
    return tokens(*said, prompt=742, cached=647, prompt_ms=310, hang_after=len(said), model=MODEL)


@pytest.mark.parametrize("size", [(80, 24), (100, 30)])
def test_messages_that_wait(studio: Studio, size: tuple[int, int]) -> None:
    studio.picture(with_a_queue, size=size, answer=half_an_answer())


@pytest.mark.parametrize("opened", [False, True])
def test_a_held_queue(studio: Studio, opened: bool) -> None:
    async def scene(app: Driven) -> None:
        await with_a_queue(app)
        await app.press("escape")
        await app.settled()
        await app.until(lambda: "Queue held" in app.text)
        if opened:
            await app.press("shift+f7")
            await app.opens("QueueScreen")

    studio.picture(scene, size=(80, 24), answer=half_an_answer())


def test_after_an_error(studio: Studio) -> None:
    async def scene(app: Driven) -> None:
        await ask(app)
        await app.settled()
        failed = app.path[-1]
        words = {name: ADDRESS if value == studio.server.url else value for name, value in failed.note.arguments}
        app.conversation.tree.put(replace(failed, note=statement(failed.note.kind, words)))
        app.chat.view.show()

    studio.picture(scene, answer=error(500, "the request exceeds the available memory"))


def test_the_first_run(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvchat.backends.kinds.ports", lambda: (9,))
    monkeypatch.setattr("kvchat.backends.engine.models.find_models", list)

    async def scene(app: Driven) -> None:
        await app.until(lambda: "No model server answered" in app.text)
        app.chat.query_one("WelcomePanel").focus()

    studio.picture(scene, connected=False)


def test_the_export(studio: Studio, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (Path.home() / "lighthouse").mkdir()
    monkeypatch.chdir(Path.home() / "lighthouse")

    async def scene(app: Driven) -> None:
        await keys("f4", opens="ExportScreen")(app)
        app.app.screen.query_one("#answer").display = False  # the whole path: it is another one on every machine

    studio.picture(scene)


def test_the_palette(studio: Studio) -> None:
    async def scene(app: Driven) -> None:
        await keys("ctrl+p", opens="PaletteScreen")(app)
        await app.press("pagedown", "pagedown")
        await app.until(lambda: "Compact conversation" in app.text)

    studio.picture(scene)


def test_the_help(studio: Studio) -> None:
    studio.picture(keys("f1", opens="HelpScreen"), size=(120, 40))


def test_the_list(studio: Studio) -> None:
    studio.picture(keys("ctrl+s", opens="ConversationPicker"))


def test_the_search(studio: Studio) -> None:
    async def scene(app: Driven) -> None:
        await keys("ctrl+r", opens="SearchScreen")(app)
        await app.type("night")
        await app.until(lambda: "messages" in app.text)

    studio.picture(scene)


@pytest.mark.parametrize("view", ["turns", "messages", "sums"])
@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
def test_the_inspector(studio: Studio, size: tuple[int, int], view: str) -> None:
    async def scene(app: Driven) -> None:
        async def report(id: str) -> CacheReport:
            return a_report(app.service.clock().timestamp())

        app.service.cache_reports.report = report  # type: ignore[method-assign]
        await keys("f2", opens="InspectorScreen")(app)
        await app.until(lambda: "last request" in app.text)
        await app.press(*{"turns": ["up"], "messages": ["tab"], "sums": ["shift+tab"]}[view])

    studio.picture(scene, size=size)


def test_what_an_edit_costs(studio: Studio) -> None:
    async def scene(app: Driven) -> None:
        app.service.prices.estimate = lambda *_: Price(  # type: ignore[method-assign]
            8120, (24.4, 52.3), Alternative(CheaperWay.CORRECTION, 48, (0.15, 0.3))
        )
        await app.select(0)
        await app.press("e")
        await app.opens("ConfirmScreen")

    studio.picture(scene)


def test_marks_and_reading_ahead(studio: Studio) -> None:
    async def scene(app: Driven) -> None:
        now = app.service.clock().timestamp()
        kinds = (Warmth(Heat.WARM, 2119, 1, now - 250), Warmth(Heat.PARKED, 1930, 412, now), Warmth(Heat.COLD, 0, 8120))
        known = dict(zip((c.id for c in app.service.conversations.all()), kinds, strict=False))
        app.service.tracker.warmth = lambda id: known.get(id, UNKNOWN)  # type: ignore[method-assign]
        app.chat.sidebar._ask_warmth = app.service.tracker.warmth
        app.service.tracker.warming = app.conversation.id
        app.service.tracker.warmup_progress = PromptProgress(4000, 600, 1804)
        app.chat._on_service(WarmthChanged())

    studio.picture(scene, size=(120, 40))


def test_the_branches(studio: Studio) -> None:
    async def scene(app: Driven) -> None:
        await app.service.turns.regenerate(app.conversation.id, app.path[3].id)
        await app.settled()
        await app.service.branches.walk(app.conversation.id, app.path[3].id, -1)
        await runs("tree", "BranchTreeScreen")(app)

    studio.picture(scene, answer=tokens("Night", " 47.", prompt=512, cached=416, model=MODEL))


def test_the_price_of_an_act(studio: Studio) -> None:
    async def scene(app: Driven) -> None:
        await app.command("/system Answer in rhymes.")
        await app.opens("ConfirmScreen")

    studio.picture(scene)


def test_the_parameters(studio: Studio) -> None:
    studio.picture(keys("ctrl+o", opens="ParametersScreen"))


def test_the_system_prompt(studio: Studio) -> None:
    studio.picture(runs("system", "SystemPromptScreen"))


def test_the_model_picker(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    file = SimpleNamespace(
        path=Path("/m"),
        name="qwen3-1.7b",
        size=1_282_439_360,
        quantisation="Q4_K_M",
        context_length=40960,
        source="LM Studio",
    )

    async def files() -> list[Any]:
        return [file]

    async def scene(app: Driven) -> None:
        monkeypatch.setattr(app.service.chooser, "model_files", files)
        offer = ("Qwen/Qwen3-4B-GGUF", "~2.5 GB · for 8 GB of memory, as here")
        monkeypatch.setattr(app.service.chooser, "suggested", lambda: [offer])
        await keys("ctrl+l", opens="ModelPicker")(app)
        await app.until(lambda: "qwen3" in app.text)

    studio.picture(scene)


def test_while_a_message_is_edited(studio: Studio) -> None:
    async def scene(app: Driven) -> None:
        await app.select(2)
        await app.press("e")
        await app.until(lambda: "editing" in app.text)

    studio.picture(scene)


@pytest.mark.parametrize("theme", ["kvchat-night", "kvchat-day"])
def test_long_markdown(studio: Studio, theme: str) -> None:
    async def scene(app: Driven) -> None:
        await app.begin("Show me everything about the lamp.")

    studio.picture(
        scene,
        size=(120, 46),
        theme=theme,
        answer=tokens(*(MARKDOWN[at : at + 40] for at in range(0, len(MARKDOWN), 40)), prompt=420, model=MODEL),
    )


def test_reasoning_and_context_unfolded(studio: Studio) -> None:
    async def scene(app: Driven) -> None:
        await app.begin("Is 47 a prime?")
        await app.select(0)
        await app.press("enter")
        await app.select(1)
        await app.press("enter")

    studio.picture(
        scene,
        answer=tokens(
            "Yes.", reasoning=["47 is not divisible by 2, 3 or 5, ", "and 7 × 7 is 49."], prompt=420, model=MODEL
        ),
    )


def test_finding(studio: Studio) -> None:
    async def scene(app: Driven) -> None:
        await app.press("ctrl+f")
        await app.type("night")
        await app.until(lambda: "/" in app.prose)

    studio.picture(scene)


def test_the_slash_commands(studio: Studio) -> None:
    studio.picture(keys("/", "s"))


def test_trouble_with_the_disk(studio: Studio) -> None:
    async def scene(app: Driven) -> None:
        app.chat._show_trouble("The disk is full.")

    studio.picture(scene)
