"""Tags are kept by conversation, go with it, survive an upgrade and a damaged file, and narrow a search."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from corpus import corpus
from kvchat.prompt.conversation import Conversation
from kvchat.prompt.message import new_id
from kvchat.prompt.tags import ARCHIVE, FAVOURITE, LONGEST, TagError, listed, meant, tag_name, tagged


def tag(store, id, *add, remove=()):
    store.change(store.conversation(id), lambda row: replace(row, tags=tagged(row.tags, add, remove)))


# What a tag is


@corpus(
    ("written", "meant"),
    [
        ("Work", "work"),
        (" #travel ", "travel"),
        ("ÄRGER", "ärger"),
        ("हिन्दी", "हिन्दी"),
        ("旅行", "旅行"),
        ("v2.0", "v2.0"),
        ("favorite", FAVOURITE),
        ("Archived", ARCHIVE),
        ("é", "é"),
        ("a" * LONGEST, "a" * LONGEST),
    ],
)
def test_a_tag_is_written_in_one_way(written: str, meant: str) -> None:
    assert tag_name(written) == meant == tag_name(meant)


@corpus("written", ["", "  ", "#", "two words", "a/b", "a,b", 'a"b', "-minus", "a\x1bb", "a" * 41])
def test_what_cannot_be_a_tag_is_refused_in_a_sentence(written: str) -> None:
    with pytest.raises(TagError, match="cannot be a tag: give one word"):
        tag_name(written)


@given(st.text(max_size=60))
def test_what_is_a_tag_stays_the_same_when_it_is_read_again(text: str) -> None:
    try:
        name = tag_name(text)
    except TagError:
        return
    assert tag_name(name) == name and tagged(["/".join([name])]) == (name,)


def test_a_search_means_the_tag_of_that_name_or_those_that_begin_so() -> None:
    assert meant("Work", ["work", "workshop", "home"]) == {"work"}
    assert meant("wor", ["work", "workshop", "home"]) == {"work", "workshop"}
    assert meant("", ["work", "home"]) == {"work", "home"}
    assert meant("none", ["work"]) == frozenset()


def test_the_list_begins_with_favourites_and_leaves_the_archive_out() -> None:
    plain = [
        Conversation(str(n), None, 0, 0, tags=tags)
        for n, tags in enumerate([(), (FAVOURITE,), (ARCHIVE,), ("work",), ("a", FAVOURITE), (ARCHIVE, FAVOURITE)])
    ]
    assert [one.id for one in listed(plain)] == ["1", "4", "0", "3"]


# What the store keeps


def test_tags_are_kept_and_taken_off(store, talk) -> None:
    tag(store, talk.id, "work", FAVOURITE)
    tag(store, talk.id, "urgent", remove=["work"])
    assert store.conversation(talk.id).tags == (FAVOURITE, "urgent")
    assert [one.tags for one in store.conversations()] == [(FAVOURITE, "urgent")]


def test_an_act_stores_the_tags_that_it_changes_only(store, talk) -> None:
    """The row that a window knows is older than what another one has tagged meanwhile."""
    known = store.conversation(talk.id)
    tag(store, talk.id, "work")
    store.change(known, lambda row: replace(row, tags=tagged(row.tags, ["home"])))
    store.change(known, lambda row: replace(row, title="another title"))
    assert store.conversation(talk.id).tags == ("home", "work")


def test_tags_come_with_a_new_conversation_and_go_with_one_that_is_purged(store, talk, new_talk) -> None:
    other = replace(store.conversation(talk.id), id=new_id(), tags=("home", "work"))
    store.create(other, store.tree(talk.id)[talk.record.head])
    assert store.conversation(other.id).tags == ("home", "work")
    talk.say("one")
    tag(store, talk.id, "work")
    assert store.tags() == [("home", 1), ("work", 2)]
    store.change(store.conversation(talk.id), lambda row: replace(row, trashed=5.0))
    assert store.tags() == [("home", 1), ("work", 1)]
    store.purge_trash(6.0)
    assert store.database.rows("SELECT conversation, name FROM tag ORDER BY name") == [
        (other.id, "home"),
        (other.id, "work"),
    ]


# Searching


@pytest.fixture
def three(store, new_talk):
    """Two conversations of work, one of them of the lighthouse too; and one of neither."""
    talks = [new_talk(store, title) for title in ("Lamp", "Fog", "Bees")]
    for talk in talks:
        talk.say(f"a question about the wick in {talk.record.title}")
    tag(store, talks[0].id, "work", "lighthouse")
    tag(store, talks[1].id, "work", ARCHIVE)
    return [talk.id for talk in talks]


@pytest.mark.parametrize("ranked", [False, True])
def test_a_tag_narrows_a_search(store, three, ranked) -> None:
    def found(query: str) -> set[str]:
        return {hit.title for hit in store.search(query, ranked=ranked)}

    assert found("wick") == {"Lamp", "Fog", "Bees"}
    assert found("tag:work wick") == found("wick tag:WORK") == {"Lamp", "Fog"}
    assert found("tag:work tag:light wick") == {"Lamp"}
    assert found("tag:archive wick") == {"Fog"}
    assert found("tag:nothing wick") == set()
    assert found('"tag:work" wick') == set(), "in quotes it is looked for in what was said"


def test_a_tag_alone_finds_its_conversations(store, three) -> None:
    hits = store.search("tag:work")
    assert [(hit.title, hit.role, hit.snippet) for hit in hits] == [("Fog", "title", "Fog"), ("Lamp", "title", "Lamp")]
    assert store.search("tag:bees") == []


def test_what_a_fork_took_over_is_found_by_the_forks_tag_when_its_origin_is_in_the_trash(store, three) -> None:
    origin = store.conversation(three[2])
    fork = store.create(
        replace(origin, id=new_id(), title="Fork", tags=("fork",)), store.tree(origin.id).path(origin.head)[0]
    )
    assert store.search("tag:fork wick") == []
    store.change(origin, lambda row: replace(row, trashed=9.0))
    assert {hit.conversation for hit in store.search("tag:fork wick")} == {fork.id}
