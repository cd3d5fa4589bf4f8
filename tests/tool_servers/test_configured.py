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
        ('{"mcpServers": {"a": 1}}', "the server a is no table"),
        ('{"mcpServers": {"a": {}}}', "the server a has neither a command, with its args as a list, nor a url"),
        ('{"mcpServers": {"a": {"url": "file:///etc/passwd"}}}', "has neither a command"),
        ('{"mcpServers": {"a": {"command": "x", "env": []}}}', None),
        ('{"mcpServers": {"a": {"command": "x", "env": "b"}}}', "env is no table"),
        ('{"mcpServers": {"a": {"command": "${NO_SUCH_ONE}"}}}', "names the environment variable NO_SUCH_ONE"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, text: str, words: str | None) -> None:
    if words is None:
        assert read(tmp_path, text)
        return
    with pytest.raises(McpError, match=words):
        read(tmp_path, text)


def test_another_line_or_environment_is_another_program() -> None:
    same = McpServer("a", ("x", "y"))
    others = [McpServer("a", ("x y",)), McpServer("a", ("x", "y"), {"A": "1"}), McpServer("a", ("x", "y"), folder="/")]
    assert len({one.digest for one in (same, *others)}) == 4
    assert same.digest == McpServer("b", ("x", "y")).digest


def test_a_server_has_a_name_of_its_own_that_models_take() -> None:
    names = [group_name(one) for one in ("Time", "files", "none", "my server", "my.server", "x" * 60)]
    assert names[:3] == ["time", "mcp_files", "mcp_none"]
    assert len(set(names)) == 6 and all(len(one) <= 24 and one.isascii() and " " not in one for one in names)
