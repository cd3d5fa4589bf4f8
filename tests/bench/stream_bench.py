"""What streaming costs: CPU share and key echo while an answer streams into a real 120x40 terminal.

Run it by hand: `python tests/bench/stream_bench.py`. It informs, it does not judge: the figures depend on the
machine and on what else runs on it. Options choose the cases: `--rates 50 200`, `--above 50`, `--kinds prose`.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import json
import os
import pty
import select
import struct
import sys
import tempfile
import termios
import time
from itertools import islice
from pathlib import Path
from statistics import median

KINDS = ("prose", "list", "table", "fence", "paragraph", "mixed")
FIRST_KEY = 0x410
"""From here on each key is another letter, none of which the streamed text holds: its echo is found in the output."""


def token_source(kind: str):  # type: ignore[no-untyped-def]
    """Endless tokens of about four characters."""
    number = 0
    while True:
        number += 1
        if kind == "list":
            yield from ("- ", "**item", f" {number}**", " with", " some", " words", " about")
            yield from (" it,", " `code`", " and", " more\n")
        elif kind == "table":
            if number == 1:
                yield from ("| night", " | turns", " | weather", " |\n", "|---|---:|---|\n")
            yield from (f"| {number}", f" | {number * 7}", " | fog", " from", " the", " north", " |\n")
        elif kind == "fence":
            if number == 1:
                yield "```python\n"
            yield from ("    ", "value", " = ", f"compute({number}, ", '"text"', ")", "  # note\n")
        elif kind == "paragraph":
            yield from ("some", " words", " that", " go", " on", " *and*", " on", " in", " one", " paragraph", " ")
        elif kind == "mixed":
            part = ("prose", "list", "fence", "table")[number % 4]
            yield "\n\n"
            yield from islice(token_source(part), 150)
            if part == "fence":
                yield "\n```\n"
        else:
            yield from ("some", " words", " that", " say", " **something**", " about", " the", " lamp", " and")
            if number % 8 == 0:
                yield ".\n\n"


def child(kind: str, rate: int, above: int, tokens: int, result: Path) -> None:
    """The app under measurement."""
    from textual.app import App, ComposeResult
    from textual.widgets import TextArea

    from kvchat.config.themes import variable_defaults
    from kvchat.prompt.message import Role, State
    from kvchat.ui.widgets.transcript.render.message import TranscriptItem
    from kvchat.ui.widgets.transcript.widget import Transcript

    body = "".join(islice(token_source("mixed"), 300))
    history = [
        TranscriptItem(f"n{n}", Role.ASSISTANT if n % 2 else Role.USER, "model" if n % 2 else "You", "", body)
        for n in range(above)
    ]

    class Bench(App[dict[str, float]]):
        CSS = "TextArea { height: 5; }"

        def get_theme_variable_defaults(self) -> dict[str, str]:
            return variable_defaults(self.current_theme)

        def compose(self) -> ComposeResult:
            yield Transcript()
            yield TextArea()

        def on_mount(self) -> None:
            self.query_one(TextArea).focus()
            began = time.process_time()
            self.query_one(Transcript).set_items(history)
            self.call_after_refresh(self.painted, began)

        def painted(self, began: float) -> None:
            self.open_cpu = time.process_time() - began
            self.run_worker(self.stream())

        async def stream(self) -> None:
            view = self.query_one(Transcript)
            item = TranscriptItem("live", Role.ASSISTANT, "model", "", "", state=State.STREAMING, streaming=True)
            await asyncio.sleep(0.5)
            view.append(item)
            text, source, sent = "", token_source(kind), 0
            began, cpu = time.perf_counter(), time.process_time()
            while sent < tokens:
                await asyncio.sleep(max(0.02, 1 / rate))
                due = min(tokens, int((time.perf_counter() - began) * rate))
                text += "".join(islice(source, due - sent))
                sent = due
                view.stream_text("live", text)
            cpu, wall = time.process_time() - cpu, time.perf_counter() - began
            began = time.process_time()
            view.end_stream(TranscriptItem("live", Role.ASSISTANT, "model", "", text))
            end = time.process_time() - began
            self.exit({"cpu": cpu / wall, "end_ms": end * 1000, "open_ms": self.open_cpu * 1000})

    result.write_text(json.dumps(Bench().run()))


def run(kind: str, rate: int, above: int, tokens: int) -> dict[str, float]:
    """One case in a child process in a pseudo terminal."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        pid, fd = pty.fork()
        if pid == 0:
            os.environ.update(TERM="xterm-256color", COLORTERM="truecolor", TEXTUAL_ANIMATIONS="none")
            arguments = ["--child", kind, str(rate), str(above), str(tokens), str(result)]
            os.execv(sys.executable, [sys.executable, __file__, *arguments])
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        echoes = _type_and_listen(fd, pid)
        figures: dict[str, float] = json.loads(result.read_text())
    echoes.sort()
    if echoes:
        figures["echo_p50"] = median(echoes) * 1000
        figures["echo_p95"] = echoes[int(len(echoes) * 0.95)] * 1000
        figures["echo_max"] = echoes[-1] * 1000
    return figures


def _type_and_listen(fd: int, pid: int) -> list[float]:
    """Answer the terminal's queries and press a key every 0.15 s; the seconds from each key to its echo."""
    began = pressed = float("inf")
    waiting: bytes | None = None
    echoes: list[float] = []
    while True:
        ready, _, _ = select.select([fd], [], [], 0.05)
        now = time.perf_counter()
        if ready:
            try:
                data = os.read(fd, 65536)
            except OSError:
                break
            if not data:
                break
            if b"\x1b[?1049h" in data:
                began = pressed = now
            if b"\x1b[?2026$p" in data:
                os.write(fd, b"\x1b[?2026;2$y")
            if waiting is not None and waiting in data:
                echoes.append(now - pressed)
                waiting = None
        if waiting is None and now - pressed > 0.15 and now - began > 1.5:
            waiting = chr(FIRST_KEY + len(echoes) % 160).encode()
            pressed = now
            os.write(fd, waiting)
    os.waitpid(pid, 0)
    return echoes


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        kind, rate, above, tokens, result = sys.argv[2:]
        child(kind, int(rate), int(above), int(tokens), Path(result))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    parser.add_argument("--rates", nargs="+", type=int, default=[50, 200, 1000])
    parser.add_argument("--above", nargs="+", type=int, default=[50, 2000])
    parser.add_argument("--tokens", type=int, default=0, help="tokens per case; default: 8 seconds' worth")
    options = parser.parse_args()
    print(f"{'case':32} {'CPU':>6} {'echo p50/p95/max ms':>22} {'end ms':>7} {'open CPU ms':>12}")
    for kind in options.kinds:
        for rate in options.rates:
            for above in options.above:
                tokens = options.tokens or min(4000, rate * 8)
                figures = run(kind, rate, above, tokens)
                echo = "/".join(f"{figures.get(f'echo_{name}', 0):.0f}" for name in ("p50", "p95", "max"))
                print(
                    f"{kind + f' {rate} tok/s, {above} above':32} {figures['cpu']:6.0%} {echo:>22} "
                    f"{figures['end_ms']:7.0f} {figures['open_ms']:12.0f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
