"""Verdicts from examinations as data: the right finding, the right flag of that server, the measured loss."""

from __future__ import annotations

import json
from typing import Any

import pytest
from examinations import WELL_TEMPLATE, a_server, about, an_examination, one, probe
from msgspec.structs import replace

from corpus import corpus
from kvchat.backends.dialect import PRESERVED, BackendError, HostClass, TemplateFacts, Trouble, failure
from kvchat.backends.kinds import KINDS, Figures
from kvchat.cache.causes.cause import Remedy
from kvchat.doctor.report import (
    Examination,
    PinProbe,
    Return,
    ReturnWay,
    Severity,
    SnapshotProbe,
    Step,
    Topic,
    unexamined,
)
from kvchat.doctor.verdicts import report, verdicts
from kvchat.doctor.words import as_json, facts, headline
from kvchat.prompt.message import NoteKind
from kvchat.text.doctor import PROGRESS, Advice, Asks, Seen
from kvchat.text.faults import Fault
from kvchat.values import said

FINE, NOTE, PROBLEM = Severity
LOST: dict[Step, int | None] = {Step.AFTER_SIDE: 1}


def a_fault(trouble: Trouble, sentence: str, status: int | None = None) -> BackendError:
    return failure(trouble, Fault.TOLD, status=status, sentence=sentence)


def topics(examination: Examination) -> dict[Topic, Severity]:
    return {verdict.topic: verdict.severity for verdict in verdicts(examination)}


def test_all_is_well_is_said_plainly() -> None:
    well = report(an_examination())
    assert {verdict.severity for verdict in well.verdicts} == {FINE}
    assert well.well and headline(well) == "All is well."
    assert "reused 405 of 406 tokens" in one(list(well.verdicts), Topic.REUSE).sentence


def test_one_slot_that_parks_nothing_is_named_with_its_price() -> None:
    found = about(Topic.SIDE_REQUEST, turns=probe(LOST))
    assert found.severity is PROBLEM and "one slot and parks nothing" in found.sentence
    assert "--cache-ram 8192" in found.advice and "--parallel 2" in found.advice
    assert (found.tokens, found.per) == (455, "switch")
    assert found.seconds == pytest.approx(4.55) and "455 tokens were prefilled again (4.5 s)" in found.sentence
    assert "With 8,192 tokens that is about 1 min 22 s" in found.sentence
    assert found.gain == "saves 455 tokens (4.5 s) per switch"


@corpus(
    ("kind", "flag"),
    [
        ("ollama", "OLLAMA_NUM_PARALLEL=2"),
        ("lmstudio", "Max Concurrent Predictions"),
        ("koboldcpp", "--smartcache"),
        ("llama-cpp-python", "--cache true"),
        ("vllm", "--gpu-memory-utilization"),
        ("sglang", "--mem-fraction-static"),
        ("mlx-lm", "--prompt-cache-size"),
        ("llamafile", "--parallel 2"),
        ("text-generation-webui", "--parallel 2"),
    ],
)
def test_each_kind_gets_its_own_flag_for_a_lost_conversation(kind: str, flag: str) -> None:
    found = about(Topic.SIDE_REQUEST, turns=probe(LOST), server=a_server(kind, slots=None))
    assert flag in found.advice and "llama-server" not in found.advice


@corpus(
    ("kind", "flag"),
    [
        ("llama.cpp", "--ctx-size 16384"),
        ("ollama", "OLLAMA_CONTEXT_LENGTH=16384"),
        ("vllm", "--max-model-len 16384"),
        ("sglang", "--context-length 16384"),
        ("lmstudio", "Context Length"),
        ("koboldcpp", "--contextsize 16384"),
        ("llama-cpp-python", "--n_ctx 16384"),
        ("tabbyapi", "max_seq_len: 16384"),
    ],
)
def test_a_window_too_small_is_named_with_the_kinds_own_setting(kind: str, flag: str) -> None:
    found = about(Topic.WINDOW, server=a_server(kind, context_size=2048))
    assert found.severity is PROBLEM and "2,048 tokens of the 32,768" in found.sentence and flag in found.advice


@pytest.mark.parametrize(
    ("size", "trained", "kind", "severity"),
    [
        (4096, 32768, "llama.cpp", PROBLEM),
        (4096, None, "ollama", PROBLEM),
        (4096, None, "vllm", NOTE),
        (4096, 4096, "llama.cpp", None),
        (2048, 2048, "llama.cpp", NOTE),
        (8192, 131072, "llama.cpp", None),
        (None, None, "mlx-lm", None),
    ],
)
def test_a_window_is_too_small_only_where_it_could_be_larger(
    size: int | None, trained: int | None, kind: str, severity: Severity | None
) -> None:
    found = topics(an_examination(server=a_server(kind, context_size=size), trained_context=trained))
    assert found.get(Topic.WINDOW) is severity


def test_the_window_is_asked_for_as_large_as_the_model_was_trained_for_and_times_the_slots() -> None:
    small = about(Topic.WINDOW, server=a_server(context_size=1024), trained_context=8192)
    assert "--ctx-size 8192" in small.advice
    four = a_server(context_size=1024, slots=4)
    apart = about(Topic.WINDOW, server=four, unified=False)
    assert "--ctx-size 65536 (for 4 slots together)" in apart.advice
    shared = about(Topic.WINDOW, server=four, unified=True)
    assert "--ctx-size 16384 (its 4 slots share it)." in shared.advice and "65536" not in shared.advice
    unknown = about(Topic.WINDOW, server=four, unified=None).advice
    assert "--ctx-size 16384 where its 4 slots share one KV cache, --ctx-size 65536 where each has its own." in unknown
    for unified in (True, False, None):
        one_slot = about(Topic.WINDOW, server=a_server(context_size=1024, slots=1), unified=unified)
        assert one_slot.advice == "Start llama-server with --ctx-size 16384."
        ollama = about(Topic.WINDOW, server=a_server("ollama", context_size=1024, slots=4), unified=unified)
        assert "65536" not in ollama.advice, "its window is that of one slot"
    own = about(Topic.WINDOW, server=a_server(context_size=1024, embedded=True))
    assert "engine.context_size" in own.advice and "--ctx-size" not in own.advice


def test_a_date_in_the_template_is_a_note_with_its_remedy() -> None:
    dated = replace(WELL_TEMPLATE, date=True)
    fixed = about(Topic.DATE, template=dated, date_option=True)
    assert fixed.severity is NOTE and '--chat-template-kwargs \'{"date_string"' in fixed.advice
    assert fixed.per == "day" and fixed.seconds == pytest.approx(81.92)
    assert "--chat-template-file" in about(Topic.DATE, template=dated, date_option=False).advice
    assert "VLLM_SYSTEM_START_DATE" in about(Topic.DATE, template=dated, server=a_server("vllm")).advice
    assert "currentDate" in about(Topic.DATE, template=dated, server=a_server("ollama")).advice


def test_dropped_reasoning_with_a_switch_names_the_switch() -> None:
    dropping = replace(WELL_TEMPLATE, drops_reasoning=True)
    for changes in ({"keeps_reasoning_when_asked": True}, {"server": a_server(reasoning_option=PRESERVED)}):
        found = about(Topic.REASONING, template=dropping, **changes)
        assert found.severity is NOTE
        assert "preserve_reasoning" in found.advice and "--reasoning-preserve" in found.advice


def test_dropped_reasoning_without_a_switch_says_what_it_costs() -> None:
    dropping = replace(WELL_TEMPLATE, drops_reasoning=True)
    found = about(
        Topic.REASONING,
        template=dropping,
        keeps_reasoning_when_asked=False,
        turns=probe({Step.TWO: 340, Step.THREE: 390}),
    )
    assert found.severity is NOTE and found.tokens == 16 and found.per == "turn"
    assert "--chat-template-file" in found.advice and "cache.warm_up" in found.advice
    assert "--reasoning-preserve" not in found.advice


def test_a_system_message_that_moves_takes_the_place_of_every_other_finding_about_reuse() -> None:
    examination = an_examination(
        template=replace(WELL_TEMPLATE, moves_system=True, keeps_prefix=False),
        turns=probe({Step.TWO: 2, Step.THREE: 2, Step.AFTER_SIDE: 2}),
    )
    found = one(verdicts(examination), Topic.SYSTEM)
    assert found.severity is PROBLEM and "front of the newest question" in found.sentence
    assert found.tokens == 454 and "first question" in found.advice
    assert not {Topic.REUSE, Topic.CACHING_OFF, Topic.SIDE_REQUEST, Topic.AFFINITY} & topics(examination).keys()


def test_pinning_with_one_kv_cache_for_all_slots_is_a_note_that_says_kvchat_does_not_pin() -> None:
    found = about(Topic.PINNING, server=a_server(slots=4), held=(0,) * 4, unified=True, pinned=PinProbe(40, 0))
    assert found.severity is NOTE and "kvchat does not pin" in found.sentence and found.tokens == 40
    assert "--no-kv-unified" in found.advice and "--no-cache-idle-slots" in found.advice
    assert Topic.PINNING not in topics(an_examination(pinned=PinProbe(40, 40)))


def test_a_disk_slower_than_reading_again_is_a_problem() -> None:
    slow = SnapshotProbe(490, 60_000_000, 8.0, 9.0)
    found = about(Topic.SNAPSHOTS, snapshot=slow, server=a_server(embedded=True))
    assert found.severity is PROBLEM and "engine.snapshots" in found.advice
    assert found.seconds == pytest.approx(9.0 - 4.9)
    assert "--slot-save-path" not in about(Topic.SNAPSHOTS, snapshot=slow).advice


def test_a_server_that_saves_no_slots_is_told_the_flag_with_what_a_switch_costs_here() -> None:
    found = about(Topic.SNAPSHOTS, saves_slots=False, turns=probe(LOST))
    assert found.advice == "Start llama-server with --slot-save-path FOLDER." and found.severity is NOTE
    assert found.gain.startswith("saves ") and found.gain.endswith("per switch")
    for saves, turns in ((True, probe(LOST)), (None, probe(LOST)), (False, probe())):
        assert not [
            verdict
            for verdict in verdicts(an_examination(saves_slots=saves, turns=turns))
            if verdict.topic is Topic.SNAPSHOTS
        ]


def test_a_state_that_comes_back_otherwise_is_a_problem_unless_its_slot_differs_as_much() -> None:
    slot, file = Return(ReturnWay.SLOT, 256, 12.0, 0.0), Return(ReturnWay.FILE, 256, 9.0, 0.5)
    assert about(Topic.SNAPSHOTS, returns=[slot, file]).sentence == (
        "A state that comes back from a file answers otherwise than before."
    )
    noisy = replace(slot, difference=0.3)
    assert not [one for one in verdicts(an_examination(returns=[noisy, file])) if one.topic is Topic.SNAPSHOTS]
    told = [
        words
        for name, words in facts(
            an_examination(
                returns=(
                    slot,
                    Return(ReturnWay.HOST_CACHE, 250, 9.0, None),
                    file,
                    Return(ReturnWay.OTHER_SLOT, 0, None, None),
                )
            )
        )
        if name == "comes back"
    ]
    assert told == [
        "from its slot: 256 tokens in 0.01 s, equal bit for bit",
        "from the host cache: 250 tokens in 0.01 s, the rest is prefilled",
        "from a file: 256 tokens in 0.01 s, its answer differs by 0.5",
        "from a file in another slot: no",
    ]


def test_a_disk_that_saves_slowly_is_a_note_and_a_quick_one_is_fine() -> None:
    slow = about(Topic.SNAPSHOTS, snapshot=SnapshotProbe(490, 30_000_000, 1.5, 0.5))
    assert slow.severity is NOTE and "20 MB/s" in slow.sentence
    assert about(Topic.SNAPSHOTS, snapshot=SnapshotProbe(490, 30_000_000, 0.05, 0.02)).severity is FINE
    assert about(Topic.SNAPSHOTS, snapshot=SnapshotProbe(490, 30_000_000, 0.05, None)).severity is PROBLEM


@pytest.mark.parametrize(
    ("trouble", "topic", "severity"),
    [
        (Trouble.UNAUTHORIZED, Topic.KEY, PROBLEM),
        (Trouble.UNREACHABLE, Topic.CONNECTION, PROBLEM),
        (Trouble.LOADING, Topic.LOADING, NOTE),
        (Trouble.PROTOCOL, Topic.CONNECTION, PROBLEM),
        (Trouble.CONTEXT_OVERFLOW, Topic.WINDOW, PROBLEM),
        (Trouble.SERVER_ERROR, Topic.CONNECTION, PROBLEM),
    ],
)
def test_a_server_that_was_not_reached_is_a_verdict_and_never_well(
    trouble: Trouble, topic: Topic, severity: Severity
) -> None:
    made = report(unexamined("http://x", a_fault(trouble, "What happened.")))
    assert [(v.topic, v.severity) for v in made.verdicts] == [(topic, severity)]
    assert made.verdicts[0].sentence == "What happened."
    assert not made.well and "All is well" not in headline(made)


def test_a_wrong_key_says_where_to_put_the_right_one() -> None:
    made = verdicts(unexamined("http://x", a_fault(Trouble.UNAUTHORIZED, "It refused the key.", status=401)))
    assert "server.api_key_env" in made[0].advice


UNREPORTED: dict[Step, int | None] = dict.fromkeys(Step)


@pytest.mark.parametrize(
    ("kind", "flag"),
    [
        ("vllm", "--enable-prompt-tokens-details"),
        ("sglang", "--enable-cache-report"),
        ("lmstudio", ""),
    ],
)
def test_figures_that_are_not_reported_name_the_flag_that_reports_them(kind: str, flag: str) -> None:
    found = about(Topic.FIGURES, turns=probe(UNREPORTED), server=a_server(kind, figures=Figures.NONE))
    assert found.severity is NOTE and "unknown" in found.sentence
    assert (flag in found.advice) if flag else not found.advice


def test_without_figures_the_time_to_the_first_token_tells_what_it_can() -> None:
    quick = {Step.ONE: 3400.0, Step.TWO: 400.0, Step.THREE: 410.0}
    slow = {Step.ONE: 3400.0, Step.TWO: 3900.0, Step.THREE: 4400.0}
    short = {Step.ONE: 90.0, Step.TWO: 80.0, Step.THREE: 80.0}
    server = a_server("lmstudio", figures=Figures.NONE)

    def told(ttft: dict[Step, float]) -> Any:
        return about(Topic.FIGURES, turns=probe(UNREPORTED, ttft=ttft), server=server)

    assert "the cache works" in told(quick).sentence and told(quick).severity is NOTE
    assert "nothing is reused" in told(slow).sentence and told(slow).severity is PROBLEM
    assert "TTFT" not in told(short).sentence


@pytest.mark.parametrize(
    ("kind", "flag"),
    [
        ("vllm", "--enable-prefix-caching"),
        ("sglang", "--disable-radix-cache"),
        ("llama-cpp-python", "--cache true"),
        ("llama.cpp", "cache_prompt"),
    ],
)
def test_a_server_that_never_reuses_anything_has_its_caching_off(kind: str, flag: str) -> None:
    found = about(
        Topic.CACHING_OFF, turns=probe({Step.TWO: 0, Step.THREE: 0, Step.AFTER_SIDE: 0}), server=a_server(kind)
    )
    assert found.severity is PROBLEM and flag in found.advice and found.tokens == 406


def test_a_cloud_service_is_not_accused_because_the_probe_is_small() -> None:
    found = an_examination(
        turns=probe({Step.TWO: 0, Step.THREE: 0, Step.AFTER_SIDE: 0}),
        held=None,
        replicas=None,
        server=a_server("cloud", host_class=HostClass.CLOUD, slots=None),
    )
    assert topics(found) == {Topic.REUSE: NOTE}


@pytest.mark.parametrize("cached", [{Step.TWO: 0}, {Step.THREE: 0}, {Step.TWO: 0, Step.THREE: 355}])
def test_turns_that_are_lost_now_and_then_point_at_a_router_without_affinity(cached: dict[Step, int | None]) -> None:
    found = about(Topic.AFFINITY, turns=probe(cached), server=a_server("vllm", slots=None), held=None, replicas=None)
    assert found.severity is PROBLEM and "X-Session-ID" in found.advice and "hash $http_x_session_id" in found.advice
    assert (
        "LiteLLM"
        in about(
            Topic.AFFINITY, turns=probe(cached), server=a_server("litellm", slots=None), held=None, replicas=None
        ).advice
    )


def test_several_processes_at_one_address_tell_a_router_even_when_every_turn_is_lost() -> None:
    lost: dict[Step, int | None] = {Step.TWO: 0, Step.THREE: 0, Step.AFTER_SIDE: 0}
    found = about(Topic.AFFINITY, turns=probe(lost), replicas=3)
    assert found.severity is PROBLEM and found.sentence.startswith("3 servers answer at this address")
    assert about(Topic.AFFINITY, replicas=3).severity is FINE


def test_a_turn_lost_on_one_plain_server_is_not_blamed_on_a_router() -> None:
    found = about(Topic.REUSE, turns=probe({Step.TWO: 0}))
    assert found.severity is PROBLEM and "another program" in found.sentence


def test_blocks_of_a_paged_cache_are_no_loss() -> None:
    blocks: dict[Step, int | None] = {Step.TWO: 352, Step.THREE: 400, Step.AFTER_SIDE: 448}
    assert set(topics(an_examination(turns=probe(blocks), server=a_server("vllm"))).values()) == {FINE}


def test_an_answer_that_is_read_again_each_turn_is_a_note() -> None:
    again = an_examination(turns=probe({Step.TWO: 339, Step.THREE: 389, Step.AFTER_SIDE: 439}))
    assert topics(again)[Topic.SIDE_REQUEST] is FINE
    found = [verdict for verdict in verdicts(again) if verdict.topic is Topic.REUSE]
    assert [verdict.severity for verdict in found] == [NOTE, FINE] and found[0].tokens == 17


def test_an_unloading_server_is_told_with_its_setting() -> None:
    found = about(Topic.SLEEP, server=a_server("ollama", unloads="after 5 minutes"))
    assert "after 5 minutes" in found.sentence and "OLLAMA_KEEP_ALIVE=-1" in found.advice
    asleep = about(Topic.SLEEP, asleep=True)
    assert asleep.severity is NOTE and "--sleep-idle-seconds" in asleep.advice


def test_a_router_that_unloads_for_room_is_told_to_keep_more_models_and_not_to_sleep_later() -> None:
    full = a_server(unloads="when another model is asked for and 2 are loaded", room_for_models=2)
    found = about(Topic.SLEEP, server=full)
    assert "--models-max 3" in found.advice and "sleep" not in found.advice
    slept = about(Topic.SLEEP, server=full, asleep=True)
    assert "--sleep-idle-seconds" in slept.advice and "--models-max" not in slept.advice


def test_what_was_not_probed_is_never_called_well() -> None:
    busy = report(an_examination(turns=[], busy=True))
    asked = report(an_examination(turns=[], asks=[said(Asks.ONE_SLOT, tokens=40)]))
    for made, topic in ((busy, Topic.BUSY), (asked, Topic.NOT_PROBED)):
        assert one(list(made.verdicts), topic).severity is NOTE
        assert not made.well and headline(made) == "kvchat cannot say whether all is well."
    assert "has one slot, which holds 40 tokens" in asked.verdicts[0].sentence
    assert "Agree to it" in asked.verdicts[0].advice


def test_what_is_not_reported_is_not_called_well() -> None:
    made = report(an_examination(turns=probe(UNREPORTED), server=a_server("lmstudio", figures=Figures.NONE)))
    assert headline(made) == "Nothing wrong was found; 1 thing to know."
    assert "at most 700 tokens" in dict(facts(made.examination))["spent"]


def test_an_estimate_tells_only_what_it_surely_shows() -> None:
    def estimated(cached: dict[Step, int | None]) -> Examination:
        return an_examination(
            turns=[replace(turn, estimated=True) for turn in probe(cached)],
            server=a_server("ollama", slots=None, figures=Figures.ESTIMATED),
            held=None,
        )

    assert set(topics(estimated({Step.TWO: 300, Step.THREE: 330})).values()) == {FINE}
    assert topics(estimated({Step.AFTER_SIDE: 60}))[Topic.SIDE_REQUEST] is PROBLEM
    assert Topic.SIDE_REQUEST not in topics(estimated({Step.AFTER_SIDE: 200}))


def test_a_warning_of_the_dialect_is_passed_on() -> None:
    found = about(Topic.ANSWERS, warnings=[said(NoteKind.MODEL_LOADED, model="m")])
    assert found.sentence == 'llama-swap loaded "m" for this answer: its cache was empty.'


def test_problems_come_first() -> None:
    made = verdicts(an_examination(turns=probe(LOST), template=replace(WELL_TEMPLATE, date=True)))
    assert [verdict.severity for verdict in made] == [PROBLEM, NOTE, FINE]
    assert headline(report(an_examination(turns=probe(LOST)))) == "1 problem."


@corpus("kind", KINDS)
def test_no_kind_is_given_the_flags_of_llama_server(kind: str) -> None:
    if kind in ("llama.cpp", "llama-swap"):
        return
    bad = an_examination(
        server=a_server(kind, context_size=2048, unloads="after a while"),
        turns=probe(LOST),
        date_option=False,
        template=TemplateFacts(True, True, False, False, True, True),
        snapshot=SnapshotProbe(490, 10**8, 9.0, 9.0),
        pinned=PinProbe(40, 0),
    )
    for verdict in verdicts(bad):
        assert "llama-server" not in verdict.advice and "--cache-ram" not in verdict.advice, verdict


def test_the_report_is_one_json_object_with_null_for_what_is_not_known() -> None:
    value = json.loads(json.dumps(as_json(report(an_examination(turns=probe(LOST))))))
    assert value["well"] is False and value["server"]["slots"] == 1 and value["server"]["asleep"] is None
    assert [turn["cached_tokens"] for turn in value["probe"]["turns"]] == [0, 0, 355, 405, 0, 1]
    assert value["verdicts"][0]["severity"] == "problem" and value["verdicts"][0]["tokens"] == 455
    assert value["speed"]["prefill"] == pytest.approx(100)
    assert value["verdicts"][0]["seen"]["kind"] == "pushed_out" and "one slot" in value["verdicts"][0]["sentence"]
    assert [one["kind"] for one in value["verdicts"][0]["remedies"]] == ["host_cache", "slot_more"]
    empty = json.loads(json.dumps(as_json(report(unexamined("http://x", a_fault(Trouble.LOADING, "L."))))))
    assert empty["server"] is None and empty["template"] is None and empty["speed"]["prefill"] is None


def test_every_kind_has_a_name_of_its_own_and_every_step_words() -> None:
    assert {*Step} == PROGRESS.keys()
    assert not Seen.__members__.keys() & {*Fault.__members__, *NoteKind.__members__}
    assert not Advice.__members__.keys() & Remedy.__members__.keys()


def test_what_the_probe_pushed_out_is_told_with_its_price() -> None:
    lost = dict(facts(an_examination(held=(2000,), turns=probe(LOST))))["pushed out"]
    assert "2,000 tokens" in lost and "prefilled again when they are used next, about 20 s" in lost
    assert "parked" in dict(facts(an_examination(held=(2000,))))["pushed out"]
    assert "pushed out" not in dict(facts(an_examination()))


def test_the_facts_tell_what_is_known_and_leave_out_the_rest() -> None:
    told = dict(facts(an_examination(server=a_server(slots=4), unified=True)))
    assert told["server"] == "llama.cpp b1 · http://127.0.0.1:8080, on this machine"
    assert told["window"] == "16,384 tokens (the model was trained for 32,768)"
    assert told["slots"] == "4, one KV cache for all" and told["speed"] == "prefill 100 tok/s · decode 20.0 tok/s"
    assert told["turn 3"] == "440 tokens: 405 cached, 35 prefilled in 0.35 s, 1 of them again"
    unknown = dict(facts(an_examination(template=None, turns=[], server=a_server(slots=None, context_size=None))))
    assert unknown["slots"] == unknown["window"] == "not told" and unknown["template"] == "not known"
    assert "speed" not in unknown and "spent" not in unknown
