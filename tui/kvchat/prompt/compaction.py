"""Compaction: a new branch with the same system bytes, a summary in place of the older turns, and the last turns.

Nothing slides and nothing is rewritten. The summary is context like any other: fenced, frozen into the first
kept question, and the branch that is left stays as it was.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from kvchat.patterns import compiled_later
from kvchat.prompt.branching import Branch, grafted, instructed, with_block
from kvchat.prompt.context import SUMMARY, ContextBlock
from kvchat.prompt.message import Node, Role, State
from kvchat.prompt.tree import Tree
from kvchat.prompt.wire import whole_characters

KEEP_SHARE = 0.2
"""The part of the window that the last turns, kept as they are, may take."""
SUMMARY_SHARE = 0.1
"""The part of the window that the summary may take."""
MOST_TOKENS, LEAST_TOKENS = 2048, 64
"""Tokens that a summary may have in any window, however large or small."""
LEAST_ROOM = 200
"""Tokens that must be left for the summary, or the last turns are not sent with the request for it."""
THINKING = 4
"""A model that reasons before it answers gets this many times the summary's tokens."""
INSTRUCTION_TOKENS = 140
"""What the instruction takes, at most, with what a template puts around it."""
SEAM_TOKENS = 20
"""What the fence around the summary takes."""
BYTES_PER_TOKEN = 4
"""For turns whose figures are not known, on a branch where none are."""

STRETCH = 24
"""Characters that no two places of a text share by chance."""

_SOURCE = compiled_later(r"summary of ([\d,]{1,12}) earlier turns?")
_THOUGHT = compiled_later(r"\A\s*<think>.*?</think>", re.DOTALL)
_SENTENCE_END = compiled_later(r"[.!?:;]['\")\]]*(?=\s)|\n")


def turns_of(path: Sequence[Node]) -> list[list[Node]]:
    """The turns of a branch: each a question with what follows it up to the next one."""
    turns: list[list[Node]] = []
    for message in path:
        if message.role is Role.USER:
            turns.append([message])
        elif turns:
            turns[-1].append(message)
    return turns


def turn_sizes(path: Sequence[Node]) -> list[int]:
    """The tokens of each turn of a branch: from the figures of two turns in a row, else from the bytes. The first turn
    shares what its figures say with the system message."""
    turns = turns_of(path)
    sizes: list[int | None] = []
    before: int | None = None
    for turn in turns:
        figures = turn[-1].figures
        used = figures.context_used if figures else None
        if used is not None and not sizes:
            sizes.append(round(used * _bytes(turn) / _bytes([path[0], *turn])))
        else:
            sizes.append(used - before if used is not None and before is not None and used > before else None)
        before = used
    known = [(size, _bytes(turn)) for size, turn in zip(sizes, turns, strict=True) if size]
    per_token = sum(length for _, length in known) / sum(size for size, _ in known) if known else BYTES_PER_TOKEN
    return [
        max(1, round(_bytes(turn) / per_token)) if size is None else max(1, size)
        for size, turn in zip(sizes, turns, strict=True)
    ]


def _bytes(turn: Sequence[Node]) -> int:
    return sum(len(message.wire) for message in turn)


class CompactionPlan(Struct, frozen=True):
    """What a compaction would do."""

    turns: int
    """Turns on the branch."""
    keep: int
    """Of these, how many of the last ones stay as they are."""
    send: int
    """How many of the first ones go with the request for the summary: all, unless the window is too full."""
    before: int
    """Tokens of the branch now."""
    replaced: int
    """Tokens of the turns that the summary takes the place of."""
    summary: int
    """Tokens that the summary has at most."""
    max_tokens: int
    """What is asked for: the summary, and room to think for a model that does."""

    @property
    def after(self) -> int:
        """Tokens of the new branch, at most."""
        return self.after_with(self.summary)

    def after_with(self, summary: int) -> int:
        """Tokens of the new branch with a summary of `tokens`."""
        return self.before - self.replaced + summary + SEAM_TOKENS


def planned(sizes: Sequence[int], used: int, window: int | None, *, thinks: bool = False) -> CompactionPlan | None:
    """How to compact turns of these sizes on a branch of `used` tokens. None when there are fewer than two turns, or
    when even the first turn leaves no room to summarise it. `window` None: how much fits is not known."""
    if len(sizes) < 2:
        return None
    window = window or max(4096, 4 * used)
    send, room = len(sizes), window - used - INSTRUCTION_TOKENS
    while room < LEAST_ROOM and send > 1:
        send -= 1
        room += sizes[send]
    if room < LEAST_ROOM:
        return None
    keep = max(1, len(sizes) - send)  # what the request leaves out is in no summary
    while keep < len(sizes) - 1 and sum(sizes[-keep - 1 :]) <= window * KEEP_SHARE:
        keep += 1
    replaced = sum(sizes[:-keep])
    summary = min(room, MOST_TOKENS, max(LEAST_TOKENS, min(round(window * SUMMARY_SHARE), replaced // 2)))
    return CompactionPlan(
        len(sizes), keep, send, used, replaced, summary, min(room, summary * THINKING) if thinks else summary
    )


def instruction(plan: CompactionPlan) -> str:
    """What is asked for at the end of the conversation. The same plan always gives the same text."""
    words = max(40, plan.summary * 6 // 10 // 10 * 10)
    left_out = plan.keep - (plan.turns - plan.send)
    last = (
        ""
        if left_out < 1
        else (
            "Leave out the last exchange; it is kept as it is. "
            if left_out == 1
            else f"Leave out the last {left_out} exchanges; they are kept as they are. "
        )
    )
    return (
        f"Summarise our conversation so far in at most {words} words, so that it can go on from the summary alone. "
        f"{last}Keep what matters for that: names, numbers, facts, what was decided and why, what I asked for and "
        "how I want it, code facts (files, functions, commands, errors), and open questions. Be dense and factual. "
        "Write only the summary, without an introduction."
    )


def request_path(path: Sequence[Node], plan: CompactionPlan, created: float) -> list[Node]:
    """The messages of the request for the summary: the branch's own nodes, then the instruction, which is a message of
    no tree."""
    end = len(path) - sum(len(turn) for turn in turns_of(path)[plan.send :])
    return instructed(path[:end], instruction(plan), created)


def usable(answer: str, state: State) -> str:
    """The summary in a model's answer, empty when there is none. One that was cut off ends with its last whole
    sentence, where that leaves half of its characters."""
    text = _THOUGHT.sub("", whole_characters(answer)).strip()
    if text.startswith("<think>"):
        return ""
    if state in (State.LENGTH, State.CONTEXT_FULL):
        ends = [match.end() for match in _SENTENCE_END.finditer(text)]
        if ends and ends[-1] >= len(text) // 2:
            text = text[: ends[-1]].rstrip()
    return text


def repeats_itself(summary: str) -> bool:
    """Whether most of a summary says again what it said before, as small models do: of its stretches of `STRETCH`
    characters fewer than half are new."""
    text = " ".join(summary.split())
    stretches = [text[at : at + STRETCH] for at in range(len(text) - STRETCH)]
    return len(stretches) > STRETCH and len(set(stretches)) < len(stretches) / 2


def compaction(tree: Tree, head: str, summary: str, keep: int, created: float) -> Branch:
    """The branch to `head` with `summary` in place of all but its last `keep` turns.

    The system message is the same node. The summary is in front of the first kept question, which is a new node
    of `created`; the rest is grown again with its own bytes. Raises ValueError unless a turn is left on both sides.
    """
    path = tree.path(head)
    turns = turns_of(path)
    if not 0 < keep < len(turns):
        raise ValueError("a compaction keeps at least one turn and replaces at least one")
    replaced = sum(_turns_in(turn[0]) for turn in turns[:-keep])
    source = f"summary of {replaced:,} earlier turn{'s' if replaced != 1 else ''}"
    first, *rest = (message for turn in turns[-keep:] for message in turn)
    parent = with_block(path[0], first, ContextBlock(SUMMARY, source, whole_characters(summary)), created)
    nodes = [parent]
    for twig in rest:
        parent = grafted(parent, twig)
        nodes.append(parent)
    return Branch(tuple(nodes), parent.id)


def _turns_in(question: Node) -> int:
    """How many turns a question counts for: its own, and those that a summary in front of it replaces."""
    matches = (_SOURCE.fullmatch(block.source) for block in question.message.blocks if block.kind == SUMMARY)
    return 1 + sum(int(match[1].replace(",", "")) for match in matches if match)
