"""What is saved of a damaged file can be sent to the strictest server: no result without its call, no call without."""

from __future__ import annotations

import json
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from damaging import break_index, check_sound
from msgspec.structs import replace

from kvchat.prompt.branching import whole
from kvchat.prompt.message import Message, Node, Role, node
from kvchat.prompt.tools import INTERRUPTED, ToolCall
from kvchat.store import Store
from strict_history import check_branch, check_tree
from whole_rows import add_nodes


def with_loops(talk, turns: int = 3, *, long: str = "") -> list[Node]:
    """Turns of two steps each, the first of which calls two tools; the branch."""
    for turn in range(turns):
        numbers = iter(range(9))

        def call(turn=turn, numbers=numbers) -> ToolCall:
            number = next(numbers)
            return ToolCall(f"id{turn}{number}", "read_file", json.dumps({"path": f"{turn}.{number}.txt"}))

        first, last = (call(), call()), (call(),)
        said = [Message(Role.USER, f"question {turn} {long}"), Message(Role.ASSISTANT, f"step {turn}", calls=first)]
        said += [Message(Role.TOOL, f"gave {one.id} {long}", calls=(one,)) for one in first]
        said += [Message(Role.ASSISTANT, "", calls=last)]
        said += [Message(Role.TOOL, f"gave {one.id} {long}", calls=(one,)) for one in last]
        nodes = []
        for message in (*said, Message(Role.ASSISTANT, f"answer {turn} {long}")):
            nodes.append(node([talk.tip, *nodes][-1], message, talk.now()))
        add_nodes(talk.store, talk.moved(nodes[-1], turns=1), nodes)
    return talk.store.tree(talk.id).path(talk.record.head)


def without_rows(folder: Path, lost: list[Node]) -> None:
    """Take messages out of the file as a page that is gone does, and damage what a check finds."""
    with closing(sqlite3.connect(folder / "kvchat.db")) as connection, connection:
        connection.executemany("DELETE FROM node WHERE id = ?", [(one.id,) for one in lost])
    break_index(folder / "kvchat.db")


def branches(store: Store) -> list[list[Node]]:
    found = []
    for record in store.conversations():
        tree = store.tree(record.id)
        check_tree(tree)
        found += [tree.path(leaf.id) for leaf in tree.leaves()]
    return found


@pytest.mark.parametrize("at", range(2, 8))
def test_whichever_message_of_a_loop_is_lost_what_is_left_can_be_sent(folder, new_talk, at):
    store = Store.open(folder)
    path = with_loops(new_talk(store), turns=2)
    store.close()
    without_rows(folder, [path[at]])
    with closing(Store.open(folder)) as store:
        kept = {one.id: one for branch in branches(store) for one in branch}
        assert {one.id for one in path} - set(kept) == {path[at].id}
        assert all(kept[one.id].wire == one.wire for one in path if one.id in kept)
        [record] = store.conversations()
        assert [one.text for one in store.tree(record.id).path(record.head)][-1] == path[-1].text
    check_sound(folder)


def test_a_result_brings_its_lost_call_back(folder, new_talk):
    store = Store.open(folder)
    talk = new_talk(store)
    path = with_loops(talk, turns=1)
    store.close()
    without_rows(folder, [path[2]])
    with closing(Store.open(folder)) as store:
        back = store.tree(talk.id).path(path[-1].id)
        assert [one.role for one in back[:5]] == [Role.SYSTEM, Role.USER, Role.ASSISTANT, Role.TOOL, Role.TOOL]
        assert back[2].message.calls == path[2].message.calls


def test_any_messages_of_loops_may_be_lost(folder, new_talk, tmp_path):
    noise = random.Random(7)
    for number in range(12):
        place = tmp_path / str(number)
        store = Store.open(place)
        talk = new_talk(store)
        path = with_loops(talk)
        closing_at = path[noise.choice([3, 4, 10])]
        call = path[[one.id for one in path].index(closing_at.id) - 1].message.calls
        if len(call) == 2:  # a fork that was closed there
            other = node(closing_at, Message(Role.TOOL, "closed", calls=call[1:]), talk.now())
            add_nodes(store, talk.record, [other])
        store.close()
        lost = noise.sample(path[1:], noise.randrange(1, 9))
        without_rows(place, lost)
        with closing(Store.open(place)) as store:
            kept = {one.id for branch in branches(store) for one in branch}
            assert {one.id for one in path[1:]} - kept == {one.id for one in lost}


def test_a_page_of_noise_leaves_nothing_that_is_refused(folder, new_talk, tmp_path):
    store = Store.open(folder)
    path = with_loops(new_talk(store), turns=4, long="word " * 120)
    store.close()
    sound, noise = (folder / "kvchat.db").read_bytes(), random.Random(5)
    marked = [page for page in range(1, len(sound) // 4096) if b"tool_call" in sound[page * 4096 : (page + 1) * 4096]]
    assert len(marked) >= 4
    lost_results = 0
    for page in noise.sample(marked, 6):
        place = tmp_path / str(page)
        place.mkdir()
        damaged = sound[: page * 4096] + noise.randbytes(4096) + sound[(page + 1) * 4096 :]
        (place / "kvchat.db").write_bytes(damaged)
        with closing(Store.open(place)) as store:
            for branch in branches(store):
                # what was carried out and is lost is not told as not carried out
                assert branch[-1].role is not Role.ASSISTANT or not branch[-1].message.calls
                lost_results += sum(one.text == INTERRUPTED for one in branch)
                texts = {one.wire for one in path}
                assert all(one.wire in texts for one in branch if one.text.startswith(("gave", "question", "answer")))
        check_sound(place)
    assert lost_results


def test_calls_whose_column_is_damaged_are_those_that_are_sent(folder, new_talk):
    store = Store.open(folder)
    talk = new_talk(store)
    path = with_loops(talk, turns=1)
    with store._db.write() as connection:
        connection.execute("UPDATE node SET calls = '[[1' WHERE role IN ('assistant', 'tool')")
    store.close()
    break_index(folder / "kvchat.db")
    with closing(Store.open(folder)) as store:
        back = store.tree(talk.id).path(path[-1].id)
        assert [one.wire for one in back] == [one.wire for one in path]
        assert back[2].message.calls == path[2].message.calls
        assert [(one.message.call.id, one.message.call.name) for one in back[3:5]] == [
            (call.id, call.name) for call in path[2].message.calls
        ]


def test_a_call_that_no_server_takes_back_is_not_saved(folder, new_talk):
    store = Store.open(folder)
    talk = new_talk(store)
    path = with_loops(talk, turns=1)
    with store._db.write() as connection:
        connection.execute(
            "UPDATE node SET wire = CAST(replace(CAST(wire AS TEXT), ?, ?) AS BLOB)",
            ('"arguments":"{', '"arguments":"('),
        )
    store.close()
    break_index(folder / "kvchat.db")
    with closing(Store.open(folder)) as store:
        texts = {one.text for branch in branches(store) for one in branch}
        assert {one.text for one in path if one.role in (Role.TOOL, Role.USER)} < texts


def test_a_branch_that_lacks_nothing_is_left_as_it_is(folder, new_talk):
    store = Store.open(folder)
    path = with_loops(new_talk(store))
    store.close()
    assert whole(path).nodes == ()
    assert whole(path).head == path[-1].id
    for cut in range(2, len(path)):
        broken = [path[0], *path[cut:]]
        broken = [broken[0], replace(broken[1], parent=path[0].id), *broken[2:]]
        made = whole(broken)
        check_branch([path[0], *made.nodes])
        assert [one.wire for one in broken[1:]] == [one.wire for one in made.nodes][-len(broken) + 1 :]
