"""What runs inside the small Ollama: its models, what is loaded, the prompt that is made, and the one slot's cache.

The rule: one token is one word, so that every count can be checked by hand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

NS = 1_000_000
RUNNER = ("num_ctx", "num_batch", "num_gpu", "main_gpu", "use_mmap", "num_thread")
WHOLE = {*RUNNER, "num_predict", "num_keep", "top_k", "seed", "repeat_last_n"} - {"use_mmap"}
QWEN3 = """{{- $lastUserIdx := -1 -}}
{{- range $i, $_ := .Messages }}{{- if eq .Role "user" }}{{- $lastUserIdx = $i }}{{ end }}{{- end }}
{{- if .System }}<|system|> {{ .System }}{{ end }}
{{- range $i, $_ := .Messages }}{{- $last := eq (len (slice $.Messages $i)) 1 -}}
{{- if eq .Role "assistant" }}<|assistant|>
{{ if (and $.IsThinkSet (and .Thinking (or $last (gt $i $lastUserIdx)))) -}}<think>{{ .Thinking }}</think>{{ end -}}
{{ .Content }}{{ end }}{{ end }}"""
PLAIN = "{{ range .Messages }}<|{{ .Role }}|> {{ .Content }} <|end|> {{ end }}<|assistant|>"


class Refused(Exception):  # noqa: N818 (what the server says, not a failure of the test)
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass(frozen=True)
class StandInModel:
    name: str = "toy:latest"
    family: str = "llama"
    longest: int = 32768
    """What its weights allow."""
    thinks: bool = False
    num_ctx: int | None = None
    """Of its Modelfile."""
    template: str = PLAIN
    renderer: str = ""
    embeds: bool = False
    remote_host: str = ""

    @property
    def abilities(self) -> list[str]:
        return ["embedding"] if self.embeds else ["completion", *(["thinking"] if self.thinks else [])]


QWEN = StandInModel("qwen3:8b", "qwen3", 40960, thinks=True, template=QWEN3)


@dataclass
class Runner:
    """A loaded model."""

    options: dict[str, Any]
    is_auto: bool
    """Whether its window is the server's own choice."""
    shift: bool
    expires: float
    cache: list[str] = field(default_factory=list)
    """The tokens in its one slot."""


@dataclass(frozen=True)
class Turn:
    """What one request really cost."""

    model: str
    prompt: int
    evaluated: int
    loaded: bool
    """Whether the model was loaded for it."""
    dropped: int
    """Messages that were left out."""
    num_ctx: int
    aborted: bool = False


@dataclass
class Prompt:
    """A prompt, ready to be read."""

    model: StandInModel
    runner: Runner
    tokens: list[str]
    dropped: int
    loaded: bool

    @property
    def cached(self) -> int:
        """How many of its tokens are in the slot; the last one is always read."""
        same = takewhile(lambda pair: pair[0] == pair[1], zip(self.runner.cache, self.tokens, strict=False))
        return min(sum(1 for _ in same), len(self.tokens) - 1)


class Broken(Exception):  # noqa: N818
    """The model stops in the middle of an answer."""


class Engine:
    """`say` gives the words of an answer for the number of the turn; `think` its thoughts."""

    def __init__(
        self,
        models: Sequence[StandInModel],
        *,
        now: Callable[[], float],
        knows_truncate: bool,
        reports_cached: bool,
        default_context: int,
        tokens_per_ms: float,
        load_ms: float,
        say: Callable[[int], str],
        think: Callable[[int], str],
    ) -> None:
        self.models = {model.name: model for model in models or (StandInModel(),)}
        self.knows_truncate = knows_truncate
        self.reports_cached = reports_cached
        self.default_context = default_context
        self.tokens_per_ms = tokens_per_ms
        self.load_ms = load_ms
        self.handout_ms = 40.0
        """How long a loaded model takes to be handed out."""
        self.now = now
        self.say, self.think = say, think
        self.turns: list[Turn] = []
        self.loads = 0
        self.running: dict[str, Runner] = {}
        self.fails_after: int | None = None
        """Fail in the middle of the next answer, after so many words."""

    def unload(self, name: str = "") -> None:
        """What `ollama stop`, or another model that needs the memory, does; without a name: every model."""
        for each in [name] if name else list(self.running):
            self.running.pop(each, None)

    def expire(self) -> None:
        for name in [name for name, runner in self.running.items() if runner.expires <= self.now()]:
            self.unload(name)

    def model(self, name: object) -> StandInModel:
        if not isinstance(name, str) or not name:
            raise Refused(400, "model is required")
        found = self.models.get(name) or self.models.get(f"{name}:latest")
        if found is None:
            raise Refused(404, f"model '{name}' not found")
        return found

    def runner(
        self, model: StandInModel, options: Mapping[str, Any], shift: bool | None, keep_alive: float | None
    ) -> tuple[Runner, bool]:
        """The loaded model for a request, and whether it had to be loaded: as soon as one option of the load differs,
        or whether the context shifts."""
        for name, value in options.items():
            if name in WHOLE and (isinstance(value, bool) or not isinstance(value, int | float)):
                raise Refused(400, f'option "{name}" must be of type integer')
        is_auto = "num_ctx" not in options and model.num_ctx is None
        wanted = {name: options[name] for name in RUNNER if name in options}
        wanted["num_ctx"] = min(wanted.get("num_ctx", model.num_ctx or self.default_context), model.longest)
        shifts = True if shift is None else shift
        runner = self.running.get(model.name)
        expires = self.now() + (300.0 if keep_alive is None else keep_alive)
        if runner is not None:
            if is_auto and runner.is_auto:
                wanted["num_ctx"] = runner.options["num_ctx"]
            if runner.options == wanted and runner.shift == shifts:
                runner.expires = expires
                return runner, False
        self.loads += 1
        self.running[model.name] = runner = Runner(wanted, is_auto, shifts, expires)
        return runner, True

    def prompt(
        self, model: StandInModel, runner: Runner, loaded: bool, messages: Sequence[Mapping[str, Any]], truncate: bool
    ) -> Prompt:
        """What the model will read. Raises Refused when it is too long and may not be cut."""
        window = runner.options["num_ctx"]
        if model.family == "qwen3":
            messages = _without_think_tags(messages)
        tokens, dropped = _rendered(model, messages), 0
        if truncate:  # drop from the front, but never the system messages nor the last one
            while len(tokens) > window and dropped < len(messages) - 1:
                dropped += 1
                system = [message for message in messages[:dropped] if message["role"] == "system"]
                tokens = _rendered(model, [*system, *messages[dropped:]])
            tokens = tokens[-(window - 1) :] if len(tokens) >= window else tokens
            dropped -= sum(message["role"] == "system" for message in messages[:dropped])
        elif len(tokens) >= window:
            inner = {
                "code": 400,
                "message": f"request ({len(tokens)} tokens) exceeds the available context size "
                f"({window} tokens), try increasing it",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": len(tokens),
                "n_ctx": window,
            }
            raise Refused(400, json.dumps({"error": inner}, separators=(",", ":")))
        return Prompt(model, runner, tokens, dropped, loaded)

    async def generate(
        self,
        prompt: Prompt,
        thoughts: bool,
        most: int,
        send: Callable[[str, bool], Awaitable[None]],
        is_gone: Callable[[], bool],
    ) -> dict[str, object]:
        """Say the answer to `prompt` by `send(text, is_thought)`; the final figures. Raises Broken."""
        number, window, cached = len(self.turns) + 1, prompt.runner.options["num_ctx"], prompt.cached
        evaluated = len(prompt.tokens) - cached
        self.turns.append(Turn(prompt.model.name, len(prompt.tokens), evaluated, prompt.loaded, prompt.dropped, window))
        words = [(word, True) for word in self.think(number).split()] if thoughts else []
        words += [(word, False) for word in self.say(number).split()]
        room = len(words) if prompt.runner.shift else window - len(prompt.tokens)
        limit = min(len(words), room, most if most >= 0 else len(words))
        prompt.runner.cache = list(prompt.tokens)
        for count, (word, is_thought) in enumerate(words[:limit]):
            if is_gone() or count == self.fails_after:
                self.fails_after = None
                self.turns[-1] = replace(self.turns[-1], aborted=True)
                raise Broken
            is_last = count == limit - 1 or words[count + 1][1] != is_thought
            await send(word if is_last else word + " ", is_thought)
            prompt.runner.cache.append(f"thought:{word}" if is_thought else word)
        prompt.runner.cache.pop()  # the last token that was sampled is not in the cache yet
        figures: dict[str, object] = {
            "done_reason": "length" if limit < len(words) else "stop",
            "total_duration": 10**9,
            "load_duration": round((self.load_ms if prompt.loaded else self.handout_ms) * NS),
            "prompt_eval_count": len(prompt.tokens),
            "prompt_eval_duration": round(evaluated / self.tokens_per_ms * NS),
            "eval_count": limit,
            "eval_duration": limit * 20 * NS,
        }
        return figures | ({"prompt_eval_cached_count": cached} if self.reports_cached else {})


def _without_think_tags(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """What the server itself takes out of earlier answers of some models."""
    last = max((place for place, message in enumerate(messages) if message["role"] == "user"), default=-1)
    return [
        {**message, "content": re.sub(r"\A\s*<think>.*?</think>\s*", "", message["content"], flags=re.DOTALL)}
        if message["role"] == "assistant" and place < last
        else message
        for place, message in enumerate(messages)
    ]


def _rendered(model: StandInModel, messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """The tokens of a prompt: each word, and a mark before and after each message."""
    last = max((place for place, message in enumerate(messages) if message["role"] == "user"), default=-1)
    tokens: list[str] = []
    for place, message in enumerate(messages):
        tokens.append(f"<|{message['role']}|>")
        if model.thinks and message.get("thinking") and place > last:
            tokens += [f"thought:{word}" for word in message["thinking"].split()]
        tokens += [*message["content"].split(), "<|end|>"]
    return [*tokens, "<|assistant|>"]
