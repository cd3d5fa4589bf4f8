"""The engine's own process: llama.cpp's server on a free loopback port, for as long as its parent lives.

Run as `python -m kvchat.backends.engine.child`. It reads one line of JSON options from stdin, answers one line of JSON
on stdout (`{"port": N}`, or what failed: the name of an `EngineProblem` as `problem`, the library's words as `error`),
logs to stderr, and ends when stdin does. It needs nothing but the standard library, `kvchat.apart` and xllamacpp, and
the API key reaches it by stdin only.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from kvchat.apart.child import first_line, private_stdout, until_stdin_ends

LOOPBACK = "127.0.0.1"
BACKGROUND = 5
"""The niceness added to an engine for vectors, so that one that answers goes first."""
_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Ask Linux to kill this process with its parent. Loading holds the interpreter lock, so that the end of
    stdin is only seen once the server listens; this also covers the time before."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def parameters(engine: Any, options: Mapping[str, Any]) -> Any:
    """The server's parameters for `options` (see `EngineOptions.for_child`)."""
    p = engine.CommonParams()
    p.model.path = options["model"]
    p.model_alias = {options["name"]}
    p.hostnames = [LOOPBACK]
    p.port = 0
    p.api_keys = [options["api_key"]] if options["api_key"] else []
    p.cors_origins = ""  # no web page has business here
    p.ui = False  # the built-in web page would be served without the key
    p.use_jinja = True
    p.endpoint_slots = p.endpoint_props = p.endpoint_metrics = True
    p.n_parallel = options["slots"]
    p.n_ctx = options["context_size"] * options["slots"]
    p.kv_unified = False
    p.n_batch = options["batch_size"]
    p.n_ubatch = min(p.n_ubatch, p.n_batch)
    p.cpuparams.n_threads = p.cpuparams_batch.n_threads = options["threads"]
    p.cpuparams.poll = p.cpuparams_batch.poll = 0  # an idle engine uses no processor time
    if options["pooling"] is not None:
        p.embedding = True
        p.pooling_type = engine.llama_pooling_type(options["pooling"])
        p.n_ubatch = p.n_batch  # a text's vector is made in one go
    if options["cache_ram"] >= -1:
        p.cache_ram_mib = options["cache_ram"]
    if options["snapshots"]:
        p.slot_save_path = options["snapshots"] + os.sep  # the server puts the file's name right behind it
    cpu = engine.ggml_backend_dev_type.GGML_BACKEND_DEVICE_TYPE_CPU
    # Fitting loads the model twice, to spread it over devices; with a processor alone there is nothing to fit.
    p.fit_params = any(device["type"] != cpu for device in engine.get_device_info())
    return p


def started(options: Mapping[str, Any]) -> Any:
    """The server, listening; it stops when this object is collected. Raises what the library raises."""
    import xllamacpp

    if options["pooling"] is not None:
        os.nice(BACKGROUND)
    return xllamacpp.Server(parameters(xllamacpp, options))


def serve(line: bytes, answer: BinaryIO) -> None:
    """Start the server described by `line`, tell the port or the error, and run until stdin ends."""
    server = None
    try:
        server = started(json.loads(line))
        found: dict[str, object] = {"port": urlsplit(server.listening_address).port}
    except ModuleNotFoundError:
        found = {"problem": "NOT_INSTALLED"}
    except ImportError as error:
        found = {"problem": "NOT_LOADABLE", "error": str(error)}
    except Exception as error:
        found = {"error": str(error) or type(error).__name__}
    with suppress(OSError):  # a parent that died meanwhile reads no answer
        answer.write(json.dumps(found).encode() + b"\n")
        answer.close()
    if server is None:
        sys.exit(1)  # in good order, so that the log gets out
    until_stdin_ends()
    os._exit(0)  # the server's own shutdown waits for the batch it computes, or for ever


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ctrl+c in the terminal belongs to the app
    die_with_parent()
    os.umask(0o077)
    answer = private_stdout()
    if line := first_line():
        serve(line, answer)


if __name__ == "__main__":
    main()
