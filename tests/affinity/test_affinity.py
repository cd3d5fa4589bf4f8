"""Behind real routers a conversation stays on the replica that holds its cache."""

from __future__ import annotations

from pathlib import Path

from affinity_kit import Cluster, alternate, apart, instructions, service_on

from kvchat.config import ServerSettings

ROUNDS = 10
SLACK = 8
"""Tokens that a turn may read beside the new ones."""
NO_AFFINITY = ServerSettings(session_headers=(), session_fields=())


async def test_each_conversation_stays_on_its_replica_and_without_affinity_it_does_not(
    here: Cluster, tmp_path: Path
) -> None:
    """Ten turns of each, in turns; both in one test, since starting a router is what takes the time. Without affinity
    at least half as much again is read: by replicas that do not hold it, or by one that is asked for everything and has
    room for one conversation."""
    async with service_on(here.settings(), tmp_path / "data") as service:
        ids = await apart(service, here, ("Ada", "Bob"))
        await alternate(service, ids, ROUNDS)
    kept = [here.turns(mark) for mark in ("Ada", "Bob")]
    for turns in kept:
        assert len(turns) == ROUNDS
        assert len({turn.replica for turn in turns}) == 1
        assert all(turn.evaluated <= turn.new + SLACK for turn in turns[1:])
    assert kept[0][0].replica != kept[1][0].replica

    async with service_on(here.settings(NO_AFFINITY), tmp_path / "data") as service:
        ids = [(await service.new_conversations.create(instructions(mark), reuse=False)).id for mark in ("Eva", "Tom")]
        await alternate(service, ids, ROUNDS)
    lost = [turn for mark in ("Eva", "Tom") for turn in here.turns(mark)]
    assert len(lost) == 2 * ROUNDS
    assert 2 * sum(turn.evaluated for turn in lost) > 3 * sum(turn.new for turn in lost)
