"""The screenshots, made from the real app with the real engine and the small model:
`uv run --with resvg-py --with pillow screenshots/make.py`.

SVGs come from the app itself; PNGs are drawn from them by resvg, in the fonts of DejaVu.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

from textual.pilot import Pilot

from kvchat.chat.service import ChatService
from kvchat.commands.actions import BY_ID
from kvchat.config import Settings, changed
from kvchat.documents.library import open_library
from kvchat.memory.entry import PROFILE, Kind
from kvchat.memory.memories import Memories, open_memories
from kvchat.paths import find
from kvchat.prompt.message import Role
from kvchat.prompt.request import Parameters
from kvchat.store import Store
from kvchat.ui.app import KvchatApp
from kvchat.ui.screens.doctor import DoctorScreen

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))
from chat_templates import CALLING  # noqa: E402
from engine_fixture import running_server, small_model  # noqa: E402

INSTRUCTIONS = "You are a helpful assistant in a small workshop. Answer in a few short sentences. " + " ".join(
    f"Rule {n}: item {n} lies on shelf {n * 7 % 40} and costs {n * 3 + 2} coins." for n in range(1, 70)
)
QUESTIONS = (
    "What do you sell in the workshop?",
    "Write a Python function that gives the price of item n.",
    "Where do I find item twelve?",
)
OTHERS = ("Rust lifetimes, in one paragraph", "A packing list for three rainy days", "Is a tomato a fruit?")


MEMORIES = (
    ("I run a small workshop in Bergen.", Kind.IDENTITY, PROFILE),
    ("I prefer metric units and short answers.", Kind.PREFERENCE, "topics/preferences.md"),
    ("My sister Ida repairs clocks and comes in on Fridays.", Kind.PERSON, "topics/people.md"),
    ("We decided to paint the shelves white before winter.", Kind.DECISION, "topics/workshop.md"),
    ("I am learning Rust to rewrite the stock list.", Kind.SKILL, "topics/stock-list.md"),
)
COLLECTIONS: dict[str, dict[str, str | bytes]] = {
    "handbook": {
        "opening.md": "# Opening hours\n\nThe workshop is open from nine to five, and on Fridays until eight.\n\n"
        "## Holidays\n\nIt is closed in July and between Christmas and New Year.\n",
        "guide/paint.md": "# Paint\n\n## Shelves\n\nShelves get two coats of white linseed paint. The first coat "
        "dries for a day, the second for three days.\n\n## Doors\n\nDoors are painted green.\n",
        "guide/clocks.md": "# Clocks\n\nA clock is cleaned before it is oiled. One drop for each bearing is enough.\n",
        "guide/tools.md": "# Tools\n\nEvery tool has its place on the wall. Chisels are sharpened on Mondays.\n",
    },
    "stock-list": {
        "stock.py": '"""The stock list."""\n\n\ndef price(item: int) -> int:\n    """Coins for an item."""\n'
        "    return item * 3 + 2\n",
        "README.md": "# Stock list\n\n`price(n)` gives the price of item n in coins.\n",
        "orders.csv": "item,number\n12,3\n9,1\n",
        "old/orders.pdf": b"%PDF-1.7\n%cut off",
        "old/backup.bin": bytes(range(256)) * 40,
        "old/latin.txt": b"caf\xe9 \x00\x01\x02" * 20,
    },
}
FILES = {
    "paint.md": "# Paint\n\n| shelf | coats | painted |\n|---|---|---|\n| 3 | 1 | 12 May |\n| 7 | 1 | 14 May |\n"
    "| 9 | 2 | 2 June |\n\nA shelf is done with two coats. Let the first one dry for a day.\n",
    "prices.csv": "thing,coins\nlinseed paint (for two shelves),14\nbrush,6\n",
}
LOOKED_UP = (
    (
        "Which shelves still want paint?",
        "paint.md",
        "**Shelves 3 and 7**: both have one coat, and a shelf is done with two [1]. Shelf 9 is done.",
    ),
    (
        "And what will that cost?",
        "prices.csv",
        "One pot of linseed paint is enough for both, so **14 coins**, and 6 more if you need a brush [2].",
    ),
)
"""What is asked, the file that the model looks into, what it answers: it is held to both, for it is a small one."""


def service_in(folder: Path, theme: str, base_url: str = "", *, fleeting: bool = False) -> ChatService:
    """`base_url`: of a server, which gets prompts as token ids; empty: the built-in engine, `fleeting`
    without snapshots and in small batches."""
    settings = changed(Settings(parameters=Parameters(temperature=0.0, max_tokens=160)), "theme", theme)
    settings = changed(settings, "engine.threads", 1)  # two would spin waiting for each other on a busy machine
    if fleeting:
        settings = changed(changed(settings, "engine.snapshots", False), "engine.batch_size", 32)
    if base_url:
        settings = changed(changed(settings, "server.base_url", base_url), "cache.token_ids", True)
    store, places = Store.open(folder), find(str(folder), str(folder / "config.toml"))
    service = ChatService(
        store,
        settings,
        snapshots=folder / "snapshots",
        memories=lambda: open_memories(places, settings, store, service.memory.session),
        library=lambda: open_library(places, settings, store),
    )
    service.warm_up.enabled = service.servers.connects_ahead = True
    return service


def is_ready(service: ChatService) -> bool:
    return service.servers.connection.phase == "ready"


class Camera:
    """Takes pictures of an app."""

    def __init__(self, app: KvchatApp, pilot: Pilot[int]) -> None:
        self.app = app
        self.pilot = pilot

    def shot(self) -> str:
        """The screen as SVG. The font is the reader's own: nothing is fetched to look at a picture."""
        svg = self.app.export_screenshot(title="kvchat", simplify=True)
        return re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL).replace("Fira Code", "monospace")

    async def picture(self, name: str, *, rests: bool = True) -> None:
        """Of the screen when it `rests`, else as it is now."""
        shot = self.shot()
        for _ in range(10 if rests else 0):
            await self.pilot.pause(0.3)
            if shot == (shot := self.shot()):
                break
        (HERE / f"{name}.svg").write_text(shot, encoding="utf-8")
        drawn(HERE / f"{name}.svg")

    async def film(self, name: str, acts: Awaitable[None]) -> None:
        """A moving picture of what happens until the acts are done."""
        frames, began, acting = list[tuple[float, str]](), time.monotonic(), asyncio.ensure_future(acts)
        while not acting.done():
            frames.append((time.monotonic() - began, self.shot()))
            await self.pilot.pause(0.05)
        await acting
        frames.append((time.monotonic() - began, self.shot()))
        moving(HERE / f"{name}.gif", frames)

    async def until(self, condition: Callable[[], bool], seconds: float = 600) -> None:
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                raise TimeoutError(condition)
            await self.pilot.pause(0.02)

    async def say(self, text: str) -> None:
        """Type a message when the last answer was read, and wait for its own."""
        chat = self.app.chat
        await chat.service.warm_up.ended()
        conversation = chat.workspace.conversation
        turns = conversation.record.turns
        chat.composer.replace_text(text)
        await self.pilot.press("enter")
        await self.until(lambda: conversation.record.turns > turns and not chat.service.conversations.streaming())


def processed(app: KvchatApp) -> int:
    """Tokens of the prompt that the server has read so far for the open conversation."""
    live = app.chat.workspace.conversation.live
    return live.progress.processed if live is not None and live.progress is not None else 0


def has_examined(app: KvchatApp) -> bool:
    """Whether the doctor is done, or asks: then its keys say so."""
    keys = str(app.screen.query_one("#frame").border_subtitle) if isinstance(app.screen, DoctorScreen) else ""
    return "again" in keys or "go on" in keys


def remembered(text: str, kind: Kind, page: str, memories: Memories) -> None:
    memories.add(text, kind, page)


def drawn(svg: Path) -> None:
    """Draw the SVG as PNG."""
    svg.with_suffix(".png").write_bytes(png_of(svg.read_text()))


def png_of(svg: str) -> bytes:
    from resvg_py import svg_to_bytes

    fonts = [str(font) for font in Path("/usr/share/fonts").rglob("DejaVuSans*.ttf")]
    return bytes(
        svg_to_bytes(svg_string=svg, font_files=fonts, monospace_family="DejaVu Sans Mono", font_family="DejaVu Sans")
    )


def moving(gif: Path, frames: list[tuple[float, str]]) -> None:
    """Frames with their times as one picture that moves: all of it in six seconds, and a rest at the end."""
    from PIL import Image

    pictures = [Image.open(io.BytesIO(png_of(svg))).convert("RGB") for _, svg in frames]
    pictures = [one.resize((one.width * 2 // 3, one.height * 2 // 3), Image.Resampling.LANCZOS) for one in pictures]
    palette = pictures[-1].quantize(96)
    first, *others = (one.quantize(palette=palette, dither=Image.Dither.NONE) for one in pictures)
    times = [6000 * at / frames[-1][0] for at, _ in frames]
    lasts = [*(max(20, round(end - at)) for at, end in pairwise(times)), 2000]
    first.save(gif, save_all=True, append_images=others, duration=lasts, loop=0, optimize=True)


async def main_scenes(folder: Path) -> None:
    service = service_in(folder, "kvchat-night")
    app = KvchatApp(service, find(str(folder), str(folder / "config.toml")))
    async with app.run_test(size=(120, 36)) as pilot:
        camera = Camera(app, pilot)
        await camera.until(partial(is_ready, service))
        for question in OTHERS:
            await pilot.press("ctrl+n")
            await camera.say(question)
        await pilot.press("ctrl+n")
        await service.branches.set_instructions(app.chat.workspace.conversation.id, INSTRUCTIONS)
        app.chat.composer.replace_text(QUESTIONS[0])
        await pilot.press("enter")
        await camera.until(lambda: processed(app) > 600)
        await camera.picture("reading", rests=False)
        await camera.until(lambda: not service.conversations.streaming())
        for question in QUESTIONS[1:]:
            await camera.say(question)
        await camera.picture("main")
        await pilot.press("f2")
        await camera.picture("cache")
        await pilot.press("escape", "ctrl+s")
        await camera.picture("list")
        await pilot.press("escape", "f1")
        await camera.picture("help")
        await pilot.press("escape", "ctrl+p")
        await camera.picture("palette")
        await pilot.press("escape", "f4")
        await camera.picture("export")
        await pilot.press("escape", "ctrl+r", *"item")
        await pilot.pause(0.5)
        await camera.picture("search")
        await pilot.press("escape")
        conversation = app.chat.workspace.conversation
        answer = [n for n in conversation.path() if n.role is Role.ASSISTANT][1]
        await service.options.set_parameters(conversation.id, Parameters(temperature=0.6, seed=7, max_tokens=120))
        await service.turns.regenerate(conversation.id, answer.id)
        await service.conversations.wait(conversation.id)
        app.chat.transcript.focus()
        await pilot.press("b")
        await camera.picture("branches")
        await pilot.press("escape", "ctrl+l")
        await pilot.pause(1)
        await camera.picture("servers")
        await pilot.press("escape")
        for text, kind, page in MEMORIES:
            await service.memory.with_memories(partial(remembered, text, kind, page))
        await pilot.press("ctrl+n")
        app.chat.composer.replace_text("What does Ida do on Fridays, while I am learning Rust?")
        await camera.until(lambda: bool(app.chat.composer.context.memories))
        await camera.picture("recall")
        app.chat.composer.replace_text("")
        await pilot.press("f5")
        await camera.picture("memory")
        await pilot.press("escape")
        await service.conversations.open(conversation.id)
        await app.chat.conversations.open(conversation.id)
        await app.chat.do_instead(BY_ID["doctor"])
        await camera.until(lambda: has_examined(app))
        await pilot.press("y")  # it asks, because the one slot holds a conversation
        await camera.until(lambda: has_examined(app))
        await camera.picture("doctor")
        await pilot.press("escape")
        for theme in ("kvchat-day", "kvchat-paper", "kvchat-ember", "kvchat-phosphor", "kvchat-contrast"):
            app.theme = theme
            await camera.picture(f"theme-{theme.removeprefix('kvchat-')}")


async def documents_scene(folder: Path) -> None:
    service = service_in(folder, "kvchat-night")
    app = KvchatApp(service, find(str(folder), str(folder / "config.toml")))
    async with app.run_test(size=(120, 36)) as pilot:
        camera = Camera(app, pilot)
        await camera.until(partial(is_ready, service))
        for name, files in COLLECTIONS.items():
            for path, text in files.items():
                file = folder.parent / name / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(text if isinstance(text, bytes) else text.encode())
            await service.documents.add(str(folder.parent / name))
        documents = service.documents
        await camera.until(lambda: len(documents.reports) == len(COLLECTIONS) and not documents.indexing)
        await app.chat.do_instead(BY_ID["new"])
        await service.retrieval.set_retrieval(app.chat.workspace.conversation.id, "always", ["handbook"])
        await pilot.press("f6")
        await pilot.press("down")
        await camera.picture("documents")


def held_to(text: str) -> Parameters:
    return Parameters(temperature=0.0, max_tokens=160, extra={"grammar": f"root ::= {json.dumps(text)}"})


async def tools_scene(folder: Path) -> None:
    """The small model with a template that takes tools."""
    model, work = folder / "SmolLM2.gguf", folder.parent / "workshop"
    new_metadata = (sys.executable, "-m", "gguf.scripts.gguf_new_metadata", "--chat-template", CALLING["object"])
    await asyncio.to_thread(
        subprocess.run, [*new_metadata, str(small_model()), str(model)], check=True, capture_output=True
    )
    work.mkdir(exist_ok=True)
    os.chdir(work)
    for name, text in FILES.items():
        (work / name).write_text(text)
    with running_server(context=8192, model=model) as server:
        service = service_in(folder / "tools", "kvchat-night", server.base_url)
        app = KvchatApp(service, find(str(folder), str(folder / "config.toml")))
        async with app.run_test(size=(120, 36)) as pilot:
            camera = Camera(app, pilot)
            await camera.until(partial(is_ready, service))
            id = (await service.new_conversations.create(INSTRUCTIONS, tools=["files"])).id
            await app.chat.conversations.open(id)
            for question, file, answer in LOOKED_UP:
                call = {"name": "read_file", "arguments": {"path": file}}
                await service.options.set_parameters(id, held_to(f"<tool_call>\n{json.dumps(call)}\n</tool_call>"))
                asking = asyncio.create_task(camera.say(question))
                await camera.until(lambda: id in service.tools.waiting)
                await service.options.set_parameters(id, held_to(answer))
                await pilot.pause(0.5)
                await pilot.press("y")
                await asking
            await camera.picture("tools")


async def moving_scene(folder: Path) -> None:
    """A long conversation is opened after a restart, without snapshots: it is prefilled before the question is sent."""
    folder = folder / "moving"
    for opened_again in (False, True):
        service = service_in(folder, "kvchat-night", fleeting=True)
        app = KvchatApp(service, find(str(folder), str(folder / "config.toml")))
        async with app.run_test(size=(100, 36)) as pilot:
            camera = Camera(app, pilot)
            await camera.until(partial(is_ready, service))
            if not opened_again:
                await pilot.press("ctrl+n")
                for question in (*OTHERS, *QUESTIONS[:1]):
                    await camera.say(question)
                continue
            id = next(one.id for one in service.conversations.all() if one.turns)
            await service.conversations.open(id)

            async def asked(app: KvchatApp = app, camera: Camera = camera, id: str = id) -> None:
                await app.chat.conversations.open(id)
                await camera.say("And item nine?")

            await camera.film("moving", asked())


async def small_scene(folder: Path) -> None:
    service = service_in(folder, "kvchat-night")
    app = KvchatApp(service, find(str(folder), str(folder / "config.toml")), continue_=True)
    async with app.run_test(size=(80, 24)) as pilot:
        camera = Camera(app, pilot)
        await camera.until(partial(is_ready, service))
        await camera.say("And item nine?")
        await camera.picture("small")


def run() -> int:
    place = Path(tempfile.gettempdir()) / "kvchat"  # the folder that the export screen names
    place.mkdir(exist_ok=True)
    os.chdir(place)
    folder = place / "data"  # the folder that the memory screen names
    shutil.rmtree(folder, ignore_errors=True)
    try:
        asyncio.run(main_scenes(folder))
        asyncio.run(small_scene(folder))
        asyncio.run(documents_scene(folder))
        asyncio.run(tools_scene(folder))
        asyncio.run(moving_scene(folder))
    finally:
        os.chdir(place)
        for made in ("data", "workshop", *COLLECTIONS):
            shutil.rmtree(place / made, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(run())
