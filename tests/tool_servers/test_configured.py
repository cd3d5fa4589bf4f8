"""The file of MCP servers: what is read as other programs write it, and what is said of a wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvchat.chat.tools.mcp_servers import group_name
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
    assert [*servers] == ["time", "box", "far"]
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
        ("{}", "the server a has neither a command, with its args as a list, nor a url"),
        ('{"url": "file:///etc/passwd"}', "has neither a command"),
        ('{"url": "http://[::1/mcp"}', "has neither a command"),
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
