"""Notes and the causes of wasted tokens are stored as kinds with their arguments."""

from __future__ import annotations

import json

import pytest

from kvchat.backends.errors import NoAnswerError
from kvchat.cache.causes.cause import Reason, Remedy
from kvchat.figures.accounting import TurnFigures
from kvchat.prompt.conversation import Conversation
from kvchat.prompt.message import Message, NoteKind, Role, node, system_message
from kvchat.prompt.tree import Tree
from kvchat.store.rows import figures_of, figures_to_json, node_of, row_of
from kvchat.transfer import lossless
from kvchat.transfer.formats import Source
from kvchat.values import Statement, said
from lossless_reading import read_lossless

OLD = "0" * 32


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
    "note", [said(NoteKind.FILLS_WINDOW, size=4096), NoAnswerError("http://127.0.0.1:1", 2.5).note, None]
)
def test_a_note_comes_back_from_the_store_and_from_an_export_as_it_was(note: Statement | None) -> None:
    root = node(None, system_message(""), 1.0)
    answer = node(root, Message(Role.ASSISTANT, "half"), 2.0, note=note)
    assert node_of(row_of(answer)) == answer
    text = "".join(lossless.pieces([Source(Conversation(OLD, answer.id, 1.0, 2.0), Tree([root, answer]))]))
    (read,) = read_lossless(text)
    assert read.tree[answer.id] == answer
    found = json.loads(text)["conversations"][0]["nodes"][1]["note"]
    assert found == (note and {"kind": note.kind, "arguments": dict(note.arguments)})
