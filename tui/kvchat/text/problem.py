"""What goes wrong, as a value until somebody reads it.

The rule: a kind of problem is a member of an enumeration in `text`, whose value is the sentence with its arguments by
name. An error is raised with both, and nobody compares words.
"""

from __future__ import annotations

from enum import StrEnum


class ProblemError(Exception):
    """A kind of problem and its arguments; `str` is the sentence: what happened, where, and what to do."""

    def __init__(self, problem: StrEnum, /, **arguments: object) -> None:
        super().__init__(problem.name)
        self.problem = problem
        self.arguments = arguments

    @property
    def sentence(self) -> str:
        return self.problem.value.format_map(self.arguments)

    def __str__(self) -> str:
        return self.sentence
