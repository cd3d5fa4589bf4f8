"""The whole app in a real pty while a server streams: CPU share, and the time from a key to its echo.

    python tests/bench/app_bench.py [SECONDS]

Rates 50, 200 and 1,000 tokens/s; prose, one list, one table, one fence; 50 and 2,000 messages above. Nothing is
asserted. CPU is the app's alone, in percent of one core.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import shutil
import signal
import statistics
import struct
import sys
import tempfile
import termios
import threading
import time
from pathlib import Path

from start_bench import ENVIRONMENT, conversation

from kvchat.store import Store

sys.path.insert(0, str(Path(__file__).parent.parent))
from toyserver import SSE_HEAD, ToyServer, chunked, event

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 8.0
KEY = "§"
KINDS = {
    "prose": lambda n: "word " if n % 40 else "word.\n\n",
    "list": lambda n: f"\n- item {n} " if n % 8 == 0 else "of it ",
    "table": lambda n: "| a | b |\n|---|---|\n" if n == 0 else ("| cell " if n % 2 else "| **cell** |\n"),
    "fence": lambda n: "```python\n" if n == 0 else ("x = " if n % 2 else "f(1)\n"),
}


class Terminal:
    """A pty whose output is drained by a thread that remembers when the key was last echoed."""

    def __init__(self, folder: Path, url: str) -> None:
        environment = {
            **ENVIRONMENT,
            "TERM": "xterm-256color",
            "KVCHAT_DATA_DIR": str(folder),
            "KVCHAT_CONFIG": str(folder / "config.toml"),
        }
        self.pid, self.handle = pty.fork()
        if self.pid == 0:
            os.execve(sys.executable, [sys.executable, "-m", "kvchat.cli", "--base-url", url, "-c"], environment)
        fcntl.ioctl(self.handle, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.seen = b""
        self.echoed = threading.Event()
        threading.Thread(target=self._drain, daemon=True).start()

    def _drain(self) -> None:
        try:
            while data := os.read(self.handle, 1 << 16):
                if b"\x1b[?2026$p" in data:
                    os.write(self.handle, b"\x1b[?2026;2$y")
                if KEY.encode() in data:
                    self.echoed.set()
                self.seen = (self.seen + data)[-200_000:]
        except OSError:
            pass

    def type(self, text: str) -> None:
        os.write(self.handle, text.encode())

    def cpu(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak(self) -> int:
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) // 1024

    def close(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


async def measured(folder: Path, kind: str, rate: int) -> str:
    started = asyncio.Event()

    async def stream(visit: object) -> None:
        await visit.send(SSE_HEAD)  # type: ignore[attr-defined]
        started.set()
        began, sent = time.monotonic(), 0
        while not visit.gone.is_set():  # type: ignore[attr-defined]
            due = int((time.monotonic() - began) * rate)
            parts = [
                chunked(event({"choices": [{"index": 0, "delta": {"content": KINDS[kind](n)}}]}))
                for n in range(sent, due)
            ]
            sent = max(sent, due)
            await visit.send(b"".join(parts))  # type: ignore[attr-defined]
            await asyncio.sleep(max(0.001, 1 / rate))

    async with ToyServer(context_size=1 << 20) as server:  # a long conversation fits
        server.on_chat(stream)
        terminal = Terminal(folder, server.url)
        try:
            await asyncio.sleep(3)
            terminal.type("go on\r")
            await asyncio.wait_for(started.wait(), 20)
            await asyncio.sleep(1)
            cpu, began, echoes = terminal.cpu(), time.monotonic(), []
            while time.monotonic() - began < SECONDS:
                terminal.echoed.clear()
                typed = time.perf_counter()
                terminal.type(KEY)
                await asyncio.to_thread(terminal.echoed.wait, 5)
                echoes.append((time.perf_counter() - typed) * 1000)
                await asyncio.sleep(0.15)
            share = (terminal.cpu() - cpu) / (time.monotonic() - began) * 100
            echoes.sort()
            p95 = echoes[int(len(echoes) * 0.95)]
            return (
                f"{share:4.0f} %  echo p50 {statistics.median(echoes):4.0f} ms  p95 {p95:4.0f} ms  "
                f"peak {terminal.peak()} MiB"
            )
        finally:
            terminal.close()


def main() -> None:
    work = Path(tempfile.mkdtemp())
    try:
        for above in (50, 2000):
            for kind in KINDS:
                for rate in (50, 200, 1000) if above == 50 else (200,):
                    folder = work / f"{above}-{kind}-{rate}"
                    store = Store.open(folder)
                    conversation(store, above // 2, "above")
                    store.close()
                    found = asyncio.run(measured(folder, kind, rate))
                    print(f"{above:5} above  {kind:6} {rate:5} tok/s  {found}", flush=True)
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
