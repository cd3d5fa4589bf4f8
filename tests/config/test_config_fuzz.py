"""Any file at all: kvchat starts, and a file that is not TOML is told with its line."""

from __future__ import annotations

import random
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from kvchat.config import Settings, load
from kvchat.config.server import PROFILE_NAME, ServerSettings
from kvchat.config.settings import OPTIONS
from kvchat.config.show import described, example
from kvchat.config.source import TomlSource
from kvchat.prompt.request import RESERVED
from kvchat.sanitize import one_line
from tries import tries

FULL = '''default_profile = "work"
theme = "kvchat-day"  # the colours
enter_sends = false
system_prompt = """
Be "brief".
# not a comment
"""
[server]
base_url = 'http://127.0.0.1:8080'
api_key_env = "KEY"
headers = { X-Team = "a", "Authorization" = "Bearer b" }
[profiles.work]
base_url = "https://llm.example"
api_key_command = "pass 'llm key'"
session_headers = ["X-Session-ID"]
[profiles.work.headers]
X-Team = "b"
[profiles."gpu.lab".parameters]
seed = 4
[profiles]
"gpu.lab".base_url = "http://gpu"
[parameters]
temperature = 0.7
stop = [
  "###",  # a ] in a comment
  "]",
]
extra = { mirostat = 2, "a.b" = { c = [1, 2] } }
[keys]
export = "f11, ctrl+e"
transcript.edit = "x"
'''
EXAMPLE = example()
PIECES = [
    '"',
    "'",
    '"""',
    "'''",
    "[",
    "]",
    "[[",
    "{",
    "}",
    "=",
    ".",
    ",",
    "#",
    "\n",
    "\r",
    "\\",
    "\\u12",
    "\x00",
    "\x1b",
    "ü",
    "true",
    "1e999",
    "0x",
    "9" * 40,
    "-",
    "inf",
    "1979-13-01",
    "[server]",
    "theme",
    "\ufeff",
    "\u2028",
    "= =",
    "a.b.c",
    "[profiles.x]",
    "[profiles]",
    "profiles.y = 1\n",
    "[[profiles]]",
    ".headers",
    ".parameters",
    "base_url",
]


def mutated(rng: random.Random) -> bytes:
    """A settings file after one to six accidents."""
    text = rng.choice([FULL, FULL, EXAMPLE])
    for _ in range(rng.randint(1, 6)):
        at, end = sorted((rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)))
        match rng.randrange(6):
            case 0:
                text = text[:at] + rng.choice(PIECES) + text[at:]
            case 1:
                text = text[:at] + text[at + rng.randint(1, 4) :]
            case 2:
                text = text[:at] + text[at : min(end, at + 60)] + text[at:]
            case 3:
                text = text[:at] + chr(rng.randrange(1, 0x2FF)) + text[at + 1 :]
            case 4:
                text = text[:at] + text[min(end, at + 40) :]
            case _:
                lines = text.split("\n")
                rng.shuffle(lines)
                text = "\n".join(lines)
        text = text or "x"
    data = text.encode()
    if rng.random() < 0.05:
        at = rng.randrange(len(data))
        data = data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
    return data


def check_profiles(settings: Settings) -> None:
    """What the rest of kvchat takes for granted of any settings."""
    assert not settings.default_profile or settings.default_profile in settings.profiles
    for name, server in {**settings.profiles, "the server": settings.server}.items():
        assert server.base_url or name == "the server"
        assert PROFILE_NAME.fullmatch(name) or name == "the server"
        assert all(value.isascii() and value.isprintable() for item in server.headers.items() for value in item)
        assert not RESERVED.keys() & server.parameters.given().keys()


@pytest.mark.slow
def test_two_thousand_mutated_files_never_crash_and_every_syntax_error_has_its_line(tmp_path: Path) -> None:
    rng = random.Random(20)
    file = tmp_path / "config.toml"
    broken = 0
    for _ in range(tries("config_files", 2_000)):
        data = mutated(rng)
        file.write_bytes(data)
        settings, problems = load(file)
        check_profiles(settings)
        lines = data.count(b"\n") + 1
        for problem in problems:
            assert problem.line is not None
            assert 1 <= problem.line <= lines
            assert str(problem).startswith(f"config.toml:{problem.line}")
            assert str(problem).isprintable()
        try:
            tomllib.loads(data.decode("utf-8-sig"))
        except ValueError:
            broken += 1
            assert replace(settings, server=ServerSettings()) == Settings()
            assert replace(settings.server, wrong={}) == ServerSettings()
            assert list(settings.server.wrong) == ["server"], "nothing is sent on the word of defaults"
            assert len(problems) == 1
            assert problems[0].column is not None
    assert 500 < broken < 2_000


@hypothesis_settings(max_examples=300, deadline=None)
@given(st.text(alphabet=st.sampled_from([*"ab=.,#[]{}\"'\\\n\r\t 1-_é"]), max_size=60))
def test_the_places_of_any_text_are_found_without_a_crash(text: str) -> None:
    source = TomlSource(text)
    for key, entry in source.entries.items():
        assert 0 <= entry.start <= entry.end <= len(text)
        line, column = source.place(key)
        assert line >= 1
        assert column >= 1


KEYS = st.one_of(st.from_regex(r"[a-z0-9_-]{1,5}", fullmatch=True), st.text(max_size=4))
VALUES = st.recursive(
    st.one_of(st.text(max_size=8), st.integers(-5, 5), st.booleans(), st.floats(allow_nan=False, allow_infinity=False)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=8,
)


@hypothesis_settings(max_examples=200, deadline=None)
@given(st.dictionaries(KEYS, VALUES, max_size=5))
def test_every_key_of_a_valid_file_has_a_place(values: dict[str, object]) -> None:
    import tomli_w

    text = tomli_w.dumps(values)
    source = TomlSource(text)
    parsed = tomllib.loads(text)
    assert all((key,) in source.entries for key in parsed)
    for key, value in parsed.items():
        entry = source.entries[(key,)]
        if not entry.header and entry.value > entry.start:
            assert tomllib.loads("x = " + text[entry.value : entry.end].strip()) == {"x": value}


SERVER_NAMES = sorted({option.name for option in OPTIONS} | {"parameters", "modle", "api_key"})
FITTING = st.sampled_from(["http://h", "x", "", 0, 1, 0.5, True, [], ["X-A"], {}, {"X-A": "b"}, {"type": "text"}])
TABLES = st.dictionaries(st.sampled_from(SERVER_NAMES) | KEYS, FITTING | VALUES, max_size=5)
PROFILE_NAMES = st.sampled_from(["work", "gpu.lab", "x y", "m.gguf", ""]) | KEYS
PROFILES = st.dictionaries(PROFILE_NAMES, TABLES | VALUES, max_size=3)


@hypothesis_settings(max_examples=300, deadline=None)
@given(PROFILES | VALUES, TABLES | VALUES, st.sampled_from(["work", "wrok", "gpu.lab", 3]))
def test_any_profiles_load_and_what_is_left_of_them_can_be_shown_and_loaded_again(
    tmp_path_factory: pytest.TempPathFactory, profiles: object, server: object, default: object
) -> None:
    import tomli_w

    file = tmp_path_factory.mktemp("any") / "config.toml"
    text = tomli_w.dumps({"profiles": profiles, "server": server, "default_profile": default})
    file.write_text(text, encoding="utf-8", newline="")
    settings, problems = load(file)
    check_profiles(settings)
    for problem in problems:
        assert problem.line is not None
        assert 1 <= problem.line <= text.count("\n") + 1
        assert one_line(str(problem)) == str(problem)
    file.write_text(described(settings), encoding="utf-8", newline="")
    again, problems = load(file)
    assert problems == []
    assert list(again.profiles) == list(settings.profiles)
    assert [server.parameters for server in again.profiles.values()] == [
        server.parameters for server in settings.profiles.values()
    ]
