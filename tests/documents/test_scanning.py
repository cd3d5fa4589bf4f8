"""Which files of a folder are found, and what is said of the others."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
from pathlib import Path

import pytest
from indexing_kit import OPTIONS, made, paths, skipped

from kvchat.documents.collection import IndexingOptions
from kvchat.documents.errors import DocumentError
from kvchat.documents.scanning import is_left_out, scan


def test_files_are_found_in_the_order_of_their_names(tmp_path: Path) -> None:
    root = made(tmp_path / "r", {"b.md": "", "a/z.md": "", "a/b/c.md": "", "ä.txt": "", "C.md": "", "a.md": ""})
    assert paths(root) == ["C.md", "a.md", "b.md", "ä.txt", "a/z.md", "a/b/c.md"]


def test_a_single_file_is_found_by_its_name(tmp_path: Path) -> None:
    root = made(tmp_path, {"notes/plan.md": "x"}) / "notes/plan.md"
    assert paths(root) == ["plan.md"]


def test_a_root_that_is_a_link_is_followed(tmp_path: Path) -> None:
    made(tmp_path / "real", {"a.md": ""})
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert paths(tmp_path / "link") == ["a.md"]


@pytest.mark.parametrize("what", ["missing", "pipe"])
def test_a_root_that_cannot_be_gone_through_is_said_in_a_sentence(tmp_path: Path, what: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DocumentError, match=r"(is not there|is a named pipe)\.$"):
        list(scan(tmp_path / what, OPTIONS))


def test_links_are_never_followed(tmp_path: Path) -> None:
    root = made(tmp_path / "r", {"a.md": "", "sub/b.md": ""})
    (root / "loop").symlink_to(root)
    (root / "sub" / "up").symlink_to("..")
    (root / "copy.md").symlink_to("a.md")
    (root / "dangling.md").symlink_to("nowhere")
    assert paths(root) == ["a.md", "sub/b.md"]
    assert skipped(root) == dict.fromkeys(["loop", "sub/up", "copy.md", "dangling.md"], "is a symbolic link")


def test_pipes_sockets_and_devices_are_named_and_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = made(tmp_path / "r", {"a.md": ""})
    os.mkfifo(root / "pipe.md")
    monkeypatch.chdir(root)
    with socket.socket(socket.AF_UNIX) as one:
        one.bind("socket.md")
        assert skipped(root) == {"pipe.md": "is a named pipe", "socket.md": "is a socket"}


def test_a_sparse_file_of_two_gigabytes_is_too_large(tmp_path: Path) -> None:
    root = made(tmp_path / "r", {"a.md": "", "huge.txt": ""})
    os.truncate(root / "huge.txt", 2 << 30)
    assert paths(root, IndexingOptions()) == ["a.md"]
    assert skipped(root, IndexingOptions()) == {"huge.txt": "is larger than 20 MB"}


def test_a_file_of_just_the_largest_size_is_found(tmp_path: Path) -> None:
    root = made(tmp_path / "r", {"a.md": "x" * 100, "b.md": "x" * 101})
    assert paths(root, IndexingOptions(100)) == ["a.md"]


def test_names_that_are_not_utf8_are_said_in_ascii(tmp_path: Path) -> None:
    root = made(tmp_path / "r", {"a.md": ""})
    (root / os.fsdecode(b"caf\xe9.txt")).write_text("x")
    (root / os.fsdecode(b"\xff")).mkdir()
    (root / os.fsdecode(b"\xff") / "inside.md").write_text("x")
    assert paths(root) == ["a.md"]
    assert skipped(root) == {"caf\\xe9.txt": "its name is not UTF-8", "\\xff/": "its name is not UTF-8"}


def test_a_single_file_whose_name_is_not_utf8_is_named(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9.txt")
    path.write_text("x")
    (tmp_path / "link.txt").symlink_to(path)
    assert skipped(tmp_path / "link.txt") == {"caf\\xe9.txt": "its name is not UTF-8"}


def test_a_name_that_looks_like_one_that_is_not_utf8_does_not_hide_it_twice(tmp_path: Path) -> None:
    root = made(tmp_path / "r", {"caf\\xe9.txt": "x"})
    (root / os.fsdecode(b"caf\xe9.txt")).write_text("x")
    assert [item.path for item in scan(root, OPTIONS)] == ["caf\\xe9.txt"]


def test_a_folder_that_cannot_be_read_is_named_and_the_rest_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = made(tmp_path / "r", {"a.md": "", "closed/b.md": "", "open/c.md": ""})
    scandir = os.scandir

    def refusing(path: bytes | str | Path) -> object:
        if os.fsencode(path).endswith(b"/closed"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    assert paths(root) == ["a.md", "open/c.md"]
    assert skipped(root) == {"closed/": "cannot be read: permission denied"}


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to root")
def test_a_folder_closed_by_its_permissions_is_named(tmp_path: Path) -> None:
    root = made(tmp_path / "r", {"a.md": "", "closed/b.md": ""})
    (root / "closed").chmod(0)
    try:
        assert skipped(root) == {"closed/": "cannot be read: permission denied"}
    finally:
        (root / "closed").chmod(stat.S_IRWXU)


def test_a_folder_mounted_twice_is_gone_into_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = made(tmp_path / "r", {"a/x.md": "", "b/x.md": ""})
    real = os.scandir

    class Entry:
        """One whose folder is the same one as `a`."""

        def __init__(self, entry: os.DirEntry[bytes]) -> None:
            self.name = entry.name
            self._entry = entry

        def stat(self, *, follow_symlinks: bool) -> os.stat_result:
            return (root / "a").stat() if self.name == b"b" else self._entry.stat(follow_symlinks=follow_symlinks)

    class Entries(list[Entry]):
        def __enter__(self) -> Entries:
            return self

        def __exit__(self, *_: object) -> None:
            return None

    def scandir(path: bytes | Path) -> Entries:
        with real(os.fsencode(path)) as entries:
            return Entries(map(Entry, entries))

    monkeypatch.setattr(os, "scandir", scandir)
    assert paths(root) == ["a/x.md"]
    assert skipped(root) == {"b/": "is a folder that is there twice"}


def test_hidden_files_are_found_only_when_asked_for(tmp_path: Path) -> None:
    root = made(tmp_path / "r", {"a.md": "", ".b.md": "", ".c/d.md": "", ".git/config": "", ".venv/x.py": ""})
    assert paths(root) == ["a.md"]
    assert skipped(root) == {}
    assert paths(root, IndexingOptions(hidden=True)) == [".b.md", "a.md", ".c/d.md"]


def test_folders_of_tools_are_left_out(tmp_path: Path) -> None:
    root = made(
        tmp_path / "r",
        {
            "a.py": "",
            "node_modules/x/y.js": "",
            "__pycache__/a.txt": "",
            "env/pyvenv.cfg": "home = /x",
            "env/lib.py": "",
            "target/CACHEDIR.TAG": "Signature: 8a477f597d28d172789f06886806bc55\n",
            "target/x.d": "",
            "notes/CACHEDIR.TAG": "not the signature",
            "notes/b.md": "",
            "CVS/Entries": "",
        },
    )
    assert paths(root) == ["a.py", "notes/CACHEDIR.TAG", "notes/b.md"]
    assert skipped(root) == {}


def test_pictures_and_archives_are_one_line(tmp_path: Path) -> None:
    names = [*(f"{i}.png" for i in range(12)), *(f"s/{i}.PYC" for i in range(3)), "x.tar.gz", "y.so"]
    root = made(tmp_path / "r", dict.fromkeys(names, b"\0") | {"a.md": "", "png": "", ".png.md": ""})
    assert paths(root) == ["a.md", "png"]
    assert skipped(root) == {"": "holds 17 files of other kinds: .png 12, .pyc 3, .gz 1, .so 1"}


def test_a_file_that_vanishes_while_it_is_looked_at_is_no_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = made(tmp_path / "r", {"a.md": "", "sub/b.md": ""})
    found = scan(root, OPTIONS)
    assert next(found).path == "a.md"  # type: ignore[union-attr]
    (root / "sub" / "b.md").unlink()
    (root / "sub").rmdir()
    assert list(found) == []


def test_a_very_deep_tree_is_gone_through(tmp_path: Path) -> None:
    root = made(tmp_path / "r", {})
    depth = 1500
    here = os.open(root, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("leaf.md", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)
    try:
        assert paths(root) == ["d/" * depth + "leaf.md"]
    finally:
        subprocess.run(["rm", "-rf", str(root)], check=True)  # shutil.rmtree cannot go that deep


def test_what_tools_made_is_known_by_its_path() -> None:
    assert is_left_out("a/node_modules/b/c.js") and is_left_out(".git/index") and is_left_out("x/index.db-journal")
    assert not is_left_out("a/b.md") and not is_left_out("git/x.md")
