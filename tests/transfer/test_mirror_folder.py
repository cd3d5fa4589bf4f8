"""The folder of the mirror: whose file is whose, by the header alone."""

from __future__ import annotations

import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from transfer_samples import chat

from kvchat.prompt.conversation import Conversation
from kvchat.transfer.formats import TransferError
from kvchat.transfer.mirror import MirrorFolder, state_of
from kvchat.transfer.write import NAME_LENGTH, slug

SAID = chat("How many nights?", "Fifty-nine.")


def source(id="ab" * 16, title="Lighthouse log", **changes):
    return replace(SAID, conversation=replace(SAID.conversation, id=id, title=title, **changes))


def files(folder):
    return sorted(path.name for path in folder.iterdir() if path.is_file())


def test_a_file_reads_well_and_is_private(tmp_path):
    MirrorFolder(tmp_path, "chats").put(source())
    path = tmp_path / "chats" / "lighthouse-log-abababab.md"
    lines = path.read_text().splitlines()
    assert lines[0] == "---" and lines[1].startswith(f"# kvchat {'ab' * 16} ")
    assert 'title: "Lighthouse log"' in lines and "# Lighthouse log" in lines and "Fifty-nine." in lines
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_its_name_stays_when_the_title_changes_and_follows_the_person(tmp_path):
    MirrorFolder(tmp_path, ".").put(source())
    MirrorFolder(tmp_path, ".").put(source(title="The lamp"))
    assert files(tmp_path) == ["lighthouse-log-abababab.md"]
    (tmp_path / "lighthouse-log-abababab.md").rename(tmp_path / "My lamp-abababab.md")
    again = MirrorFolder(tmp_path, ".")
    assert again.state("ab" * 16) == state_of(source(title="The lamp").conversation)
    again.put(source(title="Another"))
    assert files(tmp_path) == ["My lamp-abababab.md"]
    assert "# Another" in (tmp_path / "My lamp-abababab.md").read_text()


def test_a_file_of_the_persons_is_never_touched(tmp_path):
    mine = tmp_path / "lighthouse-log-abababab.md"
    mine.write_text("my own notes\n")
    other = tmp_path / "other-abababab.md"
    MirrorFolder(tmp_path, ".").put(source("ab" * 4 + "12" * 12, "other"))
    folder = MirrorFolder(tmp_path, ".")
    folder.put(source())
    folder.put(source(title="Anew"))
    assert mine.read_text() == "my own notes\n"
    assert "Anew" in (tmp_path / "lighthouse-log-abababababab.md").read_text()
    folder.remove("ab" * 16)
    assert files(tmp_path) == sorted([mine.name, other.name])


def test_where_the_person_took_the_header_away_the_file_is_theirs(tmp_path):
    folder = MirrorFolder(tmp_path, ".")
    folder.put(source())
    path = tmp_path / "lighthouse-log-abababab.md"
    path.write_text("---\ntitle: mine\n---\n")
    folder.put(source(title="Lighthouse log"))
    folder.remove("ab" * 16)
    assert path.read_text() == "---\ntitle: mine\n---\n"


def test_what_a_person_changed_in_our_file_is_written_over(tmp_path):
    folder = MirrorFolder(tmp_path, ".")
    folder.put(source())
    path = tmp_path / "lighthouse-log-abababab.md"
    before = path.read_text()
    path.write_text(before.replace("Fifty-nine", "Sixty"))
    folder.put(source())
    assert path.read_text() == before


def test_a_file_that_another_kvchat_wrote_meanwhile_is_taken_for_ours(tmp_path):
    one, other = MirrorFolder(tmp_path, "."), MirrorFolder(tmp_path, ".")
    one.put(source())
    other.put(source())
    assert files(tmp_path) == ["lighthouse-log-abababab.md"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("not/there", "there is no such folder"),
        ("~nobody-of-this-name/x", "there is no such user"),
        ("file", "not a folder"),
        ("a\0b", "is not a file name"),
    ],
)
def test_a_folder_that_cannot_be_is_told_in_a_sentence(tmp_path, name, words):
    (tmp_path / "file").write_text("")
    with pytest.raises(TransferError, match=words):
        MirrorFolder(tmp_path, name)


@given(title=st.text(max_size=300))
def test_every_title_gives_a_name_that_is_found_again(tmp_path_factory, title):
    folder = tmp_path_factory.mktemp("mirror")
    MirrorFolder(folder, ".").put(source(title=title))
    (name,) = files(folder)
    assert len(name) <= NAME_LENGTH and name == slug(title, "-abababab.md") + "-abababab.md"
    MirrorFolder(folder, ".").remove("ab" * 16)
    assert files(folder) == []


def test_the_state_changes_with_all_that_is_in_the_file():
    record = source().conversation
    for change in ({"title": "x"}, {"head": "cd" * 16}, {"updated": 1.0}, {"model": "m"}, {"tags": ("work",)}):
        assert state_of(replace(record, **change)) != state_of(record), change
    for change in ({"unread": True}, {"context_used": 7}, {"memory": False}):
        assert state_of(replace(record, **change)) == state_of(record), change
    assert isinstance(record, Conversation)
