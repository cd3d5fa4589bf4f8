"""The shared prefix cache: what is reused, what is evicted, and that its structure never shows in a prediction."""

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvchat.cache.prefix_trie import PrefixTrie, TrieRules, estimated
from kvchat.cache.tokens import Tokens
from kvchat.cache.warmth import Heat

END = 999
"""The last sampled token, which no server decodes."""


def ask(trie, prompt, sampled=(), owner="", at=0.0):
    """A whole request: its cached tokens. The tokens `sampled` are held afterwards."""
    cached = trie.begin(Tokens(prompt), owner, at).cached
    trie.end(Tokens([*sampled, END]), owner)
    return cached


def held(trie, sequence):
    return trie.predict(Tokens(sequence)).common


# The cases of a known server's own tests.

def test_two_conversations_branch_where_they_part_and_both_are_reused():
    trie = PrefixTrie()
    assert ask(trie, range(1, 9), [20, 21]) == 0
    assert held(trie, [*range(1, 9), 20, 21]) == 10
    assert ask(trie, [1, 2, 3, 4, 5, 10, 11, 12], [30, 31]) == 5
    assert held(trie, [*range(1, 9), 20, 21]) == 10
    assert held(trie, [1, 2, 3, 4, 5, 10, 11, 12, 30, 31]) == 10
    assert ask(trie, [*range(1, 9), 40, 41]) == 8
    assert trie.total == 10 + 5 + 2


def test_an_exact_match_holds_one_token_back():
    trie = PrefixTrie()
    ask(trie, [1, 2, 3, 4, 5], [10, 11])
    assert ask(trie, [1, 2, 3, 4, 5], [20, 21]) == 4
    assert held(trie, [1, 2, 3, 4, 5, 20, 21]) == held(trie, [1, 2, 3, 4, 5, 10, 11]) == 7


def test_a_conversation_is_resumed_where_its_answer_ended():
    trie = PrefixTrie()
    ask(trie, [1, 2, 3, 4, 5], [10, 11, 12])
    assert ask(trie, [1, 2, 3, 4, 5, 10, 11, 12, 20, 21], [30]) == 8
    assert ask(trie, [1, 2, 3, 4, 5, 10, 11, 12, 20, 21, 30, 40, 41]) == 11


def test_the_last_sampled_token_is_read_again():
    trie = PrefixTrie()
    ask(trie, [1, 2, 3], [4, 5])
    assert held(trie, [1, 2, 3, 4, 5, END, 6]) == 5


def test_eviction_keeps_the_active_path_and_the_shared_prefix():
    system = [1, 2, 3, 4, 5]
    trie = PrefixTrie(TrieRules(room=14))
    for chat in range(5):
        ask(trie, [*system, 100 + chat * 10, 101 + chat * 10, 102 + chat * 10], [200 + chat])
    assert trie.total <= 14
    assert held(trie, system) == 5
    assert held(trie, [*system, 140, 141, 142, 204]) == 9
    assert held(trie, [*system, 130, 131, 132, 203]) == 9
    assert held(trie, [*system, 100, 101, 102, 200]) == 5


def test_the_active_path_stays_when_it_alone_is_larger_than_the_room():
    trie = PrefixTrie(TrieRules(room=4))
    ask(trie, [7, 8, 9])
    ask(trie, range(10))
    assert held(trie, range(10)) == trie.total == 10
    assert held(trie, [7, 8, 9]) == 0


def test_a_pinned_node_resists_merging_and_another_one_does_not():
    for pinned in (True, False):
        trie = PrefixTrie(TrieRules(room=9))
        ask(trie, [1, 2, 3, 4, 5])
        if pinned:
            assert trie.pin(Tokens([1, 2, 3]))
        ask(trie, [1, 2, 3, 6, 7])
        ask(trie, [1, 2, 3, 6, 7, 8, 9, 10, 11])
        assert held(trie, [1, 2, 3, 4, 5]) == 3
        assert trie.restore_points() == ([3] if pinned else [])
        assert trie.node_count == (3 if pinned else 2)
        if pinned:
            assert trie.unpin(Tokens([1, 2, 3]))
            assert trie.node_count == 2
        assert held(trie, [1, 2, 3, 6, 7, 8, 9, 10, 11]) == 9


def test_a_pinned_node_is_still_there_when_other_branches_came_and_went():
    trie = PrefixTrie()
    ask(trie, [1, 2, 3, 4, 5], [10, 11])
    assert trie.pin(Tokens([1, 2, 3, 4, 5]))
    assert ask(trie, [1, 2, 3, 4, 5, 10, 11, 20, 21]) == 7
    assert ask(trie, [1, 2, 3, 4, 5, 30, 31], [40]) == 5
    assert ask(trie, [1, 2, 3, 4, 5, 10, 11, 20, 21, 50]) == 9
    assert trie.restore_points() == [5]


def test_what_is_not_held_cannot_be_pinned():
    trie = PrefixTrie()
    ask(trie, [1, 2, 3])
    assert not trie.pin(Tokens([1, 2, 4]))
    assert not trie.pin(Tokens())
    assert not trie.unpin(Tokens([1, 2, 3]))
    assert trie.restore_points() == []


def test_switching_back_restores_the_branch():
    trie = PrefixTrie()
    ask(trie, [1, 2, 3, 4, 5], [10, 11])
    assert ask(trie, [1, 2, 3, 6, 7], [12, 13]) == 3
    assert ask(trie, [1, 2, 3, 4, 5, 10, 11, 20]) == 7
    assert ask(trie, [1, 2, 3, 6, 7, 12, 13, 14]) == 7


# What differs from server to server.

@pytest.mark.parametrize(("prompt", "cached"), [
    (40, 32),
    (48, 32),  # an exact match of whole blocks still computes its last token, so its last block
    (33, 32),
    (32, 16),
    (16, 0),
])
def test_hits_are_whole_blocks(prompt, cached):
    trie = PrefixTrie(TrieRules(block=16))
    ask(trie, range(48))
    assert trie.predict(Tokens(range(prompt))).cached == cached


def test_prompts_that_part_inside_a_block_do_not_share_it():
    trie = PrefixTrie(TrieRules(block=4))
    ask(trie, [1, 2, 3, 4, 5, 6, 7, 8, 9])
    assert ask(trie, [1, 2, 3, 4, 5, 6, 0, 0, 0]) == 4
    assert trie.total == 8 + 4
    assert ask(trie, [1, 2, 3, 4, 5, 6, 7, 8, 9]) == 8
    assert ask(trie, [1, 2, 3, 4, 5, 6, 0, 0, 9]) == 8
    assert ask(trie, [1, 2, 3, 0, 5, 6, 0, 0, 9]) == 0


def test_eviction_in_pieces_frees_no_more_than_it_must():
    whole, pieces = PrefixTrie(TrieRules(4, 40)), PrefixTrie(TrieRules(4, 40, piecewise=True))
    for trie in (whole, pieces):
        ask(trie, range(100, 132))
        ask(trie, range(200, 213))
    assert held(whole, range(100, 132)) == 0
    assert held(pieces, range(100, 132)) == 28
    assert pieces.total == 40


def test_only_so_many_sequences_are_kept():
    trie = PrefixTrie(TrieRules(states=2))
    for chat in (100, 200, 300):
        ask(trie, range(chat, chat + 5))
        ask(trie, range(chat, chat + 9))
    assert [held(trie, range(chat, chat + 9)) for chat in (100, 200, 300)] == [0, 9, 9]


def test_what_was_used_last_is_evicted_last():
    trie = PrefixTrie(TrieRules(room=12))
    ask(trie, range(100, 104))
    ask(trie, range(200, 204))
    ask(trie, range(100, 105))
    ask(trie, range(300, 305))
    assert held(trie, range(200, 204)) == 0
    assert held(trie, range(100, 105)) == 5


def test_the_end_of_a_branch_that_was_not_used_is_as_old_as_before():
    trie = PrefixTrie(TrieRules(room=16))
    ask(trie, range(1, 9))
    ask(trie, range(100, 104))
    ask(trie, [1, 2, 3, 50])
    ask(trie, [60, 61])
    assert trie.total == 15
    ask(trie, [60, 61, 62, 63])
    assert held(trie, range(1, 9)) == 3
    assert held(trie, range(100, 104)) == 4


def test_a_request_on_its_way_keeps_what_it_uses():
    trie = PrefixTrie(TrieRules(room=10))
    ask(trie, range(100, 106))
    trie.begin(Tokens(range(100, 108)), "a")
    ask(trie, range(200, 208), owner="b")
    assert held(trie, range(100, 108)) == 6
    trie.end(Tokens([END]), "a")
    assert held(trie, range(100, 108)) == 8


def test_the_end_of_the_active_path_is_not_merged_into_what_follows():
    trie = PrefixTrie(TrieRules(room=6))
    ask(trie, range(10))
    trie.begin(Tokens(range(12)), "a")
    ask(trie, [0, 1, 2, 3, 4, 50, 51])
    ask(trie, range(5))
    assert (trie.total, trie.node_count) == (10, 2)
    trie.begin(Tokens(range(6)), "a")
    trie.cut(0, "a")
    assert trie.total == 5


@pytest.mark.parametrize(("processed", "kept"), [(0, 3), (2, 3), (5, 5), (99, 8)])
def test_a_cancelled_request_leaves_what_it_had_read(processed, kept):
    trie = PrefixTrie()
    ask(trie, [1, 2, 3])
    trie.begin(Tokens(range(1, 9)))
    trie.cut(processed)
    assert held(trie, range(1, 9)) == kept


def test_a_restarted_server_holds_nothing():
    trie = PrefixTrie()
    ask(trie, range(9), owner="a")
    trie.begin(Tokens(range(20)), "a")
    trie.forget()
    trie.end(Tokens([1, 2]), "a")
    assert (trie.total, trie.states(), held(trie, range(9))) == (0, [], 0)


def test_an_end_without_a_request_changes_nothing():
    trie = PrefixTrie()
    trie.end(Tokens([1, 2]))
    trie.cut(4)
    assert trie.total == 0


def test_an_empty_prompt_is_refused():
    with pytest.raises(ValueError, match="at least one token"):
        PrefixTrie().predict(Tokens())
    with pytest.raises(ValueError, match="block size"):
        TrieRules(block=0)


def test_tokens_of_unknown_id_are_never_found_again():
    trie = PrefixTrie()
    ask(trie, [1, 2, -1, 4, 5])
    assert held(trie, [1, 2, -1, 4, 5]) == trie.total == 2


# Without token ids.

def test_digests_with_estimated_lengths_stand_in_for_ids_and_say_so():
    system, one, two = (b"\x01" * 32, 100), (b"\x02" * 32, 30), (b"\x03" * 32, 40)
    trie = PrefixTrie(TrieRules(exact=False))
    trie.begin(estimated([system, one]))
    trie.end(estimated([(b"\x04" * 32, 50)]))
    again = trie.predict(estimated([system, one, (b"\x04" * 32, 50), two]))
    assert (again.cached, again.exact) == (180, False)
    assert trie.predict(estimated([system, two])).cached == 100
    assert PrefixTrie().predict(Tokens([1])).exact


def test_an_estimate_that_changed_still_finds_the_shorter_of_both():
    trie = PrefixTrie(TrieRules(exact=False))
    trie.begin(estimated([(b"\x01" * 32, 100)]))
    trie.end(Tokens())
    assert trie.predict(estimated([(b"\x01" * 32, 120), (b"\x02" * 32, 9)])).cached == 100


# Whose states are held.

def test_owners_are_told_apart_with_their_times():
    trie = PrefixTrie()
    ask(trie, range(10), owner="a", at=100.0)
    ask(trie, [0, 1, 2, 70, 71], owner="b", at=200.0)
    ask(trie, range(12), owner="a", at=300.0)
    assert [(s.owner, s.tokens, s.at) for s in trie.states()] == [("a", 12, 300.0), ("b", 5, 200.0)]
    assert trie.held("b").tokens == 5
    assert trie.held("c") is None


def test_an_owner_who_was_evicted_keeps_only_what_is_shared():
    trie = PrefixTrie(TrieRules(room=12))
    ask(trie, range(8), owner="a", at=1.0)
    ask(trie, [0, 1, 2, 70, 71], owner="b", at=2.0)
    ask(trie, [0, 1, 2, 80, 81, 82, 83], owner="c", at=3.0)
    assert {s.owner: s.tokens for s in trie.states()} == {"a": 3, "b": 5, "c": 7}
    ask(trie, range(200, 230), owner="d", at=4.0)
    assert {s.owner: s.tokens for s in trie.states()} == {"d": 30}


def test_a_merged_owner_holds_no_more_than_its_own():
    trie = PrefixTrie(TrieRules(room=8))
    ask(trie, range(4), owner="short", at=1.0)
    ask(trie, [0, 1, 2, 3, 50], owner="other", at=2.0)
    ask(trie, range(8), owner="long", at=3.0)
    assert {s.owner: s.tokens for s in trie.states()} == {"short": 4, "other": 4, "long": 8}
    assert trie.node_count == 1


def test_warmth_of_a_conversation():
    trie = PrefixTrie(TrieRules(room=300))
    ask(trie, range(200), owner="a", at=5.0)
    warm = trie.warmth(Tokens(range(201)), "a")
    assert (warm.heat, warm.held, warm.to_prefill, warm.since) == (Heat.WARM, 200, 1, 5.0)
    assert trie.warmth(Tokens(range(300)), "a").heat is Heat.PARKED
    assert trie.warmth(Tokens(range(1000)), "a").heat is Heat.COLD
    ask(trie, range(500, 700), owner="b", at=6.0)
    cold = trie.warmth(Tokens(range(200)), "a")
    assert (cold.heat, cold.held, cold.to_prefill, cold.since) == (Heat.COLD, 0, 200, None)


# Properties.

IDS = st.integers(0, 2)
SEQUENCES = st.lists(IDS, min_size=1, max_size=14)
STEPS = st.lists(st.tuples(SEQUENCES, st.lists(IDS, max_size=4), st.sampled_from("abc")), min_size=1, max_size=14)
BLOCKS = st.sampled_from([1, 2, 3, 4])


def longest(trie):
    """What is held of each owner at most."""
    return {state.owner: state.tokens for state in sorted(trie.states(), key=lambda state: state.tokens)}


def common(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def prefixes(sequences, block):
    return {tuple(s[:end]) for s in sequences for end in range(block, len(s) + 1, block)}


@settings(deadline=None)
@given(STEPS, BLOCKS)
def test_without_eviction_it_is_the_longest_common_prefix_with_anything_sent(steps, block):
    trie, sent = PrefixTrie(TrieRules(block)), []
    for prompt, sampled, owner in steps:
        best = max((min(common(prompt, s), len(s) // block * block) for s in sent), default=0)
        assert ask(trie, prompt, sampled, owner) == min(best, len(prompt) - 1) // block * block
        sent.append([*prompt, *sampled])
        assert trie.total == block * len(prefixes(sent, block))


@settings(deadline=None)
@given(STEPS, BLOCKS, st.integers(0, 20), st.booleans(), st.one_of(st.none(), st.integers(1, 4)))
def test_the_room_is_kept_and_nothing_is_held_that_was_never_sent(steps, block, room, piecewise, states):
    trie, sent = PrefixTrie(TrieRules(block, room, states, piecewise)), []
    for number, (prompt, sampled, owner) in enumerate(steps):
        ask(trie, prompt, sampled, owner, at=float(number))
        sent.append([*prompt, *sampled])
        active = len(sent[-1]) // block * block
        assert trie.total <= max(room, active)
        assert held(trie, [*sent[-1], 7]) >= active
        kept = [s[:held(trie, [*s, 7]) // block * block] for s in sent]
        assert trie.total == block * len(prefixes(kept, block))
        for state in trie.states():
            lengths = [len(s) for s, (_, _, name) in zip(sent, steps, strict=False) if name == state.owner]
            assert 0 < state.tokens <= max(lengths)


@settings(deadline=None)
@given(STEPS, SEQUENCES, BLOCKS, st.integers(1, 30))
def test_predicting_and_copying_change_nothing(steps, probe, block, room):
    trie, silent = PrefixTrie(TrieRules(block, room)), PrefixTrie(TrieRules(block, room))
    for prompt, sampled, owner in steps:
        trie.predict(Tokens(probe))
        trie.warmth(Tokens(probe), owner)
        ask(trie.copy(), probe, probe)
        assert ask(trie, prompt, sampled, owner) == ask(silent, prompt, sampled, owner)
    assert trie.states() == silent.states()
    assert trie.total == silent.total
    assert trie.predict(Tokens(probe)) == silent.predict(Tokens(probe))


@settings(deadline=None)
@given(STEPS, st.lists(SEQUENCES, min_size=1, max_size=6), SEQUENCES, BLOCKS)
def test_splitting_and_merging_never_change_a_prediction(steps, points, probe, block):
    trie = PrefixTrie(TrieRules(block))
    for prompt, sampled, owner in steps:
        ask(trie, prompt, sampled, owner)
    before, states, nodes = trie.predict(Tokens(probe)), longest(trie), trie.node_count
    pinned = [point for point in points if trie.pin(Tokens(point))]
    assert trie.predict(Tokens(probe)) == before
    for point in pinned:
        trie.unpin(Tokens(point))
    assert trie.predict(Tokens(probe)) == before
    assert (longest(trie), trie.restore_points()) == (states, [])
    assert trie.node_count <= nodes


@pytest.mark.slow
def test_a_conversation_of_more_turns_than_python_calls_deep_is_walked():
    trie = PrefixTrie(TrieRules(room=3_000))
    for end in range(2, 2_402, 2):
        assert ask(trie, range(end), owner="a") == max(0, end - 2)
    assert trie.node_count == 1200 > sys.getrecursionlimit()
    assert trie.copy().predict(Tokens(range(2_400))).cached == 2_399
    ask(trie, range(50_000, 52_000), owner="b")
    assert trie.held("a").tokens == 1_000
