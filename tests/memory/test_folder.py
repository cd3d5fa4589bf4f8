"""The memory's folder: safe from other programs, other kvchats, crashes and disks; quick when nothing changed."""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from killing import forked, kill_at
from msgspec.structs import replace
from page_samples import METRIC, PAGE, with_entry, without_entry

from kvchat.memory.entry import PROFILE, Entry
from kvchat.memory.pages import files
from kvchat.memory.pages.folder import Contents, Folder, FolderError
from kvchat.memory.pages.page import MemoryPage

CAT = replace(METRIC, id="m22222222", text="Has a cat.")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "memory"


@pytest.fixture
def folder(root: Path) -> Folder:
    return Folder(root, root.with_name("memory.lock"))


def another(root: Path) -> Folder:
    """The same folder as another run of kvchat has it."""
    return Folder(root, root.with_name("memory.lock"))


def put(root: Path, name: str, text: str | bytes) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def adding(entry: Entry) -> Callable[[MemoryPage], MemoryPage]:
    return lambda page: with_entry(page, entry)


def change(folder: Folder, name: str, edit: Callable[[MemoryPage], MemoryPage]) -> MemoryPage:
    with folder.changing({name: edit}) as write:
        return write()[name]


def texts(contents: Contents) -> dict[str, list[str]]:
    return {name: [line.entry.text for line in page.entries] for name, page in contents.pages.items()}


# Reading


def test_only_the_profile_and_the_topics_hold_entries(root: Path, folder: Folder) -> None:
    for name in (
        PROFILE,
        "topics/lab.md",
        "topics/home/My Kitchen & Größe.MD",
        "log/2026-11-22.md",
        "README.md",
        "topics/notes.txt",
        "topics/.hidden.md",
        ".obsidian/x.md",
        "topics/.trash/y.md",
    ):
        put(root, name, f"- in {name}\n")

    assert texts(folder.read()) == {
        name: [f"in {name}"] for name in (PROFILE, "topics/lab.md", "topics/home/My Kitchen & Größe.MD")
    }
    assert folder.read().problems == ()


@pytest.mark.parametrize(
    "copy", ["lab 2.md", "lab (1).md", "lab-DESKTOP-AB12CD3.md", "Lab (Mac's conflicted copy 2026-11-01).md"]
)
def test_another_version_of_a_page_is_not_read_and_told(root: Path, folder: Folder, copy: str) -> None:
    put(root, "topics/lab.md", "- new\n")
    put(root, f"topics/{copy}", "- old\n")
    contents = folder.read()
    assert texts(contents) == {"topics/lab.md": ["new"]}
    assert [problem.path for problem in contents.problems] == [f"topics/{copy}"]


def test_a_line_by_hand_is_as_old_as_its_file(root: Path, folder: Folder) -> None:
    os.utime(put(root, PROFILE, "- tea\n"), (1_700_000_000, 1_700_000_000))

    assert folder.read().pages[PROFILE].entries[0].entry.created == 1_700_000_000


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ('---\nkind: "x\n---\n- tea\n', 2),
        ("- tea\n- M\u00fcller\n".encode("latin-1"), 2),
        ("- tea\n".encode("utf-16"), 1),
        (b"- tea\n\n- c\0offee\n", 3),
        ("- tea\n```\n", 2),
        (b"- tea\n" * 200_000, 0),
    ],
)
def test_a_page_that_cannot_be_read_is_reported_and_left_alone(
    root: Path, folder: Folder, content: str | bytes, line: int
) -> None:
    path = put(root, PAGE, content)
    put(root, PROFILE, "- fine\n")
    before = path.read_bytes()

    contents = folder.read()

    assert texts(contents) == {PROFILE: ["fine"]}
    (problem,) = contents.problems
    assert (problem.path, problem.line) == (PAGE, line)
    with pytest.raises(FolderError, match="left alone"):
        change(folder, PAGE, adding(METRIC))
    assert path.read_bytes() == before


def test_pipes_devices_and_links_are_reported_and_never_opened(root: Path, folder: Folder, tmp_path: Path) -> None:
    outside = put(tmp_path, "outside/secret.md", "- secret\n")
    put(root, PROFILE, "- fine\n")
    (root / "topics").mkdir()
    os.mkfifo(root / "topics/pipe.md")
    (root / "topics/link.md").symlink_to(outside)
    (root / "topics/dangling.md").symlink_to("nowhere")
    (root / "topics/elsewhere").symlink_to(outside.parent)
    (root / "topics/folder.md").mkdir()

    contents = folder.read()

    assert texts(contents) == {PROFILE: ["fine"]}
    assert {problem.path for problem in contents.problems} == {
        "topics/pipe.md",
        "topics/link.md",
        "topics/dangling.md",
        "topics/elsewhere",
    }
    for name in ("topics/pipe.md", "topics/link.md", "topics/elsewhere/secret.md", "topics/elsewhere/new/x.md"):
        with pytest.raises(FolderError, match=r"link|not a file"):
            change(folder, name, adding(METRIC))
    assert outside.read_text() == "- secret\n" and list(outside.parent.iterdir()) == [outside]


def test_a_topics_folder_that_is_a_link_is_a_problem_of_all_its_pages(
    root: Path, folder: Folder, tmp_path: Path
) -> None:
    put(tmp_path, "vault/lab.md", "- tea\n")
    root.mkdir()
    (root / "topics").symlink_to(tmp_path / "vault")

    assert [problem.path for problem in folder.read().problems] == ["topics"]
    with pytest.raises(FolderError, match="link"):
        change(folder, PAGE, adding(METRIC))
    assert [path.name for path in (tmp_path / "vault").iterdir()] == ["lab.md"]


def test_the_folder_itself_may_be_a_link(root: Path, folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "vault").mkdir()
    root.symlink_to(tmp_path / "vault")

    change(folder, PAGE, adding(METRIC))

    assert texts(folder.read()) == {PAGE: [METRIC.text]}
    assert root.is_symlink() and (tmp_path / "vault" / PAGE).is_file()


def test_a_name_that_cannot_be_shown_is_a_problem_in_words_that_can(root: Path, folder: Folder) -> None:
    put(root, "topics/ok.md", "- tea\n")
    for name in (b"caf\xe9.md", b"two\nlines.md", "turn\u202e.md".encode()):
        Path(os.fsdecode(os.fsencode(root / "topics") + b"/" + name)).write_text("- coffee\n")

    contents = folder.read()

    assert texts(contents) == {"topics/ok.md": ["tea"]}
    assert {problem.path for problem in contents.problems} == {
        "topics/caf\\udce9.md",
        "topics/two\\nlines.md",
        "topics/turn\\u202e.md",
    }


def test_ten_thousand_entries_are_read_again_with_a_stat_per_page_only(
    root: Path, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(200):
        put(
            root,
            f"topics/page-{number}.md",
            "".join(
                f"- Fact {number} {at}. <!-- m{number:04}{at:04} on:2026-11-21 by:x kind:fact -->\n" for at in range(50)
            ),
        )
    first = folder.read()
    mark = folder.fingerprint()
    assert sum(len(page.entries) for page in first.pages.values()) == 10_000
    opened: list[str] = []
    monkeypatch.setattr(os, "open", counting(os.open, opened))

    again = folder.read()
    assert again.pages == first.pages and folder.fingerprint() == mark
    assert opened == []

    put(root, "topics/page-7.md", "- changed\n")
    opened.clear()
    assert folder.fingerprint() != mark
    assert texts(folder.read())["topics/page-7.md"] == ["changed"]
    assert {Path(name).name for name in opened} == {"page-7.md"}


def counting(original: Callable[..., int], names: list[str]) -> Callable[..., int]:
    def opening(path: str | Path, *more: int) -> int:
        names.append(str(path))
        return original(path, *more)

    return opening


def test_the_fingerprint_differs_when_a_page_changes_comes_or_goes(root: Path, folder: Folder) -> None:
    marks = [folder.fingerprint()]
    for act in (
        lambda: put(root, PROFILE, "- tea\n"),
        lambda: put(root, PROFILE, "- tee\n"),
        lambda: put(root, PAGE, ""),
        lambda: (root / PAGE).rename(root / "topics/x.md"),
        lambda: (root / PROFILE).unlink(),
    ):
        act()
        assert folder.fingerprint() not in marks
        assert folder.fingerprint() == folder.fingerprint()
        marks.append(folder.fingerprint())


@pytest.mark.parametrize("moment", ["", "- on"])
def test_a_page_that_an_editor_is_just_saving_does_not_count_as_emptied(root: Path, moment: str) -> None:
    def saved(seconds: float) -> None:
        put(root, PROFILE, "- one\n- two\n")

    folder = Folder(root, root.with_name("memory.lock"), pause=saved)
    put(root, PROFILE, "- one\n")
    folder.read()
    put(root, PROFILE, moment)

    assert texts(folder.read()) == {PROFILE: ["one", "two"]}


def test_a_page_that_an_editor_is_just_renaming_does_not_count_as_deleted(root: Path) -> None:
    folder = Folder(root, root.with_name("memory.lock"), pause=lambda seconds: void(put(root, PROFILE, "- one\n")))
    put(root, PROFILE, "- one\n")
    folder.read()
    (root / PROFILE).unlink()

    assert texts(folder.read()) == {PROFILE: ["one"]}


def test_nothing_is_waited_for_when_kvchat_itself_takes_a_line_out(root: Path) -> None:
    pauses: list[float] = []
    folder = Folder(root, root.with_name("memory.lock"), pause=pauses.append)
    change(folder, PAGE, adding(METRIC))
    folder.read()
    change(folder, PAGE, lambda page: without_entry(page, METRIC.id))

    assert texts(folder.read()) == {PAGE: []}
    assert pauses == []


def void(value: object) -> None:
    """Nothing, of anything."""


# A folder that is gone


def test_a_folder_that_never_was_is_made_at_the_first_write_and_not_before(root: Path, folder: Folder) -> None:
    assert folder.read() == Contents({}, (), missing=False)
    assert change(folder, PAGE, lambda page: page).text == ""
    assert not root.exists()

    change(folder, PAGE, adding(METRIC))

    assert texts(another(root).read()) == {PAGE: [METRIC.text]}


def test_a_folder_that_is_gone_is_missing_in_this_run_and_the_next_and_not_made_anew(
    root: Path, folder: Folder
) -> None:
    change(folder, PAGE, adding(METRIC))
    root.rename(root.with_name("elsewhere"))

    for one in (folder, another(root)):
        assert one.read() == Contents({}, (), missing=True)
        with pytest.raises(FolderError, match="not there any more"):
            change(one, PAGE, adding(CAT))
        with pytest.raises(FolderError, match="not there any more"):
            one.add_to_log("2026-11-22", "c1", ["Noted: tea"], "Morning")
    assert not root.exists()
    assert Folder(root.with_name("other"), root.with_name("memory.lock")).read().missing is False
    root.mkdir()
    assert folder.read() == Contents({}, (), missing=False)


def test_a_file_in_the_place_of_the_folder_is_a_problem(root: Path, folder: Folder) -> None:
    root.write_text("")

    contents = folder.read()
    assert [problem.path for problem in contents.problems] == [""] and not contents.pages
    with pytest.raises(FolderError):
        change(folder, PAGE, adding(METRIC))


# Writing


def test_files_and_folders_are_private(root: Path, folder: Folder) -> None:
    before = os.umask(0)
    try:
        change(folder, "topics/home/lab.md", adding(METRIC))
        folder.add_to_log("2026-11-22", "c1", ["Noted: tea"], "Morning")
        put(root, PROFILE, "- tea\n").chmod(0o644)
        change(folder, PROFILE, adding(CAT))
    finally:
        os.umask(before)

    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (root, *root.rglob("*"))}
    assert len(modes) == 7
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}


@pytest.mark.parametrize(
    "name",
    [
        "",
        "x.md",
        "log/2026-11-22.md",
        "/topics/x.md",
        "topics/../../x.md",
        "topics//x.md",
        "topics/.x.md",
        "topics/x.txt",
        "topics",
        "../profile.md",
        "topics/a\0.md",
    ],
)
def test_what_is_no_page_is_not_written(root: Path, folder: Folder, name: str) -> None:
    with pytest.raises(FolderError, match="is not a page"):
        change(folder, name, adding(METRIC))
    assert not root.exists()


@pytest.mark.parametrize(
    "name",
    [
        "topics/con.md",
        "topics/a:b.md",
        "topics/a\\..\\b.md",
        "topics/LPT1.x.md",
        "topics/ends /x.md",
        "topics/what?.md",
        f"topics/{'x' * 300}.md",
    ],
)
def test_no_page_is_begun_that_cannot_be_on_every_system(root: Path, folder: Folder, name: str) -> None:
    with pytest.raises(FolderError, match="cannot be a file on every system"):
        change(folder, name, adding(METRIC))
    assert not root.exists()


def test_what_the_person_saved_since_it_was_read_is_kept(root: Path, folder: Folder) -> None:
    put(root, PAGE, "- one\n")
    folder.read()
    put(root, PAGE, "- one\n- two\n")

    assert texts_of(change(folder, PAGE, adding(METRIC))) == ["one", "two", METRIC.text]


def test_what_the_person_saves_in_the_very_moment_of_a_write_is_kept(root: Path, folder: Folder) -> None:
    put(root, PAGE, "- one\n")
    saves = iter(["- one\n- two\n", "- one\n- two!\n- three\n"])

    def edit(page: MemoryPage) -> MemoryPage:
        if (text := next(saves, None)) is not None:
            put(root, PAGE, text)
        return with_entry(page, METRIC)

    change(folder, PAGE, edit)

    assert texts(folder.read()) == {PAGE: ["one", "two!", "three", METRIC.text]}
    assert [path.name for path in (root / "topics").iterdir()] == ["home-lab.md"]


def test_a_page_that_is_saved_without_end_is_given_up_in_words(root: Path, folder: Folder) -> None:
    def edit(page: MemoryPage) -> MemoryPage:
        put(root, PAGE, page.text + "- more\n")
        return with_entry(page, METRIC)

    with pytest.raises(FolderError, match="saved by another program"):
        change(folder, PAGE, edit)


def test_an_edit_that_fails_changes_nothing(root: Path, folder: Folder) -> None:
    put(root, PAGE, "- one\n")

    with pytest.raises(ZeroDivisionError):
        change(folder, PAGE, lambda page: without_entry(page, str(1 // 0)))
    assert (root / PAGE).read_text() == "- one\n"
    assert texts_of(change(folder, PAGE, adding(CAT))) == ["one", CAT.text], "the lock is free again"


def test_a_page_does_not_grow_beyond_what_is_read(root: Path, folder: Folder) -> None:
    text = "- one\n" + "x" * (files.LARGEST - 20)
    put(root, PAGE, text)

    with pytest.raises(FolderError, match="Move some of it"):
        change(folder, PAGE, adding(METRIC))
    assert (root / PAGE).read_text() == text


@pytest.mark.parametrize(
    ("call", "number", "words"),
    [
        ("write", errno.ENOSPC, "no space left.*Make room"),
        ("fsync", errno.EIO, "input/output error"),
        ("replace", errno.EROFS, "read-only file system.*Make it writable"),
        ("mkdir", errno.EACCES, "cannot be made: permission denied"),
    ],
)
def test_a_full_or_read_only_disk_is_told_and_leaves_the_old_page(
    root: Path, folder: Folder, monkeypatch: pytest.MonkeyPatch, call: str, number: int, words: str
) -> None:
    name = PROFILE if call == "mkdir" else PAGE
    if call != "mkdir":
        change(folder, name, adding(METRIC))

    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch, pytest.raises(FolderError, match=f"(?s){words}"):
        patch.setattr(os, call, fail)
        change(folder, name, adding(CAT))

    assert texts(folder.read()) == ({} if call == "mkdir" else {PAGE: [METRIC.text]})
    assert not list(root.rglob("*.tmp"))
    assert CAT.id in change(folder, name, adding(CAT)).text


def test_a_lock_that_cannot_be_opened_is_named(root: Path) -> None:
    lock = root.with_name("memory.lock")
    lock.mkdir()

    with pytest.raises(FolderError, match=r"memory\.lock, by which kvchats take turns"):
        change(Folder(root, lock), PAGE, adding(METRIC))
    assert not root.exists()


def texts_of(page: MemoryPage) -> list[str]:
    return [line.entry.text for line in page.entries]


# Several at once, and crashes


def test_threads_of_one_folder_lose_nothing(root: Path, folder: Folder) -> None:
    ids = [f"m{number:08}" for number in range(24)]
    threads = [
        threading.Thread(
            target=lambda part=part: [change(folder, PAGE, adding(replace(METRIC, id=id))) for id in ids[part::4]]
        )
        for part in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(line.entry.id for line in folder.read().pages[PAGE].entries) == ids


@pytest.mark.process
def test_kvchats_that_write_at_once_and_a_person_who_edits_lose_nothing(root: Path) -> None:
    put(root, PAGE, "- by hand 0\n")
    children = [
        forked(
            lambda part=part: [
                change(another(root), PAGE, adding(replace(METRIC, id=f"m{part}{at:07}"))) for at in range(10)
            ]
        )
        for part in range(3)
    ]
    person = another(root)
    for at in range(1, 10):
        change(person, PAGE, lambda page, at=at: MemoryPage.parse(PAGE, f"{page.text}- by hand {at}\n"))
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0, 0]

    entries = another(root).read().pages[PAGE].entries
    assert sorted(line.entry.id for line in entries if line.entry.by != "hand") == [
        f"m{part}{at:07}" for part in range(3) for at in range(10)
    ]
    assert sorted(line.entry.text for line in entries if line.entry.by == "hand") == [
        f"by hand {at}" for at in range(10)
    ]


@pytest.mark.process
def test_a_kill_at_any_point_of_a_write_leaves_the_old_page_or_the_new_one(root: Path) -> None:
    seen: set[str] = set()
    for step in range(200):
        put(root, PAGE, "- one\n")
        pid = forked(lambda step=step: kill_at(step, lambda: change(another(root), PAGE, adding(METRIC))))
        status = os.waitpid(pid, 0)[1]
        text = (root / PAGE).read_text()
        assert text in ("- one\n", f"- one\n{text[6:]}"), step
        assert texts(another(root).read()) in ({PAGE: ["one"]}, {PAGE: ["one", METRIC.text]}), step
        seen.add(text)
        change(another(root), PAGE, adding(CAT))
        assert [path.name for path in (root / "topics").iterdir()] == ["home-lab.md"], step
        if status == 0:
            break
    assert len(seen) == 2 and 10 < step < 199


@pytest.mark.process
def test_a_kill_at_any_point_of_a_move_between_pages_leaves_its_line_in_one(root: Path) -> None:
    seen: set[str] = set()
    for step in range(300):
        put(root, PAGE, f"- one\n- {METRIC.text} <!-- {METRIC.id} by:x kind:fact -->\n")
        put(root, PROFILE, "- two\n")

        def move() -> None:
            edits = {PROFILE: adding(METRIC), PAGE: lambda there: without_entry(there, METRIC.id)}
            with another(root).changing(edits) as write:
                write()

        pid = forked(lambda step=step, move=move: kill_at(step, move))
        status = os.waitpid(pid, 0)[1]
        read = another(root).read().pages
        pages = [name for name, page in read.items() for line in page.entries if line.entry.id == METRIC.id]
        assert len(pages) == 1 and sum(len(page.entries) for page in read.values()) == 3, step
        seen.update(pages)
        change(another(root), PAGE, adding(CAT))
        assert sorted(path.name for path in root.rglob("*") if path.is_file()) == ["home-lab.md", PROFILE], step
        if status == 0:
            break
    assert seen == {PAGE, PROFILE} and 10 < step < 299


@pytest.mark.parametrize("failing", [1, 2])
def test_of_pages_that_cannot_all_be_renamed_none_is_changed(
    root: Path, folder: Folder, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    put(root, PAGE, "- one\n")
    put(root, PROFILE, "- two\n")
    rename, left = os.replace, failing

    def fail(source: Path, target: Path) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        rename(source, target)

    with (
        monkeypatch.context() as patch,
        pytest.raises(FolderError, match="input/output error"),
        folder.changing({PROFILE: adding(METRIC), PAGE: adding(CAT)}) as write,
    ):
        patch.setattr(os, "replace", fail)
        write()
    assert {path.name: path.read_text() for path in root.rglob("*") if path.is_file()} == {
        "home-lab.md": "- one\n",
        PROFILE: "- two\n",
    }


def test_a_page_that_is_saved_while_another_one_is_renamed_keeps_what_was_saved(
    root: Path, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(root, PAGE, "- one\n")
    put(root, PROFILE, "- two\n")
    rename, saved = os.replace, False

    def saving(source: Path, target: Path) -> None:
        nonlocal saved
        rename(source, target)
        if not saved:
            saved = True
            put(root, PAGE, "- one\n- by hand\n")

    with monkeypatch.context() as patch, folder.changing({PROFILE: adding(METRIC), PAGE: adding(CAT)}) as write:
        patch.setattr(os, "replace", saving)
        write()
    assert texts(folder.read()) == {PROFILE: ["two", METRIC.text], PAGE: ["one", "by hand", CAT.text]}


def test_two_names_of_one_file_are_not_changed_apart(root: Path, folder: Folder) -> None:
    """As on a disk that does not tell upper from lower case, where the second would overwrite the first."""
    one, other = "topics/House.md", "topics/house.md"
    os.link(put(root, one, "- one\n"), root / other)
    with (
        pytest.raises(FolderError, match=r"topics/House\.md and topics/house\.md are one file here"),
        folder.changing({one: adding(METRIC), other: adding(CAT)}),
    ):
        pass
    assert (root / one).read_text() == "- one\n"


@pytest.mark.parametrize("full", [False, True])
def test_without_hard_links_all_pages_are_put_back_or_none(
    root: Path, folder: Folder, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    """What is in two pages is found again; what is in none would be deleted."""
    put(root, PAGE, f"- one\n- {METRIC.text} <!-- {METRIC.id} by:x kind:fact -->\n")
    edits = {PROFILE: adding(METRIC), PAGE: lambda there: without_entry(there, METRIC.id)}

    def no_room(path: Path, data: bytes) -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch, pytest.raises(RuntimeError), folder.changing(edits) as write:
        patch.setattr(files, "keep", lambda path: None)
        write()
        if full:
            patch.setattr(files, "stage", no_room)
        raise RuntimeError("the store failed")
    assert texts(folder.read()) == ({PROFILE: [METRIC.text], PAGE: ["one"]} if full else {PAGE: ["one", METRIC.text]})


def test_an_interrupt_while_the_store_commits_leaves_what_was_written(root: Path, folder: Folder) -> None:
    """It may be stored: a line that is not in its page any more would count as deleted."""
    put(root, PAGE, "- one\n")
    with pytest.raises(KeyboardInterrupt), folder.changing({PAGE: adding(CAT)}):
        raise KeyboardInterrupt
    assert texts(folder.read()) == {PAGE: ["one"]}
    with pytest.raises(KeyboardInterrupt), folder.changing({PAGE: adding(CAT)}) as write:
        write()
        raise KeyboardInterrupt
    assert texts(folder.read()) == {PAGE: ["one", CAT.text]}


@pytest.mark.parametrize(
    "note",
    [
        b"",
        b"[[",
        b'[[".kvchat-aaaaaaaa.tmp", "../outside.md", null]]',
        b'[[".kvchat-aaaaaaaa.tmp", "topics/../profile.md", null]]',
        b'[["../outside.md", "profile.md", null]]',
        b'[[".kvchat-aaaaaaaa.tmp", "/", null]]',
        b'[["/", "profile.md", null]]',
        b'[["topics/home-lab.md", "profile.md", null]]',
        b'[["topics/.kvchat-aaaaaaaa.tmp", "profile.md", null]]',
        b'[[".kvchat-aaaaaaaa.tmp", "topics/home-lab.md", [1, 2, 3, 4]]]',
        b'[[".kvchat-aaaaaaaa.tmp", "topics/home-lab.md", null]]',
    ],
)
def test_a_note_of_another_hand_renames_nothing(root: Path, folder: Folder, note: bytes) -> None:
    put(root.parent, "outside.md", "- outside\n")
    put(root, PAGE, "- one\n")
    put(root, "topics/.kvchat-aaaaaaaa.tmp", "- other\n")
    put(root, files.NOTE, note)
    assert texts(folder.read()) == {PAGE: ["one"]} and not (root / files.NOTE).exists()
    assert (root.parent / "outside.md").read_text() == "- outside\n"


def test_a_cut_move_is_completed_where_only_the_times_of_a_page_changed(root: Path, folder: Folder) -> None:
    put(root, PAGE, "- one\n")
    staged = put(root, "topics/.kvchat-aaaaaaaa.tmp", "- two\n")
    files.note_renames(root, [files.Rename(staged.name, PAGE, files.stamp(root / PAGE))])
    time.sleep(0.02)
    (root / PAGE).chmod(0o644)
    assert texts(folder.read()) == {PAGE: ["two"]} and not staged.exists()


@pytest.mark.process
def test_a_kill_at_any_point_of_the_first_write_or_of_the_log_can_be_done_again(tmp_path: Path) -> None:
    for step in range(300):
        root = tmp_path / str(step) / "memory"

        def work(root: Path = root) -> None:
            folder = another(root)
            change(folder, PAGE, adding(METRIC))
            folder.add_to_log("2026-11-22", "c1", ["Noted: tea"], "Morning")

        pid = forked(lambda step=step, work=work: kill_at(step, work))
        status = os.waitpid(pid, 0)[1]
        work()
        assert texts(another(root).read()) == {PAGE: [METRIC.text]}, step
        assert (root / "log/2026-11-22.md").read_text().count("Noted: tea") == 1, step
        assert sorted(path.name for path in root.rglob("*") if path.is_file()) == ["2026-11-22.md", "home-lab.md"], step
        if status == 0:
            break
    assert 20 < step < 299


def test_a_write_waits_for_another_kvchat(root: Path, folder: Folder) -> None:
    order: list[str] = []
    inside, go_on = threading.Event(), threading.Event()

    def slow(page: MemoryPage) -> MemoryPage:
        inside.set()
        go_on.wait(120)
        order.append("first")
        return with_entry(page, METRIC)

    def second(page: MemoryPage) -> MemoryPage:
        order.append("second")
        return with_entry(page, CAT)

    first = threading.Thread(target=lambda: change(folder, PAGE, slow))
    other = threading.Thread(target=lambda: change(another(root), PAGE, second))
    first.start()
    assert inside.wait(120)
    other.start()
    time.sleep(0.05)
    go_on.set()
    first.join()
    other.join()

    assert order == ["first", "second"]
    assert texts(folder.read()) == {PAGE: [METRIC.text, CAT.text]}


# The log


def test_the_log_is_a_diary_that_is_added_to_once_per_extraction(root: Path, folder: Folder) -> None:
    folder.add_to_log("2026-11-22", "c1", ["Noted: Has a cat.", "- Refused: <b> [x](y)\n# no"], "14:03 Metric [units]")
    first = (root / "log/2026-11-22.md").read_text()
    assert first == (
        "# 2026-11-22\n\nWhat kvchat noted on this day. Nothing is read from here: keep it, change it or "
        "delete it.\n\n## 14:03 Metric \\[units] <!-- c1 -->\n\n- Noted: Has a cat.\n"
        "- Refused: \\<b> \\[x](y) # no\n"
    )

    folder.add_to_log("2026-11-22", "c1", ["Noted: Has a cat."], "14:03 Metric [units]")
    assert (root / "log/2026-11-22.md").read_text() == first
    folder.add_to_log("2026-11-22", "c11", ["Noted: tea"], "15:00")
    assert (root / "log/2026-11-22.md").read_text() == f"{first}\n## 15:00 <!-- c11 -->\n\n- Noted: tea\n"
    assert texts(folder.read()) == {}


def test_what_the_person_made_of_the_log_is_kept_byte_for_byte(root: Path, folder: Folder) -> None:
    mine = "# M\u00fc\r\n```\r\nno end".encode("latin-1")
    put(root, "log/2026-11-22.md", mine)

    folder.add_to_log("2026-11-22", "c1", ["Noted: tea"], "Morning")

    assert (root / "log/2026-11-22.md").read_bytes() == mine + b"\r\n\r\n## Morning <!-- c1 -->\r\n\r\n- Noted: tea\r\n"
    with pytest.raises(FolderError, match="not a day"):
        folder.add_to_log("../profile", "c1", ["x"], "x")
