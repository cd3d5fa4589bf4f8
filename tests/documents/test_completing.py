"""What is offered while a mention is written."""

from __future__ import annotations

from kvchat.documents.collection import Collection
from kvchat.documents.mentions import collections, on_disk, within

HANDBOOK = Collection("handbook", "/handbook", 0.0)
DOCS = [f"docs/handbook/{path}" for path in ("guide/setup.md", "guide/use/keys.md", "guide.md", "notes.txt")]


def test_folders_come_first_and_one_level_at_a_time():
    assert [one.text for one in within(HANDBOOK, DOCS, "", 9)] == [
        "handbook/guide/", "handbook/guide.md", "handbook/notes.txt"]
    assert [one.text for one in within(HANDBOOK, DOCS[:2], "guide/", 9)] == [
        "handbook/guide/use/", "handbook/guide/setup.md"]


def test_a_name_further_down_is_found_by_a_part_of_it():
    assert [one.text for one in within(HANDBOOK, DOCS[1:2], "keys", 9)] == ["handbook/guide/use/keys.md"]


def test_collections_that_begin_with_it_come_first():
    known = [Collection(name, "/", 0.0) for name in ("my-handbook", "handbook", "other")]
    assert [one.text for one in collections(known, "HAND", 9)] == ["handbook", "my-handbook"]


def test_the_disk_is_offered_without_hidden_names_until_a_dot_is_written(tmp_path):
    tmp_path = tmp_path / "here"
    tmp_path.mkdir()
    for name in ("b.txt", ".hidden", "a b.md"):
        (tmp_path / name).touch()
    (tmp_path / "folder").mkdir()
    assert [one.label for one in on_disk(f"{tmp_path}/", 9)] == ["folder/", "a b.md", "b.txt"]
    assert [one.label for one in on_disk(f"{tmp_path}/.h", 9)] == [".hidden"]
    assert [one.text for one in on_disk(f"{tmp_path}/FOL", 9)] == [f"{tmp_path}/folder/"]
    assert on_disk(f"{tmp_path}/nowhere/x", 9) == []
