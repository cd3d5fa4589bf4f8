"""Snapshots of conversations with a server that only has slots: when they are saved, restored and given up."""

from __future__ import annotations

import asyncio
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from kvchat.backends.dialect import HostClass, ServerInfo, SlotFile
from kvchat.backends.engine.options import EngineOptions
from kvchat.backends.engine.snapshots import SnapshotDir
from kvchat.backends.errors import NoAnswerError
from kvchat.cache.llamacpp.state_probe import StateProbe
from kvchat.cache.tokens import Tokens
from kvchat.chat.cache.states.snapshots import Refused, Restored, SlotContent, SlotOutcome, Snapshots
from kvchat.text.snapshots import GIVEN_UP, snapshot_sentence

INFO = ServerInfo("llama.cpp", "http://127.0.0.1:1", HostClass.LOOPBACK, context_size=4096, slots=2, build="b1")


class Slots:
    """A server whose slots hold names; it writes 10 bytes per token, and answers a probe by the name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.info = INFO
        self.holds: dict[int, tuple[str, int]] = {}
        self.files: dict[str, tuple[str, int]] = {}
        self.asked: list[str] = []
        self.status = 200
        self.is_alive = True
        self.noise = 0.0
        """How far two probes of one state are apart."""
        self.probes = 0
        self.answers = True
        self.is_silent = False
        self.harms: Callable[[tuple[str, int]], tuple[str, int]] = lambda state: state
        """What becomes of a state while it is restored."""
        self.gate: asyncio.Event | None = None
        self.waits = asyncio.Event()

    async def alive(self):
        return self.is_alive

    async def slot_file(self, action, slot, file, seconds):
        self.asked.append(action)
        if self.gate is not None:
            self.waits.set()
            await self.gate.wait()
        if self.status != 200:
            if action == "restore":
                self.holds.pop(slot, None)
            return SlotFile(self.status)
        if action == "save":
            name, tokens = self.holds.get(slot, ("", 0))
            self.files[file] = (name, tokens)
            head = struct.pack("<II4xiii", 0x67677371, 4, -1, 1, tokens) + ids(tokens).data
            (self.folder / file).write_bytes(head + os.urandom(max(0, tokens * 10 - len(head))))
        else:
            self.holds[slot] = self.harms(self.files[file])
            tokens = self.files[file][1]
        return SlotFile(200, tokens, tokens * 10)

    async def saves_slots(self):
        return True

    async def erase_slot(self, slot, seconds):
        self.asked.append("erase")
        self.holds.pop(slot, None)
        return True

    async def probe_slot(self, slot, state, seconds, *, extended=False):
        self.probes += 1
        if self.is_silent:
            raise NoAnswerError("http://127.0.0.1:1", seconds)
        if not self.answers:
            return None
        name, tokens = self.holds.get(slot, ("", 0))
        if extended:
            self.holds[slot] = name + " and more", tokens
        tops = tuple(
            (id, -zlib.crc32(f"{name} {id}".encode()) / 2**32 + self.noise * (self.probes % 3 - 1)) for id in range(20)
        )
        cached = tokens if extended else max(0, tokens - 1)
        return StateProbe(tops, 0 if name == "useless" else cached, extended)


def ids(tokens: int) -> Tokens:
    return Tokens(range(1, tokens + 1))


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "snapshots"


@pytest.fixture
def server(folder):
    return Slots(folder)


@pytest.fixture
def told():
    return []


@pytest.fixture
async def start(folder, server, told, tmp_path):
    """Snapshots in use, as after a start of the app."""
    model = tmp_path / "small.gguf"
    model.write_bytes(b"GGUF" + b"x" * 100)

    async def start(info=INFO, extends=False):
        server.info = info
        snapshots = Snapshots(
            folder, lambda problem: told.append(snapshot_sentence(problem)), shelf=SnapshotDir(folder, least_free=0)
        )
        await snapshots.use(server, EngineOptions(model, snapshots=folder), extends=extends)
        return snapshots

    return start


@pytest.fixture
async def snapshots(start):
    return await start()


def on_disk(folder: Path) -> int:
    return len(list(folder.glob("*.bin")))


async def test_a_saved_conversation_is_restored_after_a_restart(start, server):
    snapshots = await start()
    server.holds[0] = ("river", 100)
    saved = await snapshots.save(server, SlotContent(0, "c1", "b", 100, path=("r", "a", "b")))
    server.holds.clear()
    snapshots = await start()
    done = await snapshots.restore(server, 1, snapshots.best_for(["r", "a", "b", "next"]))
    assert isinstance(done, Restored)
    assert (done.slot, done.conversation, done.digest, done.tokens) == (1, "c1", "b", 100)
    assert server.holds == {1: ("river", 100)}
    assert saved.snapshot.tokens == 100 and snapshots.seconds(done.snapshot) > 0


async def test_the_same_state_is_written_once(snapshots, server):
    server.holds[0] = ("river", 100)
    for _ in range(3):
        assert (await snapshots.save(server, SlotContent(0, "c1", "a", 100))).snapshot.tokens == 100
    assert server.asked == ["save", "restore"]  # the first one shows whether states come back
    server.holds[0] = ("river", 120)
    await snapshots.save(server, SlotContent(0, "c1", "a", 120))
    assert server.asked == ["save", "restore", "save"]


@pytest.mark.parametrize("tokens", [0, 89])
async def test_a_slot_that_lost_the_conversation_is_not_saved_under_its_name(snapshots, server, folder, tokens):
    server.holds[0] = ("another", tokens)
    assert await snapshots.save(server, SlotContent(0, "c1", "a", 100)) is None
    assert on_disk(folder) == 0 and snapshots.known("c1") == []


async def test_the_best_snapshot_has_most_of_the_path_and_least_beside(snapshots, server):
    server.holds[0] = ("any", 100)
    for conversation, path in (("c1", "ra"), ("c1", "rabcd"), ("c1", "rabx"), ("c2", "rq")):
        await snapshots.save(server, SlotContent(0, conversation, path[-1], path=tuple(path)))

    def best(path, **options):
        found = snapshots.best_for(path, **options)
        return "".join(found.path) if found else None

    assert best("rabcde") == "rabcd"
    assert best("rab") == "rabx"
    assert best("rab", whole=True) is None
    assert best("rqz") == best("rqz", whole=True) == "rq"
    assert best("other") is None
    assert len(snapshots.known("c1")) == 2


async def test_at_quit_every_slot_is_saved_and_a_start_fills_them_again(start, server):
    snapshots = await start()
    server.holds = {0: ("one", 50), 1: ("two", 60)}
    snapshots.held = lambda: [SlotContent(0, "c1", "a", 50), SlotContent(1, "c2", "b", 60)]
    assert len(await snapshots.save_on_quit(server)) == 2
    server.holds.clear()
    snapshots = await start()
    filled = await snapshots.refill(server)
    assert server.holds == {0: ("one", 50), 1: ("two", 60)}
    assert {(one.slot, one.conversation, one.digest, one.tokens) for one in filled} == {
        (0, "c1", "a", 50),
        (1, "c2", "b", 60),
    }
    assert snapshots.refilled == filled


async def test_slots_of_which_nobody_knows_anything_are_kept_over_a_restart_too(start, server):
    snapshots = await start()
    server.holds = {0: ("one", 50)}
    await snapshots.save_on_quit(server)
    await snapshots.save_on_quit(server)
    server.holds.clear()
    await (await start()).refill(server)
    assert server.holds == {0: ("one", 50)}


@pytest.mark.parametrize("harm", ["flip", "cut", "gone"])
async def test_a_harmed_file_never_reaches_the_server_and_the_slot_keeps_what_it_has(
    snapshots, server, folder, told, harm
):
    server.holds[0] = ("river", 100)
    snapshot = (await snapshots.save(server, SlotContent(0, "c1", "a", 100))).snapshot
    file = folder / snapshot.file
    if harm == "gone":
        file.unlink()
    else:
        data = file.read_bytes()
        file.write_bytes(data[:-1] if harm == "cut" else data[:500] + bytes([data[500] ^ 1]) + data[501:])
    server.holds[0] = ("something new", 20)
    done = await snapshots.restore(server, 0, snapshot)
    assert isinstance(done, Refused) and not done.slot_emptied
    assert snapshot_sentence(done.why) in told and "read by the server instead" in told[-1]
    assert server.asked == ["save", "restore"] and server.holds[0] == ("something new", 20)
    assert snapshots.known("c1") == []


async def test_another_cache_shape_is_refused_and_its_snapshots_wait(start, server, told):
    snapshots = await start()
    server.holds[0] = ("river", 100)
    snapshot = (await snapshots.save(server, SlotContent(0, "c1", "a", 100))).snapshot
    other = await start(replace(INFO, context_size=8192))
    assert other.best_for(["a"]) is None and other.known("c1") == []
    done = await other.restore(server, 0, snapshot)
    assert "another shape of the cache" in snapshot_sentence(done.why) and not done.slot_emptied
    assert server.asked == ["save", "restore"]
    assert (await start()).known("c1") == [snapshot]


async def test_a_server_that_refuses_a_snapshot_empties_the_slot_and_is_not_given_it_again(
    snapshots, server, told, folder
):
    server.holds[0] = ("river", 100)
    snapshot = (await snapshots.save(server, SlotContent(0, "c1", "a", 100))).snapshot
    server.status = 400
    done = await snapshots.restore(server, 0, snapshot)
    assert done.slot_emptied and told == [snapshot_sentence(done.why)] and "read by the server instead" in told[0]
    assert snapshots.known("c1") == [] and on_disk(folder) == 0 and snapshots.why_not is None


async def test_a_state_that_comes_back_changed_is_never_used(snapshots, server, told, folder):
    server.holds[0] = ("river", 100)
    snapshot = (await snapshots.save(server, SlotContent(0, "c1", "a", 100))).snapshot
    server.harms = lambda state: ("rivet", state[1])
    done = await snapshots.restore(server, 1, snapshot)
    assert done.slot_emptied and 1 not in server.holds and server.holds[0] == ("river", 100)
    assert told == [
        "The snapshot of this conversation did not come back as it was saved; the conversation is read by "
        "the server instead."
    ]
    assert snapshots.known("c1") == [] and on_disk(folder) == 0


async def test_a_part_of_a_file_that_the_server_takes_is_not_used(snapshots, server, folder):
    server.holds[0] = ("river", 100)
    snapshot = (await snapshots.save(server, SlotContent(0, "c1", "a", 100))).snapshot
    server.files[snapshot.file] = ("river", 90)
    assert (await snapshots.restore(server, 1, snapshot)).slot_emptied and 1 not in server.holds


async def test_a_server_whose_states_do_not_come_back_is_found_out_by_the_first_one(start, server, told, folder):
    snapshots = await start()
    server.holds[0] = ("river", 100)
    server.harms = lambda state: ("rivet", state[1])
    assert await snapshots.save(server, SlotContent(0, "c1", "a", 100)) is None
    assert server.holds == {} and on_disk(folder) == 0
    assert len(told) == 1 and GIVEN_UP in told[0]
    for again in (snapshots, await start()):  # it is remembered over a restart, for this build
        assert GIVEN_UP in snapshot_sentence(again.why_not)
        assert await again.save(server, SlotContent(0, "c1", "a")) is None
    assert server.asked.count("save") == 1
    assert (await start(replace(INFO, build="b2"))).why_not is None


async def test_a_server_that_reuses_nothing_of_what_it_takes_back_is_given_up(start, server, told):
    snapshots = await start(extends=True)
    server.holds[0] = ("useless", 100)
    assert await snapshots.save(server, SlotContent(0, "c1", "a", 100)) is None
    assert told == [
        f"The server took back a snapshot and reuses nothing of it; the conversation is read by the server "
        f"instead. {GIVEN_UP}"
    ]


async def test_where_probes_of_one_state_differ_a_return_within_twice_that_is_good(start, server, folder):
    server.noise = 0.001
    snapshots = await start()
    server.holds[0] = ("river", 100)
    snapshot = (await snapshots.save(server, SlotContent(0, "c1", "a", 100))).snapshot
    assert 0.001 <= snapshot.spread <= 0.002 + 1e-9
    for _ in range(10):
        assert isinstance(await snapshots.restore(server, 0, snapshot), Restored)
    server.harms = lambda state: ("rivet", state[1])
    assert isinstance(await snapshots.restore(server, 0, snapshot), Refused)


async def test_a_model_that_cannot_give_up_a_token_holds_what_it_held_after_each_proof(start, server):
    snapshots = await start(extends=True)
    touched = []
    snapshots.touched = lambda slot, what: touched.append((slot, what))
    server.holds[0] = ("river", 100)
    snapshot = (await snapshots.save(server, SlotContent(0, "c1", "a", 100))).snapshot
    assert server.holds[0] == ("river", 100)
    assert isinstance(await snapshots.restore(server, 1, snapshot), Restored)
    assert server.holds == {0: ("river", 100), 1: ("river", 100)}
    assert touched == [(0, SlotOutcome.RESTORED), (1, SlotOutcome.PROBED)]


async def test_a_proof_costs_one_token_once_it_is_known_that_states_come_back(snapshots, server):
    server.holds[0] = ("river", 100)
    await snapshots.save(server, SlotContent(0, "c1", "a", 100))
    before = server.probes
    snapshot = (await snapshots.save(server, SlotContent(0, "c1", "b", 100))).snapshot
    await snapshots.restore(server, 0, snapshot)
    assert server.probes == before + 2


async def test_a_server_without_probabilities_gets_no_snapshots(snapshots, server, folder):
    server.holds[0], server.answers = ("river", 100), False
    assert await snapshots.save(server, SlotContent(0, "c1", "a", 100)) is None
    assert "log-probabilities" in snapshot_sentence(snapshots.why_not) and on_disk(folder) == 0
    assert server.holds[0] == ("river", 100)


@pytest.mark.parametrize("extends", [False, True])
async def test_a_server_that_did_not_answer_once_is_asked_again_at_the_next_save(start, server, folder, extends):
    snapshots = await start(extends=extends)
    server.holds[0] = ("river", 100)
    assert await snapshots.save(server, SlotContent(0, "c1", "a", 100)) is not None
    server.holds[0], server.is_silent = ("river", 120), True
    assert await snapshots.save(server, SlotContent(0, "c1", "b", 120)) is None
    assert snapshots.why_not is None and on_disk(folder) == 1, "it was said to give no log-probabilities"
    server.is_silent = False
    assert (await snapshots.save(server, SlotContent(0, "c1", "b", 120))).snapshot.tokens == 120


async def test_a_slot_that_somebody_else_used_meanwhile_is_not_kept(snapshots, server, folder):
    server.holds[0] = ("river", 100)
    first = (await snapshots.save(server, SlotContent(0, "c1", "a", 100))).snapshot
    real = server.slot_file

    async def and_another(action, slot, file, seconds):
        done = await real(action, slot, file, seconds)
        server.holds[0] = ("another", 30)
        return done

    server.slot_file = and_another
    assert await snapshots.save(server, SlotContent(0, "c1", "b", 100)) is None
    assert snapshots.known("c1") == [first] and snapshots.why_not is None


async def test_a_server_that_was_gone_before_costs_no_snapshot(snapshots, server):
    server.holds[0] = ("river", 100)
    snapshot = (await snapshots.save(server, SlotContent(0, "c1", "a", 100))).snapshot
    server.is_alive, server.status = False, 0
    assert "does not answer" in snapshot_sentence((await snapshots.restore(server, 0, snapshot)).why)
    assert snapshots.known("c1") == [snapshot] and snapshots.why_not is None


async def test_a_server_that_ends_over_a_snapshot_is_not_given_it_again(snapshots, server):
    server.holds[0] = ("river", 100)
    snapshot = (await snapshots.save(server, SlotContent(0, "c1", "a", 100))).snapshot
    server.status = 0
    assert (await snapshots.restore(server, 0, snapshot)).slot_emptied
    assert snapshots.known("c1") == []


async def test_a_forgotten_conversation_leaves_nothing_behind(snapshots, server, folder):
    server.holds[0] = ("river", 100)
    await snapshots.save(server, SlotContent(0, "c1", "a", path=("r", "a")))
    await snapshots.save(server, SlotContent(0, "c1", "b", path=("r", "b")))
    await snapshots.save(server, SlotContent(0, "c2", "z"))
    await snapshots.forget(["c1"])
    assert snapshots.known("c1") == [] and len(snapshots.known("c2")) == 1
    assert on_disk(folder) == len(list(folder.glob("*.json"))) == 1


async def test_a_conversation_forgotten_while_it_is_saved_leaves_nothing_behind(snapshots, server, folder):
    server.holds[0], server.gate = ("river", 100), asyncio.Event()
    saving = asyncio.create_task(snapshots.save(server, SlotContent(0, "c1", "a")))
    forgetting = asyncio.create_task(snapshots.forget(["c1"]))
    await server.waits.wait()
    server.gate.set()
    await saving
    await forgetting
    assert on_disk(folder) == 0 and snapshots.known("c1") == []


async def test_a_cancelled_save_leaves_no_file(snapshots, server, folder):
    server.holds[0] = ("river", 100)
    before = (await snapshots.save(server, SlotContent(0, "c1", "a"))).snapshot
    server.gate = asyncio.Event()
    saving = asyncio.create_task(snapshots.save(server, SlotContent(0, "c1", "b")))
    await server.waits.wait()
    saving.cancel()
    await asyncio.wait({saving})
    assert saving.cancelled() and snapshots.known("c1") == [before] and on_disk(folder) == 1


async def test_a_full_disk_gives_one_sentence_and_no_failure(start, server, folder, told, monkeypatch):
    from kvchat import paths

    snapshots = await start()
    server.holds[0] = ("river", 100)

    def full(path, data):
        raise paths.PathError("The disk is full.")

    monkeypatch.setattr(paths, "write_private", full)
    for _ in range(2):
        assert await snapshots.save(server, SlotContent(0, "c1", "a")) is None
    assert told == ["The disk is full."] and on_disk(folder) == 0


async def test_a_folder_that_cannot_be_used_gives_a_sentence_and_no_failure(folder, start, server, told):
    folder.write_text("a file")
    snapshots = await start()
    assert await snapshots.save(server, SlotContent(0, "c1", "a")) is None
    assert await snapshots.refill(server) == () and await snapshots.save_on_quit(server) == []
    await snapshots.forget(["c1"])
    await snapshots.tidy()
    assert len(told) == 1 and "not a folder" in told[0]
    assert folder.read_text() == "a file" and server.asked == []


async def test_incognito_writes_nothing(server, tmp_path, folder):
    model = tmp_path / "small.gguf"
    model.write_bytes(b"GGUF")
    for snapshots in (Snapshots(None), Snapshots(folder)):
        await snapshots.use(server, EngineOptions(model, snapshots=None))
        server.holds[0] = ("river", 100)
        assert await snapshots.save(server, SlotContent(0, "c1", "a")) is None
        assert await snapshots.save_on_quit(server) == []
        assert snapshots.why_not
    assert server.asked == [] and not folder.exists()


async def test_a_server_without_a_folder_is_asked_once(snapshots, server):
    server.status = 501
    server.holds[0] = ("river", 100)
    for _ in range(2):
        assert await snapshots.save(server, SlotContent(0, "c1", "a")) is None
    assert server.asked == ["save"] and "without a folder" in snapshot_sentence(snapshots.why_not)


async def test_a_slot_the_server_does_not_have_is_never_named_to_it(snapshots, server):
    server.holds[0] = ("river", 100)
    snapshot = (await snapshots.save(server, SlotContent(0, "c1", "a"))).snapshot
    assert await snapshots.save(server, SlotContent(2, "c2", "b")) is None
    assert "no slot 2" in snapshot_sentence((await snapshots.restore(server, 2, snapshot)).why)
    assert server.asked == ["save", "restore"]


async def test_without_a_server_nothing_is_used(start, server):
    snapshots = await start()
    server.holds[0] = ("river", 100)
    await snapshots.save(server, SlotContent(0, "c1", "a"))
    snapshots.leave()
    assert snapshots.why_not and snapshots.known("c1") == [] and snapshots.refilled == ()
