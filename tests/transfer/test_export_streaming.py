"""Many conversations are written one after the other: one is in memory at a time, and the text is the same."""

from __future__ import annotations

import json
import tracemalloc
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transfer_samples import branched_conversation, chat, hostile_conversation

from kvchat.transfer import FORMATS
from kvchat.transfer.exact_json import dumps
from kvchat.transfer.formats import FileExists, Source, TransferError, pieces, render
from kvchat.transfer.lossless import fields_of
from kvchat.transfer.write import export

SAMPLES = [chat("Hello", "Hi"), branched_conversation(), hostile_conversation(), chat(), chat("![x](http://x)\n", "\n")]


class Watched:
    """Sources that are made when their turn comes; how many of those before are still there then."""

    def __init__(self, count: int, words: int = 2000) -> None:
        self._count, self._words = count, words
        self.alive: list[int] = []
        self._trees: list[weakref.ref[object]] = []

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Source]:
        for number in range(self._count):
            source = chat("word " * self._words, "answer " * self._words, title=f"talk {number}")
            self.alive.append(sum(tree() is not None for tree in self._trees))
            self._trees.append(weakref.ref(source.tree))
            yield source


@pytest.mark.parametrize("format", list(FORMATS))
def test_one_conversation_is_in_memory_at_a_time(tmp_path: Path, format: str) -> None:
    few, many = Watched(5), Watched(60)
    peaks = []
    for sources in (few, many):
        tracemalloc.start()
        path = export(tmp_path / f"{len(sources)}.out", format, sources)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert max(sources.alive) <= 1
        assert path.stat().st_size > len(sources) * 20_000
    assert peaks[1] < 2 * peaks[0]


@settings(deadline=None, max_examples=25)
@given(st.lists(st.sampled_from(SAMPLES), max_size=4), st.booleans())
def test_lossless_json_is_the_document_as_a_whole(sources: list[Source], every: bool) -> None:
    text = render("json", sources, all_branches=every)
    found = json.loads(text)
    assert text == dumps({**found, "conversations": [fields_of(source) for source in sources]}, indent=1) + "\n"


@pytest.mark.parametrize("format", list(FORMATS))
def test_a_format_gives_a_piece_for_each_conversation(format: str) -> None:
    assert len(list(pieces(format, [chat(f"Q {n}", "A") for n in range(20)]))) >= 20


def test_a_conversation_that_cannot_be_written_leaves_no_file(tmp_path: Path) -> None:
    class Failing(Watched):
        def __iter__(self) -> Iterator[Source]:
            yield from super().__iter__()
            raise TransferError("There is no conversation ab12.")

    for overwrite in (False, True):
        path = tmp_path / "out.md"
        if overwrite:
            path.write_text("mine")
        with pytest.raises(TransferError, match="ab12"):
            export(path, "md", Failing(3), overwrite=overwrite)
        assert [one.name for one in tmp_path.iterdir() if one.name != "home"] == ["out.md"] * overwrite


def test_a_file_in_the_way_is_told_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "out.md").write_text("mine")
    sources = Watched(3)
    with pytest.raises(FileExists):
        export(tmp_path / "out.md", "md", sources)
    assert sources.alive == []
