"""The pages for who works on kvchat are true: what they name is there; they name every package, part and kit."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from functools import cached_property
from pathlib import Path

import pytest

from kvchat.chat.service import ChatService
from kvchat.config import Settings
from kvchat.store import Store

ROOT = Path(__file__).parents[2]
DOCS, CODE, TESTS = ROOT / "docs", ROOT / "tui" / "kvchat", ROOT / "tests"
PAGE, DETAILS, FIRST, WAY, KITS = (
    DOCS / f"{name}.md" for name in ("architecture", "parts", "ten-files", "from-a-key-to-the-wire", "test-kits")
)
PACKAGES = {path.parent.name for path in CODE.glob("*/__init__.py")}
LATE = [name for name, value in vars(ChatService).items() if isinstance(value, cached_property)]
DOTTED = re.compile(f"`((?:{'|'.join(sorted(PACKAGES))})(?:\\.\\w+)+)`")


MAP = "\n\nIn the order in which they are called"


def is_heart(path: Path) -> bool:
    """Whether a file is long and knows much: over 450 lines, and more than 30 names of ours imported."""
    text = path.read_text()
    ours = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom))
    names = [name for node in ours if (node.module or "").startswith("kvchat") for name in node.names]
    return len(text.splitlines()) > 450 and len(names) > 30


def found(name: str) -> bool:
    """Whether this dotted name leads to a module, or to something in one."""
    parts = ["kvchat", *name.split(".")]
    for end in range(len(parts), 1, -1):
        try:
            here: object = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            annotations = inspect.get_annotations(here) if inspect.isclass(here) else {}
            if not hasattr(here, part) and part not in annotations:
                return False
            here = getattr(here, part, None)
        return True
    return False


@pytest.mark.parametrize(
    ("page", "least"), [(PAGE, 40), (DETAILS, 40), (FIRST, 10), (WAY, 50)], ids=lambda one: str(one)
)
def test_what_a_page_names_is_there(page: Path, least: int) -> None:
    names = DOTTED.findall(page.read_text())
    assert len(names) > least
    assert [name for name in names if not found(name)] == []


def test_every_module_says_what_it_is_for() -> None:
    listed = subprocess.run([sys.executable, DOCS / "modules.py"], capture_output=True, text=True, check=True).stdout
    assert [line for line in listed.splitlines() if len(line.split()) < 3 and line.strip()] == []
    assert "prompt.tree " in listed


def test_the_architecture_names_every_package() -> None:
    text = PAGE.read_text()
    assert [name for name in sorted(PACKAGES) if not re.search(rf"\b{name}[/.]", text)] == []


def test_the_details_have_a_paragraph_for_each_package_and_name_those_in_it() -> None:
    text = DETAILS.read_text().partition("\n## The packages\n")[2].partition("\n## ")[0]
    paragraphs = {part[3:].partition("`")[0]: part for part in text.split("\n\n") if part.startswith("**`")}
    assert sorted(paragraphs) == sorted(PACKAGES)
    inner = [path.parent.relative_to(CODE) for path in CODE.glob("*/*/**/__init__.py")]
    names = [(".".join(package.parts), paragraphs[package.parts[0]]) for package in inner]
    assert [name for name, paragraph in names if f"`{name}`" not in paragraph] == []


def test_ten_files_are_to_be_read_first() -> None:
    files = re.findall(r"^\d+\. `([\w.]+)`:", FIRST.read_text(), re.MULTILINE)
    assert len(files) == 10
    lengths = [len((CODE / f"{name.replace('.', '/')}.py").read_text().splitlines()) for name in files]
    assert sum(lengths) < 5000  # as the page says


def test_files_that_are_long_and_know_much_begin_with_a_map() -> None:
    hearts = [path for path in CODE.glob("**/*.py") if is_heart(path)]
    assert len(hearts) >= 14
    for path in hearts:
        name, module = path.relative_to(CODE).as_posix(), ast.parse(path.read_text())
        steps = (ast.get_docstring(module) or "").partition(MAP)[2]
        here = {
            node.name
            for node in ast.walk(module)
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        }
        named = [
            one for step in re.findall(r"^\d\. (.*?):", steps, re.MULTILINE) for one in re.findall(r"`(\w+)`", step)
        ]
        assert len(named) >= 3, f"{name} begins with no map"
        assert set(named) <= here, f"{name}: {set(named) - here}"


def test_every_kit_of_the_tests_is_named_and_what_is_named_is_there() -> None:
    named = set(re.findall(r"`([\w/]+\.py)`", KITS.read_text()))
    kits = [path.relative_to(TESTS).as_posix() for path in (*TESTS.glob("*.py"), *TESTS.glob("**/*_kit.py"))]
    assert sorted(set(kits) - named) == []
    assert [name for name in sorted(named) if not (TESTS / name).is_file()] == []


@pytest.mark.usefixtures("own_folders")
async def test_the_details_name_every_part_of_the_service(tmp_path: Path) -> None:
    service = ChatService(Store.open(tmp_path), Settings())
    parts = {name for name in [*vars(service), *LATE] if not name.startswith("_")}
    await service.aclose()
    named = DETAILS.read_text().partition("\n## The parts\n")[2].partition("\n## ")[0]
    assert sorted(part for part in parts if f"`{part}`" not in named) == []


def test_the_figures_of_what_is_tried_again_are_those_of_the_code() -> None:
    table = DETAILS.read_text().partition("\n## What is tried again\n")[2].partition("\n## ")[0]
    seen = 0
    for row in table.splitlines():
        for name in DOTTED.findall(row):
            module, _, last = name.rpartition(".")
            if last.isupper():
                value = getattr(importlib.import_module(f"kvchat.{module}"), last)
                figures = value if isinstance(value, tuple) else (value,) if isinstance(value, int | float) else ()
                assert {f"{figure:g}" for figure in figures} <= set(re.findall(r"[\d.]*\d", row)), name
                seen += bool(figures)
    assert seen >= 8
