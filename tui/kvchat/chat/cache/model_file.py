"""What the file of a server's model tells of its cache, where that lies on this machine."""

from __future__ import annotations

import asyncio
import stat
from concurrent.futures import Future
from pathlib import Path
from threading import Thread

from kvchat.backends.dialect import HostClass, ServerInfo
from kvchat.cache import Shape

READ_S = 0.2
"""A file that is not read by then, as on a network drive that hangs, is guessed about."""


async def model_in_file(server: ServerInfo, file: str) -> Shape | None:
    """The cache as far as the model in `file` decides it; None where it does not say. A file that another machine's
    server names is not opened, for this one may have another by that name."""
    if server.host_class is not HostClass.LOOPBACK or not Path(file).is_absolute():
        return None
    found: Future[Shape | None] = Future()
    found.set_running_or_notify_cancel()  # so that no cancel reaches it under the thread
    Thread(target=lambda: found.set_result(_read(Path(file))), daemon=True).start()  # the end does not wait for it
    try:
        async with asyncio.timeout(READ_S):
            return await asyncio.wrap_future(found)
    except TimeoutError:
        return None


def _read(file: Path) -> Shape | None:
    from kvchat.backends.engine.gguf import GgufError, read_header
    from kvchat.backends.engine.options import model_shape

    try:
        return model_shape(read_header(file)) if stat.S_ISREG(file.stat().st_mode) else None
    except (GgufError, OSError, ValueError):
        return None
