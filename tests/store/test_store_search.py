"""Search: any text is a query, the newest comes first, and every hit can be opened."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from kvchat.prompt.context import ContextBlock
from kvchat.prompt.conversation import Conversation
from kvchat.prompt.message import Message, Role, new_id, node
from kvchat.store import Store
from kvchat.store.file import database, opening
from kvchat.store.fulltext import index
from kvchat.store.fulltext.query import SNIPPET, parsed
from whole_rows import add_nodes, put_row

NASTY = [
    "C++",
    "don't OR",
    "x:y",
    '"',
    '"unbalanced',
    "NEAR(a b)",
    "a AND",
    "NOT",
    "OR OR",
    "*",
    "col:*",
    "-minus",
    "^x",
    "{}",
    "()",
    "'; DROP TABLE node; --",
    "a\x00b",
    "\ud83d",
    "%_%",
    "\\",
    "   ",
    "日" * 500,
    "🎉",
    "a" * 5000,
    "x " * 3000,
    "é\u0301\u0301",
    "search MATCH 'x'",
    "\u202e",
    "==>",
    "\n\t",
]


@pytest.fixture(params=["fts5", "like"])
def store(request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store with the full-text index, and one on a SQLite without it."""
    if request.param == "like":
        monkeypatch.setattr(database, "has_fts", lambda connection: False)
        monkeypatch.setattr(opening, "has_fts", lambda connection: False)
    opened = Store.open(folder)
    yield opened
    opened.close()


@pytest.fixture
def indexed_talk(folder: Path, new_talk: type) -> Iterator[object]:
    """A conversation in a store with the full-text index."""
    opened = Store.open(folder)
    if not opened._db.fts:
        pytest.skip("this SQLite has no FTS5")
    yield new_talk(opened)
    opened.close()


def found(store: Store, query: str, **options: object) -> list[str]:
    """The snippets of the hits, without the marks."""
    return [hit.snippet.replace("\x02", "").replace("\x03", "") for hit in store.search(query, **options)]


@pytest.mark.parametrize("query", NASTY, ids=range(len(NASTY)))
def test_any_text_is_a_query(store, talk, query):
    talk.say("plain words", "plain answer")
    for ranked in (False, True):
        for where in (None, talk.id):
            store.search(query, ranked=ranked, conversation=where)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("I love C++ templates", "C++"),
        ("you don't say", "don't"),
        ("a ratio of x:y here", "x:y"),
        ("run it => now", "=>"),
        ("party 🎉 time", "🎉"),
        ("100% sure", "100%"),
        ("back\\slash", "back\\slash"),
        ("snake_case_name", "snake_case"),
        ("漢字を検索する", "検索"),
        ("漢字を検索する", "漢字"),
        ("漢字を検索する", "する"),
        ("漢字を検索する", "索"),
        ("中文Python教程", "教程"),
        ("中文Python教程", "python"),
        ("中文Python教程", "文Py"),
        ("한국어로 검색", "국어"),
        ("ผมอยู่กรุงเทพมานาน", "กรุงเทพ"),
        ("ผมอยู่กรุงเทพมานาน", "เทพ"),
        ("น้ำแข็งหมดแล้ว", "แข็ง"),
        ("น้ำแข็งหมดแล้ว", "น้ำ"),
        ("ข้อยຢູ່ວຽງຈັນດົນແລ້ວ", "ວຽງຈັນ"),
        ("ຂ້ອຍຢູ່ວຽງຈັນ", "ຈັນ"),
        ("ကျွန်တော်ရန်ကုန်မှာနေတယ်", "ရန်ကုန်"),
        ("ខ្ញុំរស់នៅភ្នំពេញ", "ភ្នំពេញ"),
        ("Python ภาษาไทย 3", "ภาษาไทย 3"),
        ("we run v1.2.3 now", "1.2.3"),
        ("we run v1.2.3-rc1 now", "1.2.3"),
        ("we run v1.2.3 now", "v1.2.3"),
        ("we run v1.2.3 now", "v1.2"),
        ("we run v12.3 now", "v1"),
        ("we run v1.2.3 now", '"run v1.2.3 now"'),
        ("see π=3.14", "3.14"),
        ("on python3.14 it works", "3.14"),
        ("since b11549 it is", "11549"),
        ("since b11549 it is", "b11549 it"),
        ("since b11549 it is", "b115"),
        ("commit a3f9c2 is bad", "a3f9"),
        ("before\x00after", "before"),
        ("line one\nline two", "two one"),
    ],
)
def test_a_word_is_found_as_it_is_typed(store, talk, text, query):
    talk.say("something else", "nothing")
    talk.say(text, "nothing")
    hits = store.search(query)
    assert [hit.node for hit in hits] == [store.tree(talk.id).path(talk.tip.id)[-2].id]
    assert store.search(query, conversation=talk.id, ranked=True) == hits
    assert "\x02" in hits[0].snippet and "\n" not in hits[0].snippet


def test_cpp_is_not_every_word_with_c(store, talk):
    talk.say("a cat and a C compiler", "carrots")
    assert store.search("C++") == []


def test_a_word_without_letters_is_not_everything(store, talk):
    talk.say("percent", "underscore")
    assert store.search("%") == [] and store.search("_") == []


@pytest.mark.parametrize(
    ("query", "hits"),
    [
        ("quic", 1),
        ("quick", 1),
        ("brown quic", 1),
        ("quic brown", 0),
        ("quic ", 0),
        ('"quick brown"', 1),
        ('"brown quick"', 0),
        ('"quick brow', 1),
        ('"quick brow"', 0),
        ("QUICK FOX", 1),
        ("fox cow", 0),
    ],
)
def test_only_the_last_word_may_be_unfinished(indexed_talk, query, hits):
    indexed_talk.say("the quick brown fox", "answer")
    assert len(indexed_talk.store.search(query)) == hits


def test_accents_and_case_do_not_matter(indexed_talk):
    indexed_talk.say("Ein RÉSUMÉ im Café", "re\u0301sume\u0301 decomposed")
    assert [hit.snippet for hit in indexed_talk.store.search("resume")] == [
        "\x02re\u0301sume\u0301\x03 decomposed",
        "Ein \x02RÉSUMÉ\x03 im Café",
    ]
    assert [hit.snippet for hit in indexed_talk.store.search("cafe")] == ["Ein RÉSUMÉ im \x02Café\x03"]


def test_the_newest_message_comes_first(store, talk):
    for word in ("one", "two", "three"):
        talk.say(f"apple {word}", "nothing")
    assert found(store, "apple") == ["apple three", "apple two", "apple one"]
    assert found(store, "apple", limit=2) == ["apple three", "apple two"]
    assert store.search("apple", limit=0) == []


def test_an_old_message_stored_late_stays_old(store, talk):
    talk.say("apple new", "nothing")
    old = node(talk.tip, Message(Role.USER, "apple old"), 1.0)
    add_nodes(store, talk.moved(old), [old])
    assert found(store, "apple") == ["apple new", "apple old"]


def test_ranked_puts_the_best_match_first(indexed_talk):
    indexed_talk.say("pear pear pear", "nothing")
    indexed_talk.say("a pear among a great many other words that say nothing about it at all", "nothing")
    assert found(indexed_talk.store, "pear")[0].startswith("a pear")
    assert found(indexed_talk.store, "pear", ranked=True)[0] == "pear pear pear"


def test_a_title_is_found(store, new_talk):
    talk = new_talk(store, "Grocery Planning Été")
    talk.say("milk", "eggs")
    for query in ("plann", "grocery été"):
        (hit,) = store.search(query)
        assert (hit.conversation, hit.node, hit.role) == (talk.id, talk.tip.id, "title")
        assert hit.title == "Grocery Planning Été"
        assert "\x02" in hit.snippet
    assert store.search("planning", conversation=talk.id) == []


def test_the_trash_is_not_searched(store, talk):
    talk.say("needle", "hay")
    put_row(store, replace(talk.record, trashed=1.0, title="needle"))
    assert store.search("needle") == []
    put_row(store, replace(talk.record, trashed=None))
    assert len(store.search("needle")) == 1


def test_shared_words_are_found_through_a_fork_when_the_origin_is_in_the_trash(store, talk):
    middle = talk.say("needle", "hay")
    root = store.tree(talk.id).path(middle.id)[0]
    fork = store.create(Conversation(new_id(), middle.id, 1.0, 1.0, title="Fork", turns=1), root)
    assert [hit.conversation for hit in store.search("needle")] == [talk.id]
    assert [hit.conversation for hit in store.search("needle", conversation=fork.id)] == [fork.id]
    put_row(store, replace(talk.record, trashed=1.0))
    assert [(hit.conversation, hit.title) for hit in store.search("needle")] == [(fork.id, "Fork")]


def test_pasted_text_is_found(store, talk):
    talk.say(
        "look",
        "ok",
        (
            ContextBlock("time", "2026-01-01T00:00:00+00:00", "Thursday noon"),
            ContextBlock("paste", "log.txt", "Traceback: zebra failed"),
        ),
    )
    (hit,) = store.search("zebra")
    assert "\x02zebra\x03" in hit.snippet


def test_a_time_stamp_is_not_found(indexed_talk):
    indexed_talk.say("look", "ok", (ContextBlock("time", "2026-01-01T00:00:00+00:00", "Thursday noon"),))
    assert indexed_talk.store.search("Thursday") == []


def test_a_streaming_answer_is_found_once_it_is_settled(store, talk):
    answer = talk.ask("question")
    store.append(answer.id, "walrus", "")
    assert store.search("walrus") == []
    talk.tip = store.tree(talk.id)[answer.parent]
    talk.say("next", "walrus")
    assert len(store.search("walrus")) == 1


def test_a_snippet_is_one_short_line_around_the_match(store, talk):
    talk.say("start " + "filler " * 100 + "the NEEDLE\nis\there " + "more " * 100 + "\x02fake\x03", "ok")
    (hit,) = store.search("needle")
    assert "the \x02NEEDLE\x03 is here" in hit.snippet
    assert hit.snippet.startswith("…") and hit.snippet.endswith("…") and len(hit.snippet) <= SNIPPET + 10
    assert hit.snippet.count("\x02") == 1


def test_a_long_query_stays_within_bounds():
    assert len(parsed("word " * 5000).words) == 32


def test_the_index_is_made_anew_after_a_time_without_it(folder, new_talk, monkeypatch):
    store = Store.open(folder)
    new_talk(store).say("first apple", "nothing")
    store.close()
    with monkeypatch.context() as without:
        without.setattr(database, "has_fts", lambda connection: False)
        without.setattr(opening, "has_fts", lambda connection: False)
        store = Store.open(folder)
        new_talk(store).say("second apple", "nothing")
        assert found(store, "apple") == ["second apple", "first apple"]
        store.close()
    store = Store.open(folder)
    assert found(store, "apple") == ["second apple", "first apple"]
    store.close()


def test_an_outdated_index_is_made_anew(folder, new_talk, monkeypatch):
    store = Store.open(folder)
    new_talk(store).say("apple", "nothing")
    store.close()
    monkeypatch.setattr(index, "VERSION", "next")
    monkeypatch.setattr(index, "BEFORE", "")
    monkeypatch.setattr(index, "indexed", lambda text: text.replace("apple", "pear"))
    store = Store.open(folder)
    assert len(store.search("pear")) == 1
    store.close()


def test_a_damaged_index_does_not_stop_a_search(indexed_talk):
    indexed_talk.say("apple", "nothing")
    with indexed_talk.store._db.write() as connection:
        connection.execute("DELETE FROM search_data")
    indexed_talk.store.close()
    store = Store.open(indexed_talk.store._db.path.parent)
    assert found(store, "apple") == ["apple"]
    store.close()


# -- words with something in them -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "word"),
    [
        ("the light\u00adhouse keeper", "lighthouse"),
        ("a baro\u200bmeter fell", "barometer"),
        ("har\u2060bour lights", "harbour"),
        ("ane\ufeffmometer", "anemometer"),
        ("long navi-\ngation lists", "navigation"),
        ("long navi-\r\n  gation lists", "navigation"),
        ("low tide\u00ad\nwater marks", "tidewater"),
        ("die Leucht\u00adtürme", "Leuchttürme"),
        ("die Leucht\u2010\ntürme", "Leuchttürme"),
        ("мая\u00adки", "маяки"),
    ],
)
def test_a_word_is_found_whatever_is_invisible_in_it(indexed_talk, said, word):
    indexed_talk.say(said, "nothing")
    for query in (word, f"{word} ", f'"{word}"', said.split()[0]):
        assert len(indexed_talk.store.search(query)) == 1, query
    (hit,) = indexed_talk.store.search(word)
    marked = hit.snippet.partition("\x02")[2].partition("\x03")[0]
    assert index.visible(marked).replace("-", "").replace("\u2010", "").replace(" ", "") == word
    assert len(indexed_talk.store.search(word[:3] + "\u00ad" + word[3:])) == 1, "also where the question has it"


@pytest.mark.parametrize("parts", ["well-\nknown", "well-\n  known", "North-\nSouth"])
def test_both_parts_of_a_word_at_a_line_end_are_found_too(indexed_talk, parts):
    indexed_talk.say(f"a {parts} keeper", "nothing")
    first, last = parts.split("-\n")
    for query in (first, last.strip(), f"{first}-{last.strip()}", f"{first} {last.strip()}"):
        assert len(indexed_talk.store.search(query)) == 1, query


@pytest.mark.parametrize("ranked", [False, True])
def test_a_word_comes_before_longer_ones_that_begin_so(indexed_talk, ranked):
    for text in ("the light", "a lighthouse", "lighter", "no light here", "lightship", "lights"):
        indexed_talk.say(text, "nothing")
    first = [hit.unmarked for hit in indexed_talk.store.search("light", ranked=ranked)]
    assert set(first[:2]) == {"the light", "no light here"} and len(first) == 6
    if not ranked:
        assert first[:2] == ["no light here", "the light"] and first[2] == "lights", "newest first in each"
    assert len(indexed_talk.store.search("light", limit=1, ranked=ranked)) == 1


def as_the_last_version_had_it(store):
    with store._db.write() as connection:
        for seq, role, text, blocks in connection.execute("SELECT seq, role, text, blocks FROM node").fetchall():
            if (said := index.searchable(role, text, blocks)) is not None:
                connection.execute(index._DELETE, (seq, index.indexed(said)))
                connection.execute("INSERT INTO search(rowid, text) VALUES (?, ?)", (seq, index.as_before(said)))
        connection.execute("UPDATE setting SET value = ? WHERE key = ?", (index.BEFORE, index.STATE))


def words_of(store) -> set[str]:
    with store._db.write() as connection:
        connection.execute("CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5vocab(search, 'row')")
        return {word for (word,) in connection.execute("SELECT term FROM words")}


def test_an_index_of_before_serves_until_it_is_brought_up_to_date_at_rest(folder, new_talk, monkeypatch):
    monkeypatch.setattr("kvchat.store.leftovers.RENEWED", 2)
    store = Store.open(folder)
    talk = new_talk(store)
    for number in range(5):
        talk.say(f"apple {number} of the light\u00adhouse", "a navi-\ngation list")
    talk.say("a plain pear", "nothing")
    as_the_last_version_had_it(store)
    store.close()
    store = Store.open(folder)
    assert len(store.search("apple")) == 5 and not store.search("lighthouse"), "it is not rebuilt at the start"
    new_talk(store).say("an apple in a new light\u00adhouse", "nothing")
    assert len(store.search("lighthouse")) == 1
    store.at_rest()
    assert len(store.search("apple")) == len(store.search("lighthouse")) == 6 and not store.search("house ")
    assert len(store.search("navigation")) == 5 and len(store.search("pear")) == 1
    assert store.setting(index.STATE) == index.VERSION
    store.close()


def test_what_is_removed_before_an_index_is_brought_up_to_date_leaves_no_word(folder, new_talk):
    store = Store.open(folder)
    gone, stays = new_talk(store), new_talk(store)
    gone.say("a barley\u00adcorn", "a wheel-\nbarrow")
    stays.say("a har\u00advest", "nothing")
    as_the_last_version_had_it(store)
    store.close()
    store = Store.open(folder)
    gone.store = store
    store.change(store.conversation(gone.id), lambda row: replace(row, trashed=1.0))
    store.purge_trash(5.0)
    store.at_rest()
    assert words_of(store) == {"a", "harvest", "nothing"}
    store.close()
