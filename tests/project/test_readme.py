"""The README and the pages of docs are true: their tables are those of the program.
`PYTHONPATH=tests uv run python tests/project/test_readme.py` writes them."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
import tomllib
from itertools import chain
from pathlib import Path

from markdown_it import MarkdownIt

from corpus import corpus
from kvchat.cli import parser
from kvchat.commands.actions import DIALOG_ACTIONS
from kvchat.commands.keymap import help_rows
from kvchat.commands.keys import shown
from kvchat.config.show import table
from kvchat.plain.commands import plain_help

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
WORDS = 800
"""Of the README, at the most: it is one screen."""
COMMAND = re.compile(r"(?:^|\| )kvchat\b(.*)")


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


def plain_commands() -> str:
    lines = ["| command | |", "|---|---|"]
    for action, help in plain_help():
        command = f"/{action.slash} {action.argument}".rstrip()
        lines.append(f"| `{command}` | {help} |".replace(command, command.replace("|", "\\|")))
    return "\n".join(lines)


def written(text: str) -> str:
    """The README with its tables as they are now."""
    for name, content in (
        ("keys", keys()),
        ("dialog keys", dialog_keys()),
        ("settings", table()),
        ("plain commands", plain_commands()),
    ):
        text = re.sub(
            rf"(<!-- {name} -->\n).*(<!-- /{name} -->)",
            lambda m, c=content: f"{m[1]}{c.strip()}\n{m[2]}",
            text,
            flags=re.DOTALL,
        )
    return text


def everything() -> str:
    return "\n".join(page.read_text() for page in PAGES)


def test_the_tables_are_the_programs():
    for page in PAGES:
        assert page.read_text() == written(page.read_text()), page.name
    assert all(f"<!-- {name} -->" in everything() for name in ("keys", "dialog keys", "settings", "plain commands"))


def test_the_readme_is_one_screen():
    assert len(README.read_text().split()) <= WORDS


def tables(text: str) -> list[list[str]]:
    """The tables of a Markdown text as a forge finds them: the source lines of each."""
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    lines = text.splitlines()
    return [lines[slice(*token.map)] for token in tokens if token.type == "table_open" and token.map]


def test_every_row_of_every_table_has_the_cells_of_its_head():
    found = [table for page in PAGES for table in tables(page.read_text())]
    assert len(found) >= 6
    broken = [row for head, align, *rows in found for row in rows if not tables(f"{row}\n{align}\n")]
    assert not broken  # a line of more cells than the columns under it heads no table


def test_a_forge_shows_commands_and_settings_as_they_are_typed():
    tokens = MarkdownIt("commonmark").enable("table").parse(everything())
    shown = {child.content for token in tokens for child in token.children or () if child.type == "code_inline"}
    assert {row.slash for rows in help_rows().values() for row in rows if row.slash} <= shown


def test_beside_the_first_command_stands_one_for_an_externally_managed_pip():
    text = README.read_text()
    assert "externally-managed-environment" in text
    start, after = text.index("pip install uv && uv run kvchat"), text.index("## What it does")
    assert "pip install --target .uv uv && .uv/bin/uv run kvchat" in text[start:after]


def test_every_package_that_is_installed_has_its_licence_told():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    names = {re.split(r"[\[<>=]", requirement)[0] for requirement in wanted}
    assert names <= set(re.findall(r"[\w-]+", (ROOT / "docs" / "licences.md").read_text()))


def test_every_option_and_command_is_there():
    text = everything()
    commands = next(a for a in parser()._actions if a.dest == "command").choices
    assert all(name in text for name in commands)
    options = {
        o
        for p in (parser(), *commands.values())
        for a in p._actions
        if a.help != argparse.SUPPRESS
        for o in a.option_strings
    }
    missing = {o for o in options if o.startswith("--") and o not in text} - {"--help", "--format", "--output"}
    assert not missing


@corpus("page", PAGES)
def test_every_link_and_picture_leads_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        name, _, place = link.partition("#")
        if "://" in name:
            continue
        target = page.parent / name if name else page
        assert target.is_file(), link
        heads = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE) if place else []
        places = {re.sub(r"[^a-z0-9 -]", "", head.lower()).replace(" ", "-") for head in heads}
        assert not place or place in places, link


def commands() -> list[str]:
    """The kvchat commands in the shell examples of all pages."""
    fences = [
        token.content
        for page in PAGES
        for token in MarkdownIt("commonmark").parse(page.read_text())
        if token.type == "fence" and token.info.strip() in ("sh", "bash")
    ]
    lines = [line.partition(" #")[0] for fence in fences for line in fence.replace("\\\n", " ").splitlines()]
    return [found[1] for line in lines if (found := COMMAND.search(line))]


@corpus("command", commands())
def test_every_command_of_the_examples_is_one(command: str) -> None:
    arguments = shlex.split(command.partition(" | ")[0].partition(" > ")[0])
    parser().parse_args(arguments)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(written(page.read_text()))
    sys.exit(0)
