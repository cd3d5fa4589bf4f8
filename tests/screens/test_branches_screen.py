"""The tree of a conversation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from screens_kit import NOW, Grower, figures, showing

from kvchat.prompt.message import Node, State
from kvchat.prompt.tree import Tree
from kvchat.reports.warmth import Heat, Warmth
from kvchat.ui.screens.branches import BranchTreeScreen, tree_rows


def grown() -> tuple[Grower, dict[str, Node]]:
    """Two answers to the first question, an edited second question, and a stopped branch."""
    g = Grower()
    n: dict[str, Node] = {}
    n["s"] = g.system()
    n["q1"] = g.ask(n["s"], "first question")
    n["a1x"] = g.answer(n["q1"], "abandoned answer", State.CANCELLED)
    n["a1"] = g.answer(n["q1"], "first answer", cost=figures(100, 0, 100, predicted=31))
    n["q2x"] = g.ask(n["a1"], "second question, clumsy")
    n["a2x"] = g.answer(n["q2x"], "a confused answer")
    n["q2"] = g.ask(n["a1"], "second question")
    n["a2"] = g.answer(n["q2"], "second answer")
    return g, n


def drawn(tree: Tree, head: str) -> list[str]:
    return [f"{row.lanes}{row.node.text.splitlines()[0]}" for row in tree_rows(tree, head)]


def test_a_straight_run_is_not_indented_and_branches_stand_aside() -> None:
    g, n = grown()
    assert drawn(g.tree, n["a2"].id) == [
        "┃ Be brief.",
        "┃ first question",
        "┠── abandoned answer",
        "┃ first answer",
        "┠─┬ second question, clumsy",
        "┃ └ a confused answer",
        "┃ second question",
        "┃ second answer",
    ]


def test_the_heavy_line_follows_the_branch_in_use() -> None:
    g, n = grown()
    assert drawn(g.tree, n["a2x"].id) == [
        "┃ Be brief.",
        "┃ first question",
        "┠── abandoned answer",
        "┃ first answer",
        "┠─┬ second question",
        "┃ └ second answer",
        "┃ second question, clumsy",
        "┃ a confused answer",
    ]


def test_another_system_prompt_is_a_tree_of_its_own_above_the_one_in_use() -> None:
    g, _ = grown()
    other = g.system("Be long.")
    question = g.ask(other, "first question again")
    rows = drawn(g.tree, question.id)
    assert rows[-2:] == ["┃ Be long.", "┃ first question again"]
    assert rows[0] == "│ Be brief." and rows[-3] == "└ second answer"


def test_ten_thousand_messages_in_a_row_with_an_abandoned_answer_at_each_stay_narrow() -> None:
    g = Grower()
    at = g.system()
    for i in range(2_500):
        question = g.ask(at, f"q{i}")
        g.answer(question, f"abandoned {i}")
        at = g.answer(question, f"a{i}")
    rows = tree_rows(g.tree, at.id)
    assert len(rows) == 7_501
    assert max(cell_len(row.lanes) for row in rows) == 4


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=40), st.integers(0, 10_000))
def test_every_message_has_one_row_below_its_parent(parents: list[int], head: int) -> None:
    g = Grower()
    g.system()
    for i, parent in enumerate(parents):
        g.ask(g.nodes[parent % len(g.nodes)], f"m{i}")
    at = g.nodes[head % len(g.nodes)].id
    rows = tree_rows(g.tree, at)
    ids = [row.node.id for row in rows]
    assert sorted(ids) == sorted(node.id for node in g.nodes)
    assert all(ids.index(row.node.parent) < i for i, row in enumerate(rows) if row.node.parent)
    assert {row.node.id for row in rows if row.current} == {node.id for node in g.tree.path(at)}


@pytest.mark.parametrize(
    ("keys", "act", "name"),
    [
        (["enter"], "go", "a2"),
        (["up", "up", "enter"], "go", "a2x"),
        (["up", "up", "f"], "fork", "a2x"),
        (["home", "enter"], "go", "s"),
    ],
)
async def test_keys_go_and_fork(keys: list[str], act: str, name: str) -> None:
    g, n = grown()
    async with showing(BranchTreeScreen(g.tree, n["a2"].id, now=NOW)) as shown:
        await shown.press(*keys)
        assert shown.answers == [(act, n[name].id)]


async def test_a_row_tells_role_words_state_and_tokens() -> None:
    g, n = grown()
    async with showing(BranchTreeScreen(g.tree, n["a2"].id, title="lighthouse log", now=NOW)) as shown:
        assert "Branches · lighthouse log" in shown.line("╭")
        assert "3 branches, 8 messages." in shown.text
        assert shown.line("abandoned answer").split()[-2:] == ["1/2", "│"]
        assert "stopped" in shown.line("abandoned answer")
        assert "31 tok" in shown.line("first answer") and "2/2" in shown.line("first answer")
        assert "Text between <context>" not in shown.text, "the safety policy is not the person's text"
        assert "second answer" in shown.cursor_line


async def test_wide_terminals_show_the_time_too() -> None:
    g, n = grown()
    async with showing(BranchTreeScreen(g.tree, n["a2"].id, now=NOW), size=(120, 40)) as shown:
        assert "today 14:13" in shown.cursor_line


async def test_a_tree_of_side_branches_of_side_branches_still_shows_words() -> None:
    g = Grower()
    at = g.system()
    for i in range(60):
        first = g.ask(at, f"aside {i}")
        g.ask(at, f"main {i}")
        at = first
    async with showing(BranchTreeScreen(g.tree, g.tree.tip(g.nodes[0].id), now=NOW)) as shown:
        await shown.press("home", *["pagedown"] * 3)
        assert all("aside" in line or "main" in line for line in shown.lines if "you" in line)
        assert "…" in shown.text


async def test_escape_closes() -> None:
    g, n = grown()
    async with showing(BranchTreeScreen(g.tree, n["a2"].id, now=NOW)) as shown:
        await shown.press("escape")
        assert shown.answers == [None]


async def test_the_end_of_each_branch_tells_how_warm_it_is_and_what_going_there_reads() -> None:
    g, n = grown()
    known = {
        n["a1x"].id: Warmth(Heat.COLD, 0, 8120),
        n["a2x"].id: Warmth(Heat.PARKED, 90, 412),
        n["a2"].id: Warmth(Heat.WARM, 200, 1),
    }
    screen = BranchTreeScreen(g.tree, n["a2"].id, now=NOW, warmth=lambda tip: known[tip])
    async with showing(screen, size=(100, 30)) as shown:
        assert "○ 8.1k" in shown.line("abandoned answer") and "◐ 412" in shown.line("a confused answer")
        assert "●" in shown.line("  second answer")
        assert not {"●", "◐", "○"} & set(shown.line("first answer"))
    silent = BranchTreeScreen(g.tree, n["a2"].id, now=NOW, warmth=lambda _: Warmth())
    async with showing(silent, size=(100, 30)) as shown:
        assert not {"●", "◐", "○"} & set(shown.text)
