"""`kvchat tag`, `rename`, `delete` and `restore`, and what `list`, `search` and `export` do with tags."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from kvchat.cli import main
from kvchat.prompt.conversation import Conversation
from kvchat.prompt.message import Message, Role, new_id, node, system_message
from kvchat.store import Store
from whole_rows import add_nodes


def opened() -> Store:
    return Store.open(Path(os.environ["KVCHAT_DATA_DIR"]))


@pytest.fixture
def ids() -> dict[str, str]:
    """The ids of three conversations by their titles, the last one the newest."""
    found = {}
    store = opened()
    for at, title in enumerate(("Lamp", "Fog", "Bees"), 10):
        root = node(None, system_message(""), 1.0)
        record = store.create(Conversation(new_id(), root.id, at, at, title), root)
        question = node(store.tree(record.id)[record.head or ""], Message(Role.USER, f"a wick of {title}"), at)
        add_nodes(store, replace(record, head=question.id, turns=1), [question])
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


def titles(out: str) -> list[str]:
    return [one["title"] for one in json.loads(out)]


def test_tags_are_put_on_taken_off_and_listed(ids, said) -> None:
    assert said("tag") == (0, "There are no tags yet. kvchat tag ID NAME puts one on a conversation.\n", "")
    assert said("tag", ids["Lamp"][:8], "Work", "#home") == (0, "home\nwork\n", "")
    assert said("tag", ids["Fog"], "work") == (0, "work\n", "")
    assert said("tag", ids["Lamp"], "favorite", "--remove", "home") == (0, "favourite\nwork\n", "")
    assert said("tag", ids["Lamp"]) == (0, "favourite\nwork\n", "")
    assert json.loads(said("tag", ids["Lamp"], "--json")[1]) == ["favourite", "work"]
    assert said("tag") == (0, "favourite  1 conversation\nwork       2 conversations\n", "")
    assert json.loads(said("tag", "--json")[1]) == {"favourite": 1, "work": 2}
    assert said("tag", ids["Fog"], "-r", "work") == (0, "No tags.\n", "")


def test_the_list_leaves_out_the_archived_and_shows_tags(ids, said) -> None:
    said("tag", ids["Lamp"], "work", "favourite")
    said("tag", ids["Fog"], "archive", "work")
    assert titles(said("list", "--json")[1]) == ["Bees", "Lamp"], "newest first"
    assert titles(said("list", "--tag", "archive", "--json")[1]) == ["Fog"]
    assert titles(said("list", "--tag", "work", "--json")[1]) == ["Fog", "Lamp"]
    assert titles(said("list", "--tag", "work", "--tag", "favourite", "--json")[1]) == ["Lamp"]
    assert json.loads(said("list", "--tag", "favourite", "--json")[1])[0]["tags"] == ["favourite", "work"]
    assert said("list")[1].splitlines()[1].endswith("1 turn  ★ Lamp #work")
    assert said("list", "--tag", "x") == (0, "No conversation has the tag x. kvchat tag lists the tags.\n", "")
    for title in ("Lamp", "Bees"):
        said("tag", ids[title], "archive")
    assert "kvchat list --tag archive" in said("list")[1]


def test_a_search_keeps_to_a_tag(ids, said) -> None:
    said("tag", ids["Fog"], "work")
    assert said("search", "wick", "tag:work") == (0, f"{ids['Fog'][:8]}  Fog  user: a wick of Fog\n", "")
    assert said("search", "tag:work") == (0, f"{ids['Fog'][:8]}  Fog  title: Fog\n", "")
    assert said("search", "tag:none", "wick") == (1, "", "Nothing found.\n")


def test_what_has_a_tag_is_exported_with_it(ids, said) -> None:
    for title in ("Fog", "Bees"):
        said("tag", ids[title], "work", "archive")
    status, out, _ = said("export", "--tag", "work", "-f", "json")
    found = json.loads(out)["conversations"]
    assert status == 0 and [one["conversation"]["title"] for one in found] == ["Bees", "Fog"]
    assert found[0]["conversation"]["tags"] == ["archive", "work"]
    assert len(json.loads(said("export", "--all", "-f", "json")[1])["conversations"]) == 3, "the archived too"
    assert said("export", "--tag", "none")[::2] == (
        1,
        "kvchat: No conversation has the tag none. kvchat tag lists the tags.\n",
    )
    assert said("export", "--tag", "work", "--all")[::2] == (
        2,
        "kvchat: Give the id of one conversation, --tag NAME, or --all.\n",
    )


def test_all_are_exported_to_a_folder_a_file_each(ids, said, tmp_path) -> None:
    for name in ("chats", "pages/", "new/again/"):
        if name == "chats":
            (tmp_path / name).mkdir()
        status, out, err = said("export", "--all", "-f", "md", "-o", f"{tmp_path}/{name}")
        assert (status, out.rstrip(), err) == (0, str(tmp_path / name), "")
        files = sorted((tmp_path / name).iterdir())
        assert [file.name.partition("-")[0] for file in files] == ["bees", "fog", "lamp"]
        assert all(f"a wick of {title}" in file.read_text() for title, file in zip(sorted(ids), files, strict=True))
    said("rename", ids["Lamp"], "Another", "name")
    for format in ("md", "json", "md"):
        assert said("export", "--all", "-f", format, "-o", f"{tmp_path}/chats")[0] == 0
    names = sorted(file.name.partition("-")[0] for file in (tmp_path / "chats").iterdir())
    assert names == ["another", "bees", "bees", "fog", "fog", "lamp"], "each conversation has a file of each format"
    (file,) = (tmp_path / "chats").glob("lamp-*")
    assert "# Another name" in file.read_text()
    (tmp_path / "plain").touch()
    status, out, err = said("export", "--all", "-o", f"{tmp_path}/plain/sub/")
    assert (status, out) == (1, "") and "could not be written" in err and "Traceback" not in err


def test_a_conversation_is_renamed_deleted_and_restored(ids, said) -> None:
    assert said("rename", ids["Lamp"][:6], "The", " great  lamp ") == (0, "The great lamp\n", "")
    id = ids["Lamp"][:8]
    assert said("delete", id) == (0, f"Deleted “The great lamp”. To bring it back: kvchat restore {id}\n", "")
    assert titles(said("list", "--json")[1]) == ["Bees", "Fog"]
    assert titles(said("list", "--trash", "--json")[1]) == ["The great lamp"]
    assert said("restore", id) == (0, "Restored “The great lamp”.\n", "")
    assert titles(said("list", "--json")[1]) == ["Bees", "Fog", "The great lamp"]
    assert said("list", "--trash")[1] == "The trash is empty.\n"
    assert said("delete", ids["Fog"], ids["Bees"])[0] == 0
    assert titles(said("list", "--json")[1]) == ["The great lamp"]


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (("tag", "LAMP", "two words"), 2, "“two words” cannot be a tag: give one word of up to 40 characters"),
        (("tag", "ffffffff", "work"), 1, 'No conversation "ffffffff". IDs look like 4097b73d (kvchat list).'),
        (("tag", "--remove", "work"), 2, "Say which conversation loses the tag"),
        (("rename", "LAMP", "  "), 2, "The title is empty."),
        (("rename", "ffffffff", "x"), 1, 'No conversation "ffffffff". IDs look like 4097b73d (kvchat list).'),
        (("delete", "LAMP", "ffffffff"), 1, 'No conversation "ffffffff". IDs look like 4097b73d (kvchat list).'),
        (("restore", "LAMP"), 1, "“Lamp” is not in the trash."),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence_and_nothing_is_changed(
    ids, said, arguments, status, sentence
) -> None:
    got, out, err = said(*(ids["Lamp"] if one == "LAMP" else one for one in arguments))
    assert (got, out) == (status, "") and sentence in err and "Traceback" not in err
    assert titles(said("list", "--json")[1]) == ["Bees", "Fog", "Lamp"]


def test_what_is_deleted_already_is_not_deleted_again(ids, said) -> None:
    said("delete", ids["Fog"])
    assert said("delete", ids["Lamp"], ids["Fog"])[::2] == (1, "kvchat: “Fog” is in the trash already.\n")
    assert titles(said("list", "--json")[1]) == ["Bees", "Lamp"]
