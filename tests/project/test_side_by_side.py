"""The README's first picture is what was recorded, and shows itself without a script."""

from __future__ import annotations

import importlib
import json
import re
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

SCREENSHOTS = Path(__file__).parents[2] / "screenshots"
PICTURE = SCREENSHOTS / "side_by_side.svg"
RECORDING = json.loads((SCREENSHOTS / "side_by_side.json").read_text())
CLOCK, KVCHAT = (run["turns"] for run in RECORDING["runs"])


@pytest.fixture
def script(monkeypatch) -> ModuleType:
    monkeypatch.syspath_prepend(SCREENSHOTS)
    return importlib.import_module("side_by_side")


def test_the_picture_is_drawn_from_the_recording(script):
    assert PICTURE.read_text() == script.drawn(RECORDING)


def test_a_forge_shows_it():
    assert PICTURE.stat().st_size < 1_000_000
    root = ElementTree.parse(PICTURE).getroot()
    assert {re.sub(r"{.*}", "", part.tag) for part in root.iter()} <= {
        "svg",
        "title",
        "style",
        "rect",
        "text",
        "g",
        "clipPath",
    }  # nothing that a sandboxed image may not do
    assert "http" not in PICTURE.read_text().replace(root.tag[1:].partition("}")[0], "")


def test_its_readme_words_are_those_of_the_recording():
    (alt,) = re.findall(r"!\[([^\]]*)\]\(screenshots/side_by_side", (SCREENSHOTS.parent / "README.md").read_text())
    assert len(CLOCK) == len(KVCHAT) == 4 and "four questions" in alt
    assert all(950 < turn["prefilled"] < 1_050 for turn in [*CLOCK, KVCHAT[0]])
    assert {turn["prefilled"] for turn in KVCHAT[1:]} == {17}


def test_the_recorded_run_is_like_for_like():
    begin = [turns[0]["first"] for turns in (CLOCK, KVCHAT)]
    assert max(begin) / min(begin) < 2  # neither had a much busier machine
    for turns in (CLOCK, KVCHAT):
        assert all(a["ended"] < b["asked"] < b["first"] <= b["ended"] for a, b in pairwise(turns))
