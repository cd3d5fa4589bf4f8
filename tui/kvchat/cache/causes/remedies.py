"""What helps against a cause, in one sentence with the exact flag, setting or key of the server in use.

The rule: no sentence where nothing helps, and no flag of another server.
"""

from __future__ import annotations

from kvchat.cache.llamacpp.shape import Shape

LLAMACPP = "llama.cpp"


def _of(kind: str, table: dict[str, str], otherwise: str = "") -> str:
    """The entry whose name is part of the server's kind."""
    name = kind.lower().replace(" ", "").replace("-", "")
    return next((text for key, text in table.items() if key in name), otherwise)


def restarted(embedded: bool) -> str:
    """kvchat saves slots of the built-in engine only."""
    return "Keep the setting engine.snapshots on: what was read then outlives a restart." if embedded else ""


def unloaded(kind: str, embedded: bool) -> str:
    if embedded:
        return "Keep the setting engine.snapshots on: what was read is then restored from disk."
    return _of(kind, {
        LLAMACPP: "Let the server sleep later (--sleep-idle-seconds with a larger number), or never (-1).",
        "ollama": "Keep the model loaded: start Ollama with OLLAMA_KEEP_ALIVE=-1.",
        "lmstudio": "Raise the model's idle TTL in LM Studio, or switch its auto-unload off.",
        "llamaswap": "Raise the model's ttl in llama-swap's configuration.",
    }, "Raise the server's time to keep an idle model loaded.")


def not_reported(kind: str) -> str:
    """Empty where the person can do nothing about it."""
    return _of(kind, {
        "vllm": "Start vLLM with --enable-prompt-tokens-details.",
        "sglang": "Start SGLang with --enable-cache-report.",
        "ollama": "Update Ollama: newer versions report the cached tokens.",
    })


def caching_off(kind: str) -> str:
    return _of(kind, {
        LLAMACPP: "kvchat asks for caching with every request: look for a proxy that sets cache_prompt to false.",
        "vllm": "Start vLLM with --enable-prefix-caching.",
        "sglang": "Start SGLang without --disable-radix-cache.",
    }, "Look for the server's setting for prompt or prefix caching.")


def larger_window(kind: str, tokens: int | None) -> str:
    """A window for at least `tokens`, rounded up to a power of two."""
    size = 1 << max(12, (tokens or 0).bit_length())
    flag = _of(kind, {
        LLAMACPP: f"--ctx-size {size}",
        "engine": f"engine.context_size = {size}",
        "ollama": f"OLLAMA_CONTEXT_LENGTH={size}",
        "vllm": f"--max-model-len {size}",
        "sglang": f"--context-length {size}",
    })
    return f"Compact the conversation, or give the server a larger window{f': {flag}' if flag else ''}."


def no_shift(kind: str, tokens: int | None) -> str:
    if LLAMACPP in kind.lower():
        return "Compact the conversation, and start the server with --no-context-shift."
    return larger_window(kind, tokens)


def keep_reasoning(can_keep: bool | None) -> str:
    if can_keep:
        return "Turn on preserve_reasoning in the conversation's template options."
    if can_keep is None:
        return "Turn on preserve_reasoning in the template options, where the template knows it."
    return "This template has no switch for it; the setting cache.warm_up reads the answer again ahead of time."


def empty_block() -> str:
    return "Turn thinking on in this conversation; the setting cache.warm_up reads the answer again ahead of time."


def apart(kind: str, shape: Shape | None, shared: bool) -> str:
    """Against a request of ours that took the slot. `shared`: both prompts begin alike, and then the server takes the
    same slot again, however many there are."""
    if shared:
        return ("Keep cache.warm_up on: a conversation is read ahead when you open it. With cache.salt on, new ones "
                "get system prompts that keep them apart.")
    return more_slots(kind, shape)


def another_program(kind: str, shape: Shape | None, shared: bool) -> str:
    """Against a request of another program; `shared` as in `apart`."""
    if shared:
        return "Give that program another system prompt: the server takes the slot that begins alike."
    return more_slots(kind, shape)


def more_slots(kind: str, shape: Shape | None) -> str:
    slots = max(2, (shape.slots if shape is not None else 1) + 1)
    if shape is not None and shape.ram_bytes == 0:
        return _of(kind, {LLAMACPP: "Let the server park idle conversations: start it with --cache-ram 8192."})
    return _of(kind, {LLAMACPP: f"Start the server with --parallel {slots}.",
                      "engine": f"Set engine.slots to {slots}."})


def more_cache(kind: str, shape: Shape | None) -> str:
    ram = shape.ram_bytes if shape is not None else None
    room = max(8192, (ram >> 20) * 2) if ram else 16384
    if "engine" in kind:
        return ""
    flag = _of(kind, {
        LLAMACPP: f"--cache-ram {room}",
        "vllm": "a larger --gpu-memory-utilization",
        "sglang": "a larger --mem-fraction-static",
    })
    return f"Give the server more cache memory{f': {flag}' if flag else ''}."


def checkpoints(kind: str, shape: Shape | None) -> str:
    if shape is None or LLAMACPP not in kind.lower():
        return ""
    if shape.rewind == "window":
        return "Start the server with --swa-full: the whole window stays, for more memory."
    return f"Start the server with more checkpoints: --ctx-checkpoints {max(32, shape.checkpoints * 2)}."
