"""Kept snapshots on their shelf: never dropped for others, replaced by their own, within a bound of their own."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvchat.backends.engine.cache_kind import CacheKind
from kvchat.backends.engine.snapshot_file import Snapshot
from kvchat.backends.engine.snapshots import SnapshotDir, SnapshotError
from kvchat.cache.llamacpp.state_probe import StateProbe

PROBE = StateProbe(((5, -0.1), (6, -2.123456789012345)), 99)
KIND = CacheKind("model-a", "4,096 tokens per slot, 1 slot, f16", "b1")


@dataclass
class Wanted:
    """What the person keeps, in a test."""

    kept: dict[str, tuple[str, ...]] = field(default_factory=dict)
    most: int = 10_000

    def paths(self) -> Mapping[str, Sequence[str]]:
        return self.kept

    def most_bytes(self) -> int:
        return self.most

    def title(self, conversation: str) -> str:
        return conversation.upper()


def opened(folder: Path, claims: Wanted, **bounds: int) -> SnapshotDir:
    shelf = SnapshotDir(folder, **{"least_free": 0, **bounds})
    shelf.claims = claims
    shelf.load()
    return shelf


def save(shelf: SnapshotDir, conversation: str, path: str, size: int = 1000, kind: CacheKind = KIND) -> Snapshot:
    name = shelf.fresh()
    shelf.make_room(size, conversation, tuple(path))
    (shelf.folder / f"{name}.bin").write_bytes(os.urandom(size))
    draft = Snapshot(
        name,
        conversation,
        path[-1],
        tuple(path),
        0,
        100,
        size,
        "",
        kind.model,
        kind.shape,
        kind.build,
        0.0,
        0.0,
        "",
        PROBE,
        0.0,
    )
    try:
        return shelf.keep(draft)
    finally:
        if all(snapshot.name != name for snapshot in shelf.snapshots):
            shelf.discard(name)


@pytest.fixture
def claims() -> Wanted:
    return Wanted()


def test_others_never_push_a_kept_one_out_and_it_counts_in_no_bound_of_theirs(tmp_path: Path, claims: Wanted) -> None:
    shelf = opened(tmp_path, claims, most=3, most_bytes=3000)
    claims.kept["c0"] = tuple("rab")
    kept = save(shelf, "c0", "rab")
    for number in range(1, 9):
        save(shelf, f"c{number}", "r")
    assert [one.conversation for one in shelf.snapshots] == ["c8", "c7", "c6", "c0"]
    assert opened(tmp_path, claims, most=3).kept() == {"c0": kept}
    del claims.kept["c0"]
    assert "c0" not in {one.conversation for one in opened(tmp_path, claims, most=3).snapshots}


def test_a_state_that_follows_is_replaced_by_the_next_and_one_that_stays_is_not(tmp_path: Path, claims: Wanted) -> None:
    shelf = opened(tmp_path, claims)
    claims.kept["c1"] = tuple("ra")
    save(shelf, "c1", "ra")
    claims.kept["c1"] = tuple("rabc")
    assert shelf.kept()["c1"].path == tuple("ra"), "until the next is saved"
    save(shelf, "c1", "rabc")
    assert [one.path for one in shelf.snapshots] == [tuple("rabc")]
    claims.kept["c2"] = tuple("ra")
    for path in ("ra", "rab", "rabc", "rx", "ry", "rz"):
        save(shelf, "c2", path)
    assert shelf.kept()["c2"].path == tuple("ra")


def test_another_branch_takes_over_and_the_old_one_is_a_snapshot_like_any_other(tmp_path: Path, claims: Wanted) -> None:
    shelf = opened(tmp_path, claims, most=1)
    claims.kept["c1"] = tuple("rab")
    save(shelf, "c1", "rab")
    claims.kept["c1"] = tuple("rxy")
    assert shelf.kept() == {}
    save(shelf, "c1", "rxy")
    save(shelf, "c2", "r")
    assert {one.path for one in shelf.snapshots} == {tuple("rxy"), ("r",)}


def test_over_the_bound_nothing_is_dropped_and_it_is_said_what_to_release(tmp_path: Path, claims: Wanted) -> None:
    shelf = opened(tmp_path, claims)
    claims.most = 2500
    claims.kept.update(c1=tuple("ra"), c2=tuple("ra"))
    first, second = save(shelf, "c1", "ra"), save(shelf, "c2", "ra")
    claims.kept["c1"] = tuple("rabc")
    with pytest.raises(SnapshotError) as error:
        save(shelf, "c1", "rabc", 1501)
    assert str(error.value) == (
        "Not saved again: “C1”. Kept states may take 2.5 kB. Release “C2” (1.0 kB) or raise cache.kept_gb."
    )
    assert set(shelf.snapshots) == {first, second} and len(list(tmp_path.glob("*.bin"))) == 2
    del claims.kept["c2"]
    assert save(shelf, "c1", "rabc", 1501) == shelf.kept()["c1"]
    claims.most, claims.kept["c1"] = 0, tuple("rabcd")
    with pytest.raises(SnapshotError, match=r"may take 0 B\. Raise cache\.kept_gb\."):
        save(shelf, "c1", "rabcd")


def test_a_bound_that_was_lowered_drops_nothing(tmp_path: Path, claims: Wanted) -> None:
    shelf = opened(tmp_path, claims)
    claims.kept["c1"] = tuple("ra")
    kept = save(shelf, "c1", "ra")
    claims.most = 10
    assert opened(tmp_path, claims).kept() == {"c1": kept}


def test_of_two_models_the_one_used_last_is_kept(tmp_path: Path, claims: Wanted) -> None:
    shelf = opened(tmp_path, claims)
    claims.kept["c1"] = tuple("ra")
    save(shelf, "c1", "ra")
    other = save(shelf, "c1", "ra", kind=CacheKind("model-b", KIND.shape, "b1"))
    assert shelf.kept() == {"c1": other} and len(shelf.snapshots) == 2


ACTS = st.lists(
    st.tuples(
        st.sampled_from(["save", "grow", "branch", "keep", "release", "other window"]),
        st.integers(0, 4),
        st.integers(100, 900),
    ),
    max_size=40,
)


@given(ACTS)
def test_whatever_is_saved_what_is_kept_stays_and_all_bounds_hold(acts: list[tuple[str, int, int]]) -> None:
    claims = Wanted(most=2000)
    with TemporaryDirectory() as name:
        shelf = opened(Path(name), claims, most=2, most_bytes=1500)
        heads = [f"{number}a" for number in range(5)]
        for act, which, size in acts:
            id, before = f"c{which}", shelf.kept()
            match act:
                case "grow":
                    heads[which] += "x"
                case "branch":
                    heads[which] = heads[which][:1] + chr(ord(heads[which][1]) + 1)
                case "keep":
                    claims.kept[id] = tuple(heads[which])
                case "release":
                    claims.kept.pop(id, None)
                case "other window":
                    shelf = opened(Path(name), claims, most=2, most_bytes=1500)
            if id in claims.kept:
                claims.kept[id] = tuple(heads[which])
            if act == "save":
                try:
                    save(shelf, id, heads[which], size)
                except SnapshotError:
                    pass
            after = shelf.kept()
            for other, snapshot in before.items():
                if other in claims.kept and snapshot.path == claims.kept[other][: len(snapshot.path)]:
                    assert len(after[other].path) >= len(snapshot.path)
            # What was loose and is kept now counts in the other bound from then on: nothing is dropped for it.
            if act == "save" and id in after and after[id] not in before.values():
                assert sum(one.size for one in after.values()) <= 2000
            shelf.tidy()
            loose = [one for one in shelf.snapshots if one not in shelf.kept().values()]
            assert len(loose) <= 2 and sum(one.size for one in loose) <= 1500
