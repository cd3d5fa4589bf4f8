"""Images in the store: each once, as long as something holds it; an older database gets them, a damaged one keeps them."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from kvchat.prompt.context import IMAGE, ContextBlock
from kvchat.prompt.drafts import Draft, Span, label_of
from kvchat.store import Store
from kvchat.store.images import UNSENT_S, Image
from kvchat.store.queue import QueuedRow

LAMP = Image(b"data:image/png;base64," + b"QUJD" * 20_000, 640, 480)
SEA = Image(b"data:image/jpeg;base64,SEA=", 320, 200)


def block(image: Image, name: str = "lamp.png") -> ContextBlock:
    return ContextBlock(IMAGE, name, image.size, f"/p/{name}#{image.sha256}")


def kept(store: Store) -> int:
    return store.database.row("SELECT count(*) FROM image")[0]


def purge(store: Store, id: str) -> None:
    store.change(store.conversation(id), lambda row: replace(row, trashed=1.0))
    store.purge_trash(2.0)


def test_an_image_is_there_once_and_comes_back_as_it_was(store: Store) -> None:
    store.images.put([LAMP])
    store.images.put([LAMP, SEA])
    assert kept(store) == 2
    assert store.images.get(LAMP.sha256) == LAMP and store.images.get("0" * 64) is None


def test_it_goes_with_the_last_message_that_holds_it(store: Store, new_talk) -> None:
    one, other = new_talk(store), new_talk(store)
    store.images.put([LAMP, SEA])
    one.say("What?", blocks=(block(LAMP), block(SEA)))
    other.say("And this?", blocks=(block(LAMP, "again.png"),))
    purge(store, one.id)
    assert store.images.get(LAMP.sha256) == LAMP and store.images.get(SEA.sha256) is None
    purge(store, other.id)
    assert kept(store) == 0


def test_a_draft_and_a_queue_hold_an_image_too(store: Store, new_talk) -> None:
    talk, draft, queue = new_talk(store), new_talk(store), new_talk(store)
    store.images.put([LAMP, SEA])
    talk.say("What?", blocks=(block(LAMP), block(SEA)))
    label = label_of(block(LAMP))
    store.set_draft(draft.id, Draft(f"{label} What?", (Span(0, len(label), "image", block(LAMP)),)).encoded())
    store.queue.put(QueuedRow("1" * 32, queue.id, "Later", f'{{"ref": "{block(SEA).ref}"}}', 1.0))
    purge(store, talk.id)
    assert kept(store) == 2
    purge(store, draft.id)
    assert store.images.get(LAMP.sha256) is None and store.images.get(SEA.sha256) == SEA
    purge(store, queue.id)
    assert kept(store) == 0


def test_what_was_only_looked_at_goes_after_a_day(tmp_path: Path) -> None:
    now = [1_000_000.0]
    store = Store.open(tmp_path, clock=lambda: now[0])
    store.images.put([LAMP])
    store.images.tidy()
    assert kept(store) == 1
    now[0] += UNSENT_S + 1
    store.images.put([SEA])
    store.images.tidy()
    assert store.images.get(LAMP.sha256) is None and store.images.get(SEA.sha256) == SEA
    store.close()


def test_a_search_finds_an_image_by_its_name_and_none_of_its_bytes(store: Store, new_talk) -> None:
    talk = new_talk(store)
    store.images.put([LAMP])
    talk.say("What is this?", blocks=(block(LAMP, "lighthouse.png"),))
    assert [hit.node for hit in store.search("lighthouse")]
    assert not store.search("QUJDQUJD")


def test_the_index_finds_messages_with_images(store: Store) -> None:
    plan = store.database.rows("EXPLAIN QUERY PLAN SELECT blocks FROM node WHERE instr(blocks, '[\"image\",') > 0")
    assert "node_image" in plan[0][3]
