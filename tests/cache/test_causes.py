"""Causes: each is named from its evidence, in the fixed order; ordinary turns say nothing."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from corpus import corpus
from kvchat.backends.kinds import kind_of
from kvchat.cache.causes.evidence import Evidence, Foreign, LastRead, OwnUse, Sent, ServerIdentity
from kvchat.cache.causes.explain import explain, silent_loss
from kvchat.cache.llamacpp.cache_config import Rewind, Shape
from kvchat.cache.llamacpp.simulator import Prediction, StatePlace
from kvchat.cache.tokens import Tokens
from kvchat.figures.accounting import NOISE, TurnFigures
from kvchat.figures.cause import Cause
from kvchat.prompt.message import Message, Role
from kvchat.prompt.wire import canonical
from kvchat.text.findings import evidence_sentence, remedy_sentence

LLAMA = ServerIdentity("http://127.0.0.1:8080", "llama.cpp", "b11549", "qwen3-8b")
NO_THINKING = canonical({"enable_thinking": False})


def wire(role, text, reasoning=""):
    return Message(Role(role), text, reasoning=reasoning).wire()


SYSTEM, U1, A1, U2 = (
    wire("system", "You are a helpful assistant."),
    wire("user", "How tall is the lighthouse?"),
    wire("assistant", "It is 31 metres tall."),
    wire("user", "And its lamp? It is 10:15 now."),
)
REPLY = "The lamp stands 28 metres above the sea."
A2, U3 = wire("assistant", REPLY), wire("user", "Who built it?")
WIRES_BEFORE, WIRES_NOW = (SYSTEM, U1, A1, U2), (SYSTEM, U1, A1, U2, A2, U3)


def chatml(*messages, end="<|im_start|>assistant\n"):
    return "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in messages) + end


OLD = (
    ("system", "You are a helpful assistant."),
    ("user", "How tall is the lighthouse?"),
    ("assistant", "It is 31 metres tall."),
    ("user", "And its lamp? It is 10:15 now."),
)
NEW = (*OLD, ("assistant", REPLY), ("user", "Who built it?"))


def figures(prompt=12_000, cached=3_800, new=80, **more):
    return TurnFigures(prompt, cached, 200, new, **more)


def sentence(finding):
    return evidence_sentence(finding.evidence, finding.tokens)


def helps(finding):
    return remedy_sentence(finding.remedy)


def evidence(cached=3_800, *, now=None, before=None, **more):
    """A turn of 12,000 tokens after one of 9,900 and an answer of 2,020, with 80 new tokens."""
    last = {
        "sent": Sent(LLAMA, WIRES_BEFORE),
        "prompt_tokens": 9_900,
        "predicted_tokens": 2_020,
        "slot": 0,
        "reply": REPLY,
        **(before or {}),
    }
    sent = Sent(**{"server": LLAMA, "wires": WIRES_NOW, **(now or {})})
    return seen(figures(cached=cached), sent, LastRead(**last), **more)


def seen(figures, now, before=None, **more):
    """Evidence with what a server of that kind can be told."""
    return Evidence(figures, now, before, flags=kind_of(now.server.kind).flags, **more)


def texts(old, new, **more):
    """The same with rendered prompts."""
    return {"now": {"rendered": new, **more}, "before": {"sent": Sent(LLAMA, WIRES_BEFORE, rendered=old)}}


def ids(part, length=9_900, sampled=2_020, total=12_000):
    """Token ids that part from what was held at token `part`."""
    held = list(range(length + sampled))
    now = held[:part] + [50_000 + n for n in range(total - part)]
    return (
        {"sent": Sent(LLAMA, WIRES_BEFORE, tokens=Tokens(held[:length])), "sampled": Tokens(held[length:])},
        {"tokens": Tokens(now)},
    )


def predicted(cached=3_800, common=3_800, best=3_800, where=None, slot=0, chosen="prefix"):
    return Prediction(cached, slot, "slot", common, best, where, chosen, None)


PARTED_BEFORE, PARTED_NOW = ids(11_000)
HYBRID = Shape(rewind=Rewind.NOWHERE)
THINK_END = "<|im_start|>assistant\n<think>\n\n</think>\n\n"
EDITED = (SYSTEM, U1, A1, wire("user", "And its lamp? It is 10:31 now."), A2, U3)

SCENARIOS = {
    "another model": (
        Cause.OTHER_MODEL,
        evidence(0, now={"server": replace(LLAMA, model="/models/gemma-3.gguf")}),
        "gemma-3.gguf answered in place of qwen3-8b: 11,920 tokens were prefilled again.",
    ),
    "another server": (
        Cause.OTHER_MODEL,
        evidence(0, now={"server": replace(LLAMA, base_url="http://10.0.0.2:80")}),
        "Another server answers now",
    ),
    "swapped": (
        Cause.OTHER_MODEL,
        evidence(0, swapped=("/models/a.gguf", "/models/b.gguf"), restarted=True),
        "b.gguf answered in place of a.gguf: 11,920",
    ),
    "another window": (
        Cause.OTHER_WINDOW,
        evidence(0, windows=(32_768, 65_536), restarted=True, loading_seen=True),
        "The model was loaded with a window of 65,536 tokens in place of 32,768: 11,920 tokens were prefilled again.",
    ),
    "another window, as asked for": (
        Cause.OTHER_WINDOW,
        evidence(0, windows=(32_768, 65_536), now={"server": replace(LLAMA, kind="ollama")}),
        "65,536 tokens in place of 32,768",
    ),
    "another window of the embedded engine": (
        Cause.OTHER_WINDOW,
        evidence(
            0,
            windows=(32_768, 65_536),
            now={"server": replace(LLAMA, base_url="http://127.0.0.1:41000", embedded=True)},
            before={"sent": Sent(replace(LLAMA, embedded=True), WIRES_BEFORE)},
        ),
        "65,536 tokens in place of 32,768",
    ),
    "slept": (Cause.UNLOADED, evidence(0, slept=True, restarted=True), "The model slept: 11,920"),
    "loaded again": (Cause.UNLOADED, evidence(0, loading_seen=True), "had to be loaded again"),
    "restarted": (Cause.RESTARTED, evidence(0, restarted=True, loading_seen=True), "The server restarted: 11,920"),
    "another build": (Cause.RESTARTED, evidence(0, now={"server": replace(LLAMA, build="b11600")}), "b11600"),
    "embedded engine restarted": (
        Cause.RESTARTED,
        evidence(
            0,
            now={"server": replace(LLAMA, base_url="http://127.0.0.1:41000", embedded=True)},
            before={"sent": Sent(replace(LLAMA, embedded=True), WIRES_BEFORE)},
        ),
        "The server restarted",
    ),
    "caching off": (Cause.CACHING_OFF, evidence(0, now={"caches": False}), "Caching was off"),
    "other adapters": (
        Cause.CACHING_OFF,
        evidence(0, now={"adapters": "[1]"}, before={"sent": Sent(LLAMA, WIRES_BEFORE, adapters="[]")}),
        "LoRA",
    ),
    "a server that caches nothing": (Cause.CACHING_OFF, evidence(0, turns_without_reuse=3), "nothing in 3 turns"),
    "cut, counted": (Cause.CUT, evidence(0, counted=23_400), "it read 12,000 of 23,400 tokens."),
    "cut, smaller than before": (
        Cause.CUT,
        Evidence(figures(4_096, 12, 0), Sent(wires=WIRES_NOW), LastRead(Sent(wires=WIRES_BEFORE), 9_900, 2_020)),
        "it read 4,096 of 11,920 tokens.",
    ),
    "shifted": (Cause.SHIFTED, evidence(1_000, before={"slot_tokens": 6_100}), "kept 6,100 of 11,919 tokens"),
    "a message differs": (
        Cause.OUR_BYTES,
        evidence(3_800, now={"wires": EDITED}),
        "Message 3 changed at “…10:31 now.”: 8,120 tokens were prefilled again.",
    ),
    "the system prompt differs": (
        Cause.OUR_BYTES,
        evidence(4, now={"wires": (wire("system", "You are curt."), U1)}),
        "The system prompt changed at “…",
    ),
    "an edit by the person": (
        Cause.OUR_BYTES,
        evidence(3_800, now={"wires": EDITED}, changed_by="edit", changed_message=3),
        "You edited message 3: 8,120 tokens were prefilled again.",
    ),
    "an act, nothing else known": (
        Cause.OUR_BYTES,
        Evidence(figures(), changed_by="compact"),
        "You compacted the conversation: 8,120 tokens",
    ),
    "options set by the person": (
        Cause.OUR_BYTES,
        evidence(
            4, now={"options": NO_THINKING}, before={"sent": Sent(LLAMA, WIRES_BEFORE, b"{}")}, changed_by="template"
        ),
        "You changed the template's options",
    ),
    "tools reordered": (
        Cause.OUR_BYTES,
        evidence(4, now={"tools": b'[{"a":1}]'}, before={"sent": Sent(LLAMA, WIRES_BEFORE, tools=b'[{"b":1}]')}),
        "The tools changed",
    ),
    "answer stored trimmed": (Cause.OUR_BYTES, evidence(9_900, before={"reply": "\n\n" + REPLY}), "trimmed"),
    "thoughts dropped, by the texts": (
        Cause.REASONING,
        evidence(
            9_900,
            **{
                **texts(chatml(*OLD), chatml(*NEW)),
                "before": {
                    "sent": Sent(LLAMA, WIRES_BEFORE, rendered=chatml(*OLD)),
                    "reasoning": "The keeper said 28. So",
                },
            },
        ),
        "The chat template forgets thoughts: the last answer (2,020 tokens) was prefilled again.",
    ),
    "thoughts dropped, by the figures": (Cause.REASONING, evidence(9_901, before={"reasoning": "Hm."}), "thoughts"),
    "empty think block dropped": (
        Cause.REASONING,
        evidence(9_896, **texts(chatml(*OLD, end=THINK_END), chatml(*NEW, end=THINK_END))),
        "empty thinking block",
    ),
    "system prompt moves": (
        Cause.TEMPLATE,
        evidence(
            4,
            **texts(
                "<s>[INST] You are a helpful assistant.\n\nHow tall is the lighthouse?[/INST]",
                "<s>[INST] How tall is the lighthouse?[/INST] It is 31 metres tall.</s>[INST] You are a helpful assistant."
                "\n\nAnd its lamp? It is 10:15 now.[/INST]",
            ),
        ),
        "moves the system prompt",
    ),
    "the template's date": (
        Cause.TEMPLATE,
        evidence(
            20,
            **texts(
                chatml(("system", "Today: 26 Nov 2026\n\n" + OLD[0][1]), *OLD[1:]),
                chatml(("system", "Today: 27 Nov 2026\n\n" + OLD[0][1]), *NEW[1:]),
            ),
        ),
        "another date (“27 Nov 2026”): 11,900 tokens",
    ),
    "re-tokenised, by the ids": (
        Cause.RETOKENISED,
        evidence(11_000, before=PARTED_BEFORE, now=PARTED_NOW),
        "from its token 1,101 on: 920 tokens",
    ),
    "another one of several answers": (
        Cause.OTHER_ANSWER,
        evidence(9_902, unkept=TurnFigures(9_900, 40, 2_020, 80, alternative=1)),
        "The server keeps only the first of several answers; number 2 went on: 2,018 tokens",
    ),
    "a cancelled one was still computed": (
        Cause.CANCELLED,
        evidence(40, during_cancelled=True, prediction=predicted(11_919, 11_919, 11_919)),
        "The slot still computed a cancelled request",
    ),
    "own side request": (
        Cause.OWN_REQUEST,
        evidence(40, uses=(OwnUse("side", "memory", 0),)),
        "kvchat's own memory request took this conversation's slot",
    ),
    "own reading ahead": (Cause.OWN_REQUEST, evidence(40, uses=(OwnUse("warm-up", "weather", 0),)), "warm-up"),
    "another program, in the slot": (
        Cause.OTHER_CLIENT,
        evidence(0, foreign=Foreign(0, 512)),
        "Another program used the model: slot 0 holds 512 tokens that are not ours.",
    ),
    "another program, at a time": (
        Cause.OTHER_CLIENT,
        evidence(0, foreign=Foreign(0, 512, 1_795_943_760, 1_795_944_060)),
        "Another program used the model between 09:16 and 09:21: slot 0 holds 512 tokens that are not ours.",
    ),
    "another program, within a minute": (
        Cause.OTHER_CLIENT,
        evidence(0, foreign=Foreign(0, 0, 1_795_943_760, 1_795_943_770)),
        "Another program emptied slot 0 of the server at 09:16.",
    ),
    "another program, over night": (
        Cause.OTHER_CLIENT,
        evidence(0, foreign=Foreign(0, 512, 1_795_943_760, 1_795_999_999)),
        "Another program used the model since 2026-11-29 09:16: slot 0 holds 512 tokens",
    ),
    "another program, that emptied the slot": (
        Cause.OTHER_CLIENT,
        evidence(0, foreign=Foreign(0, 0)),
        "Another program emptied slot 0",
    ),
    "another program, by the totals": (
        Cause.OTHER_CLIENT,
        evidence(0, foreign=Foreign(None, 3_210)),
        "the server read 3,210 tokens that were not sent from here",
    ),
    "parked": (
        Cause.NOT_LOOKED_UP,
        evidence(prediction=predicted(best=11_919, where=StatePlace("parked", 1))),
        "11,919 tokens were parked",
    ),
    "cache memory full": (Cause.CACHE_FULL, evidence(0, evicted=11_919), "dropped 11,919 tokens"),
    "warm, reported cold": (
        Cause.REPORTED_COLD,
        evidence(0, denied=11_919),
        "The server reports 0 cached tokens, though it held 11,919 of this conversation.",
    ),
    "slot taken": (
        Cause.SLOT_TAKEN,
        evidence(400, uses=(OwnUse("conversation", "weather", 0),)),
        "“weather” took this conversation's slot: 11,520 tokens",
    ),
    "slot taken, or a small host cache": (
        Cause.SLOT_TAKEN,
        evidence(400, uses=(OwnUse("conversation", "weather", 0),), may_be_full=True),
        "“weather” took this conversation's slot, or the server's cache memory is small: 11,520 tokens",
    ),
    "pinned elsewhere": (
        Cause.SLOT_TAKEN,
        evidence(0, prediction=predicted(0, 0, 11_919, StatePlace("slot", 1), 0, "pinned")),
        "Slot 1 held 11,919 tokens of this, but slot 0 answered.",
    ),
    "rewind of a hybrid": (
        Cause.CHECKPOINT,
        evidence(9_896, shape=HYBRID, before=PARTED_BEFORE, now=PARTED_NOW),
        "only go back to token 9,896, not to 11,000",
    ),
    "rewind the simulator foresaw": (
        Cause.CHECKPOINT,
        evidence(
            3_800, shape=Shape(rewind=Rewind.WINDOW), prediction=predicted(3_800, 11_900, 11_900, StatePlace("slot", 0))
        ),
        "3,800",
    ),
    "blocks": (Cause.BLOCKS, evidence(11_616, block=528), "whole blocks of 528 tokens"),
    "the first block never filled": (Cause.BLOCKS, Evidence(figures(5_000, 0, 80), block=8_192), "8,192"),
    "nothing known": (Cause.UNKNOWN, evidence(), "8,120 tokens were prefilled again, cause unknown."),
    "less than the simulator expected": (
        Cause.UNKNOWN,
        evidence(prediction=predicted(cached=11_919)),
        "11,919 were expected",
    ),
}


@corpus("name", SCENARIOS)
def test_each_cause_is_named_from_its_evidence(name):
    cause, given_evidence, words = SCENARIOS[name]
    finding = explain(given_evidence)
    assert finding.cause is cause, finding
    assert words in sentence(finding)
    assert finding.tokens == given_evidence.figures.wasted_tokens
    assert len(sentence(finding)) <= 118 and sentence(finding).endswith(".")


def test_every_cause_has_a_scenario():
    unreported = {Cause.NOT_REPORTED}
    assert {cause for cause, _, _ in SCENARIOS.values()} | unreported == set(Cause)


REMEDIES = {
    "cache memory full": "--cache-ram 16384",
    "slot taken": "--parallel 2",
    "cut, counted": "--ctx-size 32768",
    "another window": "Keep the server's window as it is",
    "another window, as asked for": "Keep the setting server.context_size as it is",
    "another window of the embedded engine": "Keep the setting engine.context_size as it is",
    "slept": "--sleep-idle-seconds",
    "embedded engine restarted": "engine.snapshots",
    "own side request": "--parallel 2",
    "rewind of a hybrid": "--ctx-checkpoints 64",
    "rewind the simulator foresaw": "--swa-full",
    "shifted": "Compact",
    "system prompt moves": "first message",
    "parked": "cache.detour",
    "pinned elsewhere": "id_slot",
    "warm, reported cold": "restart the server with --cache-ram 0 and regenerate",
}


@corpus("name", REMEDIES)
def test_the_remedy_names_the_flag_or_setting(name):
    assert REMEDIES[name] in helps(explain(SCENARIOS[name][1]))


def test_the_switch_for_keeping_thoughts_is_named_only_where_there_is_one():
    turn = evidence(9_900, before={"reasoning": "Hm."})
    assert "preserve_reasoning" in helps(explain(replace(turn, can_keep_reasoning=True)))
    assert "preserve_reasoning" not in helps(explain(replace(turn, can_keep_reasoning=False)))
    off = replace(turn, can_keep_reasoning=True, reasoning_option=("clear_thinking", False))
    assert helps(explain(off)) == "Turn off clear_thinking in the template options of the conversation."


def test_a_remedy_names_no_flag_of_another_server():
    turn = evidence(0, evicted=11_919, now={"server": ServerIdentity(kind="vllm")})
    assert "--gpu-memory-utilization" in helps(explain(turn))
    assert "--" not in helps(explain(evidence(0, evicted=11_919, now={"server": ServerIdentity(kind="openai")})))


def test_a_server_without_a_host_cache_is_told_to_park():
    turn = evidence(0, uses=(OwnUse("conversation", "weather", 0),), shape=Shape(ram_bytes=0))
    assert "--cache-ram" in helps(explain(turn))


# Pairs of evidence in one turn: the first of the order is named.
PIECES = {
    Cause.OTHER_MODEL: {"swapped": ("/models/a.gguf", "/models/b.gguf")},
    Cause.UNLOADED: {"slept": True},
    Cause.OTHER_WINDOW: {"windows": (32_768, 65_536)},
    Cause.RESTARTED: {"restarted": True},
    Cause.CACHING_OFF: {"now": {"caches": False}},
    Cause.CUT: {"counted": 23_400},
    Cause.SHIFTED: {"before": {"slot_tokens": 6_100}},
    Cause.OUR_BYTES: {"now": {"wires": (wire("system", "You are curt."), *WIRES_NOW[1:])}},
    Cause.OWN_REQUEST: {"uses": (OwnUse("side", "memory", 0),)},
    Cause.OTHER_CLIENT: {"foreign": Foreign(0, 512)},
    Cause.NOT_LOOKED_UP: {"prediction": predicted(0, 0, 11_919, StatePlace("parked", 0))},
    Cause.CACHE_FULL: {"evicted": 11_919},
    Cause.CHECKPOINT: {"shape": HYBRID, "changed_by": "fork"},
    Cause.UNKNOWN: {},
}


def together(*parts):
    merged = {}
    for part in parts:
        for key, value in part.items():
            merged[key] = {**merged[key], **value} if isinstance(value, dict) and key in merged else value
    return evidence(0, **merged)


@corpus(("first", "second"), [(a, b) for i, a in enumerate(PIECES) for b in list(PIECES)[i + 1 :]])
def test_of_two_causes_the_earlier_in_the_order_is_named(first, second):
    assert explain(together(PIECES[first], PIECES[second])).cause is first
    assert explain(together(PIECES[second])).cause is second


@pytest.mark.parametrize(
    "known", [{"restarted": True}, {"slept": True}, {"loading_seen": True}, {"foreign": Foreign(1, 512)}]
)
def test_a_server_that_lost_what_it_held_does_not_lie(known):
    assert explain(evidence(0, denied=11_919, **known)).cause is not Cause.REPORTED_COLD
    assert explain(evidence(0, denied=11_919, counted=23_400)).cause is Cause.REPORTED_COLD


def test_a_lie_is_told_where_it_cost_nothing_and_without_a_flag_of_the_built_in_engine():
    first = Evidence(figures(460, 0, 460), denied=300, flags=kind_of("llama.cpp").flags)
    assert explain(first).cause is Cause.REPORTED_COLD
    embedded = replace(first, now=Sent(ServerIdentity(kind="llama.cpp", embedded=True)))
    assert "restart kvchat and regenerate" in helps(explain(embedded))


def test_a_difference_that_explains_little_gives_way_to_the_lost_slot():
    before, now = ids(9_900)
    lost = evidence(0, before={"reasoning": "Hm.", **before}, now=now, uses=(OwnUse("conversation", "weather", 0),))
    assert explain(lost).cause is Cause.SLOT_TAKEN
    assert explain(replace(lost, uses=())).cause is Cause.REASONING
    kept = replace(lost, figures=figures(cached=9_900))
    assert explain(kept).cause is Cause.REASONING


def test_a_side_request_in_another_slot_is_not_blamed():
    assert explain(evidence(40, uses=(OwnUse("side", "memory", 1),))).cause is Cause.UNKNOWN


def test_a_cancelled_request_is_not_blamed_for_what_was_to_be_expected():
    foreseen = evidence(40, during_cancelled=True, prediction=predicted(40, 40, 40))
    assert explain(replace(foreseen, uses=(OwnUse("side", "memory", 0),))).cause is Cause.OWN_REQUEST


def test_a_suffix_request_that_kept_the_branch_is_not_blamed():
    assert explain(evidence(40, uses=(OwnUse("side", "memory", 0, kept=11_900),))).cause is Cause.UNKNOWN


def test_the_request_that_took_the_slot_first_is_named():
    uses = (OwnUse("conversation", "weather", 0), OwnUse("side", "memory", 0))
    assert explain(evidence(40, uses=uses)).cause is Cause.SLOT_TAKEN


def test_only_the_request_that_ran_over_the_state_is_named():
    uses = (
        OwnUse("conversation", "the first", 0, kept=0, lost=0),
        OwnUse("branch", "", 0, kept=0, lost=11_919),
        OwnUse("conversation", "the last", 0, kept=0, lost=400),
    )
    finding = explain(evidence(400, uses=uses, prediction=predicted(400, 400, 400)))
    assert (finding.cause, sentence(finding).partition(" took")[0]) == (
        Cause.SLOT_TAKEN,
        "Another branch of this conversation",
    )
    innocent = tuple(replace(use, lost=0) for use in uses)
    assert explain(evidence(400, uses=innocent, prediction=predicted(400, 400, 400))).cause is Cause.UNKNOWN


def test_another_program_is_not_named_where_our_own_request_ran_over_the_state_first():
    use = OwnUse("conversation", "weather", 0, lost=11_919)
    both = evidence(0, uses=(use,), foreign=Foreign(0, 512), prediction=predicted(0, 0, 0))
    assert explain(both).cause is Cause.SLOT_TAKEN
    assert explain(evidence(0, uses=(replace(use, lost=0),), foreign=Foreign(0, 512))).cause is Cause.OTHER_CLIENT


def test_a_taker_that_the_server_chose_the_slot_for_by_its_prefix_needs_no_more_slots():
    use = OwnUse("conversation", "weather", 0, lost=11_919, by_prefix=True)
    assert "cache.warm_up" in helps(explain(evidence(0, uses=(use,))))
    assert "--parallel" in helps(explain(evidence(0, uses=(replace(use, by_prefix=False),))))


def test_of_a_parked_state_and_a_state_that_was_run_over_the_one_that_explains_more_is_named():
    use = OwnUse("conversation", "weather", 0, lost=11_919)
    for parked, cause in ((5_000, Cause.SLOT_TAKEN), (11_000, Cause.NOT_LOOKED_UP)):
        found = predicted(3_800, 3_800, parked, StatePlace("parked", 0))
        assert explain(evidence(uses=(use,), prediction=found)).cause is cause


def test_a_switch_on_a_sliding_window_is_the_rewind_limit_however_near_it_is():
    """The figures look like a reply that was tokenised anew: the prompt before and no more was reused."""
    shape, before = Shape(rewind=Rewind.WINDOW, window=512), {"predicted_tokens": 30, "same_tokens": True}
    turn = replace(
        evidence(9_895, shape=shape, before=before, prediction=predicted(9_895, 9_929, 9_929)),
        figures=TurnFigures(9_970, 9_895, 12, 41),
    )
    finding = explain(turn)
    assert finding.cause is Cause.CHECKPOINT and "9,895, not to 9,929" in sentence(finding)
    assert "--swa-full" in helps(finding)


@pytest.mark.parametrize(
    ("history", "stopped", "cause"),
    [
        (9_900 + 2_019, True, Cause.UNKNOWN),
        (9_900 + 2_020, False, Cause.UNKNOWN),
        (9_900 + 2_020, True, Cause.RETOKENISED),
        (9_900 + 1_500, False, Cause.RETOKENISED),
        (None, True, Cause.RETOKENISED),
        (9_900 + 2_019, None, Cause.RETOKENISED),
    ],
)
def test_a_reply_is_called_retokenised_only_where_its_tokens_may_differ(history, stopped, cause):
    """Where they were counted, the count tells; else only what was reused does."""
    turn = evidence(
        9_905,
        history=history,
        **{
            **texts(chatml(*OLD), chatml(*NEW)),
            "before": {"sent": Sent(LLAMA, WIRES_BEFORE, rendered=chatml(*OLD)), "stopped": stopped},
        },
    )
    assert explain(turn).cause is cause


def test_the_count_tells_nothing_where_more_than_the_reply_lies_between():
    longer = (*WIRES_NOW, wire("assistant", "A shipwright."), wire("user", "And when?"))
    turn = evidence(9_905, history=9_900 + 2_019, now={"wires": longer}, before={"stopped": True})
    assert explain(turn).cause is Cause.RETOKENISED


def test_another_answer_is_no_reason_where_the_prompt_before_it_is_gone_too():
    chosen = TurnFigures(9_900, 40, 2_020, 80, alternative=1)
    assert explain(evidence(3_800, unkept=chosen)).cause is not Cause.OTHER_ANSWER


def test_growing_totals_are_no_reason_where_the_simulator_foresaw_the_turn():
    turn = evidence(0, foreign=Foreign(None, 3_210), evicted=11_919, prediction=predicted(0, 0, 0))
    assert explain(turn).cause is Cause.CACHE_FULL


def test_a_restart_that_lost_little_is_named_only_without_a_better_cause():
    assert explain(evidence(9_000, restarted=True)).cause is Cause.RESTARTED
    assert explain(evidence(11_000, restarted=True, before=PARTED_BEFORE, now=PARTED_NOW)).cause is Cause.RETOKENISED


@pytest.mark.parametrize(
    "kind, flag",
    [("vllm", "--enable-prompt-tokens-details"), ("sglang", "--enable-cache-report"), ("ollama", "Update Ollama")],
)
def test_a_server_that_could_report_is_a_finding_without_a_number(kind, flag):
    turn = seen(figures(cached=None), Sent(ServerIdentity(kind=kind)))
    finding = explain(turn)
    assert (finding.cause, finding.tokens) == (Cause.NOT_REPORTED, 0)
    assert flag in helps(finding)
    assert not re.search(r"\d", sentence(finding))


def test_a_server_that_cannot_report_is_no_finding():
    assert explain(Evidence(figures(cached=None), now=Sent(ServerIdentity(kind="openai")))) is None


def test_a_restart_is_told_even_where_nothing_is_reported_but_without_a_number():
    finding = explain(Evidence(figures(cached=None), restarted=True, now=Sent(ServerIdentity(kind="vllm"))))
    assert finding.cause is Cause.RESTARTED
    assert not re.search(r"\d", sentence(finding))


def test_a_model_name_with_a_colon_stays_whole():
    turn = Evidence(
        figures(cached=None),
        now=Sent(ServerIdentity(model="qwen3:8b")),
        before=LastRead(Sent(ServerIdentity(model="llama3:8b"))),
    )
    assert "qwen3:8b answered in place of llama3:8b;" in sentence(explain(turn))


def test_unknown_figures_are_never_explained():
    for unknown in (TurnFigures(), TurnFigures(prompt_tokens=100, cached_tokens=0), TurnFigures(cached_tokens=4)):
        assert explain(Evidence(unknown, restarted=True, now=Sent(ServerIdentity(kind="vllm")))) is None


def test_a_cut_prompt_is_told_even_where_it_cost_nothing():
    turn = Evidence(TurnFigures(4_096, 4_090, 10, 0), counted=9_000)
    assert explain(turn) is None
    assert silent_loss(turn).cause is Cause.CUT
    assert silent_loss(evidence()) is None


def test_a_slot_emptied_after_it_was_parked_is_no_shift():
    assert silent_loss(evidence(before={"slot_tokens": 0})) is None


def test_another_answer_on_the_same_prompt_is_no_change():
    before, _ = ids(9_900)
    again = evidence(0, before=before, now={"wires": WIRES_BEFORE, "tokens": Tokens(range(9_900))})
    assert explain(again).cause is Cause.UNKNOWN


def test_ordinary_turns_say_nothing():
    held, quiet = 0, []
    for turn in range(50):
        prompt = held + 40 + turn
        edge = (1, 1, 1, 2, 4, NOISE)[turn % 6] if held else 0
        said = TurnFigures(prompt, max(0, held - edge), 60, 40 + turn)
        signs = {"foreign": Foreign(0, 9), "uses": (OwnUse("side", "memory", 0),), "evicted": 900} if turn % 2 else {}
        quiet.append(explain(Evidence(said, Sent(LLAMA, WIRES_NOW), LastRead(Sent(LLAMA, WIRES_BEFORE)), **signs)))
        held = prompt + 60
    assert quiet == [None] * 50


def test_the_servers_acts_are_never_told_as_the_persons():
    for name, (cause, given_evidence, _) in SCENARIOS.items():
        said = re.sub("“.*?”", "", sentence(explain(given_evidence)))
        if given_evidence.changed_by is None:
            assert not re.search(r"\byou(r)?\b", said, re.IGNORECASE), (name, cause, said)


count = st.integers(0, 60_000)
maybe = st.none() | count
few = st.none() | st.integers(0, 3)
text = st.text("abc \n<think>…é1", max_size=40)
identity = st.builds(
    ServerIdentity,
    st.sampled_from(["", "http://a", "http://b"]),
    st.sampled_from(["", "llama.cpp", "vllm", "ollama", "openai"]),
    st.sampled_from(["", "b1", "b2"]),
    st.sampled_from(["", "m1", "m2:8b"]),
    st.booleans(),
)
some_wires = st.lists(
    st.sampled_from([SYSTEM, U1, A1, U2, A2, U3, b"{", b"[]", b'{"content":[{"text":1}]}']), max_size=6
).map(tuple)
some_ids = st.none() | st.lists(st.integers(-1, 3), max_size=20).map(Tokens)
sent = st.builds(
    Sent,
    identity,
    some_wires,
    st.none() | st.sampled_from([b"{}", NO_THINKING]),
    st.none() | st.just(b"[]"),
    text,
    some_ids,
    st.booleans(),
    st.sampled_from([None, "", "[1]"]),
)
last_read = st.none() | st.builds(LastRead, sent, maybe, maybe, some_ids, text, text, few, maybe)
use = st.builds(OwnUse, st.sampled_from(["side", "warm-up", "conversation"]), text, few, maybe)
place = st.none() | st.builds(StatePlace, st.sampled_from(["slot", "parked"]), st.integers(0, 3))
anything = st.builds(
    Evidence,
    st.builds(TurnFigures, count, count, maybe, count),
    sent,
    last_read,
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.sampled_from([None, "edit", "regenerate", "delete", "fork", "system", "template", "tools", "compact"]),
    st.none() | st.integers(0, 9),
    maybe,
    st.none() | st.booleans(),
    st.none() | st.booleans(),
    st.none() | st.sampled_from([("preserve_thinking", True), ("clear_thinking", False)]),
    st.none()
    | st.builds(
        Prediction,
        count,
        st.integers(0, 3),
        st.just("slot"),
        count,
        count,
        place,
        st.sampled_from(["prefix", "least recent", "pinned"]),
        st.none(),
    ),
    st.lists(use, max_size=3).map(tuple),
    st.none() | st.builds(Foreign, st.none() | st.integers(0, 3), count),
    st.none(),  # what a server denies is told whatever it cost
    maybe,
    st.none() | st.builds(Shape, st.integers(1, 4), st.booleans(), maybe, rewind=st.sampled_from(Rewind)),
    st.sampled_from([0, 1, 16, 528]),
    st.integers(0, 5),
    swapped=st.none() | st.just(("/models/a.gguf", "/models/b.gguf")),
    windows=st.none() | st.just((4_096, 8_192)),
    may_be_full=st.booleans(),
).map(lambda turn: replace(turn, flags=kind_of(turn.now.server.kind).flags))


@settings(max_examples=400, deadline=None)
@given(anything)
def test_any_evidence_is_explained_exactly_where_tokens_were_wasted(turn):
    finding = explain(turn)
    silent_loss(turn)
    if turn.figures.first_read or turn.figures.wasted_tokens <= NOISE:
        assert finding is None
    else:
        assert finding.tokens == turn.figures.wasted_tokens
        assert sentence(finding).strip() and "  " not in sentence(finding) and "\n" not in sentence(finding)
        assert len(sentence(finding)) <= 130
