"""The probe: what it sends, what it spends, and when it leaves a server alone."""

from __future__ import annotations

import asyncio
import json
from itertools import product

import pytest
from msgspec.structs import replace
from patient import OpenPatient, Patient, an_info

from corpus import corpus
from kvchat.backends.dialect import HostClass, Trouble, failure
from kvchat.backends.http.payload import Model
from kvchat.cache import SlotCount
from kvchat.doctor.examine import examine
from kvchat.doctor.report import Step
from kvchat.doctor.words import facts
from kvchat.prompt.message import NoteKind
from kvchat.text.faults import Fault
from kvchat.values import said

EVERY_STEP = list(Step)


def steps(found: object) -> list[Step]:
    return [turn.step for turn in found.turns]  # type: ignore[attr-defined]


async def test_three_turns_grow_at_their_end_and_the_side_request_stands_alone() -> None:
    patient = Patient()
    found = await examine(patient)
    assert steps(found) == EVERY_STEP and not found.failure and not found.skipped
    _, one, two, three, side, after = patient.turns
    assert two.wires[: len(one.wires)] == one.wires and three.wires[: len(two.wires)] == two.wires
    assert after.wires[: len(three.wires)] == three.wires and len(after.wires) == len(three.wires) + 2
    assert len(side.wires) == 1
    assert len({turn.session_id for turn in patient.turns}) == 1, "as a client's own side request"


async def test_the_figures_are_the_servers_and_what_was_spent_is_counted_exactly() -> None:
    patient = Patient()
    found = await examine(patient)
    three = found.turn(Step.THREE)
    assert three is not None and three.reuse is not None and three.reuse > 0.99
    assert found.spent_tokens == patient.evaluated
    assert found.prefill_speed == pytest.approx(500) and found.decode_speed == pytest.approx(50)


async def test_two_examinations_share_no_prefix_so_that_neither_hits_what_the_other_left() -> None:
    first, second = Patient(), Patient()
    await examine(first)
    await examine(second)
    openings = [json.loads(patient.turns[1].wires[0])["content"][:12] for patient in (first, second)]
    assert openings[0] != openings[1] and all(opening.startswith("[") for opening in openings)
    again = await examine(first)
    assert (again.turn(Step.ONE) or again.turns[0].figures).cached_tokens in (0, 1)


@corpus(("budget", "keeps", "reports"), product([0, 40, 150, 300, 600, 900, 1200, 2000], [0, 1, 100], [True, False]))
async def test_it_never_takes_more_than_it_may(budget: int, keeps: int, reports: bool) -> None:
    patient = Patient(keeps=keeps, reports=reports)
    found = await examine(patient, budget_tokens=budget)
    assert patient.evaluated <= found.spent_tokens <= budget
    if steps(found) != EVERY_STEP:
        assert found.skipped, "what was left out is told"


@pytest.mark.parametrize("keeps", [0, 1, 100])
async def test_the_usual_budget_is_enough_for_every_step_even_without_any_cache(keeps: int) -> None:
    assert steps(await examine(Patient(keeps=keeps))) == EVERY_STEP


@pytest.mark.parametrize("place", [HostClass.LAN, HostClass.TAILNET, HostClass.CLOUD])
async def test_nothing_goes_to_another_machine_without_the_persons_word(place: HostClass) -> None:
    patient = OpenPatient(an_info("llama.cpp", host_class=place, slots=4), slots=[SlotCount(0)] * 4)
    found = await examine(patient)
    assert not patient.turns and not patient.rendered and not patient.looks_at_slots
    assert "not on this machine" in found.question and "2,000 tokens" in found.question
    assert (await examine(patient, agreed=True)).turns and patient.turns


async def test_a_busy_server_is_left_alone() -> None:
    patient = OpenPatient(slots=[SlotCount(900, 7, busy=True)])
    found = await examine(patient, agreed=True)
    assert found.busy and not patient.turns


async def test_a_sleeping_model_is_not_woken_without_the_persons_word() -> None:
    patient = OpenPatient(asleep=True)
    found = await examine(patient)
    assert "sleeps" in found.question and found.asleep
    assert not patient.looks_at_slots and not patient.rendered and not patient.turns


@pytest.mark.parametrize(
    ("slots", "words"),
    [
        ([SlotCount(4321, 7)], "one slot, which holds 4,321 tokens"),
        ([SlotCount(50, 7), SlotCount(60, 8)], "All 2 slots hold something"),
        ([SlotCount(0)], ""),
        ([SlotCount(50, 7), SlotCount(0)], "Only 1 of 2 slots is empty"),
        ([SlotCount(50, 7), SlotCount(0), SlotCount(0)], "Only 2 of 3 slots are empty"),
        ([SlotCount(50, 7), SlotCount(0), SlotCount(0), SlotCount(0)], ""),
        ([SlotCount(0)] * 2, ""),
    ],
)
async def test_it_asks_before_it_takes_the_place_of_a_conversation(slots: list[SlotCount], words: str) -> None:
    patient = OpenPatient(slots=slots)
    found = await examine(patient)
    assert (words in found.question) if words else not found.question
    assert bool(patient.turns) is not bool(words)


async def test_without_a_word_every_request_but_the_last_names_an_empty_slot() -> None:
    room = [SlotCount(0), SlotCount(50, 7), SlotCount(0), SlotCount(60, 8), SlotCount(0)]
    silent, agreed, all_empty = OpenPatient(slots=room), OpenPatient(slots=room), OpenPatient(slots=[SlotCount(0)] * 4)
    assert not (await examine(silent)).question
    assert [turn.slot for turn in silent.turns] == [0, 0, 0, 0, 2, None], "the last one goes where its conversation is"
    await examine(agreed, agreed=True)
    await examine(all_empty)
    assert {turn.slot for turn in (*agreed.turns, *all_empty.turns)} == {None}


async def test_it_ends_the_side_request_where_the_empty_slots_were_taken_meanwhile() -> None:
    patient = OpenPatient(slots=[SlotCount(50, 7), *[SlotCount(0)] * 3])

    def taken(words: str) -> None:
        if len(patient.turns) == 3:
            patient.slots = [SlotCount(50, 7), SlotCount(400, 8), SlotCount(90, 9), SlotCount(90, 10)]

    found = await examine(patient, progress=taken)
    assert steps(found) == EVERY_STEP[:4] and "in use now" in found.skipped[0]


async def test_it_asks_where_other_servers_at_the_address_may_hold_something() -> None:
    patient = OpenPatient(an_info("llama.cpp", slots=4, replicas=True), slots=[SlotCount(0)] * 4)
    assert "Several servers" in (await examine(patient)).question and not patient.turns


@pytest.mark.parametrize("named", ["", "far", "far:latest"])
async def test_it_asks_before_a_model_passes_the_text_on_to_another_machine(named: str) -> None:
    listing = (Model("near:latest"), Model("far:latest", remote="ollama.com"))
    patient = Patient(an_info("ollama", model="near:latest" if named else "far:latest", listing=listing, slots=2))
    found = await examine(patient, model=named)
    assert "passes the invented text of the probe on to ollama.com" in found.question and not patient.turns
    assert "answered by ollama.com" in dict(facts(found))["model"]
    assert not (await examine(patient, model="near")).question


async def test_an_answer_that_does_not_end_is_ended_and_so_is_the_examination() -> None:
    patient = Patient(overruns=True)
    found = await examine(patient)
    assert found.failure is not None and "max_tokens" in found.failure.sentence
    assert len(patient.turns) == 1 and patient.cancelled and patient.evaluated <= found.spent_tokens <= 200


async def test_it_asks_where_a_server_may_keep_only_one_conversation_and_does_not_say() -> None:
    assert "only one conversation" in (await examine(Patient(an_info("ollama", listing=())))).question
    assert not (await examine(Patient(an_info("vllm")))).question


async def test_it_asks_before_a_model_has_to_be_loaded() -> None:
    found = await examine(Patient(an_info("ollama", listing=(Model("m", loaded=False),))))
    assert "not loaded" in found.question


async def test_the_built_in_engine_parks_so_nothing_is_asked() -> None:
    patient = OpenPatient(an_info("llama.cpp", slots=1, embedded=True), slots=[SlotCount(4321, 7)])
    assert not (await examine(patient)).question and patient.turns


async def test_a_slow_server_gets_a_small_probe_and_is_told_so() -> None:
    quick, slow = Patient(), Patient(ms_per_token=100)
    await examine(quick)
    found = await examine(slow)
    assert steps(found) == EVERY_STEP
    assert found.spent_tokens < 350 < quick.evaluated
    assert "10.0 tok/s" in found.skipped[0]


async def test_a_server_that_counts_nothing_gets_every_step_within_the_most_they_can_take() -> None:
    patient = Patient(counts=False)
    found = await examine(patient)
    assert steps(found) == EVERY_STEP
    assert patient.evaluated <= found.spent_tokens <= 2000


async def test_a_template_with_a_long_preamble_is_counted() -> None:
    patient = Patient(preamble=700, keeps=0)
    found = await examine(patient, budget_tokens=1500)
    assert patient.evaluated <= found.spent_tokens <= 1500 and found.skipped


LOADED = said(NoteKind.MODEL_LOADED, model="m")


async def test_what_the_dialect_warns_of_is_kept_once() -> None:
    found = await examine(Patient(warns=LOADED))
    assert found.warnings == [LOADED]


@pytest.mark.parametrize("window", [160, 256, 512, 1000])
async def test_a_small_window_is_not_overrun(window: int) -> None:
    patient = Patient(replace(an_info(), context_size=window))
    found = await examine(patient)
    assert steps(found) == EVERY_STEP
    assert all((turn.figures.context_used or 0) <= window for turn in found.turns)


async def test_a_template_that_refuses_system_messages_is_asked_again_without() -> None:
    patient = Patient(refuses_system=True)
    found = await examine(patient)
    assert steps(found) == EVERY_STEP and not found.failure
    assert found.turn(Step.THREE).reuse > 0.99  # type: ignore[union-attr, operator]
    refused = [turn for turn in patient.turns if len(turn.wires) > 1 and not turn.system_in_user]
    assert len(refused) == 1, "only once"


@pytest.mark.parametrize("number", [0, 1, 3, 5])
async def test_a_failure_ends_it_and_what_was_found_stays(number: int) -> None:
    error = failure(Trouble.SERVER_ERROR, Fault.TOLD, sentence="It broke.", status=500)
    patient = Patient(fails=lambda at: error if at == number else None)
    found = await examine(patient)
    assert found.failure is not None and found.failure.sentence == "It broke."
    assert len(found.turns) == number and len(patient.turns) == number + 1


async def test_it_speaks_to_the_model_that_was_named() -> None:
    patient = Patient()
    found = await examine(patient, model="other")
    assert {turn.model for turn in patient.turns} == {"other"}
    assert found.server is not None and found.server.model == "other"


async def test_each_step_is_announced_before_it_is_made() -> None:
    said: list[str] = []
    patient = Patient()
    await examine(patient, progress=lambda words: said.append(f"{len(patient.turns)} {words}"))
    assert [int(line.split()[0]) for line in said] == [0, 0, 1, 2, 3, 4, 5]


async def test_a_cancel_reaches_the_request_under_way() -> None:
    patient = Patient(hangs_at=2)
    task = asyncio.create_task(examine(patient))
    await asyncio.wait_for(patient.hung.wait(), 120)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
