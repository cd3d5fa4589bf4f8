"""The attached files of a branch: which are there, and what a question adds to them.

The rule: a file is one file under whatever path, and what the branch has of it is not sent again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from os.path import realpath

from kvchat.prompt.context import FILE, ContextBlock
from kvchat.prompt.message import Node


def files_of(path: Sequence[Node]) -> dict[str, list[ContextBlock]]:
    """The attached files of a branch by their paths, each as it was attached, oldest first."""
    found: dict[str, list[ContextBlock]] = {}
    for node in path:
        for block in node.message.blocks:
            if block.kind == FILE:
                found.setdefault(path_of(block), []).append(block)
    return found


def unsaid(path: Sequence[Node], files: Sequence[ContextBlock]) -> tuple[ContextBlock, ...]:
    """Of files as they are now what the branch does not have yet: the whole of a new one, the change of one that was
    attached before, under whatever path. It takes a while: not for the loop."""
    there: dict[str, list[ContextBlock]] = {}
    for block in [block for node in path for block in node.message.blocks if block.kind == FILE] if files else ():
        there.setdefault(realpath(path_of(block)), []).append(block)
    fresh: dict[str, ContextBlock] = {}
    for file in files:
        real = realpath(path_of(file))
        newer = _newer(there[real], file) if real in there else file
        if newer is not None:
            fresh.setdefault(real, newer)
    return tuple(fresh.values())


def _newer(known: Sequence[ContextBlock], file: ContextBlock) -> ContextBlock | None:
    from kvchat.documents.attaching import change, whole_of

    return change(known[-1], file, whole_of(known))


async def with_files(blocks: Sequence[ContextBlock], files: Sequence[ContextBlock]) -> Sequence[ContextBlock]:
    """The blocks, and the files that are not among them."""
    captured = [path_of(block) for block in blocks if block.kind == FILE]
    if not files or not captured:
        return (*blocks, *files)

    def others() -> list[ContextBlock]:
        there = {realpath(path) for path in captured}
        return [file for file in files if realpath(path_of(file)) not in there]

    return (*blocks, *await asyncio.to_thread(others))


def path_of(block: ContextBlock) -> str:
    return block.ref.rpartition("#")[0]
