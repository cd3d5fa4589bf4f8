"""The snapshots of a server whose folder is out of reach: a few names of one's own, written over, and cards that tell
what is in the files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from kvchat.backends.engine.cache_kind import CacheKind
from kvchat.backends.engine.server_snapshots import NAMES, ServerShelf, forget, shelf_of
from kvchat.backends.engine.snapshot_file import Snapshot
from kvchat.backends.engine.snapshots import SnapshotError
from kvchat.cache.llamacpp.state_probe import StateProbe
from kvchat.cache.tokens import Tokens
from kvchat.text.snapshots import snapshot_sentence

KIND = CacheKind("model-a", "4,096 tokens per slot, 1 slots", "b1")
PROBE = StateProbe(((5, -0.1),), 99)


def kept(shelf: ServerShelf, conversation: str, size: int = 1000) -> Snapshot:
    state = Tokens(range(100))
    draft = Snapshot(
        shelf.fresh(),
        conversation,
        "a",
        ("r", "a"),
        0,
        100,
        size,
        "",
        KIND.model,
        KIND.shape,
        KIND.build,
        0.0,
        0.0,
        shelf.ids_on_card(state),
        PROBE,
        0.0,
    )
    return shelf.keep(shelf.sealed(draft))


def test_the_names_are_few_and_the_one_used_least_lately_is_written_over(tmp_path: Path) -> None:
    shelf = ServerShelf(tmp_path)
    names = [kept(shelf, f"c{at}").name for at in range(NAMES)]
    assert len(set(names)) == NAMES
    shelf.touch(shelf.snapshots[-1], 0)  # the first one
    assert kept(shelf, "new").name == names[1]
    assert [one.conversation for one in shelf.snapshots][:2] == ["new", "c0"] and len(shelf.snapshots) == NAMES


def test_two_stores_on_one_server_have_other_names(tmp_path: Path) -> None:
    one, other = ServerShelf(tmp_path / "one"), ServerShelf(tmp_path / "other")
    assert {kept(one, f"c{at}").name for at in range(NAMES)}.isdisjoint(
        kept(other, f"c{at}").name for at in range(NAMES)
    )
    assert ServerShelf(tmp_path / "one").fresh()[:-1] == one.fresh()[:-1]


def test_a_name_that_another_window_wrote_over_is_not_taken_for_the_old_one(tmp_path: Path) -> None:
    one, other = ServerShelf(tmp_path), ServerShelf(tmp_path)
    first = kept(one, "c1")
    for at in range(NAMES):
        kept(other, f"d{at}")
    assert not one.is_current(first) and first not in one.snapshots
    assert all(other.is_current(snapshot) for snapshot in other.snapshots)


def test_the_tokens_are_in_the_card(tmp_path: Path) -> None:
    kept(ServerShelf(tmp_path), "c1")
    shelf = ServerShelf(tmp_path)
    shelf.load()
    (snapshot,) = shelf.snapshots
    assert shelf.token_ids(snapshot) == Tokens(range(100))
    for bad in ("!", "AAAA", "AAA"):
        assert shelf.token_ids(replace(snapshot, ids=bad)) is None


def test_a_folder_at_hand_is_checked_by_digest_and_cleared(tmp_path: Path) -> None:
    files = tmp_path / "slots"
    files.mkdir()
    shelf = shelf_of(tmp_path / "servers", "box:8080", str(files))
    state = os.urandom(1000)
    name = shelf.fresh()
    (files / f"{name}.bin").write_bytes(state)
    draft = Snapshot(
        name,
        "c1",
        "a",
        ("r", "a"),
        0,
        100,
        1000,
        "",
        KIND.model,
        KIND.shape,
        KIND.build,
        0.0,
        0.0,
        shelf.ids_on_card(Tokens(range(100))),
        PROBE,
        0.0,
    )
    snapshot = shelf.keep(shelf.sealed(draft))
    assert shelf.check(snapshot, KIND) is None
    with pytest.raises(SnapshotError, match="1,000 of 1,001"):
        shelf.sealed(replace(draft, size=1001))
    (files / snapshot.file).write_bytes(state[:-1] + bytes([state[-1] ^ 1]))
    problem = shelf.check(snapshot, KIND)
    assert "damaged" in snapshot_sentence(problem) and not (files / snapshot.file).exists()


def test_all_together_stay_within_the_bound(tmp_path: Path) -> None:
    shelf = ServerShelf(tmp_path)
    for at in range(4):
        kept(shelf, f"c{at}", 1 << 30)
    shelf.make_room(2 << 30)
    assert [one.conversation for one in shelf.snapshots] == ["c3", "c2"]
    with pytest.raises(SnapshotError, match="may take"):
        shelf.make_room(5 << 30)


def test_a_conversation_is_forgotten_on_every_server(tmp_path: Path) -> None:
    for place in ("a", "b"):
        shelf = shelf_of(tmp_path, place)
        kept(shelf, "gone")
        kept(shelf, "stays")
    forget(tmp_path, {"gone"})
    for place in ("a", "b"):
        shelf = shelf_of(tmp_path, place)
        shelf.load()
        assert [one.conversation for one in shelf.snapshots] == ["stays"]
    forget(tmp_path / "none", {"gone"})
