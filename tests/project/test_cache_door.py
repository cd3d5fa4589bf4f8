"""The cache is a library with a door, and a second one for its adapter in chat: few names, and nothing behind them but
msgspec."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import kvchat.cache
from kvchat.cache import tracking

TREE = Path(__file__).parents[2] / "tui" / "kvchat"
NAMES = {name for names in kvchat.cache.NAMES.values() for name in names}
MOST, MOST_TRACKING = 25, 25
"""Names that the rest uses, and those of the second door."""
MOST_ASKED = 12
"""Methods of `Cache`."""
ALONE = """
import sys
from importlib.abc import MetaPathFinder

class NothingElse(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names or top in ("msgspec", "kvchat"):
            return None
        raise ImportError(f"{name} is not installed")

sys.meta_path.insert(0, NothingElse())
import pkgutil, kvchat.cache
from importlib import import_module
for module in pkgutil.walk_packages(kvchat.cache.__path__, "kvchat.cache."):
    import_module(module.name)
for names in kvchat.cache.NAMES.values():
    for name in names:
        getattr(kvchat.cache, name)
print(*sorted({".".join(name.split(".")[:2]) for name in sys.modules if name.startswith("kvchat.")}))
print(*({"asyncio", "socket", "sqlite3", "httpx", "textual"} & sys.modules.keys()))
"""


def _used(*, by_its_adapter: bool, module: str = "kvchat.cache") -> set[str]:
    """What is imported of the cache, by its adapter or by the rest; `*` for the package itself, which would hand on all
    of it."""
    found = set[str]()
    for path in TREE.rglob("*.py"):
        if path.is_relative_to(TREE / "cache") or path.is_relative_to(TREE / "chat" / "cache") is not by_its_adapter:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == module:
                found |= {name.name for name in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module == "kvchat":
                found |= {"*" for name in node.names if name.name == "cache"}
            elif isinstance(node, ast.Import):
                found |= {"*" for name in node.names if name.name.startswith("kvchat.cache")}
    return found


def test_the_rest_uses_few_names() -> None:
    used = _used(by_its_adapter=False)
    assert used <= NAMES
    assert len(used) <= MOST


def test_its_adapter_goes_through_two_doors() -> None:
    """The import contract says that there is no other way; each name is one that somebody uses."""
    assert _used(by_its_adapter=True) <= NAMES
    assert not _used(by_its_adapter=False, module="kvchat.cache.tracking")
    named = {name for name, value in vars(tracking).items() if not name.startswith("_") and name != "annotations"}
    assert _used(by_its_adapter=True, module="kvchat.cache.tracking") == named
    assert len(named) <= MOST_TRACKING and not named & NAMES


def test_few_things_are_asked_of_it() -> None:
    asked = [name for name, value in vars(kvchat.cache.Cache).items() if callable(value) and not name.startswith("_")]
    assert len(asked) <= MOST_ASKED, asked


@pytest.mark.process
def test_it_loads_with_msgspec_alone() -> None:
    """The program that takes it need not have a terminal, a database or HTTP, nor the rest of kvchat."""
    child = subprocess.run([sys.executable, "-P", "-c", ALONE], capture_output=True, text=True, check=False)
    assert child.stderr == ""
    ours, foreign = child.stdout.splitlines()
    assert ours.split() == ["kvchat.cache", "kvchat.door", "kvchat.figures", "kvchat.values"]
    assert foreign == ""


def test_a_name_that_is_not_there_is_said_so() -> None:
    assert not hasattr(kvchat.cache, "nothing")


def test_what_it_has_can_be_listed() -> None:
    assert set(dir(kvchat.cache)) >= NAMES


def test_input_of_another_kind_is_said_so() -> None:
    cache = kvchat.cache.Cache(1, 1000, "b11549")
    for ask in (cache.sent, cache.before, cache.price):
        with pytest.raises(TypeError, match=r"kvchat\.cache\.Tokens, not list"):
            ask([1, 2])  # type: ignore[arg-type]
    for more in ({"slots": 2}, {"context": 4096}, {"learnt": kvchat.cache.Shape()}, {"model": kvchat.cache.Shape()}):
        with pytest.raises(ValueError, match="`known` is all"):
            kvchat.cache.Cache(known=kvchat.cache.Shape(), **more)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="A journal has a clock"):
        kvchat.cache.Cache(journal=tracking.Journal(), now=lambda: 0.0)
    with pytest.raises(ValueError, match="no slot -1"):
        cache.sent(kvchat.cache.Tokens([1, 2]), slot=-1)
    assert cache.sent(kvchat.cache.Tokens([1, 2])).slot == 0, "nothing was begun before"


@pytest.mark.process
def test_the_first_frame_loads_no_simulator() -> None:
    code = "import sys, kvchat.cli.app, kvchat.ui.app; print('kvchat.cache.llamacpp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
