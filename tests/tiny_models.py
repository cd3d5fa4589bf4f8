"""Tiny models with random weights and a real tokenizer, written in about a second: what a cache does, without waiting.

`tiny_models(folder)` writes a dense one, one whose template drops old reasoning, one with sliding-window attention
(128 tokens) and a hybrid one with a recurrent part. On one processor they read some 10,000 tokens a second.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, GGUFWriter, TokenType

WIDTH, INNER, HEADS, KV_HEADS, HEAD = 64, 128, 4, 2, 16
CONTEXT = 32768
WINDOW = 128
_SOURCE = Path(__file__).read_text()
KEPT = Path(__file__).parents[1] / ".pytest_cache" / "models"

PLAIN = """\
{%- for m in messages -%}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor -%}{%- if add_generation_prompt -%}<|im_start|>assistant
{% endif -%}
"""
"""A chat template without a system prompt of its own, in which the server recognises where user messages begin."""

FORGETFUL = """\
{%- set ns = namespace(last=-1) -%}
{%- for m in messages -%}{%- if m.role == 'user' -%}{%- set ns.last = loop.index0 -%}{%- endif -%}{%- endfor -%}
{%- for m in messages -%}<|im_start|>{{ m.role }}
{% if m.role == 'assistant' -%}
{%- if loop.index0 > ns.last or (preserve_thinking is defined and preserve_thinking) -%}<think>
{{ m.reasoning_content if m.reasoning_content is defined and m.reasoning_content else '' }}
</think>

{% endif -%}{{ m.content.strip() }}{%- else -%}{{ m.content }}{%- endif -%}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant
{% if enable_thinking is defined and enable_thinking is false -%}<think>

</think>

{% else %}<think>
{% endif -%}{%- endif -%}
"""
"""A chat template that leaves out the reasoning of all turns but the last."""

CALL, END_CALL, END = 8, 9, 2
"""Tokens of a model that calls: what opens and closes a call, and what ends an answer."""
CALLING = """\
{%- set first = messages[0].content if messages[0].role == 'system' else '' -%}
{%- if tools or first -%}<|im_start|>system
{{ first }}
{%- if tools %}

Functions that can be called, one in a line:
{%- for t in tools %}
{{ t | tojson }}
{%- endfor %}

A call looks like this:
<tool_call>{"name": "look", "arguments": {"at": "sea"}}</tool_call>
{%- endif %}<|im_end|>
{% endif -%}
{%- for m in messages -%}
{%- if m.role == 'user' -%}<|im_start|>user
{{ m.content }}<|im_end|>
{% elif m.role == 'assistant' -%}<|im_start|>assistant
{{ m.content or '' }}
{%- for c in m.tool_calls or [] -%}
{%- set given = c.function.arguments -%}
<tool_call>{"name": "{{ c.function.name }}", "arguments": {{ given if given is string else given | tojson }}}</tool_call>
{%- endfor -%}<|im_end|>
{% elif m.role == 'tool' -%}<|im_start|>tool
{{ m.content }}<|im_end|>
{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant
{% endif -%}
"""
"""A chat template that opens a call with a token of its own, at which the server's grammar of calls takes over."""


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """The tokenizer of a GGUF file, and its chat template."""

    tokens: list[str]
    types: list[int]
    merges: list[str]
    template: str


def tokenizer_of(path: Path) -> Tokenizer:
    source = GGUFReader(path)

    def value(key: str) -> Any:
        field = source.get_field(f"tokenizer.{key}")
        assert field is not None, key
        return field.contents()

    return Tokenizer(value("ggml.tokens"), value("ggml.token_type"), value("ggml.merges"), value("chat_template"))


class _Model:
    """One GGUF file being written."""

    def __init__(self, path: Path, architecture: str, blocks: int, tokenizer: Tokenizer, template: str = "") -> None:
        self.file = GGUFWriter(path, architecture)
        self.random = np.random.default_rng(0)
        self.file.add_context_length(CONTEXT)
        self.file.add_embedding_length(WIDTH)
        self.file.add_feed_forward_length(INNER)
        self.file.add_block_count(blocks)
        self.file.add_head_count(HEADS)
        self.file.add_layer_norm_rms_eps(1e-6)
        self.file.add_rope_freq_base(10000.0)
        self.file.add_file_type(1)
        self.tokenizer, self.template = tokenizer, template
        self.weights("token_embd.weight", len(tokenizer.tokens), WIDTH, scale=0.5, half=True)

    def _tokenizer(self, tokenizer: Tokenizer) -> None:
        self.file.add_tokenizer_model("gpt2")
        self.file.add_tokenizer_pre("smollm")
        self.file.add_token_list(tokenizer.tokens)
        self.file.add_token_types(tokenizer.types)
        self.file.add_token_merges(tokenizer.merges)
        self.file.add_bos_token_id(1)
        self.file.add_eos_token_id(2)
        self.file.add_unk_token_id(0)
        self.file.add_pad_token_id(2)
        self.file.add_add_bos_token(False)
        self.file.add_add_space_prefix(False)
        self.file.add_vocab_size(len(tokenizer.tokens))

    def weights(self, name: str, *shape: int, scale: float = 0.02, half: bool = False) -> None:
        numbers = self.random.standard_normal(shape) * scale
        self.file.add_tensor(name, numbers.astype(np.float16 if half else np.float32))

    def ones(self, name: str, size: int) -> None:
        self.file.add_tensor(name, np.ones(size, np.float32))

    def attention(self, block: int, *, normed: bool = False) -> None:
        self.ones(f"blk.{block}.attn_norm.weight", WIDTH)
        self.weights(f"blk.{block}.attn_q.weight", HEADS * HEAD, WIDTH)
        self.weights(f"blk.{block}.attn_k.weight", KV_HEADS * HEAD, WIDTH)
        self.weights(f"blk.{block}.attn_v.weight", KV_HEADS * HEAD, WIDTH)
        self.weights(f"blk.{block}.attn_output.weight", WIDTH, HEADS * HEAD)
        if normed:
            self.ones(f"blk.{block}.attn_q_norm.weight", HEAD)
            self.ones(f"blk.{block}.attn_k_norm.weight", HEAD)

    def convolution(self, block: int) -> None:
        self.ones(f"blk.{block}.attn_norm.weight", WIDTH)
        self.weights(f"blk.{block}.shortconv.conv.weight", WIDTH, 3)
        self.weights(f"blk.{block}.shortconv.in_proj.weight", 3 * WIDTH, WIDTH)
        self.weights(f"blk.{block}.shortconv.out_proj.weight", WIDTH, WIDTH)

    def feed_forward(self, block: int) -> None:
        self.ones(f"blk.{block}.ffn_norm.weight", WIDTH)
        self.weights(f"blk.{block}.ffn_gate.weight", INNER, WIDTH)
        self.weights(f"blk.{block}.ffn_up.weight", INNER, WIDTH)
        self.weights(f"blk.{block}.ffn_down.weight", WIDTH, INNER)

    def close(self) -> None:
        """Write it. The tokenizer comes behind the facts of the model, as in every file that llama.cpp converts."""
        self._tokenizer(self.tokenizer)
        self.file.add_chat_template(self.template or self.tokenizer.template)
        self.file.write_header_to_file()
        self.file.write_kv_data_to_file()
        self.file.write_tensors_to_file()
        self.file.close()


def dense(path: Path, tokenizer: Tokenizer, template: str = "") -> None:
    model = _Model(path, "llama", 2, tokenizer, template)
    model.file.add_head_count_kv(KV_HEADS)
    model.file.add_rope_dimension_count(HEAD)
    model.ones("output_norm.weight", WIDTH)
    for block in range(2):
        model.attention(block)
        model.feed_forward(block)
    model.close()


def forgetful(path: Path, tokenizer: Tokenizer) -> None:
    dense(path, tokenizer, FORGETFUL)


def calling(path: Path, tokenizer: Tokenizer, write: Callable[[Path, Tokenizer, str], None]) -> None:
    """A model of another kind that calls tools: `CALL` is a token of its own."""
    tokens, types = [*tokenizer.tokens], [*tokenizer.types]
    for at, name in ((CALL, "<tool_call>"), (END_CALL, "</tool_call>")):
        tokens[at], types[at] = name, TokenType.USER_DEFINED
    write(path, replace(tokenizer, tokens=tokens, types=types), CALLING)


def sliding(path: Path, tokenizer: Tokenizer, template: str = PLAIN) -> None:
    model = _Model(path, "gemma3", 6, tokenizer, template)
    model.file.add_head_count_kv(KV_HEADS)
    model.file.add_key_length(HEAD)
    model.file.add_value_length(HEAD)
    model.file.add_sliding_window(WINDOW)
    model.ones("output_norm.weight", WIDTH)
    for block in range(6):
        model.attention(block, normed=True)
        model.feed_forward(block)
        model.ones(f"blk.{block}.post_attention_norm.weight", WIDTH)
        model.ones(f"blk.{block}.post_ffw_norm.weight", WIDTH)
    model.close()


def hybrid(path: Path, tokenizer: Tokenizer, template: str = PLAIN) -> None:
    kv_heads = [0, KV_HEADS, 0, KV_HEADS]
    model = _Model(path, "lfm2", len(kv_heads), tokenizer, template)
    model.file.add_head_count_kv(kv_heads)
    model.file.add_shortconv_l_cache(3)
    model.ones("token_embd_norm.weight", WIDTH)
    for block, heads in enumerate(kv_heads):
        if heads:
            model.attention(block, normed=True)
        else:
            model.convolution(block)
        model.feed_forward(block)
    model.close()


SIGHT, SIGHT_INNER, PATCH, SIDE = 32, 64, 14, 112
"""Of a projector: its width, and the pixels of a patch and of the picture that every image is made into."""
IMAGE_TOKENS = (SIDE // PATCH) ** 2


def tiny_projector(folder: Path) -> Path:
    """Eyes for the dense model: a vision tower of two blocks with random weights, whose tokens mean nothing and are
    reused like any others."""
    path = folder / "mmproj.gguf"
    file, random = GGUFWriter(path, "clip"), np.random.default_rng(1)
    file.add_bool("clip.has_vision_encoder", True)
    file.add_string("clip.projector_type", "mlp")
    file.add_bool("clip.use_gelu", False)
    for name, value in (
        ("image_size", SIDE),
        ("patch_size", PATCH),
        ("embedding_length", SIGHT),
        ("block_count", 2),
        ("feed_forward_length", SIGHT_INNER),
        ("attention.head_count", 2),
        ("projection_dim", WIDTH),
    ):
        file.add_uint32(f"clip.vision.{name}", value)
    file.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-5)
    for name in ("image_mean", "image_std"):
        file.add_array(f"clip.vision.{name}", [0.5, 0.5, 0.5])

    def weights(name: str, *shape: int) -> None:
        file.add_tensor(name, (random.standard_normal(shape) * 0.05).astype(np.float32))

    def linear(name: str, out: int, into: int) -> None:
        weights(f"{name}.weight", out, into)
        file.add_tensor(f"{name}.bias", np.zeros(out, np.float32))

    def norm(name: str) -> None:
        file.add_tensor(f"{name}.weight", np.ones(SIGHT, np.float32))
        file.add_tensor(f"{name}.bias", np.zeros(SIGHT, np.float32))

    weights("v.class_embd", SIGHT)
    weights("v.patch_embd.weight", SIGHT, 3, PATCH, PATCH)
    weights("v.position_embd.weight", IMAGE_TOKENS + 1, SIGHT)
    norm("v.pre_ln")
    for block in range(2):
        for part in ("attn_q", "attn_k", "attn_v", "attn_out"):
            linear(f"v.blk.{block}.{part}", SIGHT, SIGHT)
        linear(f"v.blk.{block}.ffn_up", SIGHT_INNER, SIGHT)
        linear(f"v.blk.{block}.ffn_down", SIGHT, SIGHT_INNER)
        for part in ("ln1", "ln2"):
            norm(f"v.blk.{block}.{part}")
    linear("mm.0", WIDTH, SIGHT)
    linear("mm.2", WIDTH, WIDTH)
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
    return path


KINDS: dict[str, Callable[[Path, Tokenizer], None]] = {
    "dense": dense,
    "forgetful": forgetful,
    "sliding": sliding,
    "hybrid": hybrid,
    "calling dense": partial(calling, write=dense),
    "calling hybrid": partial(calling, write=hybrid),
    "calling sliding": partial(calling, write=sliding),
}


def tiny_models(
    folder: Path,
    tokenizer: Path,
    kinds: Iterable[str] = ("dense", "forgetful", "sliding", "hybrid"),
    templates: Mapping[str, str] | None = None,
) -> dict[str, Path]:
    """The models of `kinds` in `folder`, and dense ones with `templates` by name, all with the tokenizer of the GGUF
    file `tokenizer`: their paths. What was written once is kept beside pytest's cache and copied from there."""
    writers = {kind: KINDS[kind] for kind in kinds} | {
        name: partial(dense, template=template) for name, template in (templates or {}).items()
    }
    paths = {}
    for name, write in writers.items():
        made_of = (_SOURCE, tokenizer.name, tokenizer.stat().st_size, name, (templates or {}).get(name))
        kept = KEPT / f"{hashlib.sha256(repr(made_of).encode()).hexdigest()[:16]}.gguf"
        if not kept.exists():
            KEPT.mkdir(parents=True, exist_ok=True)
            writing = kept.with_suffix(f".{os.getpid()}")
            write(writing, tokenizer_of(tokenizer))
            writing.replace(kept)  # another worker may have been quicker, with the same bytes
        paths[name] = Path(shutil.copyfile(kept, folder / f"{name}.gguf"))
    return paths
