"""What was stored as a sentence is a kind and its arguments from version 6 on: old rows stay as they were."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from kvchat.backends.errors import NoAnswerError
from kvchat.cache.accounting import TurnFigures
from kvchat.cache.causes.cause import Reason, Remedy, Statement, said
from kvchat.prompt.conversation import Conversation
from kvchat.prompt.message import Message, NoteKind, Role, node, system_message
from kvchat.prompt.tree import Tree
from kvchat.store import Store
from kvchat.store.file import schema
from kvchat.store.jobs import JobReason, JobState
from kvchat.store.rows import NODE_FIELDS, columns, figures_of, figures_to_json, node_of, row_of
from kvchat.text.notes import note_sentence
from kvchat.transfer import lossless
from kvchat.transfer.formats import Source
from lossless_reading import read_lossless

OLD = "0" * 32
SENTENCE = "“weather” took this conversation's slot: 1,323 tokens were read again."
HELP = "Start the server with --parallel 2."
NOTE = "[sic] The answer reached its largest length."
FIGURES = [2000, 613, 64, 64, 900.0, 800.0, 700.0, 4096, 1936, "slot taken", SENTENCE, HELP, None, None]


def old_database(folder: Path) -> None:
    """A database of version 5, with an answer that read again and a job that waits."""
    folder.mkdir()
    system = node(None, system_message(""), 1.0)
    question = node(system, Message(Role.USER, "old question"), 2.0)
    answer = node(question, Message(Role.ASSISTANT, "old answer"), 3.0)
    with closing(sqlite3.connect(folder / "kvchat.db")) as connection, connection:
        for migration in schema.MIGRATIONS[:5]:
            migration(connection)
        connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
        connection.execute("PRAGMA user_version = 5")
        for one, owner in ((system, None), (question, OLD), (answer, OLD)):
            connection.execute(
                f"INSERT INTO node({columns(NODE_FIELDS[:14])}, conversation) VALUES ({', '.join('?' * 15)})",
                (*row_of(one)[:14], owner),
            )
        connection.execute("UPDATE node SET figures = ?, note = ? WHERE id = ?", (json.dumps(FIGURES), NOTE, answer.id))
        connection.execute(
            "INSERT INTO conversation(id, head, created, updated, title, turns, model, unread, memory) "
            "VALUES (?, ?, 1, 3, 'old', 1, '', 0, 1)",
            (OLD, answer.id),
        )
        connection.execute(
            "INSERT INTO job(kind, subject, due, attempts, state, why, created, not_before) VALUES "
            "('extraction', ?, 10, 0, 'waiting', 'the conversation was left', 1, 0)",
            (OLD,),
        )
        connection.execute(
            "INSERT INTO job(kind, subject, due, attempts, state, why, created, not_before) VALUES "
            "('embedding', '', 10, 3, 'parked', 'The server is gone.', 1, 0)"
        )


def test_old_figures_are_read_with_their_sentences_and_the_kind_of_their_cause(folder: Path) -> None:
    old_database(folder)
    store = Store.open(folder)
    answer = store.tree(OLD).path(store.conversation(OLD).head)[-1]
    assert answer.figures == TurnFigures(
        2000, 613, 64, 64, 900.0, 800.0, 700.0, 4096, 1936, "slot_taken", SENTENCE, HELP
    )
    assert answer.note == note_sentence(answer.note) == NOTE
    whys = {job.kind: job.why for job in store.jobs.all()}
    assert whys == {"extraction": JobReason.LEFT, "embedding": "The server is gone."}
    assert {job.kind: job.state for job in store.jobs.all()} == {
        "extraction": JobState.WAITING,
        "embedding": JobState.PAUSED,
    }
    assert store.jobs.claim("embedding", "") is None, "it waits for the person still"
    store.close()
    with closing(sqlite3.connect(folder / "kvchat.db")) as connection:
        kept, note = connection.execute("SELECT figures, note FROM node WHERE figures IS NOT NULL").fetchone()
    assert (json.loads(kept), note) == (FIGURES, NOTE), "the row is as it was"


@pytest.mark.parametrize(
    "figures",
    [
        TurnFigures(
            2000,
            613,
            64,
            64,
            cause="slot_taken",
            evidence=said(Reason.OTHER_CONVERSATION, name="weather"),
            remedy=said(Remedy.MORE_SLOTS, flag="--parallel 2"),
        ),
        TurnFigures(10, 0, cause="cut", evidence=said(Reason.CUT, prefilled=10, whole=90), stopped=True),
        TurnFigures(10, 10),
    ],
)
def test_figures_come_back_as_they_were(figures: TurnFigures) -> None:
    assert figures_of([figures_to_json(figures)]) == [figures]


@pytest.mark.parametrize("damaged", [7, {}, [], ["kind"], ["kind", []], [1, {}], True])
def test_a_damaged_statement_is_left_out(damaged: object) -> None:
    (figures,) = figures_of([json.dumps([10, 4, None, None, None, None, None, None, None, "cut", damaged, damaged])])
    assert figures == TurnFigures(10, 4, cause="cut")


@pytest.mark.parametrize(
    "note", [said(NoteKind.FILLS_WINDOW, size=4096), NoAnswerError("http://127.0.0.1:1", 2.5).note, NOTE, "", '["so"]']
)
def test_a_note_comes_back_from_the_store_and_from_an_export_as_it_was(note: Statement | str) -> None:
    root = node(None, system_message(""), 1.0)
    answer = node(root, Message(Role.ASSISTANT, "half"), 2.0, note=note)
    assert node_of(row_of(answer)) == answer
    text = "".join(lossless.pieces([Source(Conversation(OLD, answer.id, 1.0, 2.0), Tree([root, answer]))]))
    (read,) = read_lossless(text)
    assert read.tree[answer.id] == answer
    found = json.loads(text)["conversations"][0]["nodes"][1]["note"]
    assert found == (note if isinstance(note, str) else {"kind": note.kind, "arguments": dict(note.arguments)})
