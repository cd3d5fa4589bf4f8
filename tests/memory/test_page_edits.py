"""Many changes of a page at once are what they are one after the other, and no line takes more than its length."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from book_kit import Book
from page_samples import with_entry, without_entry

from corpus import corpus
from kvchat.memory import reconcile
from kvchat.memory.entry import BY_HAND, Entry, Kind
from kvchat.memory.pages.markdown import decoded, encoded
from kvchat.memory.pages.page import MemoryPage

LINES = [
    "- Likes tea",
    "* Owns a cat <!-- m00000001 kind:fact -->",
    "  - a part of it",
    "    and more",
    "- Knows Ada <!-- m00000002 kind:fact -->",
    "- Knows Bo <!-- m00000002 kind:fact -->",
    "",
    "Prose.",
    "## More",
    "- Likes tea",
    "  - Within <!-- m00000003 kind:fact -->",
    "1. First",
    "---",
    "- [ ] To do",
]


def one_after_the_other(page: MemoryPage, edits: dict[str, Entry | None]) -> MemoryPage:
    for id, entry in edits.items():
        page = without_entry(page, id) if entry is None else with_entry(page, entry)
    return page


@corpus("seed", range(60))
def test_many_edits_at_once_leave_the_entries_that_one_after_the_other_does(seed: int) -> None:
    chosen = random.Random(seed)
    page = MemoryPage.parse("topics/a.md", "# A\n\n" + "".join(f"{chosen.choice(LINES)}\n" for _ in range(12)))
    edits: dict[str, Entry | None] = {}
    for line in page.entries:
        if chosen.random() < 0.5:
            new = Entry(line.entry.id, Kind.FACT, f"Said anew {len(edits)}", page.name, 0.0)
            edits[line.entry.id] = new if chosen.random() < 0.5 else None
    for number in range(3):
        edits[f"m1111111{number}"] = Entry(f"m1111111{number}", Kind.FACT, f"New {number}", page.name, 0.0)
    at_once, slowly = page.edited(edits), one_after_the_other(page, edits)
    assert Counter((line.entry.id, line.entry.text) for line in at_once.entries) == Counter(
        (line.entry.id, line.entry.text) for line in slowly.entries
    )
    assert ("## More" in page.text) is ("## More" in at_once.text)


def test_new_lines_at_once_begin_a_page_as_one_after_the_other() -> None:
    page = MemoryPage.parse("topics/a.md", "")
    edits = {
        f"m{number:08d}": Entry(f"m{number:08d}", Kind.FACT, f"New {number}", page.name, 0.0) for number in range(1, 4)
    }
    assert page.edited({**edits}).text == one_after_the_other(page, {**edits}).text


@pytest.mark.parametrize(
    "text",
    ["a " + "\\" * 300_000 + "b", "\\" * 99_999 + "[" + "\\" * 99_999, "a\\\\[\\[b\\&#x20;"],
    ids=["one run", "two runs", "short ones"],
)
def test_a_run_of_backslashes_is_kept_however_long_it_is(text: str) -> None:
    (line,) = encoded(text)
    assert decoded(line) == text


def test_a_word_replaced_in_all_lines_by_hand_is_an_edit_of_each_and_compared_with_few(
    tmp_path: Path, monkeypatch
) -> None:
    book = Book(tmp_path)
    words = [
        f"{a}{b}"
        for a in ("ba", "ke", "di", "fo", "gu", "lam", "ren", "sot", "tip", "vux")
        for b in ("na", "mer", "dil", "sog", "kut")
    ]
    chosen = random.Random(1)
    lines = [" ".join(chosen.sample(words, 6)) for _ in range(300)]
    book.write("topics/a.md", "".join(f"- {line} Oldname\n" for line in lines))
    book.memories.sync()
    compared: list[int] = []
    likeness = reconcile._likeness
    monkeypatch.setattr(reconcile, "_likeness", lambda one, other: (compared.append(1), likeness(one, other))[1])
    book.write("topics/a.md", "".join(f"- {line} Newname\n" for line in lines))
    book.memories.sync()
    old = {entry.text: entry for entry in book.memories._state.entries() if "Oldname" in entry.text}
    new = {entry.id: entry for entry in book.memories.entries()}
    assert len(old) == len(new) == 300 and {entry.by for entry in new.values()} == {BY_HAND}
    for entry in old.values():
        assert new[entry.superseded_by].text == entry.text.replace("Oldname", "Newname")
    assert len(compared) < 300 * 300 // 2
    book.close()
