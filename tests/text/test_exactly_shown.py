"""What a question about a call shows is what goes out: each hostile text can be read back from the screen's words."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from corpus import corpus
from kvchat.chat.question.mentions import OutsideFile
from kvchat.chat.tools.mcp_definitions import group_name, listed_tool
from kvchat.chat.tools.tool import ToolError, must_be_shown, shown_address
from kvchat.chat.tools.web import FetchUrl
from kvchat.prompt.tools import Decision, Permission, ToolCall, ToolQuestion
from kvchat.sanitize import clean, exact, exact_lines, undrawn
from kvchat.text.tools import (
    about_lines,
    answer_words,
    ask_words,
    code_lines,
    program_lines,
    question_lines,
    shown_call,
)

TAGS = "".join(chr(0xE0000 + ord(sign)) for sign in "pin 4711")
HOSTILE = (
    f"weather today{TAGS}",
    "weather\u200btoday",
    "weather\u200ctoday",
    "weather\u200dtoday",
    "weather\u2060today",
    "weather\ufefftoday",
    "weather\u00adtoday",
    "weather\u034ftoday",
    "weather\u061ctoday",
    "weather\u180etoday",
    "weather\u200etoday",
    "abc\u202egpj.exe",
    "abc\u202dgpj\u202c",
    "\u2066abc\u2069\u2067def\u2069",
    "a\x00b",
    "a\x07\x08b",
    "a\x1b[2J\x1b[Hb",
    "a\x1b]52;c;cGlu\x07b",
    "a\x7fb",
    "a\x9b31mb",
    "a\x85b",
    "a\u2028b\u2029c",
    "a\rb",
    "a\r\nb",
    "a\tb",
    "a\nb",
    "a\n\n\n\nb",
    "a" + " " * 300 + "b",
    "a\u00a0b",
    "a\u3000b",
    "a\u2003\u2009\u202f\u205fb",
    "a\u1680b",
    "a\u2800\u2800b",
    "a\u115f\u1160b",
    "a\u3164\uffa0b",
    "a\u17b4\u17b5b",
    "a\ufe00\ufe0fb",
    "a\U000e0100\U000e01efb",
    "a\U000e0001b",
    "a\ufff9b\ufffac\ufffbd",
    "a\ufffcb",
    "a\U0001d173b",
    "a\U0001bca0b",
    "a\ue000b",
    "a\U0010fffdb",
    "a\ud800b",
    "a\ufdd0\uffffb",
    "a\u0378b",
    "e" + "\u0301" * 60,
    "\u0301\u0302abc",
    "a \u0338b",
    " lead",
    "trail ",
    "    ",
    "",
    r"\u{200b} as text",
    r"\u{5c}u{200b}",
    r"C:\users\new",
    "ends with \\",
    "this? This goes to localhost. Let the model read x",
    "a.txt, first_line 5",
    'a": "b", "c": "d',
    "tele\u0301phone, \u05e9\u05b8\u05dc\u05d5\u05b9\u05dd, नमस्ते, 日本語, \U0001f44d\U0001f3fd",
)
ESCAPE = re.compile(r"\\u\{([0-9a-f]+)(?:\*(\d+))?\}")


def read_back(shown: str) -> str:
    """The text that a line stands for."""
    return ESCAPE.sub(lambda found: chr(int(found[1], 16)) * int(found[2] or 1), shown)


def asked(name: str, given: dict[str, Any], permission: Permission | None = None) -> tuple[list[str], str]:
    call = ToolCall("1", name, json.dumps(given))
    question = ToolQuestion(permission or Permission(name), call, given)
    return code_lines(question), ask_words(question)


def is_plain(line: str) -> bool:
    """Whether a terminal draws a line as it stands."""
    return line.isprintable() and clean(line) == line and not undrawn(line) and not re.search(r"\S {4,}", line)


@corpus("text", HOSTILE)
def test_a_line_stands_for_one_text(text: str) -> None:
    assert read_back(exact(text)) == text and is_plain(exact(text))
    assert "\n".join(map(read_back, exact_lines(text))) == text
    assert all(map(is_plain, exact_lines(text)))


@corpus("text", HOSTILE)
def test_an_argument_is_shown_as_it_goes_out(text: str) -> None:
    lines, words = asked("box__say", {"text": text})
    assert all(map(is_plain, [*lines, words]))
    if lines:
        first, *rest = lines
        value = [first.removeprefix("text: ")] if not rest else [line.removeprefix("  ") for line in rest]
        assert "\n".join(map(read_back, value)) == text and words == "Let the model call box__say with this?"
    else:
        shown = words.removeprefix("Let the model call box__say with ").removesuffix("?")
        assert read_back(shown) == text


@corpus("text", HOSTILE)
def test_names_and_values_of_several_arguments_are_told_apart(text: str) -> None:
    given = {"path": "a.txt", text: "b", "nested": {"deep": [text]}}
    lines, _ = asked("box__say", given)
    assert all(map(is_plain, lines))
    other, _ = asked("box__say", {**given, "nested": {"deep": [text + "!"]}})
    assert other != lines
    assert f"{exact(text)}: b" in lines
    assert json.loads(read_back(lines[-1].removeprefix("nested: "))) == {"deep": [text]}


def test_a_call_without_arguments_is_its_name() -> None:
    assert shown_call(ToolCall("1", "box__say", "{}")) == "box__say"
    assert shown_call(ToolCall("1", "box__say", "[]")) == "box__say: []"


@corpus("text", HOSTILE)
def test_paths_command_lines_and_scopes_are_shown_as_they_are(text: str) -> None:
    for sentence in (OutsideFile("", f"/x/{text}y", False).sentence, OutsideFile("", f"/x/{text}y", True).sentence):
        assert is_plain(sentence) and exact(f"/x/{text}y") in sentence
    command, *_ = program_lines("box", f"npx {text}y")
    assert read_back(command) == f"npx {text}y" and is_plain(command)
    question = ToolQuestion(
        Permission("read_file", f"/x/{text}y", goes_to=f"{text}y"), ToolCall("1", "read_file", "{}")
    )
    assert exact(f"/x/{text}y") in answer_words(Decision.ALWAYS, question)
    assert f"This goes to {exact(f'{text}y')}." in ask_words(question)
    assert is_plain(shown_call(ToolCall("1", "box__say", json.dumps({"text": text}))))


def test_every_line_of_code_is_shown() -> None:
    code = (
        "\n".join(f"row_{number:02} = {number}" for number in range(400)) + "\nif 1:\n    hidden\u200b = 2" + " " * 90
    )
    lines, words = asked("run_python", {"code": code})
    assert "\n".join(map(read_back, lines)) == code and len(lines) == 402
    assert "run this Python" in words


def test_all_of_a_long_argument_is_shown() -> None:
    text = " ".join(map(str, range(4000)))
    lines, _ = asked("box__say", {"text": text})
    assert lines == [f"text: {text}"]


def test_what_is_mostly_unseen_never_goes_out() -> None:
    for text in ("weather" + TAGS * 3, "\u200b" * 50, "a" + "\u2800" * 40, "a" + "\ufe0f" * 40, "x\x1b" * 30):
        with pytest.raises(ToolError, match="cannot be seen"):
            must_be_shown(text)
    must_be_shown("می‌خواهم کتاب‌های نو بخوانم " * 15)
    must_be_shown("\U0001f468\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f" * 4)
    must_be_shown("def f():\n\treturn 1\n" * 30)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://аррle.com/login", "https://xn--le-6kc8da.com/login"),
        ("https://bücher.example/ä b?q=ö", "https://xn--bcher-kva.example/%C3%A4%20b?q=%C3%B6"),
        ("https://tower.example/a\u200bb", "https://tower.example/a%E2%80%8Bb"),
        (f"https://tower.example/?q=x{TAGS[:2]}", "https://tower.example/?q=x%F3%A0%81%B0%F3%A0%81%A9"),
        ("https://TOWER.example:443/#end", "https://tower.example/"),
    ],
)
def test_an_address_is_shown_as_it_is_asked_for(url: str, shown: str) -> None:
    _, words = asked("fetch_url", {"url": url}, FetchUrl().permission({"url": url}))
    assert words == f"Let the model fetch {shown}?"


def test_hosts_that_look_alike_are_shown_apart() -> None:
    assert shown_address("https://nоtes.example/mcp") == "https://xn--ntes-55d.example/mcp"
    assert shown_address("https://notes.example/mcp") == "https://notes.example/mcp"


@corpus("text", HOSTILE)
def test_names_of_servers_and_tools_hold_no_sign_that_misleads(text: str) -> None:
    group = group_name(text)
    listed = listed_tool(group, {"name": f"{text}x", "description": text, "inputSchema": {"type": "object"}})
    for name in (group, listed.definition.name if listed else "a"):
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name)
    assert group_name(f"{text}x") != group_name(f"{text}y")


@corpus("hostile", HOSTILE)
def test_what_a_tool_says_of_itself_is_a_plain_line_of_bounded_length(hostile: str) -> None:
    for about in (hostile, f"Look it up.\n\n{hostile}", hostile * 100):
        question = ToolQuestion(Permission("box__say", about=about), ToolCall("1", "box__say", "{}"))
        lines = about_lines(question)
        assert question_lines(question, tuple(Decision))[: len(lines)] == lines
        assert question_lines(question, (Decision.ONCE, Decision.NO)) == []
        assert len(lines) == bool(about.strip())
        assert all(is_plain(line) and "\n" not in line and len(line) <= 230 for line in lines)
    assert about_lines(ToolQuestion(Permission("read_file"), ToolCall("1", "read_file", "{}"))) == []
