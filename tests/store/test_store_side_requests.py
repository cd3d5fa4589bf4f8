"""What kvchat asked beside the chat, and its cost."""

from __future__ import annotations

from kvchat.store import Store
from kvchat.store.side_requests import SideRequest, SideTotals


def request(**values: object) -> SideRequest:
    usual: dict = {
        "kind": "extract",
        "subject": "a",
        "created": 10.0,
        "server": "http://x",
        "model": "m",
        "outcome": "facts",
        "prompt_tokens": 900,
        "cached_tokens": 870,
        "predicted_tokens": 40,
        "seconds": 1.5,
    }
    return SideRequest(**{**usual, **values})


def test_side_requests_come_back_as_they_were_oldest_first(store, folder):
    made = [
        request(created=30.0),
        request(subject="b", created=20.0),
        request(kind="title", created=10.0),
        request(created=10.0, outcome="cancelled", prompt_tokens=None, cached_tokens=None, predicted_tokens=None),
    ]
    for one in made:
        store.side_requests.record(one)
    other = Store.open(folder)
    assert other.side_requests.all() == [made[2], made[3], made[1], made[0]]
    assert other.side_requests.all(since=20.0) == [made[1], made[0]]
    assert other.side_requests.all(kind="title") == [made[2]]
    assert other.side_requests.all(subject="a", kind="extract") == [made[3], made[0]]
    assert other.side_requests.all(subject="c") == []
    other.close()


def test_totals_count_what_was_read_and_written_as_far_as_the_server_said(store):
    assert store.side_requests.totals() == SideTotals(0, 0, 0, 0.0)
    for one in (
        request(),
        request(cached_tokens=None, predicted_tokens=None),
        request(prompt_tokens=None),
        request(subject="b", created=20.0, prompt_tokens=5, cached_tokens=7),
    ):
        store.side_requests.record(one)
    assert store.side_requests.totals() == SideTotals(4, 30, 120, 6.0)
    assert store.side_requests.totals(since=20.0) == SideTotals(1, 0, 40, 1.5)
    assert store.side_requests.totals(subject="a") == SideTotals(3, 30, 80, 4.5)
    assert store.side_requests.totals(subject="c") == SideTotals()


def test_a_server_may_call_itself_anything():
    store = Store.open(None)
    store.side_requests.record(request(model="m \ud83d", server="http://x/\x00"))
    (one,) = store.side_requests.all()
    assert (one.model, one.server) == ("m �", "http://x/\x00")
    store.close()
