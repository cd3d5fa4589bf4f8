"""How many tokens a text has before a server counted it, estimated from the kinds of its characters.

The weights are fitted to seven tokenizers (of GPT-4 and 4o, Qwen, DeepSeek, Mistral's two, SmolLM2) on 23 kinds of
text, from prose to digits. Four bytes to a token, as one used to say, are right for English prose and code, half of
what JSON, logs and tables have, and a quarter of figures. A conversation's own figures correct what is left.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from kvchat.prompt.images import has_images, without_images

LETTER, BLANK, NEWLINE = 0.26, 0.13, 0.2
"""Tokens per character of ASCII that words are made of."""
DIGIT, MARK = 1.0, 0.65
"""Tokens per other character of ASCII."""
TWO, THREE, FOUR = 0.5, 1.1, 2.7
"""Tokens per character, by its bytes in UTF-8: accents, Greek, Cyrillic, Arabic; Chinese, Japanese, Korean, Hindi;
emoji."""
SURE = 200
"""Of this many estimated tokens of a kind, half of what is known of them is believed."""
LEAST, MOST = 0.4, 2.5
"""How far a tokenizer is believed to be from the weights."""

_LETTERS = bytes((*range(0x41, 0x5B), *range(0x61, 0x7B)))
_DIGITS, _BLANKS, _NEWLINES = b"0123456789", b" \t", b"\n"
_TWO, _THREE, _FOUR = bytes(range(0xC0, 0xE0)), bytes(range(0xE0, 0xF0)), bytes(range(0xF0, 0x100))
_ASCII = bytes(range(0x80))

Kinds = tuple[float, float, float]
"""One number each for words, for digits and marks, and for what is not ASCII."""


class TokenEstimate(Struct, frozen=True):
    """The estimate for one tokenizer."""

    scales: Kinds = (1.0, 1.0, 1.0)
    """How many tokens it makes of each kind for one by the weights."""

    def of(self, texts: Iterable[bytes]) -> int:
        """About how many tokens these have together; JSON strings may be given as they are. Images count nothing: what
        a server makes of one is not known before."""
        return round(sum(scale * weight for scale, weight in zip(self.scales, _sums(texts), strict=True)))


def learnt(texts: Iterable[bytes], tokens: int) -> TokenEstimate:
    """The estimate for the tokenizer that made `tokens` of `texts`. Of a kind of characters that they hardly
    have they tell nothing, nor does a prompt with images, whose tokens are not known."""
    texts = tuple(texts)
    if has_images(texts):
        return TokenEstimate()
    words, others, wide = weights = _sums(texts)
    ratio = min(MOST, max(LEAST, tokens / (sum(weights) or 1.0)))

    def scale(weight: float) -> float:
        return (weight * ratio + SURE) / (weight + SURE)

    return TokenEstimate((scale(words), scale(others), scale(wide)))


def _sums(texts: Iterable[bytes]) -> Kinds:
    words = others = wide = 0.0
    for text in texts:
        found = _weights(without_images(text).replace(b"\\n", b"\n").replace(b'\\"', b'"'))
        words, others, wide = words + found[0], others + found[1], wide + found[2]
    return words, others, wide


def _weights(text: bytes) -> Kinds:
    def count(kind: bytes) -> int:
        return len(text) - len(text.translate(None, kind))

    letters, blanks, newlines, digits = map(count, (_LETTERS, _BLANKS, _NEWLINES, _DIGITS))
    plain = len(text) if text.isascii() else count(_ASCII)
    wide = 0.0
    if plain < len(text):
        wide = count(_TWO) * TWO + count(_THREE) * THREE + count(_FOUR) * FOUR
    marks = plain - letters - blanks - newlines - digits
    return letters * LETTER + blanks * BLANK + newlines * NEWLINE, digits * DIGIT + marks * MARK, wide
