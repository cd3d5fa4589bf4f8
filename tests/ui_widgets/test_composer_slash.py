"""Slash commands in the composer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from corpus import corpus
from kvchat.commands.slash import parse, slash_commands
from kvchat.ui.widgets.composer.slash import SlashList
from kvchat.ui.widgets.composer.widget import Composer

Writing = Callable[..., Any]
COMMANDS = [("model", "choose the model"), ("memory", "what is remembered"), ("help", "[/keys] and commands")]


def names(composer: Composer) -> list[str]:
    found = composer.query_one(SlashList)
    return [c.name for c in found.items] if found.is_open else []


async def test_a_slash_lists_the_commands_and_typing_narrows_them(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        composer.set_commands(COMMANDS)
        await pilot.press("slash")
        assert names(composer) == ["model", "memory", "help"]
        await pilot.press("m", "e")
        assert names(composer) == ["memory"]
        await pilot.press("x")
        assert names(composer) == []


async def test_the_list_is_above_the_composer_and_moves_nothing(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        composer.set_commands(COMMANDS)
        composer.styles.border_top = ("solid", "white")
        await pilot.pause()
        before = composer.region
        await pilot.press("slash")
        await pilot.pause()
        assert composer.region == before
        assert composer.query_one(SlashList).region.bottom == before.y
        assert composer.query_one(SlashList).size.height == 3


async def test_enter_runs_the_command_under_the_cursor(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        composer.set_commands(COMMANDS)
        await pilot.press("slash", "m", "down", "enter")
        assert [(m.name, m.argument) for m in host.heard(Composer.SlashCommand)] == [("memory", "")]
        assert composer.text == "" and not host.asked


async def test_tab_completes_and_an_argument_goes_along(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        composer.set_commands(COMMANDS)
        await pilot.press("slash", "m", "o", "tab")
        assert composer.text == "/model "
        assert names(composer) == []
        await pilot.press("q", "w", "space", "2", "enter")
        assert [(m.name, m.argument) for m in host.heard(Composer.SlashCommand)] == [("model", "qw 2")]


async def test_escape_closes_the_list_and_keeps_the_text(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        composer.set_commands(COMMANDS)
        await pilot.press("slash", "m", "escape")
        assert (composer.text, names(composer)) == ("/m", [])


async def test_an_unknown_command_is_a_notice_and_keeps_the_text(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        composer.set_commands(COMMANDS)
        await pilot.press(*"/usr", "enter")
        assert [m.text for m in host.heard(Composer.Notice)] == ["There is no command /usr · // begins a message"]
        assert composer.text == "/usr" and not host.asked


@pytest.mark.parametrize(
    ("typed", "ours"),
    [
        ("/cost", "/cache"),
        ("/context", "/cache"),
        ("/resume", "/list"),
        ("/rewind", "/tree"),
        ("/retry", "/regenerate"),
        ("/config", "/settings"),
        ("/MCP", "/tools"),
        ("/compress", "/compact"),
        ("/models", "/model"),
        ("/exprot", "/export"),
    ],
)
async def test_a_command_of_other_programs_names_ours_and_typing_replaces_it(
    writing: Writing, typed: str, ours: str
) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        composer.set_commands(slash_commands())
        await pilot.press(*typed, "space", "x", "enter")
        assert [m.text for m in host.heard(Composer.Notice)] == [f"There is no command {typed}; did you mean {ours}?"]
        assert not host.asked and not host.heard(Composer.SlashCommand)
        await pilot.press(*ours)
        assert composer.text == f"{ours} x"


PATHS = ["/etc/hosts is odd", "/usr/bin/env: not found", "/a/b\nis text", "/home/me/", "/v1/models gives 404"]


@pytest.mark.parametrize("text", PATHS)
async def test_a_path_at_the_beginning_is_text(writing: Writing, text: str) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        composer.set_commands(slash_commands())
        await pilot.press(*text.replace("\n", ""), "enter")
        assert [m.text for m in host.asked] == [text.replace("\n", "")]
        composer.insert(text)
        await pilot.press("enter")
        assert [m.text for m in host.asked[1:]] == [text]
        assert not host.said or not host.heard(Composer.Notice)


@pytest.mark.parametrize(
    "log",
    [
        "/dev: cannot open\n/tmp: no space left",
        "/new line of a log\nand one more",
        "/sda: 3 errors",
        "//server/share is gone",
        "// TODO\nx = 1",
        "/* a comment */\nint x;",
        "!important\n#id { color: red }",
        "#!/bin/sh\nls",
    ],
)
async def test_a_pasted_log_is_text(writing: Writing, log: str) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        composer.set_commands(slash_commands())
        composer.insert(log)
        await pilot.press("enter")
        assert [m.text for m in host.asked] == [log]
        assert not host.heard(Composer.Notice)


async def test_a_pasted_command_of_one_line_is_one(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        composer.set_commands(slash_commands())
        composer.insert("/system Be brief.\n")
        await pilot.press("enter")
        assert [(m.name, m.argument) for m in host.heard(Composer.SlashCommand)] == [("system", "Be brief.")]


@pytest.mark.parametrize(
    ("typed", "word"), [("!ls -la", "no shell"), ("#likes tea", "/remember"), ("!git status", "no shell")]
)
async def test_what_others_run_or_note_gets_a_hint_once(writing: Writing, typed: str, word: str) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        told: list[str] = []
        composer.is_first = lambda sign: sign not in told and told.append(sign) is None
        await pilot.press(*typed, "enter")
        assert [word in m.text for m in host.heard(Composer.Notice)] == [True]
        assert composer.text == typed and not host.asked
        await pilot.press("enter")
        assert [m.text for m in host.asked] == [typed]
        await pilot.press(*typed, "enter")
        assert len(host.asked) == 2 and len(host.heard(Composer.Notice)) == 1


@pytest.mark.parametrize("typed", ["# A title", "!= is not equal", "#1 of 3", "!", "#"])
async def test_what_only_looks_like_that_is_sent(writing: Writing, typed: str) -> None:
    host, _ = writing()
    async with host.run_test() as pilot:
        await pilot.press(*typed, "enter")
        assert [m.text for m in host.asked] == [typed]


async def test_a_double_slash_sends_a_literal_one(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        composer.set_commands(COMMANDS)
        await pilot.press(*"//model", "enter")
        assert [m.text for m in host.asked] == ["/model"]


async def test_a_click_runs_a_command_and_the_composer_keeps_the_focus(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        composer.set_commands(COMMANDS)
        await pilot.press("slash")
        await pilot.pause()
        await pilot.click(SlashList, offset=(3, 2))
        assert [m.name for m in host.heard(Composer.SlashCommand)] == ["help"]
        assert composer.query_one("ComposerText").has_focus


async def test_a_paste_in_an_argument_goes_along_as_text(writing: Writing) -> None:
    host, composer = writing()
    async with host.run_test() as pilot:
        composer.set_commands(COMMANDS)
        await pilot.press(*"/model", "space")
        composer.insert("y" * 5000)
        await pilot.press("enter")
        assert host.heard(Composer.SlashCommand)[0].argument == "y" * 5000


@corpus(
    ("text", "command", "rest"),
    [
        ("hello", None, "hello"),
        ("/new", "new", ""),
        ("/find  two words ", "find", "two words"),
        ("/system a\nb", "system", "a\nb"),
        ("//path", None, "/path"),
        ("// a comment", None, "// a comment"),
        ("/", "", ""),
        ("/etc/hosts is odd", None, "/etc/hosts is odd"),
        ("/attach /etc/hosts", "attach", "/etc/hosts"),
    ],
)
def test_what_a_text_means(text: str, command: str | None, rest: str) -> None:
    assert parse(text) == (command, rest)
