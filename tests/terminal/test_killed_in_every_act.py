"""kill -9 at a random instant of every act: what was acknowledged is there, and the next start works and complains of
nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import signal
import sqlite3
import sys
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest

from kvchat.prompt.conversation import Conversation
from kvchat.prompt.message import Node, Role, State
from kvchat.store import Store
from terminal_output import Terminal
from toyserver import SSE_HEAD, ToyServer, Visit, chunked, event, reply
from tries import tries

pytestmark = [pytest.mark.process, pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")]

KILLS = tries("act_kills", 6)
CTRL_N, DOWN, LEFT, TAB = "\x0e", "\x1b[B", "\x1b[D", "\t"
COMPLAINT = re.compile(r"damage|set aside|could not|cannot|error|fail|locked|another kvchat|unexpected", re.IGNORECASE)
PIECES = 5


class Model(ToyServer):
    """A server whose every answer is unlike all others, and tells its end by its rate."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._numbers = count(1)
        self.on_chat(self._answer)
        self.on("/apply-template", reply(200, {"prompt": "all of it"}))
        self.on("/tokenize", reply(200, {"tokens": list(range(20))}))

    async def _answer(self, visit: Visit) -> None:
        if b"json_schema" in visit.body:
            pieces = [json.dumps({"facts": []})]
            number = 0
        else:
            number = next(self._numbers)
            pieces = [f"Answer-{number} ", *(f"of {piece} " for piece in range(PIECES)), "ends."]
            self.texts.append("".join(pieces))
        await visit.send(SSE_HEAD)
        for piece in pieces:
            if visit.gone.is_set():
                return
            await visit.send(chunked(event({"choices": [{"index": 0, "delta": {"content": piece}}], "model": "toy"})))
            await asyncio.sleep(0.02)
        timings = {
            "cache_n": 0,
            "prompt_n": 20,
            "prompt_ms": 10.0,
            "predicted_n": 50,
            "predicted_ms": 50_000 / rate(number),
        }
        end = {"choices": [{"index": 0, "finish_reason": "stop", "delta": {}}], "model": "toy", "timings": timings}
        await visit.send(chunked(event(end)) + chunked(b"data: [DONE]\n\n") + b"0\r\n\r\n")


def rate(number: int) -> int:
    """Tokens a second of an answer: no two have the same."""
    return 100 + number


@dataclass
class Seen:
    """What the next start finds."""

    conversations: list[tuple[Conversation, list[Node], list[Node]]]
    """Each with its nodes, and those of the branch in use; in the trash too."""
    folder: Path

    def about(self, text: str) -> list[Conversation]:
        """The conversations in which this stands."""
        return [row for row, nodes, _ in self.conversations if any(text in node.text for node in nodes)]

    def nodes(self, text: str) -> list[Node]:
        return [node for _, nodes, _ in self.conversations for node in nodes if text in node.text]

    def branch(self, text: str) -> list[str]:
        """The branch in use of the one conversation in which this stands."""
        return next([node.text for node in path] for _, nodes, path in self.conversations if text in str(nodes))


Fact = Callable[[Seen], object]


@dataclass
class World:
    """All that was acknowledged so far."""

    home: Path
    model: Model
    facts: dict[str, Fact] = field(default_factory=dict)
    number: int = 0
    """Of this life."""
    app: App = field(init=False)
    others: list[Terminal] = field(default_factory=list)
    """What runs beside the app in this life."""

    def know(self, what: str, fact: Fact) -> None:
        """This was acknowledged."""
        self.facts[f"{self.number}: {what}"] = fact

    def program(self, *arguments: object) -> Terminal:
        """kvchat with these arguments beside the app."""
        terminal = App(["-m", "kvchat.cli", "--base-url", self.model.url, *map(str, arguments)], os.environ, 200, 50)
        self.others.append(terminal)
        return terminal.__enter__()

    async def command(self, *arguments: object) -> bool:
        """Run a command beside the app; whether it said that it did what it is for. Killed, it said nothing."""
        terminal = self.program(*arguments)
        status = await terminal.ended()
        assert status in (0, -signal.SIGKILL), terminal.output
        return status == 0

    @property
    def question(self) -> str:
        return f"question-{self.number}."


class App(Terminal):
    async def shows_line(self, pattern: str, *keys: str) -> None:
        """Press keys and wait until a line of the screen matches."""
        await self.press(*keys)
        try:
            async with asyncio.timeout(120):
                while not any(re.search(pattern, line) for line in self._lines()):
                    self._heard.clear()
                    await self._heard.wait()
        except TimeoutError:
            raise AssertionError("\n".join([f"{pattern!r} is not on the screen:", *self._lines()])) from None

    @property
    def text(self) -> str:
        return "\n".join(self._lines())


async def answered(world: World, *keys: str) -> str:
    """Press keys that ask for an answer; the answer, when it is settled on the screen."""
    before = len(world.model.texts)
    await world.app.press(*keys)
    await world.model.until(lambda: len(world.model.texts) > before)
    text = world.model.texts[before]
    await world.app.shows_line(re.escape(f"{rate(before + 1)} tok/s"))
    world.know(f"{text} is whole", lambda seen: any(node.text == text for node in seen.nodes(text)))
    return text


# -- acts: each tells what was acknowledged


async def send(world: World) -> None:
    asked = f"more-{world.number}."
    before = len(world.model.texts)
    await world.app.press(asked, "\r")
    await world.model.until(lambda: len(world.model.texts) > before)
    world.know("what is sent is stored", lambda seen: seen.nodes(asked))
    await world.app.shows_line(re.escape(f"{rate(before + 1)} tok/s"))
    text = world.model.texts[before]
    world.know("its answer is whole", lambda seen: any(node.text == text for node in seen.nodes(text)))


async def regenerate(world: World) -> None:
    text, asked = await answered(world, "/regenerate", "\r"), world.question
    world.know("it is in use", lambda seen: seen.branch(asked)[-1] == text)


async def edit(world: World) -> None:
    await world.app.shows("editing", "/edit", "\r")
    text, number = await answered(world, f"edited-{world.number}.", "\r"), world.number
    world.know("the edit is in use", lambda seen: seen.branch(f"edited-{number}.")[-1] == text)


async def fork(world: World) -> None:
    asked = world.question
    await world.app.shows_line(r"↳ " + re.escape(asked), "/fork", "\r")
    world.know("it is forked", lambda seen: len(seen.about(asked)) == 2)


async def switch(world: World) -> None:
    first, asked = world.model.texts[-1], world.question
    await answered(world, "/regenerate", "\r")
    await world.app.shows("version 1/2", TAB, LEFT)
    world.know("the first answer is in use", lambda seen: seen.branch(asked)[-1] == first)


async def drop(world: World) -> None:
    asked = world.question
    await world.app.shows("Turn deleted", "/drop", "\r")
    world.know("the turn is not in use", lambda seen: asked not in seen.branch(asked))


async def drop_undone(world: World) -> None:
    asked = world.question
    await world.app.shows("Turn deleted", "/drop", "\r")
    await world.app.shows_line(r"│┃? +" + re.escape(asked), "/undo", "\r")
    world.know("the turn is back", lambda seen: asked in seen.branch(asked))


async def rename(world: World) -> None:
    title, asked = f"Title-{world.number}", world.question
    await world.app.shows_line(rf"^ \S {title} ", f"/rename {title}", "\r")
    world.know("its title", lambda seen: seen.about(asked)[0].title == title)


async def tag(world: World) -> None:
    name, asked = f"tag{world.number}", world.question
    await world.app.shows(f"Tags: #{name}", f"/tag {name}", "\r")
    world.know("its tag", lambda seen: seen.about(asked)[0].tags == (name,))


async def favourite(world: World) -> None:
    asked = world.question
    await world.app.shows("Favourite: first", "/favourite", "\r")
    world.know("a favourite", lambda seen: seen.about(asked)[0].tags)


async def delete(world: World) -> None:
    asked = world.question
    await world.app.shows("Moved to trash", "/delete", "\r")
    world.know("in the trash", lambda seen: seen.about(asked)[0].trashed)


async def delete_undone(world: World) -> None:
    asked = world.question
    await world.app.shows("Moved to trash", "/delete", "\r")
    await world.app.shows_line(rf"^ \S {re.escape(asked)} ", "/undo", "\r")
    world.know("out of the trash", lambda seen: seen.about(asked)[0].trashed is None)


def export_of(world: World) -> Path:
    """A file of another program with a conversation in it."""
    asked = f"imported-{world.number}."
    file = world.home / f"import-{world.number}.json"
    said = [{"role": "user", "content": asked}, {"role": "assistant", "content": f"Foreign answer-{world.number}."}]
    file.write_text(json.dumps([{"messages": said * 200}]))
    return file


async def imports(world: World) -> None:
    asked = f"imported-{world.number}."
    await world.app.shows("Imported 1 conversation", f"/import {export_of(world)}", "\r")
    world.know("imported", lambda seen: len(seen.nodes(asked)) == 200)


async def export(world: World) -> None:
    file, asked = world.home / f"export-{world.number}.md", world.question
    await world.app.shows("Exported to", f"/export {file}", "\r")
    world.know("exported", lambda _: asked in file.read_text() and file.read_text().rstrip().endswith("ends."))


async def attach(world: World) -> None:
    file = world.home / f"note-{world.number}.txt"
    file.write_text(f"noted-{world.number}.")
    await world.app.shows(f"[{file.name}: 1 line]", f"/attach {file}", "\r")
    number = world.number
    await answered(world, f"attached-{number}.", "\r")
    world.know("its file", lambda seen: f"noted-{number}." in str(seen.nodes(f"attached-{number}.")[0].message.blocks))


async def persona(world: World) -> None:
    number = world.number
    await world.app.shows("enter send", "/persona reviewer", "\r")
    await answered(world, f"reviewed-{number}.", "\r")
    world.know("its persona", lambda seen: "You review." in seen.branch(f"reviewed-{number}.")[0])


async def system(world: World) -> None:
    number = world.number
    await world.app.shows("cold:", f"/system Be terse-{number}.", "\r")
    await answered(world, f"terse question-{number}.", "\r")
    world.know("its system prompt", lambda seen: f"Be terse-{number}." in seen.branch(f"terse question-{number}.")[0])


async def remember(world: World) -> None:
    text = f"I own {world.number} red kites."
    await world.app.shows(f"Remembered: “{text}", f"/remember {text}", "\r")
    world.know("remembered", lambda seen: any(text in page.read_text() for page in pages(seen.folder)))


def pages(folder: Path) -> list[Path]:
    return list((folder / "memory").rglob("*.md"))


async def extract(world: World) -> None:
    before = len(world.model.visits)
    await world.app.press("/memory now", "\r")
    await world.model.until(lambda: any(b"json_schema" in visit.body for visit in world.model.visits[before:]))
    await asyncio.sleep(0.1)


def files_of(world: World) -> Path:
    """A folder of files to index."""
    folder = world.home / f"files{world.number}"
    folder.mkdir()
    for file in range(20):
        (folder / f"{file}.md").write_text(f"# Lamp {file}\n\nThe wick of {world.number} is trimmed at dusk.\n" * 50)
    return folder


async def documents(world: World) -> None:
    folder = files_of(world)
    await world.app.shows(f"{folder.name}: 20 files", f"/documents add {folder}", "\r")
    world.know("indexed", lambda seen: folder.name in names(seen.folder, "collection"))


def names(folder: Path, table: str) -> list[str]:
    with closing(sqlite3.connect(f"{(folder / 'kvchat.db').as_uri()}?mode=ro", uri=True)) as db:
        return [name for (name,) in db.execute(f"SELECT name FROM {table}")]


async def queue(world: World) -> None:
    number, before = world.number, len(world.model.texts)
    await world.app.press(f"first-{number}.", "\r", f"second-{number}.", "\r")
    await world.model.until(lambda: len(world.model.texts) > before)
    world.know("what is sent is stored", lambda seen: seen.nodes(f"first-{number}."))
    await world.model.until(lambda: len(world.model.texts) > before + 1)
    world.know("what waited is stored", lambda seen: seen.nodes(f"second-{number}."))


async def draft(world: World) -> None:
    text = f"draft-{world.number}."
    await world.app.shows(text, text)
    await asyncio.sleep(3)  # stored after two seconds
    world.know("a draft", lambda seen: any(text in stored for stored in drafts(seen.folder)))


def drafts(folder: Path) -> list[str]:
    store = Store.open(folder)
    try:
        return list(store.drafts().values())
    finally:
        store.close()


async def compact(world: World) -> None:
    await answered(world, f"again-{world.number}.", "\r")
    await world.app.shows("Compact this conversation?", "/compact", "\r")
    await world.app.shows("ummar", "y")
    await asyncio.sleep(0.3)


async def setting(world: World) -> None:
    minutes = world.number + 20
    if await world.command("config", "set", "time_stamp_minutes", minutes):
        config = Path(os.environ["KVCHAT_CONFIG"])
        world.facts["time_stamp_minutes"] = lambda _: f"time_stamp_minutes = {minutes}" in config.read_text()


async def ask(world: World) -> None:
    asked = f"asked-{world.number}."
    if await world.command("ask", asked):
        world.know("asked", lambda seen: seen.branch(asked)[-1].endswith("ends."))


async def ask_on(world: World) -> None:
    asked = f"asked on-{world.number}."
    if await world.command("ask", "-c", asked):
        world.know("asked on", lambda seen: seen.branch(asked)[-1].endswith("ends."))


async def import_command(world: World) -> None:
    asked = f"imported-{world.number}."
    if await world.command("import", export_of(world)):
        world.know("imported", lambda seen: len(seen.nodes(asked)) == 200)


async def import_undone(world: World) -> None:
    asked = f"imported-{world.number}."
    if await world.command("import", export_of(world)) and await world.command("import", "--undo"):
        world.know("the import is undone", lambda seen: seen.about(asked)[0].trashed)


async def export_command(world: World) -> None:
    folder = world.home / f"all-{world.number}"
    asked = world.question
    if await world.command("export", "--all", "-f", "json", "-o", folder):
        world.know("all exported", lambda _: any(asked in file.read_text() for file in files(folder)))


def files(folder: Path) -> list[Path]:
    return [file for file in (folder.rglob("*") if folder.is_dir() else [folder]) if file.is_file()]


async def remember_command(world: World) -> None:
    text = f"I keep {world.number} blue bees."
    if await world.command("memory", "add", text):
        world.know("remembered", lambda seen: any(text in page.read_text() for page in pages(seen.folder)))


async def documents_command(world: World) -> None:
    folder = files_of(world)
    if await world.command("documents", "add", folder):
        world.know("indexed", lambda seen: folder.name in names(seen.folder, "collection"))


async def trunk(world: World) -> None:
    name = f"trunk{world.number}"
    if await world.command("trunk", "add", name, files_of(world) / "1.md"):
        world.know("a trunk", lambda seen: name in names(seen.folder, "kept"))


async def plain(world: World) -> None:
    number, before = world.number, len(world.model.texts)
    terminal = world.program("--plain")
    await terminal.writes(b"You: ")
    await terminal.send(f"plain-{number}.\r".encode())
    await terminal.writes(b"to the first token")  # the prompt may be drawn twice
    text = world.model.texts[before]
    world.know("plain turn", lambda seen: any(node.text == text for node in seen.nodes(text)))
    await terminal.send(f"/rename Plain-{number}\r".encode())
    await terminal.writes(f"Title: Plain-{number}.".encode())
    world.know("plain title", lambda seen: seen.about(f"plain-{number}.")[0].title == f"Plain-{number}")
    await terminal.send(b"/edit\r")
    await terminal.writes(b"Edit: ")
    await terminal.send(b" edited\r")
    await terminal.writes(b"to the first token", times=2)
    world.know("plain edit", lambda seen: seen.branch(f"plain-{number}. edited")[-1].endswith("ends."))


ACTS: tuple[Callable[[World], Awaitable[None]], ...] = (
    send,
    ask,
    regenerate,
    plain,
    imports,
    edit,
    documents,
    drop_undone,
    fork,
    remember,
    setting,
    switch,
    rename,
    import_command,
    export,
    attach,
    extract,
    tag,
    ask_on,
    delete,
    documents_command,
    persona,
    favourite,
    import_undone,
    system,
    trunk,
    drop,
    queue,
    delete_undone,
    draft,
    remember_command,
    compact,
    export_command,
)


def processes(home: Path) -> dict[int, str]:
    """The processes of this machine that kvchat has begun in this home, but those of the test."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            if f"HOME={home}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:  # it has gone
            pass
    return found


async def struck(world: World, act: Callable[[World], Awaitable[None]], after: float) -> None:
    """Begin an act and kill all there is so many seconds later, or when it is done."""
    acting = asyncio.create_task(act(world))  # type: ignore[arg-type]
    await asyncio.wait({acting}, timeout=after)
    for terminal in (world.app, *world.others):
        if terminal.process.poll() is None:
            terminal.process.kill()
    if not acting.done():
        acting.cancel()
        await asyncio.wait({acting})
    if not acting.cancelled():
        acting.result()
    for terminal in world.others:
        terminal.__exit__()
    world.others.clear()
    await world.app.ended()
    world.app.__exit__()
    with contextlib.suppress(TimeoutError):
        await until(lambda: not processes(world.home))
    assert not processes(world.home), "what it has started ends with it"
    for name in ("kvchat.db", "index.db"):
        if (world.home / "data" / name).exists():
            with closing(sqlite3.connect(world.home / "data" / name)) as db:
                assert db.execute("PRAGMA quick_check").fetchone() == ("ok",), name


def seen(world: World) -> Seen:
    folder = world.home / "data"
    store = Store.open(folder)
    try:
        found = []
        for row in [*store.conversations(), *store.conversations(trashed=True)]:
            tree = store.tree(row.id)
            found.append((row, list(tree), tree.path(row.head)))
        return Seen(found, folder)
    finally:
        store.close()


def check(world: World) -> None:
    """The next start is under way: all that was acknowledged is there, and nothing that nobody has said."""
    there = seen(world)
    lost = [what for what, fact in world.facts.items() if not fact(there)]
    assert not lost
    for _, nodes, _ in there.conversations:
        for node in nodes:
            if node.role is Role.ASSISTANT and not node.text.startswith("Foreign"):
                assert node.state is not State.STREAMING
                assert any(text.startswith(node.text) for text in world.model.texts), node.text


async def test_killed_in_every_act_it_loses_nothing_acknowledged(own_folders: Path) -> None:
    (own_folders / "config" / "personas").mkdir()
    (own_folders / "config" / "personas" / "reviewer.toml").write_text('system_prompt = "You review."\n')
    mirror = own_folders / "mirror"
    Path(os.environ["KVCHAT_CONFIG"]).write_text(
        f'[export]\nmirror_folder = "{mirror}"\n[memory]\nrest_seconds = 0\nworth_tokens = 0\nrecall = false\n'
    )
    os.environ.update(TERM="xterm-256color", COLORTERM="truecolor")
    chance = random.Random(7)
    async with Model() as model:
        world = World(own_folders, model)
        for world.number in range(KILLS + 1):
            act = ACTS[4 * world.number % len(ACTS)]  # each in its turn
            world.app = App(["-m", "kvchat.cli", "--base-url", model.url], os.environ, 200, 50)
            world.app.__enter__()
            await world.app.shows("this machine")
            assert not COMPLAINT.search(world.app.text), world.app.text
            check(world)
            if world.number == KILLS:
                break
            await answered(world, world.question, "\r")
            await struck(world, act, chance.uniform(0, 1.5))
        with contextlib.suppress(TimeoutError):
            await until(lambda: not unmirrored(world, mirror))
        assert not unmirrored(world, mirror)
        world.app.__exit__()
    assert not list(own_folders.rglob("*.log"))


def unmirrored(world: World, folder: Path) -> list[str]:
    """What was said last in conversations and is not in the mirror."""
    texts = "".join(file.read_text() for file in folder.glob("*.md"))
    return [
        path[-1].text
        for row, _, path in seen(world).conversations
        if len(path) > 1 and row.trashed is None and path[-1].text not in texts
    ]


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(120):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.2)
