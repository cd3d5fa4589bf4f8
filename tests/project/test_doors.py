"""Packages of the screen with a door: what others may use is named in their `__init__`, for Python and the type checker
alike, and is there."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

TREE = Path(__file__).parents[2] / "tui"
DOORS = ("kvchat.ui.terminal", "kvchat.ui.widgets.transcript", "kvchat.ui.screens.kit")


def _door(package: str) -> tuple[dict[str, str], dict[str, str]]:
    """Names with their modules: those for the type checker, and those that are loaded."""
    tree = ast.parse((TREE / package.replace(".", "/") / "__init__.py").read_text())
    checked, loaded = dict[str, str](), dict[str, str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(package):
            checked |= {name.name: (node.module or "").removeprefix(f"{package}.") for name in node.names}
        elif isinstance(node, ast.Dict):
            for module, names in ast.literal_eval(node).items():
                loaded |= dict.fromkeys(names, module)
    return checked, loaded


@pytest.mark.parametrize("package", DOORS)
def test_a_door_has_the_names_that_others_use(package: str) -> None:
    checked, loaded = _door(package)
    assert checked == loaded
    used, inside = set[str](), TREE / package.replace(".", "/")
    for path in TREE.rglob("*.py"):
        if not path.is_relative_to(inside):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ImportFrom) and node.module == package:
                    used |= {name.name for name in node.names}
    assert used == set(loaded)


@pytest.mark.parametrize("package", DOORS)
def test_what_a_door_names_is_there(package: str) -> None:
    module = import_module(package)
    assert all(getattr(module, name) is not None for name in _door(package)[1])
    assert not hasattr(module, "nothing")
