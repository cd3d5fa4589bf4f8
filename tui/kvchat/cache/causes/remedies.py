"""What helps against a cause, with the exact flag or setting of the server in use.

The rule: nothing where nothing helps, and no flag of another server.
"""

from __future__ import annotations

from kvchat.cache.causes.cause import Remedy, Statement, said
from kvchat.cache.llamacpp.cache_config import Shape

LLAMACPP = "llama.cpp"


def _of(kind: str, table: dict[str, str]) -> tuple[str | None, str | None]:
    """The flag whose server's name is part of the server's kind, and that name."""
    name = kind.lower().replace(" ", "").replace("-", "")
    return next(((flag, key) for key, flag in table.items() if key in name), (None, None))


def _flag(kind: str, table: dict[str, str]) -> str | None:
    return _of(kind, table)[0]


def restarted(embedded: bool) -> Statement | None:
    """kvchat saves slots of the built-in engine only."""
    return said(Remedy.KEEP_SNAPSHOTS) if embedded else None


def unloaded(kind: str, embedded: bool) -> Statement:
    if embedded:
        return said(Remedy.STAYS_LOADED)
    flag, server = _of(kind, {LLAMACPP: "--sleep-idle-seconds", "ollama": "OLLAMA_KEEP_ALIVE=-1",
                              "lmstudio": "TTL", "llamaswap": "ttl"})
    return said(Remedy.SLEEP_LATER, flag=flag, server=server)


def not_reported(kind: str) -> Statement | None:
    """None where the person can do nothing about it."""
    flag, server = _of(kind, {"vllm": "--enable-prompt-tokens-details", "sglang": "--enable-cache-report"})
    if flag is not None:
        return said(Remedy.REPORT, flag=flag, server=server)
    _, server = _of(kind, {"ollama": ""})
    return said(Remedy.UPDATE, server=server) if server is not None else None


def caching_off(kind: str) -> Statement:
    if LLAMACPP in kind.lower():
        return said(Remedy.LOOK_FOR_PROXY)
    flag, server = _of(kind, {"vllm": "--enable-prefix-caching", "sglang": "--disable-radix-cache"})
    return said(Remedy.SWITCH_CACHING_ON, flag=flag, server=server)


def larger_window(kind: str, tokens: int | None) -> Statement:
    """A window for at least `tokens`, rounded up to a power of two."""
    size = 1 << max(12, (tokens or 0).bit_length())
    return said(Remedy.LARGER_WINDOW, flag=_flag(kind, {
        LLAMACPP: f"--ctx-size {size}",
        "engine": f"engine.context_size = {size}",
        "ollama": f"OLLAMA_CONTEXT_LENGTH={size}",
        "vllm": f"--max-model-len {size}",
        "sglang": f"--context-length {size}",
    }))


def no_shift(kind: str, tokens: int | None) -> Statement:
    if LLAMACPP in kind.lower():
        return said(Remedy.NO_SHIFT, flag="--no-context-shift")
    return larger_window(kind, tokens)


def keep_reasoning(can_keep: bool | None) -> Statement:
    """`can_keep`: whether the template has a switch for it; None: not known."""
    return said(Remedy.WARM_UP_REASONING) if can_keep is False else said(Remedy.KEEP_REASONING, known=bool(can_keep))


def apart(kind: str, shape: Shape | None, shared: bool) -> Statement | None:
    """Against a request of ours that took the slot. `shared`: both prompts begin alike, and then the server takes the
    same slot again, however many there are."""
    return said(Remedy.KEEP_APART) if shared else more_slots(kind, shape)


def another_program(kind: str, shape: Shape | None, shared: bool) -> Statement | None:
    """Against a request of another program; `shared` as in `apart`."""
    return said(Remedy.OTHER_SYSTEM_PROMPT) if shared else more_slots(kind, shape)


def more_slots(kind: str, shape: Shape | None) -> Statement | None:
    slots = max(2, (shape.slots if shape is not None else 1) + 1)
    if shape is not None and shape.ram_bytes == 0:
        flag = _flag(kind, {LLAMACPP: "--cache-ram 8192"})
        return said(Remedy.HOST_CACHE, flag=flag) if flag is not None else None
    flag, server = _of(kind, {LLAMACPP: f"--parallel {slots}", "engine": f"engine.slots to {slots}"})
    return said(Remedy.MORE_SLOTS, flag=flag, embedded=server == "engine" or None) if flag is not None else None


def more_cache(kind: str, shape: Shape | None) -> Statement | None:
    ram = shape.ram_bytes if shape is not None else None
    room = max(8192, (ram >> 20) * 2) if ram else 16384
    if "engine" in kind:
        return None
    return said(Remedy.MORE_CACHE, flag=_flag(kind, {
        LLAMACPP: f"--cache-ram {room}", "vllm": "--gpu-memory-utilization", "sglang": "--mem-fraction-static"}))


def checkpoints(kind: str, shape: Shape | None) -> Statement | None:
    if shape is None or LLAMACPP not in kind.lower():
        return None
    if shape.rewind == "window":
        return said(Remedy.WHOLE_WINDOW, flag="--swa-full")
    return said(Remedy.MORE_CHECKPOINTS, flag=f"--ctx-checkpoints {max(32, shape.checkpoints * 2)}")
