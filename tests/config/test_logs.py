"""The log: what helps to find a fault, and nothing that must not be there."""

from __future__ import annotations

import logging
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvchat import logs
from kvchat.paths import PathError

log = logging.getLogger("kvchat.test")


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "logs" / "kvchat.log"
    logs.start(path)
    yield path
    logs.stop()


def test_a_line_has_time_level_module_and_text(file: Path) -> None:
    log.info("request %d: %d bytes in %.1f ms", 3, 512, 4.25)
    assert file.read_text().endswith(" INFO kvchat.test request 3: 512 bytes in 4.2 ms\n")


def test_the_file_is_private_even_if_it_was_not(tmp_path: Path) -> None:
    path = tmp_path / "kvchat.log"
    path.write_text("before\n")
    path.chmod(0o644)
    logs.start(path)
    log.info("now")
    logs.stop()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text().startswith("before\n")


CANARIES = [
    "Authorization: Bearer {}",
    "{{'authorization': 'Bearer {}'}}",
    "(b'Authorization', b'Bearer {}')",
    "Proxy-Authorization={}",
    "x-api-key: {}",
    "('x-api-key', '{}')",
    '{{"api_key": "{}"}}',
    "api_key={}&x=1",
    "token={}",
    "password: {}",
    "Cookie: {}",
    "http://user:{}@host:8080/v1",
    "https://{}@host",
    "GET /v1?key={}",
    "key sk-{} refused",
    "basic {}",
]


@pytest.mark.parametrize("line", CANARIES)
def test_keys_and_passwords_do_not_reach_the_log(file: Path, line: str) -> None:
    log.warning("sent %s", line.format("CANARY7abcdefgh"))
    assert "CANARY7" not in file.read_text()
    assert "[hidden]" in file.read_text()


@pytest.mark.parametrize(
    "line",
    [
        "first token: 0.14 s",
        "prompt_tokens=3812 cached_tokens: 3764",
        "max_tokens: 512",
        "48 tokens, 31 tok/s",
        "n_token = 12",
        "http://127.0.0.1:8080/v1/chat/completions 200",
        "token, then text",
    ],
)
def test_figures_and_addresses_stay(file: Path, line: str) -> None:
    log.info(line)
    assert line in file.read_text()


def test_a_known_key_is_hidden_wherever_it_turns_up(file: Path) -> None:
    logs.hide("zebra-umbrella")
    logs.hide("")
    log.error("odd answer: %r", {"echo": "zebra-umbrella"})
    assert "zebra" not in file.read_text()


def test_the_home_folder_is_a_tilde(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    log.info("model /home/ada/models/x.gguf, not /home/adalbert")
    assert "model ~/models/x.gguf, not /home/adalbert" in file.read_text()


def test_an_exception_is_one_line_without_secrets(file: Path) -> None:
    try:
        raise ValueError("Bearer CANARY7abc\x1b[2J")
    except ValueError:
        log.exception("failed")
    (line,) = file.read_text().splitlines()
    assert "ValueError" in line
    assert "CANARY7" not in line
    assert "\x1b" not in line


def test_a_line_break_in_a_text_cannot_forge_a_line(file: Path) -> None:
    log.info("one\n2026-01-01 INFO kvchat forged")
    assert len(file.read_text().splitlines()) == 1


def test_a_line_that_cannot_be_filled_in_is_logged_all_the_same(file: Path) -> None:
    log.info("%d", "x")
    assert "cannot be filled in: TypeError" in file.read_text()


def test_other_libraries_are_not_logged(file: Path) -> None:
    logging.getLogger("httpcore").error("body")
    assert file.read_text() == ""


def test_a_log_that_cannot_be_opened_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(PathError, match=r"Choose another file with --log\.$"):
        logs.start(tmp_path)


def test_after_stop_nothing_is_written(file: Path) -> None:
    logs.stop()
    log.warning("late")
    assert file.read_text() == ""


def test_a_full_disk_ends_the_log_and_nothing_else(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    handler = next(one for one in logging.getLogger("kvchat").handlers if isinstance(one, logging.StreamHandler))
    assert isinstance(handler, logging.StreamHandler)
    handler.stream.close()
    log.error("x")
    assert capfd.readouterr().err == ""
