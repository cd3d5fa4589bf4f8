"""Drafts: spans that move with the text, what an editor makes of them, and the string that keeps them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvchat.prompt.context import FILE, ContextBlock
from kvchat.prompt.drafts import MENTION, PASTE, Draft, Span, cut_out, decoded, edited, expanded, pasted_of
from kvchat.prompt.drafts import given as given_text

LABEL = "[pasted 1: 9 lines]"
BLOCK = ContextBlock(PASTE, "pasted 1 (9 lines)", "\n".join("abcdefghi"))


def pasted(draft: Draft) -> list[str]:
    return [draft.text[start:end] for start, end in pasted_of(draft.spans)]


@given(
    st.lists(
        st.tuples(st.booleans(), st.text(alphabet="ab", max_size=4), st.integers(0, 30), st.integers(0, 5)), max_size=15
    )
)
def test_pastes_move_with_the_text_and_keep_what_is_left_of_them(edits: list[tuple[bool, str, int, int]]) -> None:
    text, spans, model = "", (), list[bool]()
    for is_paste, put, start, length in edits:
        start, end = min(start, len(text)), min(start + length, len(text))
        text = text[:start] + put + text[end:]
        spans = edited(spans, start, end, len(put), given_text(put) if is_paste else ())
        model[start:end] = [is_paste] * len(put)
    assert [any(start <= at < end for start, end in pasted_of(spans)) for at in range(len(text))] == model


@pytest.mark.parametrize(("start", "end", "stays"), [(0, 0, True), (3, 3, True), (0, 1, False), (1, 2, False)])
def test_a_chip_is_whole_or_gone(start: int, end: int, stays: bool) -> None:
    chip = Span(0, 3, MENTION)
    assert bool(edited((chip,), start, end, 2)) is stays
    assert cut_out((chip,), 1, 3) == () and cut_out((chip,), 0, 4) == (chip,)


def test_a_draft_comes_back_from_the_store_with_all_that_is_in_it() -> None:
    file = ContextBlock(FILE, "a.md", "x", "/a.md#0123456789abcdef")
    text = f"{LABEL} and @b and {LABEL} c"
    spans = (Span(0, 19, PASTE, BLOCK), Span(24, 26, MENTION), Span(31, 50, PASTE, file), Span(50, 52, PASTE))
    draft = Draft(text, spans)
    assert decoded(draft.encoded()) == draft and draft.blocks == (BLOCK, file)
    assert expanded(text, spans) == f"{BLOCK.text} and @b and x c"
    assert decoded("see @a").spans == given_text("see @a"), "nobody knows who typed it"
    assert decoded(Draft("see @a").encoded()).spans == ()


@pytest.mark.parametrize(
    ("before", "after", "left"),
    [
        (Draft("see @./a", given_text("see @./a")), "see @./a, please", ["see @./a"]),
        (Draft("see @./a"), "see @./a, please", []),
        (Draft("see @./a", given_text("see @./a")), "see @./b", ["see ", "@", "./"]),
        (Draft("@./a @./b", given_text("@./a ")), "@./b @./a", ["@./a"]),
        (Draft("", ()), "me@home and @./b", []),
        (Draft("@x", given_text("@x")), "@x and then @x", ["@x", "@x"]),
    ],
)
def test_in_an_editor_what_stood_there_stays_what_it_was(before: Draft, after: str, left: list[str]) -> None:
    found = before.rewritten(after)
    assert found.text == after
    kept, now = "".join(left), "".join(pasted(found))
    assert now.count("@") == kept.count("@"), now


WORDS = st.lists(st.sampled_from(["@./a", "@./b+c", '@"d e"', "@", "me@x", "\n", "word", "`", "@./a."]), max_size=8)


@given(WORDS, st.text(alphabet="xyz ,.`>\n", max_size=6), st.integers(0, 8))
def test_no_pasted_sign_counts_after_an_editor_whatever_is_written_around_it(
    words: list[str], written: str, place: int
) -> None:
    before = " ".join(words)
    after = " ".join([*words[:place], written, *words[place:]])
    found = Draft(before, given_text(before)).rewritten(after)
    assert "".join(pasted(found)).count("@") == after.count("@")
