"""How many statements each part has, docstrings and imports left out: the brake on what kvchat grows to.

`uv run python tests/project/test_statements.py` says the rows as they are now.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLES: dict[str, dict[str, int]] = {
    "tui/kvchat": {
        ".": 590,
        "apart": 220,
        "backends": 6540,
        "cache": 2680,
        "chat": 10050,
        "cli": 2360,
        "commands": 1080,
        "config": 1270,
        "doctor": 930,
        "documents": 3930,
        "figures": 310,
        "index": 790,
        "mcp": 710,
        "memory": 3340,
        "plain": 1070,
        "prompt": 1530,
        "reports": 120,
        "store": 2330,
        "text": 1440,
        "transfer": 2700,
        "ui": 12270,
        "web": 180,
    },
    "tests": {
        ".": 1640,
        "affinity": 330,
        "backends": 5710,
        "bench": 2520,
        "cache": 1930,
        "chat": 14870,
        "commandline": 3340,
        "commands": 240,
        "config": 880,
        "doctor": 810,
        "documents": 2320,
        "engine": 1630,
        "figures": 250,
        "grammar": 1010,
        "index": 720,
        "memory": 3730,
        "plain": 700,
        "project": 350,
        "prompt": 1010,
        "reports": 30,
        "screens": 10780,
        "standins": 1660,
        "store": 2980,
        "terminal": 1810,
        "text": 170,
        "tool_servers": 520,
        "transfer": 1850,
        "ui_render": 590,
        "ui_transcript": 800,
        "ui_widgets": 2000,
        "web": 180,
    },
}
"""By package of kvchat and by folder of the tests; `.` is the modules that stand in none."""
SLACK = 0.01
"""By what share of its row a part may grow before the row is raised, and never less than 10 statements."""
FAR = 0.05
"""By what share a part is below its row when that is lowered, and never less than 100 statements."""
INSIDE = ("body", "handlers", "orelse", "finalbody", "cases")
"""Where the syntax tree keeps statements."""
LEFT_OUT = (ast.Import, ast.ImportFrom, ast.Pass)


def statements(text: str) -> int:
    """The statements of a module, those in its functions and classes too."""
    blocks: list[ast.AST] = [ast.parse(text)]
    count = 0
    for block in blocks:  # of expressions none holds a statement, and most of a tree is expressions
        inner = [node for part in INSIDE for node in getattr(block, part, ())]
        blocks += inner
        count += sum(
            isinstance(node, ast.stmt) and not isinstance(node, LEFT_OUT) and not is_text(node) for node in inner
        )
    return count


def is_text(node: ast.stmt) -> bool:
    """Whether a statement only stands there to be read."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def counted(tree: Path) -> dict[str, int]:
    """Statements by the first folder of a tree."""
    counts = Counter[str]()
    for path in tree.rglob("*.py"):
        folder, *rest = path.relative_to(tree).parts
        counts[folder if rest else "."] += statements(path.read_text())
    return dict(counts)


def wrong_rows(rows: Mapping[str, int], counts: Mapping[str, int]) -> list[str]:
    """What must be done to a table: a sentence for each row."""
    found = []
    for name in sorted(rows.keys() | counts.keys()):
        row, count = rows.get(name), counts.get(name, 0)
        if row is None:
            found.append(f"{name} is new: give it the row {count}, and say in the commit what it is for.")
        elif not count:
            found.append(f"{name} is gone: take its row out.")
        elif count > row + max(10, row * SLACK):
            found.append(
                f"{name} has {count} statements, its row says {row}: make it smaller, or raise the row and say in "
                "the commit why it must grow."
            )
        elif count < row - max(100, row * FAR):
            found.append(f"{name} has only {count} statements, its row says {row}: lower the row.")
    return found


def test_no_part_grows_without_a_reason() -> None:
    assert [line for tree, rows in TABLES.items() for line in wrong_rows(rows, counted(ROOT / tree))] == []


def test_statements_are_those_that_do_something() -> None:
    text = '"""Words."""\nimport os\nX = 1\n"""Of X."""\nclass A:\n    """Of A."""\n    def b(self):\n        pass\n'
    assert statements(text) == 3, "X, A and b"


def test_a_row_is_raised_lowered_added_and_taken_out_but_not_for_a_line() -> None:
    def said(count: int, row: int = 2000) -> str:
        return " ".join(wrong_rows({"ui": row}, {"ui": count}))

    assert said(2000) == said(2020) == said(1900) == ""
    assert "make it smaller, or raise the row and say in the commit why" in said(2021)
    assert "lower the row" in said(1899)
    assert said(0) == "ui is gone: take its row out."
    assert said(310, row=300) == said(200, row=300) == "" and said(311, row=300) and said(199, row=300)
    assert wrong_rows({}, {"new": 12}) == ["new is new: give it the row 12, and say in the commit what it is for."]


if __name__ == "__main__":
    for tree in TABLES:
        print(f'    "{tree}": {{')
        for name, count in sorted(counted(ROOT / tree).items()):
            print(f'        "{name}": {count},')
        print("    },")
