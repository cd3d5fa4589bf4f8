"""10,000 conversations of 50 messages, and 5,000 quick turns: a revision (`before`) against the working tree (`after`).

    python tests/bench/scale_bench.py REVISION [RUNS] [CONVERSATIONS] [TURNS]

Both in one run, taken in turns, each on its own copy of a store that the revision made. The start in a real pty: first
paint, the list of conversations, the server in the header, as ratios to `import textual.app` and to an empty store, and
what is written to the terminal until then; what looks things up; resident memory over quick turns, 50 in each
conversation, of the service alone and under the app. Nothing is asserted; 0 TURNS leave the last part out.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import gc
import json
import os
import pty
import select
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from toyserver import ToyServer, tokens  # noqa: E402

MESSAGES = 50
"""In each conversation."""
QUESTION = "What does the lighthouse at number {n} do in turn {turn} when the fog comes in from the west?"
ANSWER = (
    "It sounds its horn, **twice** a minute, and keeps the lamp burning: turn {turn} of {n}. The keeper writes "
    "the hour into the log, looks at the barometer, and calls the harbour if the needle has fallen by more than "
    "two marks. `log{n}x{turn}` is where that stands."
)
ANSWERS = 9
"""Pieces that a quick turn streams."""
LEVELS = 5
"""How often resident memory is looked at over the turns."""
APP_SHARE = 5
"""Under the app a turn takes twenty times as long: that many fewer."""
MARKS = {"first paint": b"essage", "the list": b"New conversation", "the server": b"this machine"}
COMMANDS = {
    "list": ("list",),
    "search, 1 hit": ("search", "log7x3"),
    "search, all answers": ("search", "barometer"),
    "list, by tag": ("list", "--tag", "tag3"),
    "search, all answers by tag": ("search", "barometer", "tag:tag3"),
    "memory queue": ("memory", "queue"),
    "export --all": ("export", "--all", "-f", "json", "--force", "-o"),
}
TAGS = 10
"""Every conversation has one of so many, where the version knows tags; every fifth is archived, five are favourites."""


# -- in a process of the version that is measured ---------------------------------------------------------------------


def fill(folder: Path, conversations: int) -> None:
    """A store with that many conversations, made by the version's own code in bulk."""
    import dataclasses

    from msgspec import Struct, structs

    from kvchat.prompt.conversation import Conversation
    from kvchat.prompt.message import Message, Role, new_id, node, system_message
    from kvchat.store import Store
    from kvchat.store.rows import CONVERSATION_FIELDS, NODE_FIELDS, columns, conversation_row, row_of

    try:
        index: Any = import_module("kvchat.store.fulltext.index")
    except ModuleNotFoundError:  # an older revision
        index = import_module("kvchat.store.index")

    def insert(table: str, *names: str) -> str:
        return f"INSERT INTO {table}({columns(names)}) VALUES ({', '.join('?' * len(names))})"

    replace: Any = structs.replace if issubclass(Conversation, Struct) else dataclasses.replace  # an older revision
    store = Store.open(folder)
    began = time.time() - 400 * 86400.0
    root = node(None, system_message(""), began)
    first = store.create(Conversation(new_id(), root.id, began, began, "conversation 0"), root)
    root = store.tree(first.id)[first.head or ""]
    with store.database.write(durable=True) as connection:
        connection.execute("DELETE FROM conversation")
        for number in range(conversations):
            at, above, rows, id = began + number * 86400.0 * 399 / conversations, root, [], new_id()
            for turn in range(MESSAGES // 2):
                for role, text in ((Role.USER, QUESTION), (Role.ASSISTANT, ANSWER)):
                    above = node(above, Message(role, text.format(n=number, turn=turn)), at + turn)
                    rows.append((*row_of(above), id))
            record = Conversation(id, above.id, at, at + MESSAGES, f"conversation {number}", MESSAGES // 2)
            connection.execute(
                insert("conversation", *CONVERSATION_FIELDS), conversation_row(replace(record, context_used=4000))
            )
            connection.executemany(insert("node", *NODE_FIELDS, "conversation"), rows)
        connection.execute("DELETE FROM setting WHERE key = ?", (index.STATE,))
        index.ensure(connection, store.database.fts)
    store.close()


def tag(folder: Path) -> bool:
    """Put tags on all conversations; whether this version knows any."""
    try:
        from kvchat.prompt.tags import ARCHIVE, FAVOURITE
    except ImportError:
        return False
    from kvchat.store import Store

    store = Store.open(folder)
    with store.database.write(durable=True) as connection:
        rows = [
            (name, id)
            for number, (id,) in enumerate(connection.execute("SELECT id FROM conversation ORDER BY seq").fetchall())
            for name in (
                f"tag{number % TAGS}",
                *([ARCHIVE] if number % 5 == 0 else []),
                *([FAVOURITE] if 0 < number < 6 else []),
            )
        ]
        connection.executemany("INSERT INTO tag(name, conversation) VALUES (?, ?)", rows)
    store.close()
    return True


def asked(text: str) -> Any:
    """A question as this version takes it."""
    try:
        from kvchat.chat.question import Question
    except ImportError:
        return text
    return Question(text)


async def turns(folder: Path, url: str, number: int, under_the_app: bool) -> list[float]:
    """Resident memory in MiB at the start and after each part of that many turns."""
    from kvchat.chat.service import ChatService
    from kvchat.config import Settings, changed
    from kvchat.paths import find
    from kvchat.store import Store

    service = ChatService(Store.open(folder), changed(Settings(), "server.base_url", url))
    levels: list[float] = []

    async def take() -> None:
        await service.servers.connect()
        for turn in range(number):
            if turn % (MESSAGES // 2) == 0:
                id = (await service.new_conversations.create()).id
                if app is not None:
                    await (getattr(app.chat, "open_conversation", None) or app.chat.conversations.open)(id)
            if turn % max(1, number // LEVELS) == 0:
                levels.append(_resident())
            await service.turns.send(id, asked(QUESTION.format(n=id, turn=turn)))
            await service.conversations.wait(id)
            if pilot is not None:
                await pilot.pause()
        levels.append(_resident())

    app = pilot = None
    if under_the_app:
        from kvchat.ui.app import KvchatApp

        app = KvchatApp(service, find())
        async with app.run_test(size=(120, 40)) as pilot:
            while getattr(getattr(app.chat, "workspace", app.chat), "current", None) is None:
                await pilot.pause(0.05)
            await take()
    else:
        await take()
        await service.aclose()
    return levels


def _resident() -> float:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


# -- what measures it -------------------------------------------------------------------------------------------------


@dataclass
class Version:
    """A version of kvchat, its own copies of the stores, and what was found of it by name."""

    name: str
    source: Path
    folder: Path
    found: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    has_tags: bool = False

    def environment(self, store: str) -> dict[str, str]:
        # A person's second start finds compiled modules; so do these.
        plain = {
            name: value
            for name, value in os.environ.items()
            if name not in ("PYTHONDONTWRITEBYTECODE", "NO_COLOR", "DISPLAY", "WAYLAND_DISPLAY")
        }
        return {
            **plain,
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "PYTHONPATH": str(self.source / "tui"),
            "KVCHAT_DATA_DIR": str(self.folder / store),
            "KVCHAT_CONFIG": str(self.folder / "config.toml"),
        }

    def note(self, name: str, value: float) -> None:
        self.found[name].append(value)

    def child(self, *arguments: str) -> str:
        """This script in a process of the version; what it prints."""
        return subprocess.run(
            [sys.executable, __file__, *arguments],
            env=self.environment("full"),
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout

    def start(self, store: str, url: str) -> None:
        """Start the app at 120x40, wait for all marks, and leave it as a person does."""
        began = time.perf_counter()
        pid, terminal = pty.fork()
        if pid == 0:
            command = [sys.executable, "-m", "kvchat.cli", "--base-url", url]
            os.execve(sys.executable, command, self.environment(store))
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        written, left = b"", dict(MARKS)
        try:
            while left and time.perf_counter() - began < 120:
                written += _read(terminal, 0.5)
                for name in [name for name, mark in left.items() if mark in written]:
                    self.note(f"{store}: {name}", time.perf_counter() - began)
                    del left[name]
            if left:
                raise SystemExit(f"{self.name}, {store}: no {', '.join(left)} in {written[-400:]!r}")
            while more := _read(terminal, 0.3):
                written += more
            self.note(f"{store}: written", len(written) / 1000)
            status = Path(f"/proc/{pid}/status").read_text()
            self.note(f"{store}: peak", int(status.partition("VmHWM:")[2].split()[0]) / 1024)
            os.write(terminal, b"\x11")
            while not os.waitpid(pid, os.WNOHANG)[0]:  # one that was killed is looked through at the next start
                _read(terminal, 0.1)
        except BaseException:
            os.kill(pid, signal.SIGKILL)
            raise
        finally:
            os.close(terminal)

    def command(self, name: str) -> None:
        """Wall and processor time, and peak memory."""
        output = self.folder / "export.json"
        arguments = [*COMMANDS[name], *([str(output)] if COMMANDS[name][-1] == "-o" else [])]
        began = time.perf_counter()
        child = subprocess.Popen(
            [sys.executable, "-m", "kvchat.cli", *arguments], env=self.environment("full"), stdout=subprocess.DEVNULL
        )
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            raise SystemExit(f"{self.name}: {name} ended with {child.returncode}")
        self.note(name, time.perf_counter() - began)
        self.note(f"{name}: CPU", used.ru_utime + used.ru_stime)
        self.note(f"{name}: peak", used.ru_maxrss / 1024)
        output.unlink(missing_ok=True)


def _read(terminal: int, patience: float) -> bytes:
    """What is written within so many seconds; terminals' answers are given."""
    if not select.select([terminal], [], [], patience)[0]:
        return b""
    try:
        data = os.read(terminal, 65536)
    except OSError:  # the program has ended
        return b""
    if b"\x1b[?2026$p" in data:
        os.write(terminal, b"\x1b[?2026;2$y")
    return data


def import_textual(versions: list[Version]) -> None:
    """What all starts are compared to: the same for all versions."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import textual.app"], check=True, env=versions[0].environment("empty"))
    for version in versions:
        version.note("import textual.app", time.perf_counter() - began)


def serve() -> str:
    """A toy server on a thread, until the end; its address."""
    ready, server = threading.Event(), ToyServer()

    async def run() -> None:
        async with server:
            server.on_chat(tokens(*(ANSWER[at::ANSWERS] for at in range(ANSWERS)), prompt=200, cached=150))
            ready.set()
            while True:
                await asyncio.sleep(1)
                server.visits.clear()

    threading.Thread(target=asyncio.run, args=(run(),), daemon=True).start()
    ready.wait()
    address: str = server.url
    return address


# -- the table --------------------------------------------------------------------------------------------------------


def show(versions: list[Version]) -> None:
    def line(name: str, unit: str, key: str, over: str = "") -> None:
        """The medians; with `over` as ratios to the medians of that."""
        cells = []
        for version in versions:
            if key not in version.found:
                cells.append("-")
                continue
            value = statistics.median(version.found[key])
            ratio = f"{value / statistics.median(version.found[over]):.2f} x " if over else ""
            cells.append(f"{ratio}{value:10,.2f} {unit:3}")
        print(f"{name:44}" + "".join(f"{cell:>26}" for cell in cells))

    print(f"\n{'':44}" + "".join(f"{version.name:>26}" for version in versions))
    line("import textual.app", "s", "import textual.app")
    for name in MARKS:
        line(f"start, empty, until {name}, x import", "s", f"empty: {name}", "import textual.app")
    for name in MARKS:
        line(f"start, full, until {name}, x empty", "s", f"full: {name}", f"empty: {name}")
    for store in ("empty", "full"):
        line(f"start, {store}, written to the terminal", "kB", f"{store}: written")
        line(f"start, {store}, peak memory", "MiB", f"{store}: peak")
    for name in COMMANDS:
        line(name, "s", name)
        line(f"{name}, CPU", "s", f"{name}: CPU")
        line(f"{name}, peak memory", "MiB", f"{name}: peak")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision")
    for name, usual in (("runs", 3), ("conversations", 10_000), ("turns", 5_000)):
        parser.add_argument(name, type=int, nargs="?", default=usual)
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp())
    git = ["git", "-C", str(ROOT), "worktree"]
    try:
        subprocess.run([*git, "add", "--detach", "--quiet", str(work / "source"), options.revision], check=True)
        before = Version("before", work / "source", work / "before")
        versions = [before, Version("after", ROOT, work / "after")]
        url = serve()
        before.child("--fill", str(work / "store"), str(options.conversations))
        for version in versions:
            shutil.copytree(work / "store", version.folder / "full")
            version.has_tags = version.child("--tag", str(version.folder / "full")).strip() == "True"
        for run in range(options.runs + 1):
            if run == 1:
                for version in versions:
                    version.found.clear()  # the first run compiles and warms up
            for version in versions:
                import_textual(versions)
                for store in ("empty", "full"):
                    version.start(store, url)
            for name in COMMANDS:
                for version in versions if run else ():
                    if version.has_tags or "by tag" not in name:
                        version.command(name)
            print(f"run {run} of {options.runs}", file=sys.stderr, flush=True)
        show(versions)
        for name, number in (("service", options.turns), ("app", options.turns // APP_SHARE)) if options.turns else ():
            for version in versions:
                levels = json.loads(version.child("--turns", str(version.folder / name), url, str(number), name))
                print(
                    f"memory over {number:5} turns, {name + ', ' + version.name:16} MiB "
                    + "".join(f"{level:8.1f}" for level in levels),
                    flush=True,
                )
    finally:
        subprocess.run([*git, "remove", "--force", str(work / "source")], check=False)
        shutil.rmtree(work)


if __name__ == "__main__":
    if sys.argv[1] == "--fill":
        fill(Path(sys.argv[2]), int(sys.argv[3]))
    elif sys.argv[1] == "--tag":
        print(tag(Path(sys.argv[2])))
    elif sys.argv[1] == "--turns":
        print(json.dumps(asyncio.run(turns(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5] == "app"))))
    else:
        main()
