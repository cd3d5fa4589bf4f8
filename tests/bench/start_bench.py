"""First paint of the app in a real pty, as ratios to `import textual.app` in the same run; peak memory.

    python tests/bench/start_bench.py [RUNS]

Cases: an empty store, 1,000 conversations, the last conversation with 10,000 messages. Nothing is asserted.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace

from kvchat.prompt.branching import asked
from kvchat.prompt.conversation import Conversation
from kvchat.prompt.message import State, new_id, node, settled, system_message
from kvchat.store import Store

sys.path.insert(0, str(Path(__file__).parents[1]))
from whole_rows import add_nodes

RUNS = int(sys.argv[1]) if len(sys.argv) > 1 else 7
QUIT = b"\x11"
ANSWER = "A paragraph of an answer, with **some** Markdown and `code`. " * 4


# A person's second start finds compiled modules; so do these.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def imported() -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import textual.app"], check=True, env=ENVIRONMENT)
    return time.perf_counter() - began


def painted(folder: Path, marker: bytes, *arguments: str) -> tuple[float, int]:
    """Seconds from the start to `marker` on the screen, and peak memory in MiB."""
    environment = {
        **ENVIRONMENT,
        "TERM": "xterm-256color",
        "KVCHAT_DATA_DIR": str(folder),
        "KVCHAT_CONFIG": str(folder / "config.toml"),
    }
    began = time.perf_counter()
    pid, terminal = pty.fork()
    if pid == 0:
        command = [sys.executable, "-m", "kvchat.cli", "--base-url", "http://127.0.0.1:9", *arguments]
        os.execve(sys.executable, command, environment)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    seen = b""
    took = None
    try:
        while took is None and time.perf_counter() - began < 60:
            if select.select([terminal], [], [], 0.5)[0]:
                data = os.read(terminal, 65536)
                if b"\x1b[?2026$p" in data:
                    os.write(terminal, b"\x1b[?2026;2$y")
                seen += data
                if marker in seen:
                    took = time.perf_counter() - began
        peak = next(
            int(line.split()[1])
            for line in Path(f"/proc/{pid}/status").read_text().splitlines()
            if line.startswith("VmHWM")
        )
    finally:
        os.write(terminal, QUIT)  # a killed one would have the next start check the whole database
        while True:  # what it still writes is read, or it would wait for that
            try:
                if not os.read(terminal, 65536):
                    break
            except OSError:
                break
        os.waitpid(pid, 0)
        os.close(terminal)
    if took is None:
        raise SystemExit(f"nothing was painted: {seen[-400:]!r}")
    return took, peak // 1024


def conversation(store: Store, turns: int, title: str) -> None:
    now = datetime.now(UTC)
    root = node(None, system_message(""), now.timestamp())
    record = store.create(Conversation(new_id(), root.id, now.timestamp(), now.timestamp(), title), root)
    tree = store.tree(record.id)
    nodes = []
    head = record.head or ""
    for turn in range(turns):
        branch = asked(tree, head, f"Question {turn} of {title}?", [], now, None)
        question, waiting = branch.nodes
        answer = settled(waiting, question, ANSWER + (f" LASTWORD{turn}" if turn == turns - 1 else ""), "", State.DONE)
        for new in (question, answer):
            tree.put(new)
            nodes.append(new)
        head = answer.id
    add_nodes(store, replace(record, head=head, turns=turns), nodes)


def main() -> None:
    work = Path(tempfile.mkdtemp())
    try:
        folders = {name: work / name for name in ("empty", "many", "long")}
        folders["empty"].mkdir()
        for name, conversations, turns in (("many", 1000, 1), ("long", 1, 5000)):
            store = Store.open(folders[name])
            for number in range(conversations):
                conversation(store, turns, f"conversation {number}")
            store.close()
        cases = {
            "import textual.app": imported,
            "empty": lambda: painted(folders["empty"], b"essage"),
            "1,000 conversations, the frame": lambda: painted(folders["many"], b"essage"),
            "1,000 conversations, the list": lambda: painted(folders["many"], b"conversation 9"),
            "10,000 messages, first paint": lambda: painted(folders["long"], b"essage", "-c"),
            "10,000 messages, the last one read": lambda: painted(folders["long"], b"LASTWORD4999", "-c"),
        }
        figures: dict[str, list[float]] = {name: [] for name in cases}
        memory: dict[str, int] = {}
        for _ in range(RUNS + 1):
            for name, case in cases.items():
                found = case()
                took, peak = found if isinstance(found, tuple) else (found, 0)
                figures[name].append(took)
                memory[name] = max(memory.get(name, 0), peak)
        base = statistics.median(figures["import textual.app"][1:])
        for name, times in figures.items():
            median = statistics.median(times[1:])
            print(f"{name:36} {median * 1000:7.0f} ms  ratio {median / base:5.2f}  peak {memory[name]} MiB")
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
