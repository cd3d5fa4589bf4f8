"""The start of a command where something is not as it should be: one sentence, or nothing, and never a traceback."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from toyserver import ToyServer

PROGRAM = f"{sys.executable} -m kvchat"


async def shell(environment: dict[str, str], line: str, **more: str) -> tuple[int, str, str]:
    """Status, standard output and standard error of a line of the shell, in a folder of its own."""
    process = await asyncio.create_subprocess_shell(
        line,
        env={**environment, **more},
        cwd=environment["HOME"],
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


def startup(folder: Path, text: str) -> str:
    """A folder for PYTHONPATH, with code that Python runs before anything of kvchat."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(text)
    return str(folder)


INTERRUPTS = """
import os, sys
hit = []
def heard(event, arguments):
    if event == "import" and arguments[0] == {module!r} and not hit:
        hit.append(event)
        os.kill(os.getpid(), 2)
sys.addaudithook(heard)
"""


@pytest.mark.parametrize(
    "module", ["kvchat.cli", "argparse", "kvchat.chat.question", "kvchat.store", "kvchat.chat.service"]
)
async def test_ctrl_c_while_it_starts_says_nothing(environment: dict[str, str], tmp_path: Path, module: str) -> None:
    python_path = startup(tmp_path / "site", INTERRUPTS.format(module=module))
    async with ToyServer() as server:
        line = f"{PROGRAM} --base-url {server.url} ask hi"
        status, _, err = await shell(environment, line, PYTHONPATH=python_path)
    assert status in (-2, 130) and err == ""


async def test_ctrl_c_that_is_ignored_stays_ignored(environment: dict[str, str], tmp_path: Path) -> None:
    python_path = startup(tmp_path / "site", INTERRUPTS.format(module="argparse"))
    status, out, _ = await shell(environment, f"trap '' INT; {PROGRAM} list", PYTHONPATH=python_path)
    assert (status, out) == (0, "There are no conversations yet.\n")


@pytest.mark.parametrize("option", ["--man", "--help", "ask --help", "--version", "config show", "completion bash"])
async def test_a_reader_that_is_gone_is_no_matter(environment: dict[str, str], option: str) -> None:
    _, _, err = await shell(environment, f"{PROGRAM} {option} | (exec 0<&-; sleep 1)")
    assert err == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize(
    "option",
    [
        "--man",
        "--version",
        "ask --help",
        "config path",
        "completion bash",
        "list",
        "export --all -f html -o -",
        "stats",
        "backends",
        "trunk list",
    ],
)
async def test_output_that_cannot_be_written_is_one_sentence(environment: dict[str, str], option: str) -> None:
    status, _, err = await shell(environment, f"{PROGRAM} {option} >/dev/full")
    assert status == 1 and err.startswith("kvchat: ") and err.count("\n") == 1 and "space" in err


@pytest.mark.parametrize("module", ["_sqlite3", "_ssl", "zlib"])
async def test_a_python_without_a_module_is_one_sentence(
    environment: dict[str, str], tmp_path: Path, module: str
) -> None:
    python_path = startup(tmp_path / f"without{module}", f"import sys\nsys.modules[{module!r}] = None\n")
    async with ToyServer() as server:
        line = f"{PROGRAM} --base-url {server.url} ask hi"
        status, _, err = await shell(environment, line, PYTHONPATH=python_path)
    assert status == 1 and err.count("\n") == 1 and f"was built without {module.lstrip('_')}," in err


@pytest.mark.parametrize("name", ["secrets", "calendar", "argparse", "queue", "uuid", "random"])
@pytest.mark.parametrize("where", ["folder", "PYTHONPATH"])
async def test_a_file_named_like_a_module_of_python_is_not_taken_for_it(
    environment: dict[str, str], tmp_path: Path, name: str, where: str
) -> None:
    folder = Path(environment["HOME"]) if where == "folder" else tmp_path
    (folder / f"{name}.py").write_text("raise RuntimeError('not me')\n")
    more = {} if where == "folder" else {"PYTHONPATH": str(folder)}
    async with ToyServer() as server:
        status, out, err = await shell(environment, f"{PROGRAM} --base-url {server.url} ask hi", **more)
    assert (status, err) == (0, "") and out


async def test_a_user_without_a_home_is_told_what_to_set(environment: dict[str, str], tmp_path: Path) -> None:
    nobody = "import pwd\ndef getpwuid(_): raise KeyError\npwd.getpwuid = getpwuid\n"
    python_path = startup(tmp_path / "site", nobody)
    bare = "unset HOME KVCHAT_CONFIG KVCHAT_DATA_DIR;"
    status, _, err = await shell(environment, f"{bare} {PROGRAM} list", PYTHONPATH=python_path)
    assert status == 1 and err.count("\n") == 1 and "Set HOME" in err
    async with ToyServer() as server:
        line = f"unset HOME; {PROGRAM} --base-url {server.url} ask hi"
        assert (await shell(environment, line, PYTHONPATH=python_path))[::2] == (0, "")


@pytest.mark.parametrize(
    "chosen",
    ["--incognito", "--data-dir {data}", "--data-dir {data} --incognito", "KVCHAT_DATA_DIR={data}"],
)
async def test_a_user_without_a_home_needs_none_with_a_data_folder_or_incognito(
    environment: dict[str, str], tmp_path: Path, chosen: str
) -> None:
    nobody = "import pwd\ndef getpwuid(_): raise KeyError\npwd.getpwuid = getpwuid\n"
    python_path = startup(tmp_path / "site", nobody)
    chosen = chosen.format(data=tmp_path / "own")
    variable, option = (chosen, "") if chosen.startswith("KVCHAT") else ("", chosen)
    async with ToyServer() as server:
        line = (
            f"unset HOME KVCHAT_CONFIG KVCHAT_DATA_DIR; {variable} {PROGRAM} {option} --base-url {server.url} ask hi; "
            f"{variable} {PROGRAM} {option} config show"
        )
        status, out, err = await shell(environment, line, PYTHONPATH=python_path)
    assert (status, err) == (0, "") and out
    assert (tmp_path / "own" / "kvchat.db").exists() == ("--incognito" not in chosen)


@pytest.mark.parametrize("zone", ["Nonsense/Zone", ":/etc/passwd", "ABC99999999", "<>+1"])
async def test_a_time_zone_of_nonsense_is_no_failure(environment: dict[str, str], zone: str) -> None:
    async with ToyServer() as server:
        status, _, err = await shell(environment, f"{PROGRAM} --base-url {server.url} ask hi", TZ=zone)
    assert status == 0 and "Traceback" not in err


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs a device without an end")
async def test_a_system_prompt_without_an_end_is_not_read_to_it(environment: dict[str, str]) -> None:
    status, _, err = await shell(environment, f"{PROGRAM} -s @/dev/zero ask hi")
    assert status == 1 and err.startswith("kvchat: More than 1,024 KiB came from /dev/zero")
