"""How the engine is to run: its options, and what they come to on this machine.

Every default is a number decided here, so that two starts with the same options give the same server.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from kvchat.backends.engine.gguf import GgufHeader
from kvchat.cache import Rewind, Shape

DEFAULT_CONTEXT = 8192
"""Tokens per conversation unless the model was trained for fewer or the user asks for more."""
DEFAULT_CACHE_RAM = 8192
MOST_THREADS = 8
"""More threads than this wait for memory, not for each other."""
OWN_POOLING, MEAN_POOLING = -1, 1
"""The engine's numbers for what the model was made for, and for the mean."""


class EngineOptions(Struct, frozen=True):
    """What to run. 0 and None stand for a default decided by `for_child`."""

    model: Path
    context_size: int = 0
    """Tokens per slot. 0: the model's trained context, at most `DEFAULT_CONTEXT`."""
    slots: int = 1
    threads: int = 0
    """0: `default_threads()`."""
    batch_size: int = 512
    """Tokens. Progress is reported once per batch, and a stop takes effect at a batch's edge."""
    snapshots: Path | None = None
    """The folder for saved slots. None: saving is off."""
    cache_ram: int | None = None
    """MiB of memory for the prompts of conversations that lost their slot; 0 is off, -1 without limit, -2 the
    server's own default. None: a quarter of the machine's memory, at most `DEFAULT_CACHE_RAM`."""
    name: str = ""
    """What the server calls the model. Empty: the file's name without its ending."""
    embeds: bool = False
    """Whether it makes vectors of texts instead of talking. A text must fit into one batch."""

    @property
    def used_threads(self) -> int:
        return self.threads or default_threads()

    def for_child(self, header: GgufHeader, api_key: str) -> dict[str, object]:
        """The line of options that the child process reads."""
        return {
            "model": os.path.abspath(self.model),  # noqa: PTH100  a link's own name matters: parts are found by it
            "name": self.name or self.model.stem,
            "context_size": context_for(self.context_size, header.context_length),
            "slots": max(1, self.slots),
            "threads": self.used_threads,
            "batch_size": max(1, self.batch_size),
            "snapshots": os.path.abspath(self.snapshots) if self.snapshots else "",  # noqa: PTH100
            "cache_ram": default_cache_ram() if self.cache_ram is None else self.cache_ram,
            "pooling": pooling_for(header) if self.embeds else None,
            "api_key": api_key,
        }

    def shape(self, header: GgufHeader) -> Shape:
        """The cache of an engine with these options, as `child.parameters` sets it up."""
        cache_ram = default_cache_ram() if self.cache_ram is None else self.cache_ram
        return replace(
            model_shape(header),
            slots=max(1, self.slots),
            ram_bytes=None if cache_ram == -1 else Shape().ram_bytes if cache_ram < 0 else cache_ram << 20,
            context=context_for(self.context_size, header.context_length) * max(1, self.slots),
            batch=max(1, self.batch_size),
            micro_batch=min(Shape().micro_batch, max(1, self.batch_size)),
        )


def model_shape(header: GgufHeader) -> Shape:
    """The cache of a server as far as its model decides it."""
    rewind = Rewind.NOWHERE if header.recurrent else Rewind.WINDOW if header.sliding_window else Rewind.ANYWHERE
    size = header.token_bytes if rewind is Rewind.ANYWHERE else 0
    return Shape(rewind=rewind, window=header.sliding_window, token_bytes=float(size))


def context_for(wanted: int, trained: int | None) -> int:
    """Tokens per slot: `wanted`, or the default for 0, but never more than the model was trained for."""
    return min(wanted if wanted > 0 else DEFAULT_CONTEXT, trained or wanted or DEFAULT_CONTEXT)


def pooling_for(header: GgufHeader) -> int:
    """How the engine makes one vector of those of a text's tokens: `OWN_POOLING`, or else their mean."""
    return OWN_POOLING if header.pooling > 0 else MEAN_POOLING


def default_threads() -> int:
    """The physical cores this process may use, at most `MOST_THREADS`; from four on, one is left for the screen.

    With two cores both compute: measured with a 135M model, two threads prefill and decode 1.4 to 1.6 times as fast
    as one, even while another process keeps a core busy for a third of the time.
    """
    cores = physical_cores()
    return max(1, min(MOST_THREADS, cores - 1 if cores >= 4 else cores))


def physical_cores() -> int:
    """Physical cores this process may run on; where the system does not tell, what it counts as processors."""
    if sys.platform == "linux":
        usable = os.sched_getaffinity(0)
        siblings = {_siblings(cpu) for cpu in usable}
        return max(1, min(len(siblings), _quota() or len(siblings)))
    return os.cpu_count() or 1


def _siblings(cpu: int) -> str:
    """The logical processors that share a core with `cpu`, as the system writes them."""
    return _first_line(Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")) or str(cpu)


def _quota() -> int | None:
    """The whole processors that a container may use, if it is limited."""
    quota, _, period = _first_line(Path("/sys/fs/cgroup/cpu.max")).partition(" ")
    if not (quota.isdecimal() and period.isdecimal() and int(period)):
        return None
    return max(1, int(quota) // int(period))


def _first_line(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").split("\n", 1)[0]
    except OSError:
        return ""


def default_cache_ram() -> int:
    """A quarter of the machine's memory in MiB, at most `DEFAULT_CACHE_RAM`."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return DEFAULT_CACHE_RAM // 4
    return max(0, min(DEFAULT_CACHE_RAM, memory // 4 // 2**20))
