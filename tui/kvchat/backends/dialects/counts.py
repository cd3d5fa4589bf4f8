"""What follows from the token counts of several turns: that messages were left out, and what came from the cache.

The rule: a prompt that extends an earlier one has at least its tokens. Whatever cannot be told from that is None.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from kvchat.backends.dialect import ChatTurn

SLACK = 16
"""Tokens by which a prompt may shrink though nothing is left out: what a template puts behind the last question."""
MOST_PROMPTS = 64
MOST_SAMPLES = 32
SURE = 0.5
"""Of the tokens that new text seems to have, so many are counted on: text differs in tokens per byte."""
LEAST_NEW = 16
"""Tokens: reading fewer says more about overhead than about speed."""
AGREEMENT = 2.0
"""The slowest and the fastest possible speed may differ by this factor for an estimate."""


@dataclass(frozen=True, slots=True)
class Expected:
    """How long a prompt has to be."""

    least: int
    """Tokens that it has for sure: those of the prompt that it extends, and of the answer to that."""
    likely: int
    """Tokens with a careful guess for what this turn added."""


@dataclass(frozen=True, slots=True)
class Counted:
    """A prompt that was read, and the answer to it."""

    session: str
    model: str
    template_options: Mapping[str, object]
    wires: tuple[bytes, ...]
    tokens: int
    reply: str
    reply_tokens: int
    """0 where it is not known how many of the answer's tokens stay in the prompt: it holds reasoning."""

    def expected(self, turn: ChatTurn) -> Expected | None:
        """How long the prompt of `turn` has to be; None where it does not extend this one."""
        length = len(self.wires)
        if (turn.session_id, turn.model, turn.template_options) != (self.session, self.model, self.template_options) \
                or turn.wires[:length] != self.wires:
            return None
        added = [(wire, json.loads(wire)) for wire in turn.wires[length:]]
        is_kept = bool(added) and added[0][1].get("content") == self.reply
        least = self.tokens + (self.reply_tokens if is_kept else 0)
        size = sum(len(wire) for wire, message in added if message.get("role") != "assistant")
        return Expected(least, least + int(size * self.tokens / sum(map(len, self.wires)) * SURE))


class PromptCounts:
    """The prompts read lately."""

    def __init__(self) -> None:
        self._prompts: deque[Counted] = deque(maxlen=MOST_PROMPTS)

    def expected(self, turn: ChatTurn) -> Expected | None:
        """How long the prompt of `turn` has to be; None where nothing that it extends was counted."""
        found = [expected for counted in self._prompts if (expected := counted.expected(turn)) is not None]
        return max(found, key=lambda expected: expected.least, default=None)

    def remember(self, turn: ChatTurn, tokens: int, reply: str, reply_tokens: int) -> None:
        options = dict(turn.template_options)
        self._prompts.append(Counted(turn.session_id, turn.model, options, turn.wires, tokens, reply, reply_tokens))


class PrefillTimes:
    """Estimates how much of a prompt came from the cache, for a server that tells only how long reading took.

    Reading took at most as long per token as per new token, and at least as long as per token of the whole prompt;
    where a few turns together leave little room between the two, the speed is known.
    """

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float | None]] = deque(maxlen=MOST_SAMPLES)

    def cached(self, prompt_tokens: int, prompt_ms: float, new_tokens: int | None) -> int | None:
        """About how many tokens came from the cache; None until the speed is known. `new_tokens`: those that this
        turn added, where that is known."""
        if prompt_tokens <= 0 or prompt_ms <= 0:
            return None
        new = new_tokens if new_tokens and new_tokens >= LEAST_NEW else None
        self._samples.append((prompt_ms / prompt_tokens, prompt_ms / new if new else None))
        least = max(sample[0] for sample in self._samples)
        most = min((sample[1] for sample in self._samples if sample[1] is not None), default=None)
        if most is None or most > least * AGREEMENT or least > most * AGREEMENT:
            return None
        read = prompt_ms / ((least + most) / 2)
        return round(min(max(0.0, prompt_tokens - read), prompt_tokens - (new_tokens or 1)))
