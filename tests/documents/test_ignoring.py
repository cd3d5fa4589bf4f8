"""What ignore files leave out, as git sees it."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from indexing_kit import made, paths, skipped

from kvchat.documents.collection import IndexingOptions

HIDDEN = IndexingOptions(hidden=True)
_RULES = [
    "*.log",
    "!keep.log",
    "build/",
    "!build/",
    "/a",
    "/a/*",
    "!/a/b",
    "a/b",
    "**/c",
    "c/**",
    "a/**/c",
    "b",
    "!b",
    "*",
    "!*/",
    "!*.md",
    "d?.md",
    "[ab].md",
    "[!a]",
    "\\#x",
    "# comment",
    "",
    " ",
    "x.md ",
    "x.md\\ ",
    "a/",
    "!a/b/x.md",
    "b/*.md",
    "*.m[cd]",
    "c",
    "!c/",
    "/*",
    "!/b",
    "dd",
    "\\!b",
    "!",
    "a//b",
    "***",
    "[z-a]",
    "b/**/x.md",
    "**/",
    "!a/**/",
    "!**/",
]
_PLACES = ["", "a/", "a/b/", "b/", "c/", "a/c/", "build/", "b/a/", "b/a/b/", "dd/"]
_NAMES = ["a", "b", "c", "x.md", "a.md", "d1.md", "y.log", "keep.log", "#x", "!b"]


def test_the_deeper_file_and_the_later_line_decide(tmp_path: Path) -> None:
    root = made(
        tmp_path / "r",
        {
            ".gitignore": "*.log\n/top.md\nout/\n!out/kept.md\n",
            "a.log": "",
            "top.md": "",
            "sub/top.md": "",
            "out/kept.md": "",
            "sub/.gitignore": "!b.log\nc.md\n",
            "sub/a.log": "",
            "sub/b.log": "",
            "sub/c.md": "",
            "sub/deep/c.md": "",
            "c.md": "",
        },
    )
    assert paths(root) == ["c.md", "sub/b.log", "sub/top.md"]
    assert skipped(root) == {}


def test_ignore_files_of_other_tools_come_after_gits(tmp_path: Path) -> None:
    root = made(
        tmp_path / "r",
        {
            ".gitignore": "a.md\nb.md\n",
            ".ignore": "!a.md\nc.md\n",
            ".kvchatignore": "!c.md\nd.md\n",
            "a.md": "",
            "b.md": "",
            "c.md": "",
            "d.md": "",
            "e.md": "",
        },
    )
    assert paths(root) == ["a.md", "c.md", "e.md"]


def test_excludes_of_the_repository_count_least(tmp_path: Path) -> None:
    root = made(
        tmp_path / "r",
        {".git/info/exclude": "*.md\n", ".gitignore": "!b.md\n", "a.md": "", "b.md": "", "sub/c.md": "", "d.txt": ""},
    )
    assert paths(root) == ["b.md", "d.txt"]


def test_a_part_of_a_repository_has_the_rules_of_the_whole(tmp_path: Path) -> None:
    made(
        tmp_path / "r",
        {
            ".git/info/exclude": "e.md",
            ".gitignore": "*.tmp\n/docs/x.md\n",
            "docs/.gitignore": "y.md",
            "docs/guide/a.md": "",
            "docs/guide/b.tmp": "",
            "docs/guide/e.md": "",
            "docs/guide/y.md": "",
            "docs/guide/x.md": "",
        },
    )
    assert paths(tmp_path / "r" / "docs" / "guide") == ["a.md", "x.md"]


def test_a_folder_that_was_named_is_indexed_although_it_is_ignored(tmp_path: Path) -> None:
    made(tmp_path / "r", {".git/": "", ".gitignore": "build/\n", "build/docs/a.md": ""})
    assert paths(tmp_path / "r" / "build" / "docs") == ["a.md"]


def test_folders_above_matter_only_inside_a_repository(tmp_path: Path) -> None:
    made(tmp_path, {".gitignore": "*.md", "r/a.md": ""})
    assert paths(tmp_path / "r") == ["a.md"]


def test_an_ignored_file_is_not_mentioned_whatever_it_is(tmp_path: Path) -> None:
    root = made(tmp_path / "r", {".gitignore": "private\n*.png\n*.txt\n"})
    (root / "private").symlink_to(root)
    (root / "a.png").write_bytes(b"")
    (root / os.fsdecode(b"\xff.txt")).write_bytes(b"")
    assert paths(root) == [] and skipped(root) == {}


@pytest.mark.parametrize("content", ["\ufeff*.log\r\n!b.log\r\n", "[z-a]\n!\n\\\n*.log\n!b.log", "\0\n*.log\n!b.log\n"])
def test_odd_ignore_files_are_read_as_far_as_they_can_be(tmp_path: Path, content: str) -> None:
    root = made(tmp_path / "r", {".gitignore": content, "a.log": "", "b.log": ""})
    assert paths(root) == ["b.log"]


def test_a_line_made_to_take_for_ever_is_passed_over(tmp_path: Path) -> None:
    root = made(tmp_path / "r", {".gitignore": "*a" * 60 + "b\n**/x/**/*.log\n", "a" * 250: "", "x/y/z.log": ""})
    assert paths(root) == ["a" * 250]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@pytest.mark.parametrize("seed", range(40))
def test_the_same_files_are_left_out_as_by_git(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    root = made(
        tmp_path / "r",
        {
            f"{place}{name}": ""
            for place in _PLACES
            for name in _NAMES
            if f"{place}{name}/" not in _PLACES and draw.random() < 0.8
        },
    )
    for place in draw.sample(_PLACES, 4):
        if (root / place).is_dir():
            (root / place / ".gitignore").write_text("\n".join(draw.choices(_RULES, k=draw.randint(1, 5))))
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", "init", "-q", str(root)], check=True, env=environment)
    (root / ".git/info/exclude").write_text("\n".join(draw.choices(_RULES, k=2)))
    listed = (
        subprocess.run(
            ["git", "-C", str(root), "ls-files", "-z", "--others", "--exclude-standard"],
            check=True,
            env=environment,
            capture_output=True,
        )
        .stdout.decode()
        .split("\0")
    )
    assert sorted(paths(root, HIDDEN)) == sorted(filter(None, listed))
