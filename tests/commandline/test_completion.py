"""`kvchat completion` and `kvchat --man`: shells complete what there is, and man shows it."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kvchat.cli import COMMANDS, parser


def commands(of: argparse.ArgumentParser, above: str = "") -> list[str]:
    found = []
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                found += [f"{above}{name}", *commands(inner, f"{above}{name} ")]
    return found


def ran(*command: object, cwd: Path | None = None) -> str:
    """What a program said, on both streams."""
    done = subprocess.run(
        list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True, cwd=cwd
    )
    return done.stdout


def test_every_command_has_words_so_that_no_script_leaves_it_out():
    def look(of: argparse.ArgumentParser) -> None:
        for action in of._actions:
            if isinstance(action, argparse._SubParsersAction):
                assert {one.dest for one in action._choices_actions if one.help} == set(action.choices)
                for inner in action.choices.values():
                    look(inner)

    look(parser())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
async def test_each_script_is_one_that_the_shell_reads(run, shell, tmp_path):
    done = await run("completion", shell)
    assert done.status == 0 and not done.err
    assert all(name in done.out for line in commands(parser()) for name in line.split())
    if shutil.which(shell):
        script = tmp_path / "script"
        script.write_text(done.out)
        assert ran(shell, "-n", script) == ""


async def test_no_script_asks_for_names_when_it_is_loaded(run):
    for shell in ("bash", "zsh"):
        lines = [line for line in (await run("completion", shell)).out.splitlines() if "--names" in line]
        assert lines and all(line.startswith("_kvchat_") for line in lines)


async def test_an_unknown_shell_is_told_with_those_that_there_are(run):
    done = await run("completion", "tcsh")
    assert done.status == 2 and "choose from bash, zsh, fish" in done.err


async def test_names_that_cannot_be_looked_up_are_none(run, own_folders):
    (own_folders / "data").write_text("not a folder")
    done = await run("completion", "bash", "--names", "conversations")
    assert (done.status, done.out, done.err) == (0, "", "")


@pytest.fixture
def kvchat(tmp_path: Path, own_folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`kvchat` on the path."""
    program = tmp_path / "bin" / "kvchat"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m kvchat.cli "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")


async def offered(run, shell: str, line: str, folder: Path) -> set[str]:
    """What the shell itself offers at the end of this line."""
    script = folder / f"{shell}-script"
    script.write_text((await run("completion", shell)).out)
    if shell == "fish":
        told = ["fish", "-N", "-c", f"source {script}; complete -C '{line}'"]
    else:
        words = " ".join(f"'{word}'" for word in line.split(" "))
        told = [
            "bash",
            "--norc",
            "-c",
            f"source {script}; COMP_WORDS=({words})\n"
            f"COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMP_LINE='{line}'; COMP_POINT=${{#COMP_LINE}}\n"
            '$(complete -p kvchat | sed "s/.*-F \\([^ ]*\\).*/\\1/") kvchat "${COMP_WORDS[COMP_CWORD]}" '
            '"${COMP_WORDS[COMP_CWORD - 1]}" 2>/dev/null; printf "%s\\n" "${COMPREPLY[@]}"',
        ]
    said = await asyncio.to_thread(ran, *told, cwd=folder)
    return {found.partition("\t")[0].strip() for found in said.splitlines()} - {""}


@pytest.mark.process
@pytest.mark.parametrize("shell", ["bash", "fish"])
async def test_the_shell_completes(run, kvchat, shell, tmp_path, own_folders):
    if not shutil.which(shell):
        pytest.skip(f"no {shell} here")
    file = own_folders / "config" / "config.toml"
    file.parent.mkdir(exist_ok=True)
    file.write_text('[profiles.work]\nbase_url = "http://127.0.0.1:9"\n')
    (tmp_path / "out").mkdir()
    assert set(COMMANDS) <= await offered(run, shell, "kvchat ", tmp_path)
    assert await offered(run, shell, "kvchat conf", tmp_path) == {"config"}
    assert {"get", "set", "unset", "edit"} <= await offered(run, shell, "kvchat config ", tmp_path)
    assert await offered(run, shell, "kvchat config get time_stamp_", tmp_path) == {"time_stamp_minutes"}
    assert "work" in await offered(run, shell, "kvchat --profile ", tmp_path)
    assert "--no-stdin" in await offered(run, shell, "kvchat ask --no", tmp_path)


async def test_the_manual_page_has_every_command_and_option(run, tmp_path):
    done = await run("--man")
    assert done.status == 0
    for command in commands(parser()):
        assert f".SS kvchat {command}".replace("-", "\\-") in done.out
    assert "\\-\\-no\\-stdin" in done.out and "$" not in done.out.partition(".SH OPTIONS")[0]
    if shutil.which("man"):
        page = tmp_path / "kvchat.1"
        page.write_text(done.out)
        assert "EXIT STATUS" in ran("man", "--warnings", "-l", page)  # warnings would stand there too
