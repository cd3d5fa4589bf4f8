"""Indexing a collection: what is in the index afterwards, what is done again, and what the report says."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from indexing_kit import OPTIONS, collection, indexed, made, reasons, stopping_after, texts

from book_samples import epub
from kvchat.documents import loading
from kvchat.documents.collection import IndexingOptions, IndexingProgress
from kvchat.documents.indexing import index_run
from kvchat.documents.indexing.file_versions import Stamp, stamp_of
from kvchat.documents.indexing.index_lock import alone
from kvchat.documents.indexing.index_run import ELSEWHERE, FORGOTTEN, index_collection, is_stale, status_of
from kvchat.documents.library import Library
from kvchat.documents.reading.sandbox import Readers
from kvchat.index.index import Index
from kvchat.store import Store

FILES = {
    "a.md": "# Start\n\nThe quick brown fox.\n",
    "sub/b.txt": "Jumps over the lazy dog.\n",
    "c.py": "def answer():\n    return 42\n",
}


@pytest.fixture
def index() -> Index:
    return Index.open(None)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return made(tmp_path / "notes", FILES)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that were opened to be indexed."""
    names: list[str] = []
    real = os.open

    def noted(path: bytes | str, *more: int) -> int:
        names.append(Path(os.fsdecode(path)).name)
        return real(path, *more)

    monkeypatch.setattr(loading.os, "open", noted)
    return names


@pytest.fixture
def told_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file is told, however short ago another one was."""
    monkeypatch.setattr(index_run, "PROGRESS_S", 0.0)


def fails(monkeypatch: pytest.MonkeyPatch, name: str, error: Callable[[], OSError]) -> None:
    """From now on a file of this name cannot be opened."""
    real = os.open

    def opening(path: bytes | str, *more: int) -> int:
        if Path(os.fsdecode(path)).name == name:
            raise error()
        return real(path, *more)

    monkeypatch.setattr(loading.os, "open", opening)


def test_the_whole_text_of_all_files_is_in_the_index(index: Index, root: Path) -> None:
    report = indexed(index, root)
    assert (report.added, report.changed, report.unchanged, report.removed, report.trouble) == (3, 0, 0, 0, "")
    assert texts(index, root) == {path: text.strip() for path, text in FILES.items()}
    assert report.bytes == sum(map(len, FILES.values()))
    assert report.chunks == sum(len(index.get(doc)) for doc in index.docs()) == 3


def test_a_passage_is_found_under_the_name_of_its_file(index: Index, root: Path) -> None:
    indexed(index, root)
    assert [hit.doc for hit in index.search("lazy dogs", scope="docs/notes/")] == ["docs/notes/sub/b.txt"]


def test_the_pages_of_an_e_book_are_found_and_a_broken_one_is_named(index: Index, root: Path) -> None:
    made(
        root,
        {"keeper.epub": epub("<h1>Dusk</h1><p>The keeper lights the lamp.</p>"), "torn.epub": epub("<p>x</p>")[:-9]},
    )
    assert reasons(indexed(index, root).skipped) == {"torn.epub": "is a broken e-book"}
    assert texts(index, root)["keeper.epub"] == "Dusk\n\nThe keeper lights the lamp."


def test_a_second_run_opens_no_file(index: Index, root: Path, opened: list[str]) -> None:
    indexed(index, root)
    assert sorted(opened) == ["a.md", "b.txt", "c.py"]
    opened.clear()
    report = indexed(index, root)
    assert opened == []
    assert (report.added, report.changed, report.unchanged, report.chunks) == (0, 0, 3, 3)


def test_what_changed_is_read_and_what_is_gone_is_taken_out(index: Index, root: Path, opened: list[str]) -> None:
    indexed(index, root)
    opened.clear()
    (root / "a.md").write_text("# Start\n\nThe slow brown fox, changed.\n")
    (root / "new.md").write_text("Something new.")
    (root / "sub" / "b.txt").unlink()
    report = indexed(index, root)
    assert (report.added, report.changed, report.unchanged, report.removed) == (1, 1, 1, 1)
    assert sorted(opened) == ["a.md", "new.md"]
    fresh = Index.open(None)
    assert indexed(fresh, root).chunks == report.chunks
    assert index.digest() == fresh.digest()


def test_a_file_that_was_only_touched_is_not_read_again(
    index: Index, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    indexed(index, root)
    os.utime(root / "a.md", (1, 1))
    monkeypatch.setattr(Readers, "read", lambda *_: pytest.fail("was read"))
    report = indexed(index, root)
    assert (report.changed, report.unchanged, report.chunks) == (0, 3, 3)
    assert texts(index, root)["a.md"] == FILES["a.md"].strip()
    assert index.search("fox", until=100.0) and not is_stale(index, collection(root), OPTIONS)


def test_files_of_an_older_reader_are_read_again(index: Index, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    indexed(index, root)
    for doc, text in index.docs().items():
        stamp = stamp_of(text)
        assert stamp
        index.replace(doc, [], str(Stamp(stamp.size, stamp.mtime_ns, 0, stamp.sha256, reader=0)))
    assert is_stale(index, collection(root), OPTIONS)
    indexed(index, root)
    assert texts(index, root) == {path: text.strip() for path, text in FILES.items()}


def test_reading_anew_reads_all_and_gives_what_a_fresh_index_has(index: Index, root: Path, opened: list[str]) -> None:
    indexed(index, root)
    index.replace("docs/notes/a.md", [], index.docs()["docs/notes/a.md"])
    opened.clear()
    found_meanwhile: list[int] = []
    report = indexed(
        index, root, rebuild=True, on_progress=lambda _: found_meanwhile.append(len(index.search("lazy dog")))
    )
    assert sorted(opened) == ["a.md", "b.txt", "c.py"]
    assert report.chunks == 3 and set(found_meanwhile) == {1}
    fresh = Index.open(None)
    indexed(fresh, root)
    assert index.digest() == fresh.digest()


def test_collections_do_not_touch_each_other(index: Index, root: Path) -> None:
    index_collection(index, collection(root, "one"), OPTIONS)
    index_collection(index, collection(root / "sub", "two"), OPTIONS)
    shutil.rmtree(root / "sub")
    index_collection(index, collection(root, "one"), OPTIONS)
    assert list(index.docs()) == ["docs/one/a.md", "docs/one/c.py", "docs/two/b.txt"]


def test_a_single_file_is_a_collection(index: Index, root: Path) -> None:
    report = indexed(index, root / "a.md")
    assert report.added == 1 and list(index.docs()) == ["docs/notes/a.md"]


# -- roots that are not there


def test_a_missing_root_keeps_what_is_indexed(index: Index, root: Path) -> None:
    indexed(index, root)
    before = index.digest()
    root.rename(root.with_name("elsewhere"))
    report = indexed(index, root)
    assert report.trouble == f"{root} is not there. What is in the index of it is kept."
    assert (report.removed, report.chunks, index.digest()) == (0, 3, before)
    assert not is_stale(index, collection(root), OPTIONS)
    assert status_of(index, collection(root)).trouble == report.trouble


def test_an_empty_root_of_a_full_collection_is_a_drive_that_is_not_connected(index: Index, root: Path) -> None:
    indexed(index, root)
    shutil.rmtree(root)
    root.mkdir()
    report = indexed(index, root)
    assert "is empty" in report.trouble and "Connect its drive" in report.trouble
    assert len(index.docs()) == 3


@pytest.mark.usefixtures("told_all")
def test_a_root_that_goes_away_in_the_middle_keeps_what_is_indexed(index: Index, root: Path) -> None:
    indexed(index, root)
    (root / "a.md").write_text("changed, but then the drive was pulled out")

    def told(progress: IndexingProgress) -> None:
        if progress.path and root.exists():
            root.rename(root.with_name("pulled"))

    report = indexed(index, root, on_progress=told)
    assert report.trouble.endswith("is not there. What is in the index of it is kept.")
    assert len(index.docs()) == 3 and report.skipped == ()


# -- files that cannot be indexed


def test_each_file_that_cannot_be_indexed_has_one_line_and_the_rest_is_indexed(
    index: Index, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(
        root,
        {
            "broken.pdf": b"%PDF-1.7\n1 0 obj\n<< /Type /Catalog /Pages 9 0 R >>\nendobj\ntrailer << /Root 1 0 R",
            "stumbles.txt": "x",
            "closed.md": "secret",
            "gone.md": "soon",
            "x.bin": b"\0\1\2" * 99,
            "huge.txt": "",
        },
    )
    os.truncate(root / "huge.txt", 2 << 30)
    os.mkfifo(root / "pipe")
    (root / "loop").symlink_to(root)
    (root / os.fsdecode(b"n\xe4me.md")).write_text("x")
    fails(monkeypatch, "closed.md", lambda: PermissionError(13, "Permission denied"))
    fails(monkeypatch, "gone.md", lambda: FileNotFoundError(2, "No such file"))
    read = Readers.read

    def reading(self: Readers, name: str, data: bytes) -> object:
        if name == "stumbles.txt":
            raise RecursionError
        return read(self, name, data)

    monkeypatch.setattr(Readers, "read", reading)
    report = indexed(index, root, IndexingOptions())
    found = reasons(report.skipped)
    pdf, binary = found.pop("broken.pdf"), found.pop("x.bin")
    assert found == {
        "stumbles.txt": "could not be read (RecursionError)",
        "gone.md": "vanished before it was read",
        "closed.md": "cannot be read: permission denied",
        "huge.txt": "is larger than 20 MB",
        "pipe": "is a named pipe",
        "loop": "is a symbolic link",
        "n\\xe4me.md": "its name is not UTF-8",
    }
    assert pdf and binary and "\n" not in pdf + binary
    assert report.added == 3 and texts(index, root).keys() == FILES.keys()
    assert reasons(status_of(index, collection(root)).skipped).items() == (
        reasons(report.skipped).items() - {("gone.md", "vanished before it was read")}
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to root")
def test_a_file_closed_by_its_permissions_is_named(index: Index, root: Path) -> None:
    (root / "a.md").chmod(0)
    assert reasons(indexed(index, root).skipped) == {"a.md": "cannot be read: permission denied"}


def encrypted_pdf() -> bytes:
    from io import BytesIO

    pypdf = pytest.importorskip("pypdf")
    writer, out = pypdf.PdfWriter(), BytesIO()
    writer.add_blank_page(100, 100)
    writer.encrypt("secret", algorithm="RC4-128")
    writer.write(out)
    return out.getvalue()


def test_an_encrypted_pdf_is_said_to_be_that_and_not_tried_again(index: Index, root: Path, opened: list[str]) -> None:
    made(root, {"locked.pdf": encrypted_pdf()})
    report = indexed(index, root)
    assert "encrypted" in reasons(report.skipped)["locked.pdf"]
    opened.clear()
    assert indexed(index, root).skipped == report.skipped
    assert opened == []


def test_a_file_that_becomes_unreadable_is_taken_out_and_comes_back(
    index: Index, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    indexed(index, root)
    (root / "a.md").write_text("changed, and closed")
    with monkeypatch.context() as closed:
        fails(closed, "a.md", lambda: PermissionError(13, "Permission denied"))
        report = indexed(index, root)
        assert reasons(report.skipped) == {"a.md": "cannot be read: permission denied"}
        assert "a.md" not in texts(index, root) and not is_stale(index, collection(root), OPTIONS)
    assert is_stale(index, collection(root), OPTIONS)
    assert indexed(index, root).added == 1
    assert texts(index, root)["a.md"] == "changed, and closed"


def test_a_file_that_never_stands_still_is_named(index: Index, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, count = os.fstat, 0

    def fstat(handle: int) -> os.stat_result:
        nonlocal count
        count += 1
        with (root / "a.md").open("a") as file:
            file.write("more")
        return real(handle)

    monkeypatch.setattr(loading.os, "fstat", fstat)
    report = indexed(index, root / "a.md")
    assert reasons(report.skipped) == {"a.md": "changed while it was read"} and count == 4


@pytest.mark.usefixtures("told_all")
def test_a_file_that_became_a_pipe_since_it_was_found_is_not_waited_for(index: Index, root: Path) -> None:
    def told(progress: IndexingProgress) -> None:
        if progress.path == "a.md":
            (root / "a.md").unlink()
            os.mkfifo(root / "a.md")

    assert reasons(indexed(index, root, on_progress=told).skipped) == {"a.md": "is a named pipe"}


@pytest.mark.usefixtures("told_all")
def test_a_file_that_became_a_link_since_it_was_found_is_not_followed(index: Index, root: Path) -> None:
    def told(progress: IndexingProgress) -> None:
        if progress.path == "a.md":
            (root / "a.md").unlink()
            (root / "a.md").symlink_to("/etc/hostname")

    assert reasons(indexed(index, root, on_progress=told).skipped) == {"a.md": "is a symbolic link"}
    assert "a.md" not in texts(index, root)


def test_files_that_need_an_extra_are_read_once_it_is_there(
    index: Index, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kvchat.documents.indexing import file_versions
    from kvchat.documents.reading.pdf import MISSING

    stamp = Stamp(5, 7, 0, "ab", MISSING)
    monkeypatch.setattr(file_versions, "find_spec", lambda name: None)
    assert stamp.holds("ab")
    monkeypatch.setattr(file_versions, "find_spec", lambda name: object())
    assert not stamp.holds("ab")


# -- staleness, stopping, sharing


@pytest.mark.parametrize("what", ["add", "change", "remove", "link", "ignore"])
def test_a_collection_is_stale_after_any_change_and_no_more_after_a_run(index: Index, root: Path, what: str) -> None:
    assert is_stale(index, collection(root), OPTIONS)
    (root / "old.png").write_bytes(b"")
    indexed(index, root)
    assert not is_stale(index, collection(root), OPTIONS)
    match what:
        case "add":
            (root / "n.md").write_text("x")
        case "change":
            (root / "a.md").write_text("other")
        case "remove":
            (root / "a.md").unlink()
        case "link":
            (root / "l").symlink_to("a.md")
        case "ignore":
            (root / ".gitignore").write_text("a.md")
    assert is_stale(index, collection(root), OPTIONS)
    indexed(index, root)
    assert not is_stale(index, collection(root), OPTIONS)


@pytest.mark.parametrize("count", [1, 3, 4, 5, 6])
def test_a_stopped_run_keeps_what_it_did_and_is_gone_on_with(
    index: Index, root: Path, count: int, opened: list[str]
) -> None:
    report = indexed(index, root, stopped=stopping_after(count))
    assert report.trouble == "It was stopped; what is done is kept."
    assert len(index.docs()) == report.added == len(opened)
    indexed(index, root)
    assert sorted(opened) == ["a.md", "b.txt", "c.py"]


def test_progress_counts_up_to_all_files_and_bytes(index: Index, root: Path) -> None:
    told: list[IndexingProgress] = []
    report = indexed(index, root, on_progress=told.append)
    assert told[0].counting and not told[-1].counting
    last = told[-1]
    assert (last.files, last.all_files, last.bytes, last.all_bytes) == (3, 3, report.bytes, report.bytes)
    assert last.share == 1.0 and last.chunks == report.chunks and last.bytes_skipped == 0
    told.clear()
    indexed(index, root, on_progress=told.append)
    assert told[-1].bytes_skipped == report.bytes


def test_a_second_kvchat_does_not_index_the_same_collection(tmp_path: Path, root: Path) -> None:
    index = Index.open(tmp_path / "data" / "index.db")
    with alone(index.path, "notes"):
        report = indexed(index, root)
        assert report.trouble == ELSEWHERE and not index.docs()
        assert index_collection(index, collection(root, "other"), OPTIONS).trouble == ""
    assert indexed(index, root).added == 3
    index.close()


@pytest.mark.parametrize("step", range(1, 14))
def test_what_is_indexed_of_a_forgotten_folder_does_not_come_into_a_new_one_of_its_name(
    tmp_path: Path, step: int
) -> None:
    library = Library.open(Store.open(tmp_path / "data"), tmp_path / "data" / "index.db")
    old = made(tmp_path / "old", {f"{n}.md": f"secret quokka {n}" for n in range(6)})
    new = made(tmp_path / "new", {"z.md": "platypus"})
    first = library.add(str(old), "notes")
    steps = 0

    def stopped() -> bool:
        """In the middle of it, the person forgets the collection elsewhere and gives its name to another folder."""
        nonlocal steps
        steps += 1
        if steps == step:
            library.remove("notes")
            library.forget(library.orphans())
            assert indexed(library.index, new).added == 1
        return False

    with closing(library), closing(Index.open(library.index.path)) as elsewhere:
        report = index_collection(elsewhere, first, OPTIONS, stopped=stopped)
        if steps < step:
            assert not report.trouble
            return
        assert report.trouble == FORGOTTEN
        assert list(library.index.docs("docs/notes/")) == ["docs/notes/z.md"]


@pytest.mark.usefixtures("told_all")
def test_an_index_that_is_deleted_in_the_middle_is_filled_all_the_same(tmp_path: Path, root: Path) -> None:
    path = tmp_path / "data" / "index.db"
    index = Index.open(path)
    indexed(index, root)
    made(root, {f"n{i}.md": f"number {i}" for i in range(5)})
    at = []

    def told(progress: IndexingProgress) -> None:
        if progress.path and not at:
            path.unlink()
            at.append(progress.path)

    report = indexed(index, root, on_progress=told)
    assert report.trouble == "" and len(index.docs()) == 8
    index.close()


def test_a_status_is_told_from_the_index_alone(index: Index, root: Path) -> None:
    (root / "l").symlink_to("a.md")
    report = indexed(index, root)
    shutil.rmtree(root)
    status = status_of(index, collection(root))
    assert (status.files, status.chunks, status.bytes) == (3, report.chunks, report.bytes)
    assert status.skipped == report.skipped
    assert status.trouble == f"{root} is not there. What is in the index of it is kept."


@pytest.mark.parametrize("text", ["", "x", "1 2", "1 2 3 4", "a b c d e", "memory"])
def test_a_text_that_is_no_stamp_is_the_stamp_of_no_file(text: str) -> None:
    assert stamp_of(text) is None


def test_stamps_are_read_as_they_were_written() -> None:
    for stamp in (Stamp(), Stamp(5, 10**18, 3, "ab" * 32), Stamp(1, 2, reason="cannot be read: no such - thing")):
        assert stamp_of(str(stamp)) == stamp


@pytest.mark.slow
def test_a_folder_of_many_files_is_indexed(index: Index, tmp_path: Path) -> None:
    root = made(tmp_path / "many", {f"{i // 100}/{i}.md": f"text {i}" for i in range(3000)})
    assert indexed(index, root).added == 3000
    shutil.rmtree(root / "7")
    assert indexed(index, root).removed == 100
