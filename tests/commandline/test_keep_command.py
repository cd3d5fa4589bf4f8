"""`kvchat keep`, and what `list`, `cache` and `delete` say of kept conversations."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from kvchat.backends.engine.server_snapshots import shelf_of
from kvchat.backends.engine.snapshot_file import Snapshot
from kvchat.backends.engine.snapshots import SnapshotDir
from kvchat.cache.llamacpp.state_probe import StateProbe
from kvchat.cli import main
from kvchat.prompt.conversation import Conversation
from kvchat.prompt.message import Message, Role, new_id, node, system_message
from kvchat.store import Store
from whole_rows import add_nodes


def opened() -> Store:
    return Store.open(Path(os.environ["KVCHAT_DATA_DIR"]))


@pytest.fixture
def ids() -> dict[str, str]:
    """The ids of three conversations by their titles, the last one without a message."""
    found = {}
    store = opened()
    for at, title in enumerate(("Lamp", "Fog", "Empty"), 10):
        root = node(None, system_message(""), 1.0)
        record = store.create(Conversation(new_id(), root.id, at, at, title), root)
        if title != "Empty":
            question = node(store.tree(record.id)[record.head or ""], Message(Role.USER, f"a wick of {title}"), at)
            answer = node(question, Message(Role.ASSISTANT, "Yes."), at)
            add_nodes(store, replace(record, head=answer.id, turns=1), [question, answer])
        found[title] = record.id
    store.close()
    return found


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]):
    def said(*arguments: str) -> tuple[int, str, str]:
        try:
            status = main(list(arguments))
        except SystemExit as end:
            status = int(end.code or 0)
        done = capsys.readouterr()
        return status, done.out, done.err

    return said


def saved(id: str, server: str = "") -> Path:
    """A snapshot of a conversation, as the built-in engine or the server at this address leaves it; its file."""
    store = opened()
    path = tuple(one.digest.hex() for one in store.tree(id).path(store.conversation(id).head))
    store.close()
    folder = Path(os.environ["KVCHAT_DATA_DIR"]) / "snapshots"
    shelf = shelf_of(folder / "servers", server) if server else SnapshotDir(folder, least_free=0)
    shelf.load()
    name = shelf.fresh()
    (folder / f"{name}.bin").write_bytes(bytes(2_500_000))
    shelf.keep(
        Snapshot(
            name,
            id,
            path[-1],
            path,
            0,
            5120,
            2_500_000,
            "",
            "m",
            "s",
            "b",
            0.0,
            0.0,
            "",
            StateProbe(((1, -0.5),), 3, False),
            0.0,
        )
    )
    return folder / f"{name}.bin"


def test_a_conversation_is_kept_listed_marked_and_released(said, ids) -> None:
    assert said("keep") == (0, "Nothing is kept. kvchat keep ID keeps a conversation's state.\n", "")
    status, out, _ = said("keep", ids["Lamp"][:8])
    assert status == 0 and out.splitlines()[0].startswith(ids["Lamp"][:8]) and "not saved yet  Lamp" in out
    assert out.splitlines()[1] == "It is saved when the app has it open and its server is idle."
    saved(ids["Lamp"])
    status, out, _ = said("keep", "--list")
    assert "5,120 tokens, 2.5 MB  Lamp" in out and out.splitlines()[-1] == "1 kept, 2.5 MB of 4.0 GB"
    marked = {line.split("turn")[1].strip() for line in said("list")[1].splitlines()}
    assert marked == {"◆ Lamp", "Fog"}
    assert {one["title"]: one["kept"] for one in json.loads(said("list", "--json")[1])} == {"Lamp": True, "Fog": False}
    assert "kept          1 kept, 2.5 MB of 4.0 GB" in said("cache", ids["Fog"])[1]
    assert said("keep", "--remove", ids["Lamp"][:8]) == (0, "No longer kept.\n", "")
    assert "Nothing is kept" in said("keep")[1]


def test_what_an_external_server_has_saved_is_told_without_asking_it(said, ids) -> None:
    said("keep", ids["Lamp"])
    saved(ids["Lamp"], "http://127.0.0.1:9")
    assert "5,120 tokens, 2.5 MB  Lamp" in said("keep", "--list")[1]
    assert "5,120 tokens, 2.5 MB" in said("cache", ids["Lamp"])[1]
    (state,) = json.loads(said("keep", "--json")[1])["kept"]
    assert (state["tokens"], state["bytes"], state["complete"]) == (5120, 2_500_000, True)


def test_json_has_every_kept_one_and_the_room(said, ids) -> None:
    said("keep", ids["Fog"])
    saved(ids["Lamp"])
    said("keep", ids["Lamp"])
    found = json.loads(said("keep", "--json")[1])
    assert (found["bytes"], found["most_bytes"]) == (2_500_000, 4_000_000_000)
    assert [(one["title"], one["tokens"], one["complete"]) for one in found["kept"]] == [
        ("Fog", None, False),
        ("Lamp", 5120, True),
    ]


def test_a_kept_state_outlives_the_trash_and_one_that_is_not_kept_does_not(said, ids) -> None:
    files = {title: saved(ids[title]) for title in ("Lamp", "Fog")}
    said("keep", ids["Lamp"])
    said("delete", ids["Lamp"], ids["Fog"])
    assert files["Lamp"].exists() and not files["Fog"].exists()
    assert "Lamp (in the trash)" in said("keep")[1]
    said("keep", "--remove", ids["Lamp"])
    assert not files["Lamp"].exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("keep", "zzz"), 'No conversation "zzz"'),
        (("keep", "--remove"), "Say which conversation is no longer kept: kvchat keep --remove ID"),
        (("keep", "Empty"), "This conversation is empty; there is nothing to keep."),
        (("--incognito", "keep", "4097b73d"), "No conversation"),
    ],
)
def test_what_cannot_be_kept_is_told_in_a_sentence(said, ids, arguments, words) -> None:
    status, out, err = said(*(ids.get(word, word) for word in arguments))
    assert status != 0 and not out and words in err and "Traceback" not in err


def test_without_room_or_snapshots_it_is_said_what_to_do(said, ids, monkeypatch) -> None:
    saved(ids["Lamp"])
    said("keep", ids["Lamp"])
    monkeypatch.setenv("KVCHAT_CACHE_KEPT_GB", "0")
    status, _, err = said("keep", ids["Fog"])
    assert status == 1 and err == (
        "kvchat: No room: kept states may take 0 B. Release “Lamp” (2.5 MB) or raise cache.kept_gb.\n"
    )
    assert "Lamp" in said("keep")[1], "a lower bound drops nothing"
    monkeypatch.setenv("KVCHAT_ENGINE_SNAPSHOTS", "false")
    assert said("keep", ids["Fog"])[2] == "kvchat: States are not saved: the setting engine.snapshots is off.\n"
