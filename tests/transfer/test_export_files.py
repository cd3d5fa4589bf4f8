"""Writing an export: the old file or the whole new one, never a part, and nothing replaced unasked."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from transfer_samples import CORPUS, chat

from kvchat.transfer import FORMATS
from kvchat.transfer.exported import ExportedFiles
from kvchat.transfer.formats import FileExists, Source, TransferError
from kvchat.transfer.write import export, suggested_name, write_text

PLAIN = chat("Hello", "Hi").conversation
DAY = "-2026-11-21"


def named(title: str, format: str = "md") -> str:
    return suggested_name(replace(PLAIN, title=title), format)


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("Lighthouse log", f"lighthouse-log{DAY}.md"),
        ("What's 2 + 2? (again)", f"what-s-2-2-again{DAY}.md"),
        ("../../etc/passwd", f"etc-passwd{DAY}.md"),
        ("日本語 の質問", f"日本語-の質問{DAY}.md"),
        ("...", f"conversation{DAY}.md"),
        ("", f"conversation{DAY}.md"),
        ("CON", f"con{DAY}.md"),
    ],
)
def test_a_name_is_the_title_and_the_date(title: str, name: str) -> None:
    assert named(title) == name


@given(
    st.text(max_size=300) | st.sampled_from([item["text"] for item in CORPUS]) | st.just("𐍈é́" * 200),
    st.sampled_from(list(FORMATS)),
)
def test_every_name_is_safe_and_short(title: str, format: str) -> None:
    name = named(title, format)
    assert len(name) <= 80 and len(name.encode()) <= 255
    stem = name.removesuffix(f".{format}")
    assert stem != name and stem[0] != "-" and "." not in stem
    assert not set(name) & set("/\\:*?\"<>|\0 \n~$`'") and name.isprintable()


def test_a_time_no_calendar_holds_gives_a_name_without_a_date() -> None:
    assert suggested_name(replace(PLAIN, created=1e300), "json") == "lighthouse-log.json"


@pytest.mark.parametrize("format", list(FORMATS))
def test_an_export_is_written_for_its_owner_only(tmp_path: Path, format: str, branched: Source) -> None:
    before = os.umask(0)
    try:
        path = export(tmp_path / "x.out", format, [branched])
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "Which was the longest?" in path.read_text("utf-8")
    assert left_in(tmp_path) == ["x.out"]


def test_a_folder_gets_suggested_names_that_do_not_collide(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    source = chat("Hello", "Hi")
    names = [export(folder, "md", [source]).name for _ in range(3)]
    assert names == [f"lighthouse-log{DAY}.md", f"lighthouse-log{DAY}-2.md", f"lighthouse-log{DAY}-3.md"]
    assert export(folder, "md", [source], overwrite=True).name == names[0]
    with pytest.raises(TransferError, match="no conversation"):
        export(folder, "md", [])


@pytest.mark.parametrize("format", list(FORMATS))
def test_a_folder_gets_a_file_for_each_conversation(tmp_path: Path, format: str) -> None:
    def titled(title: str, text: str) -> Source:
        one = chat(text, "Hi")
        return replace(one, conversation=replace(one.conversation, title=title))

    three = [titled("Fog", "Is there fog?"), titled("Lamp", "Who lit it?"), titled("Fog", "Fog again?")]
    names = [f"fog{DAY}.{format}", f"fog{DAY}-2.{format}", f"lamp{DAY}.{format}"]
    assert export(tmp_path, format, three) == tmp_path
    assert left_in(tmp_path) == sorted(names)
    asked = [("Is there fog?", names[0]), ("Fog again?", names[1]), ("Who lit it?", names[2])]
    for text, name in asked:
        assert [other for other, _ in asked if other in (tmp_path / name).read_text()] == [text]
    export(tmp_path, format, three, overwrite=True)
    assert left_in(tmp_path) == sorted(names), "two of one name do not replace each other"
    export(tmp_path, format, three)
    assert len(left_in(tmp_path)) == 6


def test_a_second_export_writes_each_conversations_own_file_anew(tmp_path: Path) -> None:
    one, two, known = chat("Fog?", "Yes"), chat("Lamp?", "Lit"), ExportedFiles()
    export(tmp_path, "md", [one, two], exported=known)
    first = left_in(tmp_path)
    grown = replace(one, conversation=replace(one.conversation, title="Another title"))
    assert export(tmp_path, "md", [grown, two], exported=ExportedFiles(known.known)) == tmp_path
    assert left_in(tmp_path) == first, "its name stays"
    assert "# Another title" in (tmp_path / first[1]).read_text() + (tmp_path / first[0]).read_text()
    export(tmp_path, "json", [one, two], exported=known)
    assert len(left_in(tmp_path)) == 4, "of another format it has another one"


@pytest.mark.parametrize("how", ["changed", "another", "link", "other folder"])
def test_a_file_that_is_not_as_it_was_exported_is_kept(tmp_path: Path, how: str) -> None:
    folder, other = tmp_path / "notes", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    source, known = chat("Fog?", "Yes"), ExportedFiles()
    path = export(folder, "md", [source], exported=known)
    text, is_elsewhere = path.read_text(), how == "other folder"
    if how == "changed":
        path.write_text(f"{text}\nmy own words")
    elif how == "another":
        path.write_text("mine")
    elif how == "link":
        (other / "mine.md").write_text(text)
        path.unlink()
        path.symlink_to(other / "mine.md")
    else:
        (other / path.name).write_text("mine")
    before = [one.read_text() for one in (path, *other.iterdir())]
    second = export(other if is_elsewhere else folder, "md", [source], exported=known)
    assert second.name == f"lighthouse-log{DAY}-2.md"
    assert [one.read_text() for one in (path, *(one for one in other.iterdir() if one != second))] == before
    assert export(second.parent, "md", [source], exported=known) == second, "that one is its own now"


def test_an_export_that_fails_keeps_what_is_known_of_the_file_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, known = chat("Fog?", "Yes"), ExportedFiles()
    path = export(tmp_path, "md", [source], exported=known)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refusing(errno.ENOSPC))
        with pytest.raises(TransferError, match="disk is full"):
            export(tmp_path, "md", [source], exported=known)
    assert export(tmp_path, "md", [source], exported=known) == path and left_in(tmp_path) == [path.name]


def refusing(code: int) -> Callable[..., None]:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    return refuse


def test_a_file_in_the_way_is_told_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "kept.md"
    path.write_text("mine")
    with pytest.raises(FileExists, match=r"kept\.md exists already"):
        export(path, "md", [chat("Hello")])
    assert path.read_text() == "mine"
    export(path, "md", [chat("Hello")], overwrite=True)
    assert "Hello" in path.read_text()


def test_a_link_in_the_way_counts_as_a_file_and_is_followed_where_it_may_be_replaced(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link.md"
    target.write_text("mine")
    link.symlink_to(target)
    with pytest.raises(FileExists):
        write_text(link, "new")
    dangling = tmp_path / "dangling.md"
    dangling.symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileExists):
        write_text(dangling, "new")
    write_text(link, "new", overwrite=True)
    assert link.is_symlink() and target.read_text() == "new"


def test_a_file_that_comes_while_we_write_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "late.md"
    sync = os.fsync

    def slow(descriptor: int) -> None:
        path.write_text("theirs")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", slow)
    with pytest.raises(FileExists):
        write_text(path, "ours")
    assert path.read_text() == "theirs" and left_in(tmp_path) == ["late.md"]


def test_a_disk_without_hard_links_is_written_too_and_replaces_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "link", failing(errno.EPERM))
    path = tmp_path / "fat.md"
    assert write_text(path, "first").read_text() == "first"
    with pytest.raises(FileExists):
        write_text(path, "second")
    assert path.read_text() == "first" and left_in(tmp_path) == ["fat.md"]


def failing(code: int) -> Callable[..., Any]:
    def fail(*args: object, **kwargs: object) -> Any:
        raise OSError(code, os.strerror(code))

    return fail


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != "home")


@pytest.mark.parametrize(
    ("step", "code", "reason"),
    [
        ("open", errno.EACCES, "this folder may not be written to"),
        ("open", errno.EROFS, "this disk is read-only"),
        ("write", errno.ENOSPC, "the disk is full"),
        ("fsync", errno.ENOSPC, "the disk is full"),
        ("fsync", errno.EDQUOT, "your disk quota is used up"),
        ("fsync", errno.EIO, "input/output error"),
        ("replace", errno.EACCES, "this folder may not be written to"),
    ],
)
def test_a_failing_write_leaves_the_old_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    code: int,
    reason: str,
) -> None:
    path = tmp_path / "kept.md"
    path.write_text("old")
    with monkeypatch.context() as patch:
        if step == "replace":
            patch.setattr(Path, "replace", failing(code))
        elif step == "write":
            patch.setattr(os, "fdopen", lambda descriptor, mode: Full(descriptor, mode, closefd=True))
        else:
            patch.setattr(os, step, failing(code))
        with pytest.raises(TransferError, match=f"kept.md could not be written: {reason}") as caught:
            write_text(path, "new " * 1000, overwrite=True)
    assert path.read_text() == "old" and left_in(tmp_path) == ["kept.md"]
    assert "\n" not in caught.value.sentence and caught.value.sentence.endswith(".")


class Full:
    """A file on a full disk: half of what is written arrives."""

    def __init__(self, descriptor: int, mode: str, closefd: bool) -> None:
        self.descriptor = descriptor

    def __enter__(self) -> Full:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self.descriptor)

    def write(self, content: bytes) -> int:
        os.write(self.descriptor, content[: len(content) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("missing/x.md", "there is no such folder"),
        ("file/x.md", "a part of this path is a file"),
        ("x" * 300 + ".md", "the file name is too long"),
        ("folder", "this is a folder"),
        ("a\0b", "is not a file name"),
        ("~no-such-user-at-all/x.md", "there is no such user"),
    ],
)
def test_a_path_that_cannot_be_written_is_told_in_a_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    reason: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    before = left_in(tmp_path)
    with pytest.raises(TransferError, match=reason):
        write_text(Path(place), "text", overwrite=True)
    assert left_in(tmp_path) == before


def test_a_path_in_a_sentence_cannot_speak_to_the_terminal(tmp_path: Path) -> None:
    with pytest.raises(TransferError) as caught:
        write_text(tmp_path / "no\x1b[2Jsuch" / "x.md", "text")
    assert "\x1b" not in caught.value.sentence and "no␛[2Jsuch" in caught.value.sentence


def test_nothing_is_written_when_rendering_fails(tmp_path: Path) -> None:
    with pytest.raises(TransferError):
        export(tmp_path / "x.docx", "docx", [chat("Hello")])
    assert left_in(tmp_path) == []
