"""The README of the cache: its example says what the door gives, and it names what is there."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import kvchat.cache

HERE = Path(kvchat.cache.__file__).parent
README = HERE / "README.md"


def test_its_example_gives_what_it_says() -> None:
    found = doctest.testfile(str(README), module_relative=False)
    assert found.attempted > 15 and not found.failed


def test_it_names_files_that_are_there() -> None:
    text = README.read_text()
    files = [HERE / name for name in re.findall(r"`((?:llamacpp|causes)/\w+\.py)`", text)]
    links = [HERE / name.partition("#")[0] for name in re.findall(r"\]\((\.\.[^)]+)\)", text)]
    assert len(files) > 8 and len(links) >= 2
    assert [path for path in (*files, *links) if not path.exists()] == []
