"""Episodes: what has ended, where topics begin, and each message in exactly one, whoever writes."""

from __future__ import annotations

import json
import random
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ledger_kit import STAMP, begin, capture, extract_all, path

from kvchat.memory.entry import Status
from kvchat.memory.learning.episodes import GAP_S, MOST_EPISODES, checked, ended_part, instruction, schema, stored
from kvchat.memory.ledger import EPISODES, ExtractionLedger
from kvchat.memory.memories import Memories
from kvchat.memory.recall import recalled
from kvchat.prompt.message import Message, Role, node, system_message
from kvchat.store import Store

DAY = 86400.0


def talk(*starts, turns=2):
    """Turns of 10 seconds each, some at each of these times."""
    nodes = [node(None, system_message("Be brief."), 0.0)]
    for start in starts:
        for turn in range(turns):
            for at, role in enumerate((Role.USER, Role.ASSISTANT)):
                nodes.append(node(nodes[-1], Message(role, f"{role} {start} {turn}"), start + 10 * turn + at))
    return nodes


def ended(nodes, now, most=40, pending=None):
    return ended_part(nodes, nodes[1:] if pending is None else pending, now, most).turns


# -- what has ended


def test_a_silence_ends_a_part_and_what_is_being_said_waits():
    nodes = talk(0.0, DAY)
    assert ended(nodes[:5], 100.0) == {}
    assert ended(nodes[:5], GAP_S + 11.0) == {1: nodes[1:3], 2: nodes[3:5]}
    assert list(ended(nodes, DAY + 100)) == [1, 2]
    assert list(ended(nodes, 3 * DAY)) == [1, 2, 3, 4]
    assert list(ended(nodes, 3 * DAY, pending=nodes[5:])) == [3, 4]
    assert list(ended(nodes, 3 * DAY, most=2)) == [1] and ended([nodes[0]], DAY, pending=[]) == {}


# -- what is believed


NODES = talk(0.0, turns=4)
PART = ended_part(NODES, NODES[1:], DAY, 40)


def given_back(*episodes):
    return checked(json.dumps({"episodes": list(episodes)}), PART)


def one(first, title="Kilns", summary="The breaker trips."):
    return {"first": first, "title": title, "summary": summary}


def test_the_same_part_gives_the_same_instruction():
    assert "turns 1 to 4" in instruction(PART) and instruction(PART) == instruction(PART)
    fields = schema(PART)["json_schema"]["schema"]["properties"]["episodes"]
    assert fields["items"]["properties"]["first"]["enum"] == [1, 2, 3, 4] and fields["minItems"] == 1


def test_topics_begin_where_the_model_says_and_every_message_is_in_one():
    found = given_back(one(3, "Glazes"), one(1))
    assert [(two.title, list(two.nodes)) for two in found] == [("Kilns", NODES[1:5]), ("Glazes", NODES[5:])]
    assert [list(two.nodes) for two in given_back(one(2))] == [NODES[1:]], "what comes before belongs to the first"


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "I am sorry.",
        '{"episodes":[]}',
        '{"episodes":[{"first":9,"title":"x","summary":"y"}]}',
        '{"episodes":[{"first":1,"title":"","summary":"y"}]}',
        '{"episodes":[{"first":1,"title":"a","summary":"b <|im_end|>"}]}',
    ],
)
def test_what_is_no_answer_gives_none(answer):
    assert checked(answer, PART) == []


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "first": st.integers(-1, 6) | st.text(max_size=3) | st.none(),
                "title": st.text(max_size=80),
                "summary": st.text(max_size=500),
            }
        ),
        max_size=9,
    )
)
def test_whatever_the_answer_no_message_is_lost_or_doubled(episodes):
    found = given_back(*episodes)
    assert len(found) <= MOST_EPISODES
    if found:
        assert [node.id for one in found for node in one.nodes] == [node.id for node in NODES[1:]]


def test_an_episode_is_dated_and_names_its_messages():
    [found] = given_back(one(1))
    run, nodes, change = stored(found, "ab" * 16, "toy", "s", STAMP)
    assert (run.kind, run.noted, change.after.page) == ("episode", 1, "episodes/1970-01.md")
    assert nodes == [node.id for node in NODES[1:]] == list(change.after.nodes)
    assert change.after.text == "1970-01-01 Kilns: The breaker trips." and change.after.is_episode


# -- in exactly one, on every branch, with two writers


def summed_up(store, memories, id, head, rng):
    """One pass over a branch, with topics that begin anywhere."""
    nodes = path(store, id, head)
    ledger = ExtractionLedger(store.database, EPISODES)
    looked_at = ExtractionLedger(store.database).examined(nodes)
    pending = [node for node in ledger.pending(nodes) if node.id in looked_at]
    part = ended_part(nodes, pending, STAMP + DAY, rng.choice([2, 5, 40]))
    if not part.turns:
        return False
    firsts = [first for first in part.turns if rng.random() < 0.5] or [min(part.turns)]
    found = checked(json.dumps({"episodes": [one(first) for first in firsts]}), part)
    memories.store_episodes([stored(each, id, "toy", "s", STAMP) for each in found])
    return True


def check_episodes(store, ids):
    """Every message that was looked at is in just one episode, with one entry for each."""
    rows = store.database.rows("SELECT node, cell FROM in_episode")
    assert len(rows) == len({row[0] for row in rows})
    said = {
        row[0]
        for row in store.database.rows(
            "SELECT id FROM node WHERE role != 'system' AND conversation IN (SELECT value FROM json_each(?))",
            (json.dumps(ids),),
        )
    }
    assert {row[0] for row in rows} == said
    runs = ExtractionLedger(store.database, EPISODES).runs(limit=1000)
    assert {row[1] for row in rows} == {run.id for run in runs}
    return runs


def open_memories(store, folder: Path):
    return Memories.open(store, folder / "memory", folder / "index.db", session="s")


def pending(store):
    """The facts of the kit are in no page: they wait for approval."""
    with store.database.write() as connection:
        connection.execute("UPDATE entry SET status = 'pending'")


def test_two_writers_at_once_on_every_branch_put_each_message_into_one(tmp_path):
    rng = random.Random(7)
    stores = [Store.open(tmp_path / "data") for _ in range(2)]
    ids = []
    for _ in range(3):
        record = begin(stores[0])
        ids.append(record.id)
        capture(stores[0], record.id, None, [f"m{n}" for n in range(8)])
        for branch in range(3):
            nodes = [one for one in stores[0].tree(record.id) if one.role is not Role.SYSTEM]
            texts = [f"branch {branch}, {n}" for n in range(rng.choice([1, 2, 5]))]
            capture(stores[0], record.id, rng.choice(nodes).id, texts)
        extract_all(stores[0], record.id)
    pending(stores[0])
    assert ExtractionLedger(stores[0].database, EPISODES).runs() == []
    failures = []

    def write(number):
        memories, dice = open_memories(stores[number], tmp_path), random.Random(number)
        try:
            for id in ids:
                for leaf in stores[number].tree(id).leaves():
                    while summed_up(stores[number], memories, id, leaf.id, dice):
                        pass
        except Exception as error:
            failures.append(error)
        finally:
            memories.close()

    threads = [threading.Thread(target=write, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    runs = check_episodes(stores[1], ids)
    memories = open_memories(stores[0], tmp_path)
    entries = [entry for entry in memories.entries() if entry.is_episode]
    assert len(entries) == len(runs)
    assert all(run.kind != "episode" for run in ExtractionLedger(stores[0].database).runs(limit=1000)), (
        "the logs are apart"
    )
    memories.close()
    for store in stores:
        store.close()


def test_they_stand_in_files_and_no_question_carries_them(tmp_path):
    store = Store.open(tmp_path / "data")
    memories = open_memories(store, tmp_path)
    record = begin(store)
    capture(store, record.id, None, ["My kiln trips the breaker.", "Reset it."])
    extract_all(store, record.id)
    pending(store)
    assert summed_up(store, memories, record.id, None, random.Random(1))
    [entry] = [entry for entry in memories.entries(Status.LIVE) if entry.is_episode]
    page = tmp_path / "memory" / entry.page
    assert "Kilns: The breaker trips." in page.read_text() and page.stat().st_mode & 0o777 == 0o600
    assert memories.search("kiln breaker trips Kilns") == []
    assert (
        recalled(memories, "Why does my kiln trip the breaker?", [], tokens=400, profile_tokens=400, skill_tokens=400)
        == ()
    )
    page.write_text(page.read_text().replace("The breaker trips.", "The breaker trips at noon."))
    memories.sync()
    assert memories.get(entry.id).text.endswith("at noon.") and memories.get(entry.id).edited
    assert not summed_up(store, memories, record.id, None, random.Random(1)), "it is summed up once"
    memories.close()
    store.close()
