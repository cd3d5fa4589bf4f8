"""A revision and the working tree in alternating pairs: the median ratio is what "<= 1.0 x" is read from.

    python tests/bench/pair_bench.py REVISION [--pairs 9] [--cases ask list]

Figures of one kvchat process: CPU (user and system) until the first frame, until the list of 1,000 conversations is on
the screen, of all of `kvchat list` and `kvchat ask`, and over some seconds of an answer that streams and of nothing at
all; what is written to the terminal in the meantime; memory while nothing happens and while `kvchat list` prints; and
the time from a key to its echo, which is of the clock and asks for a machine that does nothing else. Each version fills
a store with its own `kvchat import`, and each run works on a copy of it. One more pair comes first, which compiles and
warms up. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import os
import pty
import re
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
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from import_samples import open_webui  # noqa: E402
from toyserver import SSE_HEAD, ToyServer, Visit, chunked, event, tokens  # noqa: E402

CONVERSATIONS = 1000
FIRST_FRAME = b"essage"
LISTED = f"Night {CONVERSATIONS - 1}".encode()
"""The title of the newest conversation."""
STREAMED = b"lamplight"
PROSE = [f" {STREAMED.decode()}", " on", " the", " water,", " and", " fog", " behind", " it."]
RATES = (50, 200, 1000)
"""Tokens per second of an answer that streams."""
RATE = 200
"""Tokens per second while keys are pressed."""
KEYS = [chr(code) for code in range(ord("\u0430"), ord("\u0450"))]
"""Letters that nothing but their echo draws."""
PAUSE = 0.13
"""Seconds between keys, no multiple of what frames take."""
WINDOW = 5.0
"""Seconds over which streaming and idling are measured."""
SETTLING = 4.0
"""Seconds after the start, and after an answer, before nothing is expected to run."""
WAIT = 60.0
"""Seconds for a mark on the screen; later is a failure."""

Figures = dict[str, float]
"""What a run gives, by what it is of and its unit."""


@dataclass
class Version:
    name: str
    source: Path
    work: Path
    """Holds its stores: `empty` and `full`, and `run`, the copy in use."""
    url: str
    figures: dict[str, list[float]] = field(default_factory=dict)

    def fill(self, export: Path) -> None:
        (self.work / "empty").mkdir(parents=True)
        self.command("full", "import", str(export))
        shutil.copytree(self.work / "run", self.work / "full")

    def environment(self, store: str) -> dict[str, str]:
        """The environment of a run on a fresh copy of `store`."""
        shutil.rmtree(self.work / "run", ignore_errors=True)
        if (self.work / store).is_dir():
            shutil.copytree(self.work / store, self.work / "run")
        unwanted = ("PYTHONDONTWRITEBYTECODE", "NO_COLOR", "DISPLAY", "WAYLAND_DISPLAY")
        return {
            **{name: value for name, value in os.environ.items() if name not in unwanted},
            "HOME": str(self.work),
            "TERM": "xterm-256color",
            "PYTHONPATH": str(self.source / "tui"),
            "KVCHAT_DATA_DIR": str(self.work / "run"),
            "KVCHAT_CONFIG": str(self.work / "config.toml"),
            "KVCHAT_BASE_URL": self.url,
        }

    def command(self, store: str, *arguments: str) -> float:
        """The CPU of a whole command, in ms."""
        child = subprocess.Popen(
            [sys.executable, "-m", "kvchat.cli", *arguments],
            env=self.environment(store),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            raise SystemExit(f"{self.name}: {arguments[0]} ended with {child.returncode}")
        return (used.ru_utime + used.ru_stime) * 1000


class Screen:
    """kvchat in a pty of 120x40."""

    def __init__(self, version: Version, store: str, *arguments: str) -> None:
        environment = version.environment(store)
        self.written = 0
        """Bytes that it wrote to the terminal."""
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.execve(sys.executable, [sys.executable, "-m", "kvchat.cli", *arguments], environment)
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))

    def until(self, mark: bytes) -> None:
        """Read the terminal's output until it holds `mark`."""
        seen, end = b"", time.monotonic() + WAIT
        while mark not in seen:
            seen = seen[-100_000:] + self._read(0.5)
            if time.monotonic() > end:
                self.end()
                raise SystemExit(f"no {mark!r} in {seen[-400:]!r}")

    def over(self, seconds: float) -> tuple[float, float]:
        """The CPU of the next `seconds` seconds in ms, and the kB written in them."""
        cpu, written, end = self._cpu(), self.written, time.monotonic() + seconds
        while time.monotonic() < end:
            self._read(0.1)
        return self._cpu() - cpu, (self.written - written) / 1000

    def echoes(self) -> list[float]:
        """The times from a key to its echo in ms, the shortest first."""
        took = []
        for key in KEYS:
            began = time.perf_counter()
            self.type(key)
            self.until(key.encode())
            took.append((time.perf_counter() - began) * 1000)
            self.over(PAUSE)
        return sorted(took)

    def memory(self) -> tuple[float, float]:
        """MiB that are resident, and its share of them where processes share pages."""
        lines = Path(f"/proc/{self.pid}/smaps_rollup").read_text()
        kib = {name: int(size) for name, size in re.findall(r"^(Rss|Pss): +(\d+)", lines, re.MULTILINE)}
        return kib["Rss"] / 1024, kib["Pss"] / 1024

    def end(self) -> float:
        """Kill it; the CPU that it took in all, in ms."""
        os.kill(self.pid, signal.SIGKILL)
        _, _, used = os.wait4(self.pid, 0)
        os.close(self.terminal)
        return (used.ru_utime + used.ru_stime) * 1000

    def type(self, text: str) -> None:
        os.write(self.terminal, text.encode())

    def _read(self, patience: float) -> bytes:
        if not select.select([self.terminal], [], [], patience)[0]:
            return b""
        data = os.read(self.terminal, 1 << 16)
        self.written += len(data)
        if b"\x1b[?2026$p" in data:
            os.write(self.terminal, b"\x1b[?2026;2$y")
        return data

    def _cpu(self) -> float:
        """In ms; /proc counts in steps of 10."""
        return time.clock_gettime(~self.pid << 3 | 2) * 1000  # clock_getcpuclockid(3)


def until_frame(version: Version) -> Figures:
    screen = Screen(version, "empty")
    screen.until(FIRST_FRAME)
    return {"first paint, ms of CPU": screen.end()}


def until_list(version: Version) -> Figures:
    screen = Screen(version, "full")
    screen.until(LISTED)
    written = screen.written / 1000
    return {f"list of {CONVERSATIONS:,}, ms of CPU": screen.end(), f"list of {CONVERSATIONS:,}, kB written": written}


def listing(version: Version) -> Figures:
    screen = Screen(version, "full", "list")
    screen.until(LISTED)  # the newest is the first; the rest waits for a reader
    resident, share = screen.memory()
    screen.end()
    return {
        "kvchat list, ms of CPU": version.command("full", "list"),
        "kvchat list, MiB resident": resident,
        "kvchat list, MiB proportional": share,
    }


def asking(version: Version) -> Figures:
    return {"kvchat ask, ms of CPU": version.command("empty", "ask", "What does the lamp do?")}


def streamed(version: Version, rate: int) -> Screen:
    """A screen on which an answer streams at `rate` tokens per second."""
    screen = Screen(version, "empty")
    screen.until(FIRST_FRAME)
    screen.over(SETTLING)
    screen.type(f"Tell me of the lamp at {rate}.\r")
    screen.until(STREAMED)
    return screen


def streaming(version: Version, rate: int) -> Figures:
    screen = streamed(version, rate)
    cpu, written = screen.over(WINDOW)
    screen.end()
    name = f"streaming, {rate:,} tok/s, {WINDOW:g} s"
    return {f"{name}, ms of CPU": cpu, f"{name}, kB written": written}


def idle(version: Version) -> Figures:
    screen = Screen(version, "full")
    screen.until(LISTED)
    screen.over(SETTLING)
    resident, share = screen.memory()
    cpu, written = screen.over(2 * WINDOW)
    screen.end()
    name = f"idle, {2 * WINDOW:g} s"
    return {
        f"{name}, ms of CPU": cpu,
        f"{name}, kB written": written,
        "idle, MiB resident": resident,
        "idle, MiB proportional": share,
    }


def echo(version: Version) -> Figures:
    screen = Screen(version, "full")
    screen.until(LISTED)
    screen.over(SETTLING)
    return echoed(screen, "idle")


def echo_streaming(version: Version) -> Figures:
    return echoed(streamed(version, RATE), f"streaming, {RATE} tok/s")


def echoed(screen: Screen, during: str) -> Figures:
    took = screen.echoes()
    screen.end()
    name = f"key echo, {during}"
    return {f"{name}, ms p50": statistics.median(took), f"{name}, ms p95": took[int(len(took) * 0.95)]}


CASES: dict[str, Callable[[Version], Figures]] = {
    "frame": until_frame,
    "list": until_list,
    "command": listing,
    "ask": asking,
    **{f"streaming-{rate}": partial(streaming, rate=rate) for rate in RATES},
    "idle": idle,
    "echo": echo,
    "echo-streaming": echo_streaming,
}


async def stream(visit: Visit, rate: int) -> None:
    """Answer at `rate` tokens per second until the client goes; what is late goes in one piece."""
    await visit.send(SSE_HEAD)
    began, sent = time.monotonic(), 0
    while not visit.gone.is_set():
        await asyncio.sleep(1 / rate)
        due = int((time.monotonic() - began) * rate)
        await visit.send(b"".join(chunked(event(token(number, rate))) for number in range(sent, due)))
        sent = due


def token(number: int, rate: int) -> dict[str, object]:
    delta = {"content": PROSE[number % len(PROSE)]}
    done = {"predicted_n": number + 1, "predicted_ms": (number + 1) * 1000 / rate}
    return {
        "choices": [{"finish_reason": None, "index": 0, "delta": delta}],
        "model": "toy",
        "object": "chat.completion.chunk",
        "timings": {"cache_n": 150, "prompt_n": 50, "prompt_ms": 10.0, **done},
    }


def serve() -> str:
    """A toy server on a thread, until the end: `ask` gets eight words, the app an answer that goes on. Its address."""
    ready, server = threading.Event(), ToyServer(context_size=1 << 20)

    async def answer(visit: Visit) -> None:
        asked = re.search(rb"Tell me of the lamp at (\d+)", visit.body)
        await (stream(visit, int(asked[1])) if asked else tokens(*PROSE, prompt=200, cached=150)(visit))

    async def run() -> None:
        async with server:
            server.on_chat(answer)
            ready.set()
            while True:
                await asyncio.sleep(1)
                server.visits.clear()

    threading.Thread(target=asyncio.run, args=(run(),), daemon=True).start()
    ready.wait()
    return str(server.url)


def show(before: Version, after: Version) -> None:
    print(f"{'medians':40}{'before':>9}{'after':>9}{'ratio':>8}  of pairs, lowest to highest")
    for name, old in before.figures.items():
        new = after.figures[name]
        ratios = sorted(b / a for a, b in zip(old, new, strict=True))
        print(
            f"{name:40}{statistics.median(old):9.1f}{statistics.median(new):9.1f}{statistics.median(ratios):8.3f}"
            f"  {ratios[0]:.3f} to {ratios[-1]:.3f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp())
    git = ["git", "-C", str(ROOT), "worktree"]
    try:
        subprocess.run([*git, "add", "--detach", "--quiet", str(work / "source"), options.revision], check=True)
        url = serve()
        before = Version("before", work / "source", work / "before", url)
        after = Version("after", ROOT, work / "after", url)
        export = open_webui(work, CONVERSATIONS)
        for version in (before, after):
            version.fill(export)
        for pair in range(options.pairs + 1):
            for version in (before, after) if pair % 2 else (after, before):
                for case in options.cases:
                    figures = CASES[case](version)
                    for name, figure in figures.items() if pair else ():
                        version.figures.setdefault(name, []).append(figure)
            print(f"pair {pair} of {options.pairs}", file=sys.stderr, flush=True)
        show(before, after)
    finally:
        subprocess.run([*git, "remove", "--force", str(work / "source")], check=False)
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
