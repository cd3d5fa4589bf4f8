"""A llama.cpp server with any of its options: `with tiny_server(model, kv_unified=True) as url`, or `tiny_process` for
one that a test slows down.

The engine's own child offers what the app needs; this one sets whatever field of the server's parameters is named.
It has one thread, listens on loopback, and ends with the block.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SLICE_S = 0.01

CHILD = """
import ctypes, json, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
answer = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
import xllamacpp
options = json.loads(sys.stdin.readline())
p = xllamacpp.CommonParams()
p.model.path, p.mmproj.path, p.mmproj_use_gpu = options.pop("model"), options.pop("mmproj", ""), False
p.hostnames, p.port, p.ui, p.use_jinja, p.warmup, p.fit_params = ["127.0.0.1"], 0, False, True, False, False
p.endpoint_slots = p.endpoint_props = True
p.cpuparams.n_threads = p.cpuparams_batch.n_threads = 1
p.cpuparams.poll = p.cpuparams_batch.poll = 0
for name, value in options.items():
    assert hasattr(p, name), name
    setattr(p, name, value)
server = xllamacpp.Server(p)
answer.write(server.listening_address + "\\n")
answer.close()
sys.stdin.read()
os._exit(0)
"""


@dataclass(frozen=True, slots=True)
class TinyProcess:
    """A running server."""

    url: str
    pid: int

    @contextmanager
    def slowed(self, times: int = 25) -> Iterator[None]:
        """Meanwhile it runs so many times slower: a batch takes seconds, as on a small machine with a large model."""
        over = threading.Event()

        def halt_and_run() -> None:
            while not over.is_set():
                os.kill(self.pid, signal.SIGSTOP)
                time.sleep(SLICE_S * (times - 1))
                os.kill(self.pid, signal.SIGCONT)
                time.sleep(SLICE_S)

        thread = threading.Thread(target=halt_and_run)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


@contextmanager
def tiny_server(model: Path, log: Path | None = None, **options: object) -> Iterator[str]:
    """The base URL of a server for `model`; `options` are fields of xllamacpp's CommonParams, and `mmproj`, the path of
    a projector, with which it sees."""
    with tiny_process(model, log, **options) as server:
        yield server.url


@contextmanager
def tiny_process(model: Path, log: Path | None = None, **options: object) -> Iterator[TinyProcess]:
    """As `tiny_server`, with its process."""
    with (
        (log or Path("/dev/null")).open("wb") as errors,
        subprocess.Popen(
            (sys.executable, "-c", CHILD), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
        ) as child,
    ):
        assert child.stdin is not None and child.stdout is not None
        try:
            child.stdin.write(json.dumps({"model": str(model), **options}).encode() + b"\n")
            child.stdin.flush()
            url = child.stdout.readline().decode().strip()
            assert url, "the server did not start"
            yield TinyProcess(url.rstrip("/"), child.pid)
        finally:
            child.stdin.close()
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()
