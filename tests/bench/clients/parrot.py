"""A model that always says the same sentence, whatever is asked; where it is given a call, it first calls that tool.

So nothing in a request has to be changed for a clean answer, every answer comes back in the tokens in which it was made,
and the 10,000 tokens of an agent's prompt are prefilled in a second or two. Keys, values, the cache and its counts are
llama.cpp's own.

All layers add nothing, so the last token alone decides: the output matrix holds, for each token of the sentence, the one
that follows. A tool call is one token of the vocabulary, its whole text, so it comes back as it was made too: the
template ends with a token of its own where a question is open and tools are there, and the call follows that token.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from gguf import GGUFWriter, TokenType

from tiny_models import Tokenizer, tokenizer_of

SENTENCE = "Yes, the shelf is over there."
CONTEXT = 131_072
WIDTH, INNER, HEADS, KV_HEADS, HEAD = 64, 64, 4, 2, 16
END, CALL, ANSWER = 2, 8, 9
"""Tokens: the end of a message; two that SmolLM2 does not use, here a whole tool call and what stands before an answer
where a call could stand."""

TEMPLATE = """\
{%- set head = messages[0].content if messages[0].role == 'system' else '' -%}
{%- if tools or head -%}<|im_start|>system
{{ head }}
{%- if tools %}

Functions that can be called, one in a line:
{%- for t in tools %}
{{ t | tojson }}
{%- endfor %}
{%- endif %}<|im_end|>
{% endif -%}
{%- set state = namespace(called=false) -%}
{%- for m in messages -%}
{%- if not (loop.first and m.role == 'system') -%}<|im_start|>{{ m.role }}
{% if m.role == 'assistant' %}BEFORE_ANSWER{% endif %}{{ m.content or '' }}
{%- for c in m.tool_calls or [] -%}
<tool_call>{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments if c.function.arguments is string else (c.function.arguments | tojson) }}}</tool_call>
{%- endfor -%}<|im_end|>
{% endif -%}
{%- if m.role == 'assistant' %}{% set state.called = true if m.tool_calls else false %}{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant
BEFORE_ANSWER{% endif -%}"""
ANSWERS = "{% if state.called or not tools %}<|answer|>{% endif %}"


def write_parrot(path: Path, source: Path, call: str = "", *, hybrid: bool = False) -> Path:
    """Write the model to `path` with the tokenizer of the GGUF file `source`.

    `call` is the JSON of a tool call that is made at each question where tools are offered. `hybrid`: with a recurrent
    part, whose state cannot be cut back, instead of attention alone.
    """
    tokenizer = tokenizer_of(source)
    ids = {token: number for number, token in enumerate(tokenizer.tokens)}
    answer = [token for word in _words(SENTENCE) for token in _pieces(word, tokenizer, ids)]
    assert len(set(answer)) == len(answer), "each token of the sentence has one that follows"
    line = ids["\u010a"]
    followers = list(zip([ANSWER if call else line, *answer], [*answer, END], strict=True))
    if call:
        followers += [(line, CALL), (CALL, END)]
        for token, text in ((CALL, f"<tool_call>{call}</tool_call>"), (ANSWER, "<|answer|>")):
            tokenizer.tokens[token], tokenizer.types[token] = text, TokenType.USER_DEFINED
    template = TEMPLATE.replace("BEFORE_ANSWER", ANSWERS if call else "")
    _write(path, tokenizer, template, followers, [0, KV_HEADS] if hybrid else [KV_HEADS])
    return path


def _words(text: str) -> list[str]:
    return [word.replace(" ", "\u0120") for word in re.findall(r" ?\w+|[^\w\s]+", text)]


def _pieces(word: str, tokenizer: Tokenizer, ids: dict[str, int]) -> list[int]:
    """The tokens of a word, by the merges of its byte-pair encoding."""
    ranks = {merge: rank for rank, merge in enumerate(tokenizer.merges)}
    parts = list(word)
    while True:
        pairs = [(ranks[pair], at) for at in range(len(parts) - 1) if (pair := " ".join(parts[at : at + 2])) in ranks]
        if not pairs:
            return [ids[part] for part in parts]
        at = min(pairs)[1]
        parts[at : at + 2] = [parts[at] + parts[at + 1]]


def _write(
    path: Path, tokenizer: Tokenizer, template: str, followers: list[tuple[int, int]], kv_heads: list[int]
) -> None:
    """A model with a layer for each of `kv_heads`; one without heads is a convolution."""
    hybrid, size, random = 0 in kv_heads, len(tokenizer.tokens), np.random.default_rng(0)
    file = GGUFWriter(path, "lfm2" if hybrid else "llama")
    file.add_context_length(CONTEXT)
    file.add_embedding_length(WIDTH)
    file.add_feed_forward_length(INNER)
    file.add_block_count(len(kv_heads))
    file.add_head_count(HEADS)
    file.add_head_count_kv(kv_heads if hybrid else KV_HEADS)
    file.add_layer_norm_rms_eps(1e-6)
    file.add_rope_freq_base(10000.0)
    file.add_rope_dimension_count(HEAD)
    file.add_vocab_size(size)
    file.add_tokenizer_model("gpt2")
    file.add_tokenizer_pre("smollm")
    file.add_token_list(tokenizer.tokens)
    file.add_token_types(tokenizer.types)
    file.add_token_merges(tokenizer.merges)
    file.add_bos_token_id(1)
    file.add_eos_token_id(END)
    file.add_unk_token_id(0)
    file.add_pad_token_id(END)
    file.add_add_bos_token(False)
    file.add_add_space_prefix(False)
    file.add_chat_template(template)
    if hybrid:
        file.add_shortconv_l_cache(3)

    def weights(name: str, *shape: int, scale: float = 0.02) -> None:
        file.add_tensor(name, (random.standard_normal(shape) * scale).astype(np.float32))

    def ones(name: str, width: int = WIDTH) -> None:
        file.add_tensor(name, np.ones(width, np.float32))

    embedding = random.standard_normal((size, WIDTH)).astype(np.float32)
    embedding /= np.sqrt((embedding**2).mean(1, keepdims=True))  # the norm before the output leaves them as they are
    output = np.zeros((size, WIDTH), np.float32)
    for token, follower in followers:
        output[follower] += embedding[token]
    file.add_tensor("token_embd.weight", embedding.astype(np.float16))
    file.add_tensor("output.weight", output.astype(np.float16))
    ones("token_embd_norm.weight" if hybrid else "output_norm.weight")
    for block, heads in enumerate(kv_heads):
        layer = f"blk.{block}"
        ones(f"{layer}.attn_norm.weight")
        ones(f"{layer}.ffn_norm.weight")
        if heads:
            weights(f"{layer}.attn_q.weight", HEADS * HEAD, WIDTH)
            weights(f"{layer}.attn_k.weight", heads * HEAD, WIDTH)
            weights(f"{layer}.attn_v.weight", heads * HEAD, WIDTH)
            weights(f"{layer}.attn_output.weight", WIDTH, HEADS * HEAD, scale=0)
            if hybrid:
                ones(f"{layer}.attn_q_norm.weight", HEAD)
                ones(f"{layer}.attn_k_norm.weight", HEAD)
        else:
            weights(f"{layer}.shortconv.conv.weight", WIDTH, 3)
            weights(f"{layer}.shortconv.in_proj.weight", 3 * WIDTH, WIDTH)
            weights(f"{layer}.shortconv.out_proj.weight", WIDTH, WIDTH, scale=0)
        weights(f"{layer}.ffn_gate.weight", INNER, WIDTH)
        weights(f"{layer}.ffn_up.weight", INNER, WIDTH)
        weights(f"{layer}.ffn_down.weight", WIDTH, INNER, scale=0)
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
