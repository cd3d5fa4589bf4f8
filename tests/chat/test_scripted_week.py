"""A week of one conversation with a stand-in model: memories, skills and episodes as its answers have them, each
message in one episode, the system message as it was, and nothing beside a running reply."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from passes_kit import Model, of
from remembering_kit import passed_over, pending, remembering, said, until

from kvchat.chat.background.episodes import EPISODES
from kvchat.memory.entry import Status
from kvchat.memory.ledger import EPISODES as OF_EPISODES
from kvchat.memory.ledger import ExtractionLedger
from kvchat.memory.recall import SKILL_SOURCE
from kvchat.prompt.message import Role
from toyserver import ToyServer

ADVICE = "Wait an hour, then reset the breaker: the coil draws less when it is cold."
DAYS = [
    ("The kiln trips the breaker when I start it. What do I do?", "That worked, my kiln fires again. Thank you."),
    ("Which glaze goes with stoneware?", "And which one with porcelain?"),
    ("How long does bread dough rest?", "And in winter?"),
    ("My kiln trips the breaker once more, what now?", "It went well again."),
    ("How do I centre clay on the wheel?", "And a large piece?"),
    ("Where do I buy cobalt?", "Is it poisonous?"),
    ("When is the market in Bergen?", "And the fair?"),
]
KILN = {
    "when": "the kiln trips the breaker",
    "steps": ["Wait an hour", "reset the breaker"],
    "why": "the coil draws less when it is cold",
    "topic": "kiln",
}


class Clock:
    def __init__(self):
        self.now = datetime(2026, 11, 16, 9, 0, tzinfo=UTC)

    def __call__(self):
        self.now += timedelta(seconds=1)
        return self.now


def turns_of(visit, name, field):
    items = visit.json["response_format"]["json_schema"]["schema"]["properties"][name]["items"]["properties"][field]
    return items.get("items", items)["enum"]


def skills(visit):
    turns = turns_of(visit, "skills", "turns")
    return {"skills": [{"turns": [1], **KILN}] if 1 in turns else []}


def episodes(visit):
    first, *others = turns_of(visit, "episodes", "first")
    return {
        "episodes": [
            {"first": turn, "title": f"Topic of turn {turn}", "summary": "It was talked about."}
            for turn in (first, *others[1:2])
        ]
    }


def in_episodes(service):
    return dict(service.store.database.rows("SELECT node, cell FROM in_episode"))


async def day(service, id, texts):
    """What is said on a day, gone through at its end."""
    for text in texts:
        await said(service, id, text)
    await service.extraction.request(id)
    await until(service, lambda: not (service.jobs.all() or service.jobs.at_work() or service.core._tasks))


async def test_a_week(tmp_path):
    model, clock = Model(advice=ADVICE, skills=skills, episodes=episodes), Clock()
    async with (
        ToyServer(slots=2) as server,
        remembering(
            server.url, tmp_path, skills=True, episodes=True, every_messages=1000, every_tokens=1 << 20
        ) as service,
    ):
        server.on_chat(model)
        service.clock = service.core.clock = clock
        id = (await service.new_conversations.create("Be brief.", reuse=False)).id
        for number, texts in enumerate(DAYS):
            if number == 2:  # another answer to Tuesday's last question: a branch
                await service.turns.regenerate(id, service.conversations.load(id).path()[-1].id)
                await service.conversations.wait(id)
            if number == 4:
                [proposal] = await service.memory.proposals()
                await service.memory.accept(proposal)
            await day(service, id, texts)
            clock.now += timedelta(hours=24)
        path = service.conversations.load(id).path()

        # Skills: proposed once, used only after the person's yes, with the task that it is for.
        [skill] = [entry for entry in await service.memory.with_memories(lambda m: m.entries()) if entry.is_skill]
        assert skill.text == (
            "The kiln trips the breaker\n1. Wait an hour\n2. Reset the breaker\n"
            "Why: The coil draws less when it is cold"
        )
        assert set(skill.nodes) == {path[1].id, path[2].id}
        carried = [block.source for node in path for block in node.message.blocks if block.kind == "memory"]
        assert carried == [], "it was recalled on the branch that it came from, or before the yes"
        other = (await service.new_conversations.create("Be brief.", reuse=False)).id
        await said(service, other, "Why does my kiln trip the breaker?")
        blocks = service.conversations.load(other).path()[1].message.blocks
        assert [block.source for block in blocks if block.kind == "memory"] == [SKILL_SOURCE]

        # Episodes: a part for each day that has ended, two topics where the model told two; the last day waits.
        assert pending(service, id) == 0
        found = in_episodes(service)
        said_by_now = [node for node in path if node.role is not Role.SYSTEM]
        assert [node.id in found for node in said_by_now] == [True] * 24 + [False] * 4
        left_branch = service.conversations.load(id).tree.siblings(path[8].id)
        assert [one.id in found for one in left_branch].count(True) == 1, "a version that is not shown waits"
        entries = [one for one in await service.memory.with_memories(lambda m: m.entries()) if one.is_episode]
        assert {node for entry in entries for node in entry.nodes} == set(found)
        assert sum(len(entry.nodes) for entry in entries) == len(found), "a message is in two"
        days = {node.id: f"{datetime.fromtimestamp(node.created).date()}" for node in said_by_now}
        assert len({entry.text[:10] for entry in entries}) == 6
        assert all(entry.text[:10] == days[entry.nodes[0]] for entry in entries)
        page = (tmp_path / "memory" / "episodes" / "2026-11.md").read_text()
        assert page.count("It was talked about.") == len(entries) == len(set(found.values()))
        runs = ExtractionLedger(service.store.database, OF_EPISODES).runs()
        assert {run.id for run in runs} == set(found.values())

        # The same system bytes in every request, those of the passes are the chat's and one message more, and nothing
        # ran beside a reply.
        chats = [visit.json["messages"] for visit in server.visits if visit.is_chat]
        assert len({str(messages[0]) for messages in chats}) == 1
        assert all("Topic of turn" not in str(visit.body) for visit in of(server, "chat"))
        assert model.beside == []
        for kind in ("facts", "skills", "episodes"):
            for visit in of(server, kind):
                messages = visit.json["messages"]
                assert any(
                    messages[: len(chat)] == chat
                    for chat in (one.json["messages"] for one in of(server, "chat"))
                    if len(chat) == len(messages) - 2
                ), kind


async def test_a_question_ends_it_and_nothing_is_lost(tmp_path):
    model, clock = Model(held="episodes", episodes=episodes), Clock()
    async with ToyServer(slots=2) as server, remembering(server.url, tmp_path, episodes=True) as service:
        server.on_chat(model)
        service.clock = service.core.clock = clock
        id = (await service.new_conversations.create("Be brief.", reuse=False)).id
        await said(service, id, DAYS[0][0])
        clock.now += timedelta(hours=20)
        await said(service, id, DAYS[1][0])
        await service.extraction.request(id)
        await until(service, lambda: of(server, "episodes"))
        await said(service, id, DAYS[1][1])
        assert model.closed == 1 and model.beside == [] and in_episodes(service) == {}
        model.go.set()
        await until(service, lambda: len(in_episodes(service)) == 2)
        await until(service, lambda: (EPISODES, id) not in service.jobs.at_work())
        assert [job for job in service.jobs.all() if job.kind == EPISODES] == []


async def test_without_the_setting_none_is_asked_for_and_what_was_said_while_memory_was_off_is_in_none(tmp_path):
    model, clock = Model(episodes=episodes), Clock()
    async with ToyServer(slots=2) as server, remembering(server.url, tmp_path) as service:
        server.on_chat(model)
        service.clock = service.core.clock = clock
        id = (await service.new_conversations.create("Be brief.", reuse=False)).id
        await said(service, id, DAYS[0][0])
        clock.now += timedelta(hours=20)
        await said(service, id, DAYS[1][0])
        await service.extraction.request(id)
        await until(service, lambda: of(server, "facts") and not service.jobs.all() and not service.core._tasks)
        await passed_over(service)
        assert not of(server, "episodes")
        service.core.settings = replaced(service.settings)
        await service.extraction.set_memory(id, False)
        await said(service, id, "A secret of mine that nobody sums up.")
        await service.extraction.set_memory(id, True)
        clock.now += timedelta(hours=20)
        await said(service, id, DAYS[2][0])
        await service.extraction.request(id)
        await until(service, lambda: in_episodes(service) and not service.jobs.all())
        texts = [node.text for node in service.conversations.load(id).path() if node.id in in_episodes(service)]
        assert texts == [DAYS[0][0], "Yes.", DAYS[1][0], "Yes."]
        assert await service.memory.with_memories(lambda m: m.entries(Status.PENDING)) == []


def replaced(settings):
    from kvchat.config import changed

    return changed(settings, "memory.episodes", True)
