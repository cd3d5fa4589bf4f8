"""What is one character to its reader is cut nowhere: not by a title's end, not by a row's, in no script."""

from __future__ import annotations

import pytest
from wcwidth import iter_graphemes

from corpus import corpus
from kvchat.sanitize import one_line
from kvchat.ui.runs import ending, fit
from kvchat.ui.widgets.transcript.render.wrap import plain_rows

CLUSTERS = {
    "Devanagari conjunct": "\u0915\u094d\u0937",
    "Devanagari vowel": "\u0915\u093f",
    "Bengali": "\u0995\u09cd\u09b7",
    "Tamil": "\u0b95\u0bcd\u0bb7\u0bbf",
    "Telugu": "\u0c15\u0c4d\u0c37\u0c3f",
    "Malayalam": "\u0d15\u0d4d\u0d37",
    "Sinhala": "\u0dc1\u0dca\u200d\u0dbb\u0dd3",
    "Thai": "\u0e19\u0e49\u0e33",
    "Lao": "\u0e81\u0eb3",
    "Khmer": "\u1780\u17d2\u1798\u17bb",
    "Myanmar": "\u1000\u103c\u1031\u102c",
    "Tibetan": "\u0f66\u0f92\u0fb2",
    "Hangul": "\u1112\u1161\u11ab",
    "Arabic": "\u0628\u0651\u064e",
    "Hebrew": "\u05e9\u05c1\u05b8",
    "Persian": "\u0645\u06cc\u200c\u062e",
    "Vietnamese": "e\u0323\u0302",
    "kana": "\u304b\u3099",
    "variant": "\u8fba\U000e0100",
    "keycap": "1\ufe0f\u20e3",
    "flags": "\U0001f1eb\U0001f1f7\U0001f1e9\U0001f1ea",
    "family": "\U0001f469\u200d\U0001f469\u200d\U0001f467",
    "rainbow": "\U0001f3f3\ufe0f\u200d\U0001f308",
    "skin": "\U0001f44d\U0001f3fd",
}


def ends(text: str) -> set[int]:
    """Where a text can be cut."""
    found = {0}
    for one in iter_graphemes(text):
        found.add(max(found) + len(one))
    return found


@corpus("script", CLUSTERS)
@pytest.mark.parametrize("between", ["x", ""])
def test_no_cut_parts_a_character(script: str, between: str) -> None:
    text = (between + CLUSTERS[script]) * 9
    places = ends(text)
    for width in range(1, 30):
        for cut in (one_line(text, width), fit(text, width)):
            kept = cut.removesuffix("…")
            assert text.startswith(kept) and len(kept) in places, (width, ascii(cut))
        kept = ending(text, width).removeprefix("…")
        assert text.endswith(kept) and len(text) - len(kept) in places, (width, ascii(kept))


@corpus("script", CLUSTERS)
@pytest.mark.parametrize("between", ["x", ""])
def test_no_row_ends_within_a_character(script: str, between: str) -> None:
    text = (between + CLUSTERS[script]) * 9
    for width in range(4, 30):
        rows = [row.text for row in plain_rows(text, width)]
        assert "".join(rows) == text
        assert {len("".join(rows[:number])) for number in range(len(rows))} <= ends(text), width
