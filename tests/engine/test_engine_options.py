from __future__ import annotations

import os
from pathlib import Path

import pytest

from corpus import corpus
from kvchat.backends.engine import options
from kvchat.backends.engine.gguf import GgufHeader
from kvchat.backends.engine.log import LINES, LogTail, start_failure
from kvchat.backends.engine.options import EngineOptions, context_for, default_cache_ram, default_threads
from kvchat.text.engine import exit_in_words

HEADER = GgufHeader(version=3, tensors=1, architecture="llama", context_length=2048)


@pytest.mark.parametrize(
    ("wanted", "trained", "context"),
    [
        (0, 131_072, 8192),
        (0, 2048, 2048),
        (0, None, 8192),
        (16_384, 131_072, 16_384),
        (16_384, 2048, 2048),
        (16_384, None, 16_384),
    ],
)
def test_the_context_is_what_was_asked_for_but_never_beyond_the_training(
    wanted: int, trained: int | None, context: int
) -> None:
    assert context_for(wanted, trained) == context


@pytest.mark.parametrize(("cores", "threads"), [(1, 1), (2, 2), (3, 3), (4, 3), (8, 7), (64, 8)])
def test_threads_leave_a_core_to_the_screen_where_there_are_enough(
    monkeypatch: pytest.MonkeyPatch, cores: int, threads: int
) -> None:
    monkeypatch.setattr(options, "physical_cores", lambda: cores)
    assert default_threads() == threads


def test_two_hardware_threads_of_a_core_count_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options.sys, "platform", "linux")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    siblings = {0: "0,2", 2: "0,2", 1: "1,3", 3: "1,3"}
    monkeypatch.setattr(options, "_siblings", siblings.__getitem__)
    monkeypatch.setattr(options, "_quota", lambda: None)
    assert options.physical_cores() == 2
    monkeypatch.setattr(options, "_quota", lambda: 1)
    assert options.physical_cores() == 1


@pytest.mark.parametrize(
    ("line", "quota"),
    [
        ("max 100000", None),
        ("250000 100000", 2),
        ("50000 100000", 1),
        ("", None),
        ("1 0", None),
    ],
)
def test_the_limit_of_a_container_is_read(monkeypatch: pytest.MonkeyPatch, line: str, quota: int | None) -> None:
    monkeypatch.setattr(options, "_first_line", lambda _: line)
    assert options._quota() == quota


def test_the_prompt_cache_takes_at_most_a_quarter_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"SC_PHYS_PAGES": 2**20, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(os, "sysconf", sizes.__getitem__)
    assert default_cache_ram() == 1024
    sizes["SC_PHYS_PAGES"] = 2**26
    assert default_cache_ram() == 8192


def test_the_childs_line_holds_a_decision_for_every_default() -> None:
    line = EngineOptions(Path("/m/Name-Q4_0.gguf")).for_child(HEADER, "key")
    assert line["name"] == "Name-Q4_0" and line["context_size"] == 2048 and line["api_key"] == "key"
    assert isinstance(line["threads"], int) and line["threads"] >= 1
    assert isinstance(line["cache_ram"], int) and line["cache_ram"] >= 0
    assert EngineOptions(Path("m.gguf"), name="llama3:8b").for_child(HEADER, "")["name"] == "llama3:8b"


def test_the_log_keeps_its_end_and_its_bounds() -> None:
    log = LogTail()
    log.feed(b"first\nsec")
    log.feed(b"ond\r\n\xff\xfe\nunfin")
    assert log.last(3) == ["second", "\ufffd\ufffd", "unfin"]
    assert log.last(0) == []
    for i in range(3 * LINES):
        log.feed(b"%d\n" % i)
    assert len(log.last()) == LINES and log.last(1) == [str(3 * LINES - 1)]
    for _ in range(1000):
        log.feed(b"x" * 10_000)
    assert len(log.last(1)[0]) == 500 and len(log._rest) < 20_000


@corpus(
    ("log", "said", "code", "part"),
    [
        (
            ["0.01.002 E llama_model_load: error loading model: unknown model architecture: 'new9'"],
            "x",
            1,
            "does not know the architecture 'new9' of /m.gguf",
        ),
        (
            ["0.00.348 E ggml_aligned_malloc: insufficient memory (attempted to allocate 11520.00 MB)"],
            "x",
            1,
            "not enough memory for /m.gguf",
        ),
        ([], "std::bad_alloc", 1, "not enough memory"),
        ([], "", -9, "not enough memory"),
        (
            ["0.044 E load: tensor 'a' data is not within the file bounds, model is corrupted or incomplete"],
            "x",
            1,
            "/m.gguf is damaged",
        ),
        ([], "", -11, "broke down while it loaded /m.gguf (SIGSEGV)"),
        (
            ["0.00.1 I fine", "0.00.2 E first cause.", "0.00.3 E second"],
            "Failed",
            1,
            "could not load /m.gguf: first cause.",
        ),
        ([], "", 1, "could not load /m.gguf: it ended without a message."),
    ],
)
def test_a_failed_start_is_one_sentence(log: list[str], said: str, code: int, part: str) -> None:
    sentence = start_failure(Path("/m.gguf"), log, said, code).sentence
    assert part in sentence and "\n" not in sentence


def test_exit_codes_in_words() -> None:
    assert [exit_in_words(code) for code in (0, 3, -15, -200)] == [
        "exit code 0",
        "exit code 3",
        "SIGTERM",
        "signal 200",
    ]
