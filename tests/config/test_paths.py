"""Where things live, and that they are private."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest

from kvchat import paths
from kvchat.backends.engine.server_snapshots import ServerShelf
from kvchat.backends.engine.snapshots import SnapshotDir
from kvchat.cli import main
from kvchat.commands.editor import EditorError, OutsideText


@pytest.fixture
def loose_umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_options_come_before_the_environment_and_the_environment_before_the_platform(tmp_path: Path) -> None:
    env = {"KVCHAT_DATA_DIR": str(tmp_path / "env"), "KVCHAT_CONFIG": str(tmp_path / "env.toml")}
    both = paths.find(str(tmp_path / "option"), str(tmp_path / "option.toml"), env)
    assert (both.data, both.config, both.cache) == (
        tmp_path / "option",
        tmp_path / "option.toml",
        tmp_path / "option" / "cache",
    )
    from_env = paths.find(env=env)
    assert (from_env.data, from_env.config) == (tmp_path / "env", tmp_path / "env.toml")
    own = paths.find(env={"KVCHAT_DATA_DIR": "", "KVCHAT_CONFIG": ""})
    assert own.config.name == "config.toml"
    assert {own.data.name, own.config.parent.name, own.cache.name} <= {"kvchat", "Cache"}
    assert own.data.is_absolute()


def test_themes_stand_beside_the_settings(tmp_path: Path) -> None:
    assert paths.find(config_file=str(tmp_path / "c.toml"), env={}).themes == tmp_path / "themes"


def test_a_home_folder_and_a_relative_path_are_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert paths.find("~/chats", "c.toml", {}).data == tmp_path / "home" / "chats"
    assert paths.find("~/chats", "c.toml", {}).config == tmp_path / "c.toml"


@pytest.mark.parametrize("text", ["a\0b", "~no-such-user-7/x"])
def test_a_path_that_cannot_be_is_one_sentence(text: str) -> None:
    with pytest.raises(paths.PathError):
        paths.find(text, env={})


def test_nothing_is_made_by_asking_where_it_is(tmp_path: Path) -> None:
    found = paths.find(str(tmp_path / "d"), str(tmp_path / "c" / "config.toml"), {})
    assert not any(place.exists() for place in (found.data, found.cache, found.config.parent, found.themes))


def test_our_own_themes_are_found() -> None:
    assert (paths.own_themes() / "kvchat-night.toml").is_file()


def test_folders_and_files_are_private_whatever_the_umask(tmp_path: Path, loose_umask: None) -> None:
    made = paths.folder(tmp_path / "a" / "b" / "c")
    assert [mode(place) for place in (made, made.parent, made.parent.parent)] == [0o700] * 3
    paths.write_private(made / "x", b"1")
    assert mode(made / "x") == 0o600


def test_a_share_that_refuses_modes_and_pipes_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", refused)
    monkeypatch.setattr(os, "chmod", refused)
    monkeypatch.setattr(os, "mkfifo", refused)
    data = tmp_path / "share" / "data"
    for arguments in (["list"], ["list"], ["documents", "list"], ["memory", "list"]):
        assert main(["--data-dir", str(data), "--log", str(data / "x.log"), *arguments]) == 0
    assert not capsys.readouterr().err
    paths.write_private(data / "a.toml", b"x")
    for shelf in (SnapshotDir(data / "states"), ServerShelf(data / "cards")):
        shelf.load()


def test_a_folder_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    paths.folder(tmp_path)
    assert mode(tmp_path) == 0o755


def test_a_file_in_the_place_of_a_folder_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(paths.PathError, match=r"file is not a folder\. Move it away"):
        paths.folder(tmp_path / "file")
    with pytest.raises(paths.PathError, match=r"--data-dir"):
        paths.folder(tmp_path / "file" / "below")


def test_writing_replaces_the_whole_file(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "x"
    paths.write_private(file, b"a long text")
    paths.write_private(file, b"short")
    assert file.read_bytes() == b"short"
    assert list(file.parent.iterdir()) == [file]


def test_a_folder_that_cannot_be_looked_at_is_not_missing(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert all(map(paths.is_missing, (tmp_path / "none", tmp_path / "file", tmp_path / "file" / "below")))
    assert not paths.is_missing(tmp_path) and not paths.is_missing(tmp_path / "loop")


def test_what_a_killed_save_left_goes_at_the_next_one(tmp_path: Path) -> None:
    target = tmp_path / "config.toml"
    handle, left = paths.open_part(target)
    os.close(handle)
    paths.write_private(target, b"written beside it")  # another one may be writing just now
    assert left.exists()
    long_ago = left.stat().st_mtime - 2 * paths.LEFT_SECONDS
    os.utime(left, (long_ago, long_ago))
    paths.write_private(target, b"new")
    assert not list(tmp_path.glob(".kvchat-*")) and target.read_bytes() == b"new"


def test_a_pipe_is_written_into(tmp_path: Path) -> None:
    pipe = tmp_path / "config.toml"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        paths.write_private(pipe, b"through it")
        assert os.read(reader, 99) == b"through it" and stat.S_ISFIFO(pipe.lstat().st_mode)
    finally:
        os.close(reader)


def test_folders_that_are_gone_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(paths.tempfile, "gettempdir", none)
    monkeypatch.setattr(Path, "home", lambda: Path(none()))
    monkeypatch.chdir(tmp_path)
    assert next(paths.last_resorts()) == tmp_path


def test_where_no_temp_folder_can_be_written_one_in_the_data_folder_stands_for_it(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", "/nowhere")
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [os.environ["TMPDIR"], str(tmp_path / "gone")])
    data = tmp_path / "data"
    paths.give_temp(data)
    outside = OutsideText("half a thought")
    assert outside.path.is_relative_to(data / "tmp") and mode(data / "tmp") == 0o700
    outside.remove()
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", "/nowhere")
    (tmp_path / "file").touch()
    paths.give_temp(tmp_path / "file")
    with pytest.raises(EditorError, match=r"No file for another program can be made: no usable temp.* set \$TMPDIR"):
        OutsideText("half a thought")


def test_a_temp_folder_that_can_be_written_is_used(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    paths.give_temp(tmp_path / "data")
    assert tempfile.gettempdir() == str(tmp_path) and not (tmp_path / "data").exists()
