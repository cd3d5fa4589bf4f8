"""Token counts told from kinds of characters, against what real tokenizers make of the same texts."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from corpus import corpus
from kvchat.prompt.token_estimate import LEAST, MOST, TokenEstimate, learnt

PROSE = (
    "When the people of the village had gathered in the hall, the old woman who kept the bees began to "
    "speak about the winter that was coming, and everybody listened, because she had never been wrong about the "
    "weather. "
)
TEXTS = {
    "prose": PROSE * 10,
    "code": "def total(turns):\n    return sum(turn.prompt_tokens or 0 for turn in turns if turn.known)\n\n\n" * 20,
    "log": "\n".join(
        f"2026-11-21T09:{n % 60:02}:{n * 7 % 60:02}.{n * 13 % 1000:03}Z INFO id={n * 7919:08x} status=200"
        for n in range(40)
    ),
    "json": json.dumps([{"id": n, "share": round(n / 7, 6), "name": f"item-{n}", "ok": True} for n in range(60)]),
    "table": "\n".join("| " + " | ".join(f"{n * m % 997:>6}" for m in range(8)) + " |" for n in range(30)),
    "hexadecimal": "".join(f"{n * 2654435761 % 2**32:08x}" for n in range(1, 200)),
    "german": "Als die Leute aus dem Dorf sich versammelt hatten, begann die alte Bienenzüchterin zu sprechen. " * 20,
    "russian": "Когда жители деревни собрались в зале, старая женщина начала говорить о грядущей зиме. " * 20,
    "chinese": "当村里的人们聚集在大厅里的时候,养蜂的老妇人开始谈论即将到来的冬天。" * 20,
    "emoji": "😀🎉🚀🇩🇪🔥" * 60,
}
TEXTS["mixed"] = "\n".join(
    (TEXTS["log"], TEXTS["json"][:2000], TEXTS["chinese"][:300], TEXTS["emoji"][:100], TEXTS["prose"][:600])
)
COUNTED = {
    "prose": (431, 431, 431),
    "code": (460, 460, 579),
    "log": (1022, 1612, 1664),
    "json": (1672, 1976, 1976),
    "table": (990, 1215, 1004),
    "hexadecimal": (916, 1413, 1433),
    "german": (541, 541, 701),
    "russian": (881, 582, 1281),
    "chinese": (880, 420, 1200),
    "emoji": (1020, 360, 1080),
    "mixed": (2738, 3100, 3698),
}
"""By cl100k (GPT-4), Qwen and SmolLM2, each counted with the tokenizer itself."""


UNTAUGHT = TokenEstimate()


def of(text: str, estimate: TokenEstimate = UNTAUGHT) -> int:
    return estimate.of([text.encode()])


@corpus("kind", TEXTS)
def test_every_kind_of_text_is_estimated_within_what_tokenizers_differ_by(kind: str) -> None:
    estimated, counted = of(TEXTS[kind]), COUNTED[kind]
    assert 0.6 * max(counted) <= estimated <= 1.5 * max(counted)
    assert max(counted) / 1.7 <= estimated or min(counted) <= estimated


def test_a_mixed_paste_is_no_longer_half_of_what_it_is() -> None:
    four = len(TEXTS["mixed"].encode()) / 4
    for counted in COUNTED["mixed"]:
        assert 0.8 < of(TEXTS["mixed"]) / counted < 1.2
        assert four / counted < 0.56


def test_a_conversations_own_figures_correct_its_kinds_of_text_and_no_others() -> None:
    own = learnt([TEXTS["chinese"].encode()], COUNTED["chinese"][2])
    assert abs(of(TEXTS["chinese"], own) / COUNTED["chinese"][2] - 1) < 0.15
    assert abs(of(TEXTS["chinese"]) / COUNTED["chinese"][2] - 1) > 0.3
    for kind in ("log", "hexadecimal", "code"):
        assert abs(of(TEXTS[kind], own) / of(TEXTS[kind]) - 1) < 0.1


def test_json_strings_count_as_the_text_they_stand_for() -> None:
    text = 'He said "yes"\nand left\n' * 50
    assert abs(of(json.dumps(text)[1:-1]) - of(text)) <= 2


def test_an_odd_figure_changes_little() -> None:
    for tokens in (1, 10**9):
        scales = learnt([PROSE.encode() * 100], tokens).scales
        assert all(LEAST <= scale <= MOST for scale in scales)
    assert learnt([], 5).scales == (1.0, 1.0, 1.0)


@given(st.lists(st.text(max_size=40), max_size=5), st.integers(1, 2000))
def test_it_grows_with_the_text_and_no_byte_is_worth_more_than_its_scale(texts: list[str], tokens: int) -> None:
    parts = [text.encode("utf-8", "replace") for text in texts]
    for estimate in (TokenEstimate(), learnt(parts, tokens)):
        whole = estimate.of(parts)
        assert 0 <= whole <= MOST * sum(map(len, parts)) + 1
        assert all(estimate.of([part]) <= whole + 1 for part in parts)
        assert abs(sum(estimate.of([part]) for part in parts) - whole) <= len(parts)
