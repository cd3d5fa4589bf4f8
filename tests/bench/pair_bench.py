"""CPU of a revision and of the working tree, in alternating pairs: the median ratio is what "<= 1.0 x" is read from.

    python tests/bench/pair_bench.py REVISION [--pairs 9] [--cases ask list]

Each case gives seconds of CPU (user and system) of one kvchat process: until the first frame, until the list of 1,000
conversations is on the screen, all of `kvchat list` and `kvchat ask`, and over some seconds of an answer that streams
and of nothing at all. Each version fills a store with its own `kvchat import`, and each run works on a copy of it. One
more pair comes first, which compiles and warms up. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
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
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from import_samples import chatgpt  # noqa: E402
from toyserver import ToyServer, tokens  # noqa: E402

CONVERSATIONS = 1000
FIRST_FRAME = b"essage"
LISTED = f"Night {CONVERSATIONS - 1}".encode()
"""The title of the newest conversation."""
STREAMED = b"lamplight"
RATE = 200
"""Tokens per second of an answer."""
WINDOW = 5.0
"""Seconds over which streaming and idling are measured."""
SETTLING = 4.0
"""Seconds after the start, and after an answer, before nothing is expected to run."""
WAIT = 60.0
"""Seconds for a mark on the screen; later is a failure."""


@dataclass
class Version:
    name: str
    source: Path
    work: Path
    """Holds its stores: `empty` and `full`, and `run`, the copy in use."""
    url: str
    seconds: dict[str, list[float]] = field(default_factory=dict)

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
        """The CPU of a whole command."""
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
        return used.ru_utime + used.ru_stime


class Screen:
    """kvchat in a pty of 120x40."""

    def __init__(self, version: Version, store: str) -> None:
        environment = version.environment(store)
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.execve(sys.executable, [sys.executable, "-m", "kvchat.cli"], environment)
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))

    def until(self, mark: bytes) -> None:
        """Read the terminal's output until it holds `mark`."""
        seen, end = b"", time.monotonic() + WAIT
        while mark not in seen:
            seen = seen[-100_000:] + self._read(0.5)
            if time.monotonic() > end:
                self.end()
                raise SystemExit(f"no {mark!r} in {seen[-400:]!r}")

    def over(self, seconds: float) -> float:
        """The CPU of the next `seconds` seconds."""
        before, end = self._cpu(), time.monotonic() + seconds
        while time.monotonic() < end:
            self._read(0.1)
        return self._cpu() - before

    def end(self) -> float:
        """Kill it; the CPU that it took in all."""
        os.kill(self.pid, signal.SIGKILL)
        _, _, used = os.wait4(self.pid, 0)
        os.close(self.terminal)
        return used.ru_utime + used.ru_stime

    def type(self, text: str) -> None:
        os.write(self.terminal, text.encode())

    def _read(self, patience: float) -> bytes:
        if not select.select([self.terminal], [], [], patience)[0]:
            return b""
        data = os.read(self.terminal, 1 << 16)
        if b"\x1b[?2026$p" in data:
            os.write(self.terminal, b"\x1b[?2026;2$y")
        return data

    def _cpu(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def until_frame(version: Version) -> float:
    screen = Screen(version, "empty")
    screen.until(FIRST_FRAME)
    return screen.end()


def until_list(version: Version) -> float:
    screen = Screen(version, "full")
    screen.until(LISTED)
    return screen.end()


def streaming(version: Version) -> float:
    screen = Screen(version, "empty")
    screen.until(FIRST_FRAME)
    screen.over(SETTLING)
    screen.type("Tell me of the lamp.\r")
    screen.until(STREAMED)
    used = screen.over(WINDOW)
    screen.end()
    return used


def idle(version: Version) -> float:
    screen = Screen(version, "full")
    screen.until(LISTED)
    screen.over(SETTLING)
    used = screen.over(2 * WINDOW)
    screen.end()
    return used


CASES: dict[str, Callable[[Version], float]] = {
    "frame": until_frame,
    "list": until_list,
    "command": lambda version: version.command("full", "list"),
    "ask": lambda version: version.command("empty", "ask", "What does the lamp do?"),
    "streaming": streaming,
    "idle": idle,
}
NAMES = {
    "frame": "first paint",
    "list": f"list of {CONVERSATIONS:,}",
    "command": "kvchat list",
    "ask": "kvchat ask",
    "streaming": f"streaming, {RATE} tok/s, {WINDOW:g} s",
    "idle": f"idle, {2 * WINDOW:g} s",
}


def serve() -> str:
    """A toy server on a thread, until the end: `ask` gets eight words, the app an answer that goes on. Its address."""
    ready, server = threading.Event(), ToyServer(context_size=1 << 20)
    prose = [f" {STREAMED.decode()}", " on", " the", " water,", " and", " fog", " behind", " it."]

    async def run() -> None:
        async with server:

            async def answer(visit: object) -> None:
                long = b"Tell me of the lamp" in visit.body  # type: ignore[attr-defined]
                words = prose * (RATE if long else 1)
                await tokens(*words, delay=1 / RATE, prompt=200, cached=150)(visit)  # type: ignore[arg-type]

            server.on_chat(answer)
            ready.set()
            while True:
                await asyncio.sleep(1)
                server.visits.clear()

    threading.Thread(target=asyncio.run, args=(run(),), daemon=True).start()
    ready.wait()
    return str(server.url)


def show(before: Version, after: Version, cases: list[str]) -> None:
    print(f"{'CPU, medians':32}{'before':>10}{'after':>10}{'ratio':>8}  of pairs, lowest to highest")
    for case in cases:
        pairs = list(zip(before.seconds[case], after.seconds[case], strict=True))
        ratios = sorted(new / old if old else 1.0 for old, new in pairs)
        medians = [statistics.median(version.seconds[case]) * 1000 for version in (before, after)]
        print(
            f"{NAMES[case]:32}{medians[0]:7.0f} ms{medians[1]:7.0f} ms{statistics.median(ratios):8.3f}"
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
        export = chatgpt(work, CONVERSATIONS)
        for version in (before, after):
            version.fill(export)
        for pair in range(options.pairs + 1):
            for version in (before, after) if pair % 2 else (after, before):
                for case in options.cases:
                    seconds = CASES[case](version)
                    if pair:
                        version.seconds.setdefault(case, []).append(seconds)
            print(f"pair {pair} of {options.pairs}", file=sys.stderr, flush=True)
        show(before, after, options.cases)
    finally:
        subprocess.run([*git, "remove", "--force", str(work / "source")], check=False)
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
