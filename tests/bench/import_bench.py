"""Imports of made-up exports of each format: time, resident memory, what was skipped, and once more over the same.

    python tests/bench/import_bench.py [CONVERSATIONS] [MEGABYTES]

1,000 conversations of each format, with branches, a picture of its own in each where the format carries them, and
broken rows; then lossless JSON out of two of the stores and into empty ones; then one `conversations.json` of 500 MB,
of which only a dry run is made. Each import is a process of its own. Nothing is asserted.
"""

from __future__ import annotations

import io
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from random import randbytes, seed
from typing import Any

from PIL import Image

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from import_samples import SAMPLES, large_array  # noqa: E402

BROKEN = 3
_RUN = """import resource, sys
from pathlib import Path
from kvchat.cli import main
status = main(sys.argv[1:])
lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print((int(lines["VmHWM"].split()[0]) + child) // 1024, file=sys.stderr)
sys.exit(status)"""


def imported(data: Path, *arguments: str) -> tuple[dict[str, Any], float, int]:
    """The report of an import, its seconds, and its resident memory at most, with that of the process that decodes
    images, in MB."""
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", _RUN, "import", "--json", "--data-dir", str(data), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "KVCHAT_CONFIG": "/nowhere"},
    )
    seconds = time.perf_counter() - begun
    if not done.stdout:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout), seconds, int(done.stderr.split()[-1])


def image(c: int) -> bytes:
    """The picture in a conversation, unlike all others: as many octets as a photo of its size, about 100 KB."""
    seed(c)
    held = io.BytesIO()
    Image.frombytes("RGB", (96, 72), randbytes(96 * 72 * 3)).resize((800, 600), Image.Resampling.BICUBIC).save(
        held, "JPEG", quality=90
    )
    return held.getvalue()


def told(name: str, size: int, found: dict[str, Any], seconds: float, memory: int) -> None:
    skipped = sum(max(1, one["conversations"]) for one in found["skipped"])
    left_out = found["left_out"]
    print(
        f"{name:22} {size / 1e6:8.1f} MB  new {found['new']:5}  unchanged {found['unchanged']:5}  messages "
        f"{found['messages']:6}  skipped {skipped:3}  images left out {left_out.get('images', 0):5}  {seconds:6.1f} s"
        f"  {memory:4} MB",
        flush=True,
    )


def kept(data: Path) -> tuple[list[Any], list[Any]]:
    """The digests and wire bytes of a store's messages, and its images."""
    (path,) = data.glob("*.db")
    with closing(sqlite3.connect(path)) as db:
        return (
            sorted(db.execute("SELECT id, digest, wire FROM node")),
            sorted(db.execute("SELECT sha256, url FROM image")),
        )


def size_of(path: Path) -> int:
    return sum(one.stat().st_size for one in path.rglob("*")) if path.is_dir() else path.stat().st_size


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    megabytes = int(sys.argv[2]) if len(sys.argv) > 2 else 500
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for format, make in SAMPLES.items():
            (folder / format).mkdir()
            path, data = make(folder / format, count, broken=BROKEN, image=image), folder / format / "data"
            told(format, size_of(path), *imported(data, str(path)))
            told(f"{format}, again", size_of(path), *imported(data, str(path)))
        for format in ("chatgpt", "llama_ui"):
            data, exported, empty = folder / format / "data", folder / f"{format}.json", folder / f"{format} lossless"
            run = [sys.executable, "-m", "kvchat.cli", "export", "--all", "-f", "json", "--data-dir"]
            subprocess.run([*run, str(data), "-o", str(exported)], check=True)
            told(f"{format} lossless", size_of(exported), *imported(empty, str(exported)))
            print(f"{format}: the same in the second store: {kept(data) == kept(empty)}", flush=True)
        large = folder / "conversations.json"
        for octets in large_array(large, 10**9):
            if octets > megabytes * 10**6:
                break
        with large.open("a") as file:
            file.write("]")
        told("one file, dry run", size_of(large), *imported(folder / "large", "--dry-run", str(large)))


if __name__ == "__main__":
    main()
