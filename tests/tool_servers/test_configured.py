"""The file of MCP servers: what is read as other programs write it, and what is said of a wrong one."""

from __future__ import annotations

import hashlib
import json
import shlex
from pathlib import Path

import pytest

from kvchat.chat.tools.mcp_definitions import group_name
from kvchat.mcp.configured import McpError, McpServer, read_servers


def read(folder: Path, text: str) -> dict[str, McpServer]:
    (folder / "mcp.json").write_text(text)
    return read_servers(folder / "mcp.json")


def test_no_file_is_no_server(tmp_path: Path) -> None:
    assert read_servers(tmp_path / "mcp.json") == {}


def test_programs_and_addresses_with_what_they_get(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOX_KEY", "k 1")
    text = """{"mcpServers": {
        "time": {"command": "uvx", "args": ["mcp-server-time", "--local-timezone=UTC"], "type": "stdio"},
        "box": {"command": "box", "env": {"KEY": "${BOX_KEY}", "MODE": "${env:NO_MODE:-calm}"}, "cwd": "/srv"},
        "far": {"url": "https://far.example/mcp?x=1", "headers": {"Authorization": "Bearer ${BOX_KEY}"}},
        "off": {"command": "off", "disabled": true}}}"""
    servers = read(tmp_path, text)
    assert [name for name, one in servers.items() if not one.is_off] == ["time", "box", "far"]
    assert servers["off"].fault.endswith('the server off is switched off: "disabled" is true. Change that to use it.')
    assert servers["time"].command == ("uvx", "mcp-server-time", "--local-timezone=UTC")
    assert servers["box"].env == {"KEY": "k 1", "MODE": "calm"}
    assert servers["box"].shown == "KEY=… MODE=… box (in /srv)", "the values stay unseen"
    assert servers["far"].headers == {"Authorization": "Bearer k 1"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON: line 1"),
        ("[" * 100_000, "is not JSON"),
        ("[]", 'has no table "mcpServers"'),
    ],
)
def test_a_file_that_is_wrong_is_said(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(McpError, match=words):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("1", "the server a is no table"),
        ("{}", "the server a has neither a command nor a url"),
        ('{"url": "file:///etc/passwd"}', "has a url that is no address"),
        ('{"url": "http://[::1/mcp"}', "has a url that is no address"),
        ('{"command": "x", "args": {"a": 1}}', "args is neither a list nor a text"),
        ('{"command": "x", "args": [["a"]]}', "args has a value that is neither text nor a number"),
        ('{"command": "x", "env": {"A": {"b": 1}}}', "env has a value that is neither text nor a number"),
        ('{"command": "x \\"y"}', "a quotation mark without its other one"),
        ('{"command": "x", "env": {"A": "${input:api-key}"}}', "asks for the input api-key"),
        ('{"enabled": false, "command": "x"}', 'the server a is switched off: "enabled" is false'),
        ('{"command": "x", "env": "b"}', "env is no table"),
        ('{"command": "${NO_SUCH_ONE}"}', "names the environment variable NO_SUCH_ONE"),
        ('{"command": "x", "env": []}', ""),
        ('{"command": "x${NO_SUCH_ONE:-}"}', ""),
        ('{"url": "${NO_SUCH_ONE:-http://127.0.0.1:1}/mcp"}', ""),
    ],
)
def test_a_server_that_is_wrong_leaves_the_others(tmp_path: Path, entry: str, words: str) -> None:
    servers = read(tmp_path, f'{{"mcpServers": {{"a": {entry}, "b": {{"command": "y"}}}}}}')
    assert words in servers["a"].fault and bool(words) == bool(servers["a"].fault)
    assert servers["b"].fault == ""


def test_what_may_be_a_key_is_not_shown() -> None:
    assert McpServer("a", url="https://me:k@far.example/mcp?key=k").shown == "https://far.example/mcp"


def test_another_line_or_environment_is_another_program() -> None:
    same = McpServer("a", ("x", "y"))
    others = [McpServer("a", ("x y",)), McpServer("a", ("x", "y"), {"A": "1"}), McpServer("a", ("x", "y"), folder="/")]
    assert len({one.digest for one in (same, *others)}) == 4
    assert same.digest == McpServer("b", ("x", "y")).digest


def test_a_server_has_a_name_of_its_own_that_models_take() -> None:
    written = ("Time", "files", "none", "my_own", "my server", "my.server", "x" * 60, "git (work)", "git__hub")
    names = [group_name(one) for one in written]
    assert names[:4] == ["time", "mcp_files", "mcp_none", "my_own"]
    assert len(set(names)) == 9 and all(len(one) <= 24 and one.isascii() and " " not in one for one in names)
    assert not any("__" in one for one in names), "what stands in front of it is the server"


@pytest.mark.parametrize(
    ("entry", "line", "folder"),
    [
        ({"command": "~/bin/box", "cwd": "~/tools"}, ("HOME/bin/box",), "HOME/tools"),
        ({"command": "box", "cwd": "tools"}, ("box",), "HOME/tools"),
        ({"command": "box", "cwd": "${userHome}/a"}, ("box",), "HOME/a"),
        (
            {"command": "box", "args": ["~", "~/a b", "--at=~/c", "a~/d", "~e"]},
            "box HOME 'HOME/a b' --at=HOME/c a~/d ~e",
            "",
        ),
        ({"command": "box", "args": ["$HOME/a", "$NO_SUCH_ONE", "$5", "a$"]}, "box HOME/a $NO_SUCH_ONE $5 a$", ""),
        ({"command": "npx -y 'a b'"}, ("npx", "-y", "a b"), ""),
        ({"command": "npx -y", "args": ["pkg", "~"]}, "npx -y pkg HOME", ""),
        ({"command": "~/bin/box --at ~/c"}, "HOME/bin/box --at HOME/c", ""),
        ({"command": "HOME/my box", "args": ["x"]}, ("HOME/my box", "x"), ""),
        ({"command": "npx", "args": "-y pkg 'a b'"}, ("npx", "-y", "pkg", "a b"), ""),
        ({"command": ["npx", "-y"], "args": None}, "npx -y", ""),
        ({"command": "box", "args": [1, 2.5, True, None]}, "box 1 2.5 true", ""),
        ({"command": "box", "type": "http"}, "box", ""),
    ],
)
def test_a_command_line_as_others_write_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: dict[str, object], line: object, folder: str
) -> None:
    home = str(tmp_path)
    monkeypatch.setenv("HOME", home)
    (tmp_path / "my box").write_text("#!/bin/sh\n")
    (tmp_path / "my box").chmod(0o755)
    servers = read(tmp_path, json.dumps({"mcpServers": {"a": entry}}).replace("HOME/my", f"{home}/my"))
    expected = shlex.split(line) if isinstance(line, str) else line
    assert servers["a"].fault == ""
    assert servers["a"].command == tuple(one.replace("HOME", home) for one in expected)
    assert servers["a"].folder == folder.replace("HOME", home)
    assert servers["a"].shown.startswith(shlex.join(servers["a"].command)), "what is shown is what is started"


def test_values_that_are_no_texts(tmp_path: Path) -> None:
    env = {"A": True, "B": None, "C": 3000, "D": 1.5, "E": False, "F": "x"}
    servers = read(tmp_path, json.dumps({"mcpServers": {"a": {"command": "x", "env": env}}}))
    assert servers["a"].env == {"A": "true", "C": "3000", "D": "1.5", "E": "false", "F": "x"}


@pytest.mark.parametrize(
    "text",
    [
        """// of mine
        {"mcpServers": {"a": {"command": "x", /* "b": */ "args": ["//", "/* c */", ",]", "\\"//"],},}, }""",
        '\ufeff{"mcpServers": {"a": {"command": "x", "args": ["//", "/* c */", ",]", "\\"//"]}}}',
        """{"servers": {"a": {"type": "stdio", "command": "x", "args": ["//", "/* c */", ",]", "\\"//" // last
        ]}}, "inputs": []}""",
        '{"mcp": {"servers": {"a": {"command": "x", "args": ["//", "/* c */", ",]", "\\"//"], "alwaysAllow": ["y"]}}}}',
    ],
)
def test_a_file_as_editors_write_it(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text)["a"] == McpServer("a", ("x", "//", "/* c */", ",]", '"//'))


def test_the_line_of_a_mistake_is_right_in_spite_of_comments(tmp_path: Path) -> None:
    with pytest.raises(McpError, match="line 4"):
        read(tmp_path, '{ /* one\ntwo */ "mcpServers":\n// three\n{"a" 1}}')


@pytest.mark.parametrize("text", ["", " \n", "// nothing yet\n"])
def test_a_file_with_nothing_in_it_has_no_server(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text) == {}


@pytest.mark.parametrize(
    "entry",
    [
        {"url": "http://a.example/mcp"},
        {"serverUrl": "http://a.example/mcp"},
        {"httpUrl": "http://a.example/mcp"},
        {"type": "streamable-http", "url": "http://a.example/mcp", "command": "npx mcp-remote"},
        {"transport": "http", "url": "http://a.example/mcp", "command": ""},
    ],
)
def test_an_address_as_others_write_it(tmp_path: Path, entry: dict[str, object]) -> None:
    headers = {"headers": {"A": 1, "B": None}}
    servers = read(tmp_path, json.dumps({"mcpServers": {"a": entry | headers}}))
    assert servers["a"] == McpServer("a", url="http://a.example/mcp", headers={"A": "1"})


def test_what_was_agreed_to_before_is_agreed_to_still(tmp_path: Path) -> None:
    """The digest of 0.2 for a line that says the same now."""
    entry = {"command": "uvx", "args": ["mcp-server-time", "--port", 5], "env": {"A": "b"}, "cwd": "/srv/"}
    servers = read(tmp_path, json.dumps({"mcpServers": {"a": entry}}))
    said = json.dumps([["uvx", "mcp-server-time", "--port", "5"], [["A", "b"]], "/srv/"])
    assert servers["a"].digest == hashlib.sha256(said.encode()).hexdigest()


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("45", 45.0), ("0.5", 0.5), ("3600", 3600.0), ("60000", 60.0), ("1e12", 3600.0), ("0", None), ('"60"', None)],
)
def test_a_timeout_is_in_seconds_or_milliseconds(tmp_path: Path, written: str, seconds: float | None) -> None:
    entries = f'{{"mcpServers": {{"a": {{"command": "x", "timeout": {written}}}}}}}'
    assert read(tmp_path, entries)["a"].timeout == seconds
