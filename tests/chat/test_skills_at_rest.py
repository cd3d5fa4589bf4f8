"""Skills from conversations: after the memories, as a suffix, never beside an answer, used with the person's yes."""

from __future__ import annotations

from passes_kit import Model, of
from remembering_kit import passed_over, remembering, said, until

from kvchat.chat.background.skills import SKILLS
from kvchat.memory.entry import Status
from kvchat.memory.recall import SKILL_SOURCE
from kvchat.prompt.message import Role
from toyserver import ToyServer

KILN = {
    "turns": [1],
    "when": "the kiln trips the breaker",
    "steps": ["Wait an hour", "reset the breaker"],
    "why": "the coil draws less when it is cold",
    "topic": "kiln",
}
ADVICE = "Wait an hour, then reset the breaker: the coil draws less when it is cold."


def entries(service, status):
    return service.memory.with_memories(lambda m: [one for one in m.entries(status) if one.is_skill])


async def begun(service, *texts):
    id = (await service.new_conversations.create("Be brief.", reuse=False)).id
    for text in texts:
        await said(service, id, text)
    return id


WORKED = "The kiln trips the breaker when I start it. What do I do?", "That worked, thank you, my kiln fires again."


async def test_without_the_setting_nothing_more_than_memories_is_asked_for(tmp_path):
    async with ToyServer(slots=2) as server, remembering(server.url, tmp_path) as service:
        server.on_chat(Model(advice=ADVICE))
        id = await begun(service, *WORKED)
        await service.extraction.request(id)
        await until(service, lambda: of(server, "facts") and not service.jobs.all() and not service.core._tasks)
        await passed_over(service)
        assert not of(server, "skills")


async def test_it_follows_the_memories_once_and_waits_for_the_persons_yes(tmp_path):
    model = Model(advice=ADVICE, skills={"skills": [KILN]})
    async with ToyServer(slots=2) as server, remembering(server.url, tmp_path, skills=True) as service:
        server.on_chat(model)
        id = await begun(service, *WORKED)
        await service.extraction.request(id)
        await until(service, lambda: of(server, "skills") and not service.jobs.all() and not service.core._tasks)
        [asked], [facts] = of(server, "skills"), of(server, "facts")
        chat = of(server, "chat")[-1].json["messages"]
        assert asked.json["messages"][: len(chat)] == chat and len(asked.json["messages"]) == len(chat) + 2
        assert server.visits.index(facts) < server.visits.index(asked) and model.beside == []
        [pending] = await entries(service, Status.PENDING)
        assert pending.text.startswith("The kiln trips the breaker\n1. Wait an hour\n2. Reset the breaker")
        path = service.conversations.get(id).path()
        assert pending.nodes == (path[1].id, path[2].id) and pending.conversation == id
        assert [row.outcome for row in service.store.side_requests.all(kind=SKILLS)] == ["done"]

        await said(service, id, "And my other kiln?")
        await service.extraction.request(id)
        await until(service, lambda: len(of(server, "skills")) == 2 and not service.jobs.all())
        assert "turn 3 of" in of(server, "skills")[-1].json["messages"][-1]["content"], "it was looked at twice"
        assert len(await entries(service, Status.PENDING)) == 1

        system = of(server, "chat")[0].json["messages"][0]
        other = await begun(service, "My kiln trips the breaker, why?")
        blocks = service.conversations.get(other).path()[1].message.blocks
        assert [block.kind for block in blocks] == ["time"], "it came back without the person's yes"
        await service.memory.accept(pending.id)
        last = await begun(service, "My kiln trips the breaker, why?")
        [question] = [one for one in service.conversations.get(last).path() if one.role is Role.USER]
        assert [block.source for block in question.message.blocks if block.kind == "memory"] == [SKILL_SOURCE]
        sent = of(server, "chat")[-1].json["messages"]
        assert sent[0] == system, "the system message has other bytes"
        assert "reset the breaker" in sent[1]["content"].lower()
        assert (tmp_path / "memory" / "skills" / "kiln.md").is_file()


async def test_a_question_ends_it_and_it_is_asked_again_behind_the_answer(tmp_path):
    model = Model(advice=ADVICE, held="skills", skills={"skills": [KILN]})
    async with ToyServer(slots=2) as server, remembering(server.url, tmp_path, skills=True) as service:
        server.on_chat(model)
        id = await begun(service, *WORKED)
        await service.extraction.request(id)
        await until(service, lambda: of(server, "skills"))
        await said(service, id, "One more thing.")
        assert model.closed == 1 and model.beside == []
        model.go.set()
        await until(service, lambda: len(of(server, "skills")) > 1 and (SKILLS, id) not in service.jobs.at_work())
        await until(service, lambda: not any(job.kind == SKILLS for job in service.jobs.all()))
        assert len(await entries(service, Status.PENDING)) == 1


async def test_what_was_said_while_memory_was_off_is_not_looked_at(tmp_path):
    async with ToyServer(slots=2) as server, remembering(server.url, tmp_path, skills=True) as service:
        server.on_chat(Model(advice=ADVICE, skills={"skills": [KILN]}))
        id = await begun(service)
        await service.extraction.set_memory(id, False)
        for text in WORKED:
            await said(service, id, text)
        await service.extraction.set_memory(id, True)
        await said(service, id, "I keep bees in Bergen.")
        await service.extraction.request(id)
        await until(service, lambda: of(server, "skills") and not service.jobs.all() and not service.core._tasks)
        assert "turn 3 of" in of(server, "skills")[-1].json["messages"][-1]["content"]
        assert await entries(service, Status.PENDING) == []


async def test_an_answer_that_is_none_is_tried_again_and_then_waits_for_the_person(tmp_path, monkeypatch):
    monkeypatch.setattr("kvchat.chat.background.jobs.BACK_OFF_S", 0.0)
    async with ToyServer(slots=2) as server, remembering(server.url, tmp_path, skills=True) as service:
        server.on_chat(Model(advice=ADVICE, skills="I am sorry."))
        id = await begun(service, *WORKED)
        await service.extraction.request(id)
        await until(service, lambda: any(job.state == "paused" for job in service.jobs.all()))
        assert len(of(server, "skills")) == 3
        server.on_chat(Model(advice=ADVICE, skills={"skills": [KILN]}))
        await service.jobs.retry(SKILLS, id)
        await until(service, lambda: not service.jobs.all())
        assert len(await entries(service, Status.PENDING)) == 1
