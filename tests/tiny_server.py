"""A llama.cpp server with any of its options: `with tiny_server(model, kv_unified=True) as url`.

The engine's own child offers what the app needs; this one sets whatever field of the server's parameters is named.
It has one thread, listens on loopback, and ends with the block.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CHILD = """
import ctypes, json, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
answer = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
import xllamacpp
options = json.loads(sys.stdin.readline())
p = xllamacpp.CommonParams()
p.model.path = options.pop("model")
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


@contextmanager
def tiny_server(model: Path, log: Path | None = None, **options: object) -> Iterator[str]:
    """The base URL of a server for `model`; `options` are fields of xllamacpp's CommonParams."""
    with (
        (log or Path("/dev/null")).open("wb") as errors,
        subprocess.Popen((sys.executable, "-c", CHILD), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                         stderr=errors) as child,
    ):
        assert child.stdin is not None and child.stdout is not None
        try:
            child.stdin.write(json.dumps({"model": str(model), **options}).encode() + b"\n")
            child.stdin.flush()
            url = child.stdout.readline().decode().strip()
            assert url, "the server did not start"
            yield url.rstrip("/")
        finally:
            child.stdin.close()
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()
