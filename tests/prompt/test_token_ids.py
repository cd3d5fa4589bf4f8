"""The second law: ids(n + 1) = ids(n) + the sampled ids + the new ids, on every branch."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kvchat.cache.tokens import NO_TOKENS, Tokens
from kvchat.prompt.token_ids import AnswerIds, KnownIds, answered, known_ids, packed, unpacked

IDS = st.lists(st.integers(0, 2**31 - 1), max_size=6).map(Tokens)
SCOPES = st.sampled_from(["one", "other"])
Path = list[AnswerIds | None]


def asked(path: Path, scope: str, new: Tokens, sampled: Tokens) -> tuple[Tokens, Path]:
    """A turn behind a branch, as kvchat takes it: what is sent, and the branch with the question and its answer."""
    known = known_ids(path, scope)
    sent = known.tokens + new
    return sent, [*path, None, answered(known, sent, sampled)]


@given(st.lists(st.tuples(st.integers(0, 20), SCOPES, IDS, IDS, st.booleans()), max_size=20))
def test_each_prompt_begins_with_the_one_before_and_what_was_sampled(turns):
    """Turns on branches of a tree: behind any earlier point, by one of two models, some answers without ids."""
    branches: list[tuple[Path, dict[str, Tokens]]] = [([None], {})]
    for at, scope, new, sampled, forgotten in turns:
        path, held = branches[at % len(branches)]
        sent, grown = asked(path, scope, new, sampled)
        assert sent == held.get(scope, NO_TOKENS) + new
        if forgotten:  # it went as messages, or its ids are of no use: the next turn has it from the template
            grown[-1] = None
            branches.append((grown, held))
        else:
            assert known_ids(grown, scope) == KnownIds(scope, len(grown), sent + sampled)
            branches.append((grown, {**held, scope: sent + sampled}))


@given(st.lists(st.tuples(IDS.filter(len), IDS), min_size=2, max_size=8), st.data())
def test_ids_that_were_lost_are_left_to_the_template(turns, data):
    path: Path = [None]
    for new, sampled in turns:
        _, path = asked(path, "one", new, sampled)
    lost = data.draw(st.sampled_from([at for at, ids in enumerate(path) if ids]))
    whole = known_ids(path[:lost], "one")
    path[lost] = None
    assert known_ids(path, "one") == whole
    sent, path = asked(path, "one", Tokens([7]), Tokens([8]))
    assert sent == whole.tokens + Tokens([7])
    assert known_ids(path, "one").tokens == sent + Tokens([8])


def test_a_prompt_that_begins_otherwise_begins_anew():
    known = KnownIds("one", 3, Tokens([1, 2, 3]))
    ids = answered(known, Tokens([9, 9]), Tokens([4]))
    assert (ids.before, ids.added) == (0, Tokens([9, 9]))


@given(SCOPES, st.integers(0, 1 << 24), IDS, IDS)
def test_they_are_stored_as_they_are(scope, before, added, sampled):
    ids = AnswerIds(scope, before, added, sampled)
    assert unpacked(packed(ids)) == ids


@given(st.binary(max_size=60))
def test_damaged_bytes_are_no_ids(junk):
    found = unpacked(junk)
    assert found is None or isinstance(found, AnswerIds)
    ids = packed(AnswerIds("one", 0, Tokens([1, 2]), Tokens([3])))
    assert unpacked(ids[:-1]) is None
    assert unpacked(ids[:-4] + b"\xff\xff\xff\xff") is None


def test_a_copy_on_another_branch_has_none():
    from kvchat.prompt.branching import grafted
    from kvchat.prompt.message import Message, Role, node

    root = node(None, Message(Role.SYSTEM, "one"), 0.0)
    answer = replace(node(root, Message(Role.ASSISTANT, "yes"), 1.0), ids=AnswerIds("one", 0, Tokens([1]), Tokens([2])))
    assert grafted(node(None, Message(Role.SYSTEM, "two"), 0.0), answer).ids is None
