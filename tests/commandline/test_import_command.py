"""`kvchat import`: files taken in, what is said of it in words and as JSON, and taken back."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from import_samples import SAMPLES, chatgpt_conversation
from kvchat.cli import main
from kvchat.store import Store
from toyserver import ToyServer, tokens


def titles(folder: Path) -> list[str]:
    store = Store.open(folder / "data")
    try:
        return sorted(one.title for one in store.conversations())
    finally:
        store.close()


async def test_it_says_what_it_took_what_it_left_out_and_how_to_undo_it(run: Any, own_folders: Path) -> None:
    path = SAMPLES["chatgpt"](own_folders, 3, broken=2)
    done = await run("import", path)
    assert (done.status, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[:2] == ["Imported 3 conversations (45 messages).", "From ChatGPT."]
    assert "3 images left out; a line takes its place" in lines
    assert "chatgpt.zip, conversations-000.json: 1 conversation skipped: damaged, no JSON" in lines
    assert "3 other files passed over." in lines
    assert titles(own_folders) == ["Night 0", "Night 1", "Night 2"]
    again = await run("import", path)
    assert again.out.startswith("Nothing new: 3 conversations as imported before.\n") and again.status == 0
    undone = await run(*lines[-1].removeprefix("To undo it: kvchat ").split())
    assert (undone.status, undone.out) == (0, "Import undone: 3 conversations moved to the trash.\n")
    assert titles(own_folders) == []
    back = await run("import", path)
    assert back.out.startswith("3 came back from the trash.")


async def test_what_is_archived_there_is_out_of_the_list_and_the_report_counts_the_tags(
    run: Any, own_folders: Path
) -> None:
    path = own_folders / "conversations.json"
    rows = [
        {**chatgpt_conversation(number), "is_archived": number < 2, "is_starred": number == 2} for number in range(3)
    ]
    path.write_text(json.dumps(rows))
    done = await run("import", path)
    assert "Tags: archive (2), favourite (1)." in done.out.splitlines()
    assert [one["title"] for one in json.loads((await run("list", "--json")).out)] == ["Night 2"]
    assert (await run("list", "--tag", "archive")).out.count("Night") == 2


async def test_json_has_all_of_it(run: Any, own_folders: Path) -> None:
    path = SAMPLES["open_webui"](own_folders, 3, broken=1)
    dry = json.loads((await run("import", "--json", "--dry-run", path)).out)
    assert titles(own_folders) == []
    done = json.loads((await run("import", "--json", path)).out)
    assert done.pop("import") and dry.pop("import") is None
    assert {**dry, "dry_run": False} == done
    assert done == {
        "dry_run": False,
        "stopped": False,
        "new": 3,
        "grown": 0,
        "restored": 0,
        "unchanged": 0,
        "messages": 45,
        "programs": {"Open WebUI": 3},
        "tags": {},
        "left_out": {"images": 3},
        "other_files": 0,
        "skipped": [{"file": str(path), "whole_file": False, "conversations": 1, "kind": "not_json", "arguments": {}}],
    }
    undone = json.loads((await run("import", "--undo", "--json")).out)
    assert (undone["trashed"], undone["kept"], undone["back"]) == (3, 0, 0)


async def test_many_files_and_folders_at_once(run: Any, own_folders: Path) -> None:
    paths = [SAMPLES[name](own_folders, 2) for name in ("claude", "lm_studio", "llm", "oterm")]
    done = await run("import", *paths, own_folders / "none.zip")
    assert done.status == 0
    assert "From Claude (2), LM Studio (2), llm (2) and oterm (2)." in done.out
    assert f"{own_folders / 'none.zip'}: There is no such file." in done.out
    assert len(titles(own_folders)) == 8


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"hello", "It holds no conversations in a format that kvchat knows."),
        (b"PK\x03\x04", "The archive is damaged."),
        (
            json.dumps([chatgpt_conversation(0)]).encode()[:-50],
            "The file is not complete: it ends in the middle of a conversation",
        ),
    ],
)
async def test_nothing_usable_is_one_sentence_and_status_1(
    run: Any, own_folders: Path, content: bytes, said: str
) -> None:
    (own_folders / "x").write_bytes(content)
    done = await run("import", own_folders / "x")
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith(f"kvchat: {own_folders / 'x'}: {said}") and done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ((), 2, "Give the files to import, or --undo"),
        (("x", "--undo", "1"), 2, "Give the files to import, or --undo"),
        (("--undo",), 1, "There is no import that could be undone."),
        (("--undo", "abc"), 1, "There is no import abc that could be undone."),
    ],
)
async def test_wrong_usage_is_told(run: Any, arguments: tuple[str, ...], status: int, said: str) -> None:
    done = await run("import", *arguments)
    assert (done.status, done.out) == (status, "")
    assert said in done.err


async def test_a_bar_on_a_terminal_goes_when_it_is_done(
    run: Any, own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvchat.cli.progress.EVERY", 0)  # every state, however fast the machine is
    done = await run("import", SAMPLES["claude"](own_folders, 60), terminal=True)
    assert "█" in done.out and "conversations.json" not in done.out.splitlines()[0]
    assert "Imported 60 conversations (720 messages)." in done.out.replace("\r", "\n")


def test_names_of_files_are_safe_to_show(own_folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = own_folders / "a\x1b[31mb"
    path.write_text("hello")
    assert main(["import", str(path)]) == 1
    assert "\x1b" not in capsys.readouterr().err


async def test_imports_of_one_file_at_once_take_turns_and_tell_each_conversation_once(
    run: Any, spawn: Any, own_folders: Path
) -> None:
    file = own_folders / "conversations.json"
    file.write_text(json.dumps([chatgpt_conversation(number) for number in range(100)]))
    done = await asyncio.gather(*(spawn("import", file, "--json") for _ in range(3)))
    told = [json.loads(one.out) for one in done]
    assert sorted(one["new"] for one in told) == [0, 0, 100], [(one["new"], one["grown"]) for one in told]
    made = next(one["import"] for one in told if one["new"])
    assert "100 conversations moved to the trash" in (await run("import", "--undo", made)).out
    assert titles(own_folders) == []


async def test_two_machines_exchange_their_chats_and_nothing_is_doubled(run: Any, own_folders: Path) -> None:
    """As docs/two-machines.md says: over a file, back and forth, as often as one likes."""
    laptop, desktop = ({"KVCHAT_DATA_DIR": str(own_folders / name)} for name in ("laptop", "desktop"))
    files = {name: own_folders / f"{name}.json" for name in ("laptop", "desktop")}

    async def chats(machine: dict[str, str]) -> list[tuple[str, list[str]]]:
        exported = json.loads((await run("export", "--all", "-f", "json", env=machine)).out)
        return sorted(
            (one["conversation"]["title"], [node["text"] for node in one["nodes"]]) for one in exported["conversations"]
        )

    async with ToyServer() as server:
        server.on_chat(*(tokens(f"Answer {number}.", prompt=50 + number) for number in range(3)))
        ask = ("ask", "--base-url", server.url)
        await run(*ask, "What is a lamp?", env=laptop)
        await run("export", "--all", "-o", files["laptop"], env=laptop)
        for _ in range(2):
            assert (await run("import", files["laptop"], env=desktop)).status == 0
        assert await chats(desktop) == await chats(laptop)
        await run(*ask, "-c", "And a lighthouse?", env=desktop)  # both go on from the same answer
        await run(*ask, "-c", "And the sea?", env=laptop)
        for _ in range(2):
            await run("export", "--all", "-o", files["desktop"], "--force", env=desktop)
            await run("import", files["desktop"], env=laptop)
            await run("export", "--all", "-o", files["laptop"], "--force", env=laptop)
            await run("import", files["laptop"], env=desktop)
    (there,), (here,) = await chats(desktop), await chats(laptop)
    assert sorted(there[1]) == sorted(here[1])
    assert [text for text in here[1] if text.endswith("?")].count("What is a lamp?") == 1
    assert {"And a lighthouse?", "And the sea?"} <= set(here[1])
    assert len(here[1]) == 7  # the system prompt, three questions, three answers
