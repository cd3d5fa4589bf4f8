"""The upgrade of drafts and waiting messages that told by numbers what was typed."""

from __future__ import annotations

import json
import sqlite3

from kvchat.chat.question.stored import decoded as waiting
from kvchat.prompt.drafts import decoded, pasted_of
from kvchat.store.file import schema

OLD_DRAFT = "@a [pasted 1: 2 lines] [b.md: 1 line] @c\x1e" + json.dumps(
    {"chips": [["pasted 1 (2 lines)", "x\ny"], ["b.md", "z", "/b.md#1", "[b.md: 1 line]"]], "typed": [1]}
)
OLD_QUEUED = json.dumps(
    {
        "blocks": [["paste", "pasted 1 (2 lines)", "x\ny", ""]],
        "typed": [0],
        "agreed": [],
        "without": [],
        "taken": [],
        "recalls": True,
        "searches": True,
        "folder": "/work",
    }
)


def test_what_was_pasted_attached_and_typed_is_what_it_was() -> None:
    db = sqlite3.connect(":memory:")
    for step in schema.MIGRATIONS[:13]:
        step(db)
    db.execute("INSERT INTO draft VALUES ('one', ?), ('two', 'plain @a'), ('three', 'odd\x1e7')", (OLD_DRAFT,))
    text = "@a [pasted 1: 2 lines] @b"
    db.execute("INSERT INTO queued VALUES (1, 'id', 'one', ?, ?, 1.0, 0.0)", (text, OLD_QUEUED))
    schema.MIGRATIONS[13](db)
    drafts = dict(db.execute("SELECT conversation, text FROM draft"))
    one = decoded(drafts["one"])
    assert [block.text for block in one.blocks] == ["x\ny", "z"]
    assert "@a" in one.text[: pasted_of(one.spans)[0][1]]
    assert not any(start <= one.text.rindex("@") < end for start, end in pasted_of(one.spans))
    assert drafts["two"] == "plain @a" and drafts["three"] == "odd\x1e7"
    question, folder = waiting(text, db.execute("SELECT more FROM queued").fetchone()[0])
    assert [block.text for block in question.blocks] == ["x\ny"] and folder == "/work"
    counts = [not any(start <= at < end for start, end in pasted_of(question.meant.spans)) for at in (0, 23)]
    assert counts == [True, False]
