"""Snapshots in their folder: what is kept, what is refused, and what is removed."""

from __future__ import annotations

import json
import os
import re
import stat
import struct
from pathlib import Path

import pytest
from msgspec.structs import replace

from corpus import corpus
from kvchat.backends.dialect import HostClass, ServerInfo
from kvchat.backends.engine import snapshots as module
from kvchat.backends.engine.cache_kind import CacheKind, fingerprint, kind_of
from kvchat.backends.engine.snapshot_file import Snapshot
from kvchat.backends.engine.snapshots import SnapshotDir, SnapshotError
from kvchat.backends.engine.verdicts import Verdicts
from kvchat.cache.llamacpp.state_probe import StateProbe
from kvchat.text.snapshots import SnapshotProblem, snapshot_sentence
from kvchat.values import Statement, said

KIND = CacheKind("model-a", "4,096 tokens per slot, 1 slot, f16", "b1")
PROBE = StateProbe(((5, -0.1), (6, -2.123456789012345)), 99)
OLD = 10_000.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "snapshots"


@pytest.fixture
def shelf(folder: Path) -> SnapshotDir:
    return opened(folder)


def opened(folder: Path, **bounds: int) -> SnapshotDir:
    shelf = SnapshotDir(folder, **{"least_free": 0, **bounds})
    shelf.load()
    return shelf


def written(
    shelf: SnapshotDir,
    conversation: str = "c1",
    path: tuple[str, ...] = ("r", "a"),
    *,
    size: int = 1000,
    slot: int = 0,
    kind: CacheKind = KIND,
) -> Snapshot:
    """The snapshot as it is before `sealed`, its file written as a server would."""
    name = shelf.fresh()
    (shelf.folder / f"{name}.bin").write_bytes(os.urandom(size))
    return Snapshot(
        name,
        conversation,
        path[-1] if path else "",
        path,
        slot,
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


def kept(shelf: SnapshotDir, conversation: str = "c1", path: tuple[str, ...] = ("r", "a"), **more: object) -> Snapshot:
    return shelf.keep(shelf.sealed(written(shelf, conversation, path, **more)))  # type: ignore[arg-type]


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def of(*snapshots: Snapshot) -> set[str]:
    return {name for snapshot in snapshots for name in (snapshot.file, snapshot.card)}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# -- keeping -----------------------------------------------------------------------------------------------------------


def test_a_kept_snapshot_is_known_after_a_restart_and_passes_the_check(shelf: SnapshotDir, folder: Path) -> None:
    snapshot = kept(shelf)
    again = opened(folder)
    assert again.snapshots == (snapshot,)
    assert again.check(snapshot, KIND) is None
    assert files(folder) == of(snapshot)


def test_folder_and_files_are_for_the_person_alone(folder: Path) -> None:
    folder.mkdir(mode=0o755)
    umask = os.umask(0)
    try:
        snapshot = kept(opened(folder))
    finally:
        os.umask(umask)
    assert mode(folder) == 0o700
    assert {mode(folder / name) for name in of(snapshot)} == {0o600}


def test_a_longer_snapshot_replaces_the_one_it_goes_on_from(shelf: SnapshotDir, folder: Path) -> None:
    kept(shelf, path=("r", "a"))
    new = kept(shelf, path=("r", "a", "b", "c"))
    assert files(folder) == of(new)


def test_another_branch_is_kept_beside_and_the_oldest_of_many_goes(shelf: SnapshotDir) -> None:
    branches = [kept(shelf, path=("r", f"b{index}")) for index in range(5)]
    assert [s.name for s in shelf.snapshots] == [s.name for s in reversed(branches[-module.MOST_BRANCHES :])]


def test_without_a_path_a_conversation_has_one_snapshot(shelf: SnapshotDir) -> None:
    kept(shelf, path=("r", "a"))
    other = kept(shelf, "c2", path=("r", "a"))
    new = shelf.keep(replace(written(shelf), digest="x", path=()))
    assert set(shelf.snapshots) == {new, other}


def test_the_snapshot_of_another_model_stays(shelf: SnapshotDir) -> None:
    other, own = kept(shelf, kind=replace(KIND, model="model-b")), kept(shelf)
    assert set(shelf.snapshots) == {other, own}


def test_an_unnamed_snapshot_replaces_that_of_its_slot(shelf: SnapshotDir) -> None:
    kept(shelf, "", (), slot=0)
    first, second = kept(shelf, "", (), slot=0), kept(shelf, "", (), slot=1)
    assert set(shelf.snapshots) == {first, second}


def test_a_file_of_another_length_than_the_server_said_is_not_kept(shelf: SnapshotDir) -> None:
    draft = written(shelf)
    with pytest.raises(SnapshotError, match=r"1,000 of 1,001 bytes"):
        shelf.sealed(replace(draft, size=1001))
    with pytest.raises(SnapshotError, match=r"0 of 1,000 bytes"):
        shelf.sealed(replace(draft, name=shelf.fresh()))
    assert shelf.snapshots == ()


# -- bounds ------------------------------------------------------------------------------------------------------------


def test_the_number_is_bounded_oldest_first(folder: Path) -> None:
    shelf = opened(folder, most=3)
    made = [kept(shelf, f"c{index}") for index in range(5)]
    assert files(folder) == of(*made[2:])


def test_the_bytes_are_bounded_oldest_first(folder: Path) -> None:
    shelf = opened(folder, most_bytes=2500)
    made = [kept(shelf, f"c{index}") for index in range(4)]
    assert files(folder) == of(*made[2:])
    with pytest.raises(SnapshotError, match="may take"):
        shelf.make_room(2501)
    with pytest.raises(SnapshotError, match="too large"):
        kept(shelf, "huge", size=2501)


def test_what_was_used_again_is_not_the_oldest(folder: Path) -> None:
    shelf = opened(folder, most=2)
    first, second = kept(shelf, "c1"), kept(shelf, "c2")
    used = shelf.touch(first, 0)
    third = kept(shelf, "c3")
    assert shelf.snapshots == (third, used)
    assert shelf.touch(second, 0) == second and second not in shelf.snapshots
    assert opened(folder).snapshots == (third, used)


def test_old_snapshots_make_room_when_the_disk_gets_full(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = opened(folder, least_free=1000)
    made = [kept(shelf, f"c{index}") for index in range(3)]
    disk = 3500

    def usage(_folder: Path) -> object:
        used = sum(path.stat().st_size for path in folder.glob("*.bin"))
        return type("Usage", (), {"free": disk - used})

    monkeypatch.setattr(module.shutil, "disk_usage", usage)
    shelf.make_room(1000)
    assert shelf.snapshots == (made[2],)


def test_a_disk_full_of_other_things_costs_no_snapshot(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = opened(folder, least_free=1 << 20)
    snapshot = kept(shelf)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _folder: type("Usage", (), {"free": 5}))
    with pytest.raises(SnapshotError, match="No snapshot is saved"):
        shelf.make_room(10)
    assert shelf.snapshots == (snapshot,)


# -- refusing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, 499, 999])
def test_a_single_flipped_bit_is_refused(shelf: SnapshotDir, folder: Path, at: int) -> None:
    snapshot = kept(shelf)
    data = bytearray((folder / snapshot.file).read_bytes())
    data[at] ^= 4
    (folder / snapshot.file).write_bytes(data)
    assert "refused: it is damaged" in snapshot_sentence(shelf.check(snapshot, KIND))
    assert shelf.snapshots == () and files(folder) == set()


def test_a_truncated_file_is_refused(shelf: SnapshotDir, folder: Path) -> None:
    snapshot = kept(shelf)
    os.truncate(folder / snapshot.file, 999)
    assert "cut short or has grown (999 of 1,000 bytes)" in snapshot_sentence(shelf.check(snapshot, KIND))
    assert files(folder) == set()


def test_a_missing_file_is_refused(shelf: SnapshotDir, folder: Path) -> None:
    snapshot = kept(shelf)
    (folder / snapshot.file).unlink()
    assert "no longer there" in snapshot_sentence(shelf.check(snapshot, KIND))
    assert files(folder) == set()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model": "model-b"}, "another model"),
        ({"shape": "8 tokens"}, "another shape"),
        ({"build": "b2"}, "another build"),
    ],
)
def test_a_snapshot_of_another_server_is_refused_and_stays(
    shelf: SnapshotDir, change: dict[str, str], said: str
) -> None:
    snapshot = kept(shelf)
    assert said in snapshot_sentence(shelf.check(snapshot, replace(KIND, **change)))
    assert shelf.check(snapshot, KIND) is None


# -- a killed process, and garbage -------------------------------------------------------------------------------------


def test_killed_between_file_and_card_there_is_no_snapshot_and_the_old_one_stays(folder: Path) -> None:
    shelf = opened(folder)
    old = kept(shelf)
    leftover = written(shelf)
    assert opened(folder).snapshots == (old,)
    os.utime(folder / leftover.file, (OLD, OLD))
    assert opened(folder).snapshots == (old,)
    assert files(folder) == of(old)


def test_a_file_that_is_being_written_is_left_alone(folder: Path) -> None:
    draft = written(opened(folder))
    shelf = opened(folder)
    assert shelf.keep(draft).name == draft.name


def test_killed_between_the_new_card_and_the_old_files_both_are_whole(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = opened(folder)
    old = kept(shelf, path=("r", "a"))
    with monkeypatch.context() as patch:
        patch.setattr(shelf, "_remove", lambda _snapshot: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            kept(shelf, path=("r", "a", "b"))
    again = opened(folder)
    assert len(again.snapshots) == 2 and old in again.snapshots
    assert [again.check(snapshot, KIND) for snapshot in again.snapshots] == [None, None]


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"name": 1}',
    ],
)
def test_a_card_of_garbage_is_no_snapshot_and_goes(folder: Path, garbage: bytes) -> None:
    shelf = opened(folder)
    snapshot = kept(shelf)
    (folder / snapshot.card).write_bytes(garbage)
    assert opened(folder).snapshots == ()
    assert not (folder / snapshot.card).exists()


@pytest.mark.parametrize(
    "change",
    [
        {"name": "../../secret"},
        {"name": "kvchat-0000000000000000"},
        {"size": "1000"},
        {"size": -1},
        {"tokens": True},
        {"path": [1]},
        {"path": None},
        {"used": float("nan")},
        {"saved": None},
        {"conversation": None},
        {"checksum": 1.5},
        {"checksum": 7},
        {"spread": -float("inf")},
        {"probe": None},
        {"probe": {"tops": [], "cached": 1, "extended": False}},
        {"probe": {"tops": [[1, float("nan")]], "cached": 1, "extended": False}},
    ],
)
def test_a_card_with_a_wrong_value_is_no_snapshot(folder: Path, change: dict[str, object]) -> None:
    snapshot = kept(opened(folder))
    card = json.loads((folder / snapshot.card).read_bytes())
    (folder / snapshot.card).write_text(json.dumps(card | change))
    assert opened(folder).snapshots == ()


def test_the_files_of_others_are_not_touched(folder: Path) -> None:
    folder.mkdir()
    for name in ("notes.txt", "a.bin", "kvchat-short.bin", "kvchat.json"):
        (folder / name).write_text("mine")
        os.utime(folder / name, (OLD, OLD))
    opened(folder)
    assert files(folder) == {"notes.txt", "a.bin", "kvchat-short.bin", "kvchat.json"}


# -- removing ----------------------------------------------------------------------------------------------------------


def test_the_snapshots_of_a_conversation_go_with_it_also_those_of_another_process(folder: Path) -> None:
    shelf, other = opened(folder), opened(folder)
    kept(shelf, "gone")
    kept(other, "gone", path=("r", "x"), kind=replace(KIND, model="model-b"))
    kept(other, "", ())
    stays = kept(other, "stays")
    shelf.remove({"gone"})
    assert shelf.snapshots == (stays,)
    assert files(folder) == of(stays)


def test_removing_makes_no_folder(folder: Path) -> None:
    shelf = SnapshotDir(folder)
    shelf.remove({"c1"})
    shelf.tidy()
    assert not folder.exists()


# -- what is in it -----------------------------------------------------------------------------------------------------


def test_a_path_shares_its_first_messages_with_a_snapshot(shelf: SnapshotDir) -> None:
    snapshot = kept(shelf, path=("r", "a", "b"))
    paths = (["r", "a", "b", "c"], ["r", "a", "x"], ["r"], ["x"], [])
    assert [snapshot.shared(path) for path in paths] == [3, 2, 1, 0, 0]
    alone = replace(snapshot, path=())
    assert [alone.shared(path) for path in (["r", "a", "b", "c"], ["r", "a"])] == [3, 0]


def test_the_tokens_are_read_from_a_file_of_the_known_form_only(shelf: SnapshotDir, folder: Path) -> None:
    snapshot = replace(kept(shelf), tokens=3)
    good = struct.pack("<IIIiii3i", 0x67677371, 4, 7, -1, 1, 3, 5, 6, 7) + b"\0" * 50
    (folder / snapshot.file).write_bytes(good)
    ids = shelf.token_ids(snapshot)
    assert ids is not None and list(ids) == [5, 6, 7]
    for bad in (b"", good[:30], b"x" + good[1:], good[:4] + b"\5" + good[5:]):
        (folder / snapshot.file).write_bytes(bad)
        assert shelf.token_ids(snapshot) is None


# -- which server ------------------------------------------------------------------------------------------------------


def test_a_model_is_known_by_its_content(tmp_path: Path) -> None:
    data = bytearray(os.urandom(5 << 20))
    first, moved, other = (tmp_path / name for name in ("a.gguf", "b.gguf", "c.gguf"))
    first.write_bytes(data)
    moved.write_bytes(data)
    data[-1] ^= 1
    other.write_bytes(data)
    assert fingerprint(first) == fingerprint(moved) != fingerprint(other)


def test_context_slots_threads_and_build_make_another_kind(tmp_path: Path) -> None:
    model = tmp_path / "m.gguf"
    model.write_bytes(b"GGUF")
    info = ServerInfo("llama.cpp", "http://127.0.0.1:1", HostClass.LOOPBACK, context_size=4096, slots=1, build="b1")
    kind = kind_of(model, info, 1)
    assert kind == kind_of(model, info, 1)
    assert kind.difference(kind_of(model, info, 2))
    for change in ({"context_size": 8192}, {"slots": 2}, {"build": "b2"}):
        assert kind.difference(kind_of(model, replace(info, **change), 1))  # type: ignore[arg-type]


NO_USE = said(SnapshotProblem.UNUSED, given_up=True)


# -- verdicts ----------------------------------------------------------------------------------------------------------


def test_what_was_given_up_stays_given_up(tmp_path: Path) -> None:
    Verdicts(tmp_path).put("k", NO_USE)
    assert Verdicts(tmp_path).get("k") == NO_USE
    assert Verdicts(tmp_path).get("other") is None


@corpus("problem", SnapshotProblem)
def test_every_problem_is_a_sentence(problem: SnapshotProblem) -> None:
    given = said(
        problem,
        reason="r",
        seconds=10.0,
        needed=3 << 30,
        most=1 << 30,
        least=1 << 20,
        size=1,
        whole=2,
        slot=3,
        folder="/f",
        shape="a",
        now="b",
        name="m",
        sentence="It is full.",
        title="t",
        room=4_000_000_000,
        release="r",
        frees=5,
        names=8,
    )
    assert re.fullmatch(r"[A-Z][^\n{}]*\.", snapshot_sentence(given))
    assert snapshot_sentence(Statement("of_a_later_version")) == ""


@pytest.mark.parametrize("garbage", [b"", b"[1]", b'{"k": 5}', b'{"k": [1]}', b"\xff"])
def test_verdicts_of_garbage_are_none(tmp_path: Path, garbage: bytes) -> None:
    (tmp_path / "verdicts.json").write_bytes(garbage)
    assert Verdicts(tmp_path).get("k") is None
    Verdicts(tmp_path).put("k", NO_USE)
    assert Verdicts(tmp_path).get("k") == NO_USE
