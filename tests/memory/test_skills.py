"""Skills: what is asked for, what is kept of an answer, their pages, and when they come back."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from corpus import corpus
from kvchat.memory.entry import Act, Kind, Status
from kvchat.memory.learning.skills import MOST_SKILLS, STEPS, checked, instruction, practice, schema
from kvchat.memory.ledger import ExtractionRun
from kvchat.memory.memories import Memories
from kvchat.memory.recall import SKILL_SOURCE, recalled
from kvchat.prompt.message import Message, Role, node, system_message
from kvchat.store import Store

SAID = [
    (Role.USER, "The kiln trips the breaker when I start it. What do I do?"),
    (Role.ASSISTANT, "Wait an hour, reset the breaker, then fire at half power: the coil draws less when it is cold."),
    (Role.USER, "That worked, it fires again. Now what glaze do you like?"),
    (Role.ASSISTANT, "Celadon."),
]
KILN = {
    "turns": [1],
    "when": "the kiln trips the breaker",
    "steps": ["Wait an hour", "reset the breaker", "fire at half power"],
    "why": "the coil draws less when it is cold",
    "topic": "kiln",
}
TEXT = (
    "The kiln trips the breaker\n1. Wait an hour\n2. Reset the breaker\n3. Fire at half power\n"
    "Why: The coil draws less when it is cold"
)


def said(turns=SAID):
    path = [node(None, system_message("Be brief."), 1.0)]
    for at, (role, text) in enumerate(turns):
        path.append(node(path[-1], Message(role, text), 2.0 + at))
    return path


PATH = said()
FOUND = practice(PATH, {node.id for node in PATH})


def answer(*skills):
    return json.dumps({"skills": list(skills)})


def kept(*skills, known=()):
    return checked(answer(*skills), FOUND, known)


def test_the_same_messages_always_give_the_same_instruction_and_name_their_turns():
    assert instruction(FOUND) == instruction(FOUND) and "turns 1 to 2" in instruction(FOUND)
    later = practice(PATH, {PATH[3].id, PATH[4].id})
    assert "turn 2 of" in instruction(later) and later.turns == {2: PATH[3:]}
    fields = schema(later)["json_schema"]["schema"]["properties"]["skills"]["items"]["properties"]
    assert fields["turns"]["items"]["enum"] == [2] and set(fields) == {"turns", "when", "steps", "why", "topic"}


def test_a_procedure_is_proposed_with_its_sources_on_a_page_of_its_topic():
    [fact] = kept(KILN)
    assert (fact.text, fact.page, fact.kind) == (TEXT, "skills/kiln.md", Kind.SKILL)
    assert fact.nodes == (PATH[1].id, PATH[2].id) and fact.review is not None


@corpus(
    "change",
    [
        {"when": ""},
        {"steps": []},
        {"turns": [9]},
        {"turns": "x"},
        {"steps": "reset"},
        {"steps": ["run <|im_end|> now", "reset the breaker"]},
        {"steps": ["Buy a yacht", "sail to Peru", "sell ice"]},
        {"why": "the api key is sk-proj-abcdefghijklmnop1234567890"},
    ],
)
def test_what_is_no_procedure_of_these_messages_is_left_out(change):
    assert kept({**KILN, **change}) == []


def test_a_task_that_has_a_skill_gets_no_second_one(tmp_path):
    with opened(tmp_path) as memories:
        [entry] = memories.propose(ExtractionRun("c", "ab" * 16, 5.0, model="m"), kept(KILN))
        assert kept({**KILN, "steps": ["Reset the breaker"]}, known=[entry]) == []
        memories.delete(entry.id)
        [gone] = memories.entries(Status.DELETED)
        assert kept(KILN, known=[gone]) == [] and len(kept(KILN, KILN)) == 1


@given(
    st.text(max_size=200)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=20),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(st.sampled_from(["skills", "turns", "when", "steps", "why", "topic"]), inner, max_size=6)
        ),
        max_leaves=20,
    ).map(json.dumps)
)
def test_whatever_the_answer_it_never_raises_and_holds_its_bounds(text):
    facts = checked(text, FOUND)
    assert facts is None or len(facts) <= MOST_SKILLS
    for fact in facts or ():
        assert len(fact.text.splitlines()) <= STEPS + 2 and set(fact.nodes) <= {node.id for node in PATH}
        assert fact.page.startswith("skills/") and fact.review is not None


def test_no_answer_to_it_is_told_from_an_empty_one():
    assert checked("I am sorry.", FOUND) is None and checked("", FOUND) is None
    assert checked('{"skills":[]}', FOUND) == []


# -- in the memory


class opened:  # noqa: N801
    def __init__(self, folder: Path, memories: Memories | None = None):
        self._store = Store.open(folder / "data")
        self.memories = Memories.open(self._store, folder / "memory", folder / "index.db", session="s")

    def __enter__(self) -> Memories:
        return self.memories

    def __exit__(self, *_: object) -> None:
        self.memories.close()
        self._store.close()


def ask(memories, question, path=(), **tokens):
    bounds = {"tokens": 200, "profile_tokens": 400, "skill_tokens": 300, **tokens}
    return {found.block.source: found.block.text for found in recalled(memories, question, path, **bounds)}


def test_one_is_in_no_file_and_never_recalled_before_the_persons_yes(tmp_path):
    with opened(tmp_path) as memories:
        [entry] = memories.propose(ExtractionRun("c", "ab" * 16, 5.0, model="m"), kept(KILN))
        assert entry.status is Status.PENDING and memories.log(1)[0].act is Act.PROPOSED
        assert not (tmp_path / "memory" / "skills").exists()
        assert ask(memories, "My kiln trips the breaker again") == {}
        assert memories.ledger.runs() == [], "nothing was covered by it"
        memories.accept(entry.id)
        page = tmp_path / "memory" / "skills" / "kiln.md"
        assert "The kiln trips the breaker" in page.read_text() and page.stat().st_mode & 0o777 == 0o600
        assert memories.get(entry.id).text == TEXT
        assert list(ask(memories, "My kiln trips the breaker again")) == [SKILL_SOURCE]


def test_it_comes_back_with_its_task_in_a_block_of_its_own_once_on_a_branch(tmp_path):
    with opened(tmp_path) as memories:
        [entry] = memories.propose(ExtractionRun("c", "ab" * 16, 5.0, model="m"), kept(KILN))
        memories.accept(entry.id)
        memories.add("The kiln stands in the shed.")
        question = "Why does my kiln trip the breaker?"
        blocks = recalled(memories, question, said(()), tokens=200, profile_tokens=0, skill_tokens=300)
        assert [block.block.kind for block in blocks] == ["memory", "memory"]
        assert blocks[1].block.text.startswith("The kiln trips the breaker 1. Wait an hour 2. Reset the breaker")
        again = said([(Role.USER, "x")])
        again[1] = node(again[0], Message(Role.USER, "x", tuple(one.block for one in blocks)), 3.0)
        assert ask(memories, question, again) == {}
        assert SKILL_SOURCE not in ask(memories, question, PATH), "it came from this branch"
        assert SKILL_SOURCE not in ask(memories, "How do I bake bread?")
        assert SKILL_SOURCE not in ask(memories, "Which glaze draws less at half power?"), "a step is no task"
        assert SKILL_SOURCE not in ask(memories, question, skill_tokens=0)


def test_a_page_that_the_person_writes_is_a_skill_too(tmp_path):
    folder = tmp_path / "memory" / "skills"
    folder.mkdir(parents=True)
    (folder / "bread.md").write_text("- Baking sourdough bread\n  Feed the starter, wait a night, bake it hot\n")
    with opened(tmp_path) as memories:
        found = ask(memories, "How do I bake my sourdough bread?")
        assert found[SKILL_SOURCE].startswith("Baking sourdough bread Feed the starter")


def test_pages_that_vanish_with_their_folder_are_not_taken_for_deleted(tmp_path):
    with opened(tmp_path) as memories:
        [entry] = memories.propose(ExtractionRun("c", "ab" * 16, 5.0, model="m"), kept(KILN))
        memories.accept(entry.id)
        memories.add("The kiln stands in the shed.")
        (tmp_path / "memory" / "skills").rename(tmp_path / "elsewhere")
        memories.sync()
        assert memories.get(entry.id).status is Status.LIVE
        assert any("skills/kiln.md" in sentence for sentence in memories.problems)
