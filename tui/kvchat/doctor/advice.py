"""What to change, with the exact flag or setting of the server in use.

The rule: no flag of another server; where nothing is known to help, no advice.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvchat.backends.dialect import ServerInfo
from kvchat.backends.kinds import (
    KOBOLDCPP,
    LITELLM,
    LLAMA_SWAP,
    LLAMACPP,
    LLAMACPP_PYTHON,
    LLAMAFILE,
    LMSTUDIO,
    LOCALAI,
    MLX_LM,
    OLLAMA,
    SGLANG,
    TABBYAPI,
    TEXTGEN,
    VLLM,
)
from kvchat.cache.causes import remedies
from kvchat.cache.llamacpp.cache_config import Shape
from kvchat.text.findings import remedy_sentence

ROOMY = 16384
"""Tokens of a window that a long conversation fits in."""
SESSION_HEADER = "X-Session-ID"


def _of(info: ServerInfo, table: Mapping[str, str], engine: str = "") -> str:
    return engine if info.embedded else table.get(info.kind, "")


def keep_beside(info: ServerInfo) -> str:
    """So that a conversation outlives a request of another kind."""
    flag = _of(info, {
        LLAMACPP.name: f"{remedies.more_slots(LLAMACPP.name, Shape(ram_bytes=0))} Or give it a slot more: "
                       f"--parallel {(info.slots or 1) + 1}.",
        LLAMAFILE.name: "Start llamafile with --parallel 2.",
        LLAMA_SWAP.name: "Start the model's llama-server in llama-swap's configuration with --cache-ram 8192, and keep "
                         "models that are used in turn loaded together (groups, swap: false).",
        OLLAMA.name: "Start Ollama with OLLAMA_NUM_PARALLEL=2.",
        LMSTUDIO.name: "Raise Max Concurrent Predictions in the model's load settings in LM Studio to 2.",
        KOBOLDCPP.name: "Start KoboldCpp with --smartcache.",
        LLAMACPP_PYTHON.name: "Start the server of llama-cpp-python with --cache true.",
        TEXTGEN.name: "Start text-generation-webui with --parallel 2.",
        LOCALAI.name: "Give the model in LocalAI's YAML file the option parallel:2.",
        MLX_LM.name: "Start mlx_lm.server with a larger --prompt-cache-size.",
        VLLM.name: "Give vLLM more cache: a larger --gpu-memory-utilization.",
        SGLANG.name: "Give SGLang more cache: a larger --mem-fraction-static.",
        TABBYAPI.name: "Raise cache_size in TabbyAPI's config.yml.",
        LITELLM.name: "Run the doctor on the server behind LiteLLM: its own settings decide.",
    }, "Set engine.slots to 2.")
    return flag or "Give the server room for more than one conversation."


def larger_window(info: ServerInfo, trained: int | None) -> str:
    """A window that long conversations fit in, as large as the model was trained for."""
    size = min(trained or ROOMY, ROOMY)
    whole = size * (info.slots or 1)
    shared = f" (for {info.slots} slots together)" if info.slots and info.slots > 1 else ""
    flag = _of(info, {
        LLAMACPP.name: f"Start llama-server with --ctx-size {whole}{shared}.",
        LLAMAFILE.name: f"Start llamafile with --ctx-size {whole}.",
        LLAMA_SWAP.name: f"Give the model's command in llama-swap's configuration --ctx-size {whole}.",
        OLLAMA.name: f"Set server.context_size to {size}, which kvchat asks Ollama for (num_ctx), or start Ollama with "
                     f"OLLAMA_CONTEXT_LENGTH={size}.",
        LMSTUDIO.name: f"Set Context Length to {size} in the model's load settings in LM Studio "
                       f"(lms load MODEL --context-length {size}).",
        VLLM.name: f"Start vLLM with --max-model-len {size}.",
        SGLANG.name: f"Start SGLang with --context-length {size}.",
        KOBOLDCPP.name: f"Start KoboldCpp with --contextsize {size}.",
        LLAMACPP_PYTHON.name: f"Start the server of llama-cpp-python with --n_ctx {size}.",
        TEXTGEN.name: f"Start text-generation-webui with --ctx-size {size}.",
        TABBYAPI.name: f"Set max_seq_len: {size} in TabbyAPI's config.yml.",
        LOCALAI.name: f"Set context_size: {size} in the model's YAML file.",
    }, f"Set engine.context_size to {size}.")
    return flag or f"Give the server a window of {size:,} tokens."


def caching_on(info: ServerInfo) -> str:
    return _of(info, {
        LLAMACPP_PYTHON.name: "Start the server of llama-cpp-python with --cache true.",
        LLAMAFILE.name: "Update llamafile: older versions cache only when asked with cache_prompt.",
        LOCALAI.name: "Set prompt_cache_all: true in the model's YAML file.",
    }) or remedy_sentence(remedies.caching_off(info.kind))


def affinity(info: ServerInfo) -> str:
    """So that a conversation stays on the server that holds it."""
    if info.kind == LITELLM.name:
        return ("Switch LiteLLM's session affinity on (router_settings: optional_pre_call_checks: "
                "[\"session_affinity\"]); kvchat sends X-LiteLLM-Session-Id.")
    return (f"Let the router go by the header {SESSION_HEADER} that kvchat sends: nginx: hash $http_x_session_id "
            f"consistent; HAProxy: balance hdr({SESSION_HEADER}); vllm-router: --policy consistent_hash; "
            "sglang-router: --policy manual (it goes by X-SMG-Routing-Key).")


def without_date(info: ServerInfo, date_option: bool | None) -> str:
    if date_option:
        flag = " (llama-server: --chat-template-kwargs '{\"date_string\":\"01 Jan 2026\"}')" \
            if info.kind == LLAMACPP.name and not info.embedded else ""
        return f"Fix the date with date_string in the conversation's template options{flag}."
    return _of(info, {
        LLAMACPP.name: "Start llama-server with --chat-template-file FILE, a copy of the template without the date.",
        OLLAMA.name: "Make the model anew from a Modelfile with a TEMPLATE that has no currentDate (ollama create).",
        VLLM.name: "Start vLLM with --chat-template FILE, a copy of the template without the date; for gpt-oss set "
                   "VLLM_SYSTEM_START_DATE=2026-01-01.",
        SGLANG.name: "Start SGLang with --chat-template FILE, a copy of the template without the date.",
        MLX_LM.name: "Start mlx_lm.server with --chat-template, a copy of the template without the date.",
    })


def keep_reasoning(info: ServerInfo, when_asked: bool) -> str:
    if when_asked:
        flag = "; for other programs start llama-server with --reasoning-preserve" \
            if info.kind == LLAMACPP.name and not info.embedded else ""
        return f"kvchat asks for it in new conversations (preserve_reasoning){flag}."
    plain = remedy_sentence(remedies.keep_reasoning(False))
    flag = _of(info, {
        LLAMACPP.name: "Start llama-server with --chat-template-file FILE, a copy of the template that keeps it. ",
        VLLM.name: "Start vLLM with --chat-template FILE, a copy of the template that keeps it. ",
        SGLANG.name: "Start SGLang with --chat-template FILE, a copy of the template that keeps it. ",
    })
    return flag + plain


def system_in_place(info: ServerInfo) -> str:
    flag = _of(info, {
        LLAMACPP.name: " Or start llama-server with --chat-template-file FILE, a copy of the template that writes the "
                       "system message first.",
        VLLM.name: " Or start vLLM with --chat-template FILE, a copy that writes the system message first.",
        SGLANG.name: " Or start SGLang with --chat-template FILE, a copy that writes the system message first.",
    })
    return f"Let the system message go in the first question.{flag}"


def pinning(info: ServerInfo) -> str:
    return _of(info, {LLAMACPP.name: "If a program pins (id_slot), start llama-server with --no-kv-unified, or with "
                                     "--no-cache-idle-slots."})


SNAPSHOTS = "Keep kvchat's data on a faster disk (--data-dir DIR), or set engine.snapshots to false."
"""Only the built-in engine saves slots."""


def stays_loaded(info: ServerInfo) -> str:
    own = " Or set server.keep_alive to \"-1\"." if info.kind == OLLAMA.name else \
        " Or set server.keep_alive to \"24h\"." if info.kind == LMSTUDIO.name else ""
    return remedy_sentence(remedies.unloaded(info.kind, info.embedded)) + own
