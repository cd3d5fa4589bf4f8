"""How long the way of a message is: the distinct functions of kvchat that one turn goes through.

    python tests/bench/path_bench.py [RUNS] [-v]

Counted are two ways, in a conversation with memory, with a collection that is searched for every question, and with a
llama.cpp-like server whose cache is followed:

    out    from the Enter key in the composer until the request has arrived at the server's socket, in the third turn
    back   from the server's last words (finish, figures, end) until the status line says why tokens were read again,
           in the fourth turn, before which another program has used the server

A function counts if it is called or resumed on the way, in any thread; so does a lambda. Left out are properties,
comprehensions, the bodies of modules and classes, what dataclasses generate, and all that is called by one of Textual's
timers, clocks and painting too: when they fire has nothing to do with the turn. What else happens to run meanwhile
differs from run to run. Therefore each of RUNS (3) starts an app of its own: printed are minimum/median/maximum, and
what was in every run, by package. `-v` lists it by module. Reading ahead is off, and folders are not watched. Nothing
is asserted.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import statistics
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import groupby
from pathlib import Path
from types import CodeType, FrameType

from textual.screen import Screen
from textual.timer import Timer

import kvchat

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "screens"))
from app_kit import Driven, driving
from llama_app import LlamaServer, own_folders, searching, settings_of

OURS = str(Path(kvchat.__file__).parent) + "/"
QUESTIONS = (
    "I keep a lighthouse and prefer metric units. How fast does the lamp turn?",
    "What sounds in fog, and how often? " + "Tell me of the horn and of the mast. " * 20,
)
THIRD = "When is the tower painted, and with which paint?"
FOURTH = "How many stairs of granite are there?"
ANSWER, LAST = "It stands in the handbook of the lighthouse. " * 10, "So it is."
REST_S = 0.5
"""After so long what a key or an answer has set off has ended."""

LONGEST_S = 20.0

BY_TIMER = {Timer._tick.__code__, Screen._on_timer_update.__code__}
"""What calls whatever a timer is for, and what paints."""

Function = tuple[str, str, int]
"""Module, qualified name and first line."""


class Watch:
    """Collects the code of ours that is entered while it is on, in all threads that are started after it."""

    def __init__(self) -> None:
        self._entered: set[CodeType] = set()
        self._on = False
        sys.setprofile(self._see)
        threading.setprofile(self._see)

    def begin(self) -> None:
        self._entered, self._on = set(), True

    def end(self) -> frozenset[Function]:
        """What was entered since `begin`."""
        self._on = False
        left_out = properties()
        return frozenset(function_of(code) for code in self._entered if code not in left_out)

    @contextmanager
    def looking_away(self) -> Iterator[None]:
        """What this thread does here is not seen."""
        sys.setprofile(None)
        try:
            yield
        finally:
            sys.setprofile(self._see)

    def _see(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if (
            self._on
            and event == "call"
            and code not in self._entered
            and is_function_of_ours(code)
            and (not is_by_timer(frame))
        ):
            self._entered.add(code)


def is_function_of_ours(code: CodeType) -> bool:
    named = not code.co_name.startswith("<") or code.co_name == "<lambda>"
    return named and bool(code.co_flags & inspect.CO_OPTIMIZED) and code.co_filename.startswith(OURS)


def is_by_timer(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code not in BY_TIMER:
        frame = frame.f_back
    return frame is not None


def properties() -> set[CodeType]:
    """The code of all properties of ours."""
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("kvchat")]
    classes = {value for module in modules for value in vars(module).values() if inspect.isclass(value)}
    found = [value for one in classes for value in vars(one).values()]
    getters = [
        value.fget if isinstance(value, property) else value.func
        for value in found
        if isinstance(value, property | cached_property)
    ]
    setters = [value.fset for value in found if isinstance(value, property)]
    return {inspect.unwrap(one).__code__ for one in (*getters, *setters) if inspect.isfunction(one)}


def function_of(code: CodeType) -> Function:
    module = code.co_filename.removeprefix(OURS).removesuffix(".py").replace("/", ".")
    return module, code.co_qualname, code.co_firstlineno


async def ways(folder: Path, watch: Watch) -> dict[str, frozenset[Function]]:
    """Both ways, in an app of its own."""
    found: dict[str, frozenset[Function]] = {}
    async with LlamaServer(lambda body: ANSWER + (LAST if FOURTH in str(body["messages"][-1]) else "")) as server:
        settings = settings_of(server, documents__watch=False)
        async with driving(
            folder / "data", server, settings=settings, size=(140, 40), background=True, ahead=True
        ) as app:
            await searching(app, folder)
            await app.command("/remember I prefer metric units.")
            await app.until(lambda: app.noticed("Remembered"))
            await app.say(*QUESTIONS)
            await written(app, THIRD)
            server.at_chat = lambda _: found.setdefault("out", watch.end())
            watch.begin()
            app.app.simulate_key("enter")
            await server.until(lambda: "out" in found)
            await app.settled()
            await asyncio.sleep(REST_S)

            server.model.chat({"messages": [{"role": "user", "content": "Another program asks. " * 9}]})
            await written(app, FOURTH)
            server.last_words.clear()
            await app.press("enter")
            await app.until(lambda: LAST in app.prose)
            await asyncio.sleep(REST_S)
            watch.begin()
            server.last_words.set()
            await told_below(app, "another program used the model", watch)
            found["back"] = watch.end()
            await app.settled()
    return found


async def written(app: Driven, text: str) -> None:
    """A message in the composer, with what is found for it, and all ended that was begun before."""
    await app.write(text)
    await app.until(lambda: "▤ 1 passage" in app.text)
    await asyncio.sleep(REST_S)


async def told_below(app: Driven, words: str, watch: Watch) -> None:
    """Until the status line has these words; what is done to look is not seen. Raises TimeoutError."""
    async with asyncio.timeout(LONGEST_S):
        while True:
            with watch.looking_away():
                if words in app.lines[-2]:
                    return
            await asyncio.sleep(0)


def told(way: str, runs: Sequence[frozenset[Function]], listed: bool) -> None:
    always = sorted(frozenset.intersection(*runs), key=lambda one: (one[0], one[2]))
    functions, files = spread([len(run) for run in runs]), spread([len(modules(run)) for run in runs])
    print(
        f"{way:4}  functions {functions}, modules {files}; in every run {len(always)} functions in "
        f"{len(modules(always))} modules:"
    )
    packages = Counter(module.partition(".")[0] for module, *_ in always)
    print("      " + ", ".join(f"{package} {count}" for package, count in packages.most_common()))
    if not listed:
        return
    for module, named in groupby(always, key=lambda one: one[0]):
        print(f"      {module}: {', '.join(name for _, name, _ in named)}")
    if some := sorted(frozenset.union(*runs).difference(always)):
        print(f"      not in every run: {', '.join(f'{module}.{name}' for module, name, _ in some)}")


def modules(functions: Iterable[Function]) -> set[str]:
    return {module for module, *_ in functions}


def spread(counts: Sequence[int]) -> str:
    """Minimum, median, maximum."""
    counts = sorted(counts)
    return f"{counts[0]}/{statistics.median_low(counts)}/{counts[-1]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="?", type=int, default=3)
    parser.add_argument("-v", dest="listed", action="store_true", help="list the functions by module")
    options = parser.parse_args()
    watch, found = Watch(), []
    for _ in range(options.runs):
        with own_folders() as folder:
            found.append(asyncio.run(ways(folder, watch)))
    sys.setprofile(None)
    for way in ("out", "back"):
        told(way, [one[way] for one in found], options.listed)


if __name__ == "__main__":
    main()
