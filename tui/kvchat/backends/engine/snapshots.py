"""KV snapshots of the embedded engine: what its slots hold at the end is there again at the next start.

The rule: a snapshot belongs to one model file and one shape of the cache; any other is not looked at. It holds what
was said, so it is as private as the conversations, and it is written whole or not at all.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
from pathlib import Path

from kvchat.backends.engine.options import EngineOptions
from kvchat.backends.llamacpp import LlamaCppBackend

SAVE_SECONDS = 20.0
RESTORE_SECONDS = 60.0
LEAST_FREE = 2 << 30
"""Bytes that stay free on the disk."""
MOST_MODELS = 4
"""Models whose snapshots are kept."""


def _key(options: EngineOptions, context_size: int | None) -> str:
    """The name of a model file and a shape of the cache."""
    stat = options.model.stat()
    text = f"{options.model.resolve()} {stat.st_size} {stat.st_mtime_ns} {context_size} {options.slots}"
    return hashlib.sha256(text.encode()).hexdigest()[:20]


async def restore(backend: LlamaCppBackend, options: EngineOptions) -> int:
    """Fill the slots from the snapshots of this model; how many were filled. A snapshot that fails is removed."""
    if options.snapshots is None:
        return 0
    key, filled = _key(options, backend.info.context_size), 0
    for slot in range(options.slots):
        path = options.snapshots / f"{key}-{slot}.bin"
        if await asyncio.to_thread(path.is_file):
            if await backend.slot_file("restore", slot, path.name, RESTORE_SECONDS):
                filled += 1
            else:
                await asyncio.to_thread(path.unlink, missing_ok=True)
    return filled


async def save(backend: LlamaCppBackend, options: EngineOptions) -> None:
    """Write what the slots hold, and drop the snapshots of the models not used for longest."""
    folder = options.snapshots
    if folder is None or await asyncio.to_thread(_free, folder) < LEAST_FREE:
        return
    key = _key(options, backend.info.context_size)
    for slot in range(options.slots):
        final, fresh = folder / f"{key}-{slot}.bin", folder / f"{key}-{slot}.{os.getpid()}.tmp"
        saved = await backend.slot_file("save", slot, fresh.name, SAVE_SECONDS)
        await asyncio.to_thread(_keep if saved else _drop, fresh, final)
    await asyncio.to_thread(_tidy, folder)


def _free(folder: Path) -> int:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return 0


def _keep(fresh: Path, final: Path) -> None:
    try:
        fresh.chmod(0o600)
        fresh.replace(final)
    except OSError:
        _drop(fresh, final)


def _drop(fresh: Path, _final: Path) -> None:
    fresh.unlink(missing_ok=True)


def _tidy(folder: Path) -> None:
    """Keep the snapshots of the `MOST_MODELS` models used last."""
    try:
        files = sorted(folder.glob("*.bin"), key=lambda path: path.stat().st_mtime, reverse=True)
    except OSError:
        return
    kept: dict[str, None] = {}
    for path in files:
        kept.setdefault(path.name.rpartition("-")[0])
        if list(kept).index(path.name.rpartition("-")[0]) >= MOST_MODELS:
            path.unlink(missing_ok=True)
