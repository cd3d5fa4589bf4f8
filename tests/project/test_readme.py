"""The README is true: its tables are those of the program. `python tests/project/test_readme.py` writes them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from markdown_it import MarkdownIt

from kvchat.cli import parser
from kvchat.config import table
from kvchat.ui.actions import DIALOG_ACTIONS, help_rows
from kvchat.ui.keys import shown

README = Path(__file__).parents[2] / "README.md"


IN_DIALOGS = {action.group for action in DIALOG_ACTIONS}


def keys() -> str:
    lines = ["| | key | command |", "|---|---|---|"]
    for group, rows in help_rows().items():
        for row in rows if group not in IN_DIALOGS else ():
            slash = f"`{row.slash}`".replace("|", "\\|") if row.slash else ""
            lines.append(f"| {group}: {row.label[0].lower()}{row.label[1:]} | {row.keys} | {slash} |")
    return "\n".join(lines)


def dialog_keys() -> str:
    lines = ["| name | key | |", "|---|---|---|"]
    for action in DIALOG_ACTIONS:
        lines.append(f"| `{action.id}` | {', '.join(map(shown, action.key_list))} | {action.help} |")
    return "\n".join(lines)


def written(text: str) -> str:
    """The README with its tables as they are now."""
    for name, content in (("keys", keys()), ("dialog keys", dialog_keys()), ("settings", table())):
        text = re.sub(rf"(<!-- {name} -->\n).*(<!-- /{name} -->)", lambda m, c=content: f"{m[1]}{c.strip()}\n{m[2]}",
                      text, flags=re.DOTALL)
    return text


def test_the_tables_are_the_programs():
    assert README.read_text() == written(README.read_text())


def tables(text: str) -> list[list[str]]:
    """The tables of a Markdown text as a forge finds them: the source lines of each."""
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    lines = text.splitlines()
    return [lines[slice(*token.map)] for token in tokens if token.type == "table_open" and token.map]


def test_every_row_of_every_table_has_the_cells_of_its_head():
    found = tables(README.read_text())
    assert len(found) >= 4
    broken = [row for head, align, *rows in found for row in rows if not tables(f"{row}\n{align}\n")]
    assert not broken  # a line of more cells than the columns under it heads no table


def test_a_forge_shows_commands_and_settings_as_they_are_typed():
    tokens = MarkdownIt("commonmark").enable("table").parse(README.read_text())
    shown = {child.content for token in tokens for child in token.children or () if child.type == "code_inline"}
    assert {row.slash for rows in help_rows().values() for row in rows if row.slash} <= shown


def test_beside_the_first_command_stands_one_for_an_externally_managed_pip():
    text = README.read_text()
    assert "externally-managed-environment" in text
    start, after = text.index("pip install uv && uv run kvchat"), text.index("## What it does")
    assert "pip install --target .uv uv && .uv/bin/uv run kvchat" in text[start:after]


def test_every_option_and_command_is_there():
    text = README.read_text()
    commands = next(a for a in parser()._actions if a.dest == "command").choices
    assert all(name in text for name in commands)
    options = {o for p in (parser(), *commands.values()) for a in p._actions for o in a.option_strings}
    missing = {o for o in options if o.startswith("--") and o not in text} - {"--help", "--format", "--output"}
    assert not missing


def test_every_picture_is_there():
    for picture in re.findall(r"\]\((screenshots/[^)]+)\)", README.read_text()):
        assert (README.parent / picture).is_file()


if __name__ == "__main__":
    README.write_text(written(README.read_text()))
    sys.exit(0)
