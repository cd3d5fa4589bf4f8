"""Profiles: further servers by name, each with the settings of `[server]`."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from kvchat.backends import kinds
from kvchat.config import ConfigError, Problem, ServerSettings, Settings, effective, load
from kvchat.config.edit import save_setting
from kvchat.config.settings import changed, key_of
from kvchat.config.show import described
from kvchat.prompt.request import Parameters

TWO = """default_profile = "work"
[server]
base_url = "http://10.0.0.5:8080"

[profiles.work]  # the cluster
base_url = "https://llm.example/v1"
model = "qwen3-32b"
kind = "vllm"
api_key_env = "WORK_KEY"
locality = "local"
timeout = 20
session_headers = ["X-Session-ID", "X-Team-Session"]
session_fields = []

[profiles.work.headers]
X-Team = "Q0FOQVJZ-1"
Authorization = "Basic Q0FOQVJZ"

[profiles.work.parameters]
temperature = 0.2
stop = ["###"]
response_format = { type = "json_object" }
extra = { mirostat = 2 }

[profiles."gpu.lab"]
base_url = "http://gpu:11434"
kind = "ollama"
context_size = 16384
keep_alive = "24h"
api_key_keyring = "llm/me"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


def said(file: Path, text: str) -> list[str]:
    """The problems of a file with this content, as they are printed."""
    file.write_text(text)
    return [str(problem) for problem in load(file)[1]]


def test_profiles_are_read_in_the_order_of_the_file(file: Path) -> None:
    assert said(file, TWO) == []
    settings = load(file)[0]
    assert list(settings.profiles) == ["work", "gpu.lab"]
    assert settings.default_profile == "work"
    assert settings.profiles["work"] == ServerSettings(
        base_url="https://llm.example/v1",
        model="qwen3-32b",
        kind="vllm",
        api_key_env="WORK_KEY",
        locality="local",
        timeout=20,
        session_headers=("X-Session-ID", "X-Team-Session"),
        session_fields=(),
        headers={"X-Team": "Q0FOQVJZ-1", "Authorization": "Basic Q0FOQVJZ"},
        parameters=Parameters(
            temperature=0.2, stop=("###",), response_format={"type": "json_object"}, extra={"mirostat": 2}
        ),
    )
    lab = settings.profiles["gpu.lab"]
    assert (lab.context_size, lab.keep_alive, lab.api_key_keyring) == (16384, "24h", "llm/me")
    assert (lab.session_headers, lab.session_fields) == (None, None), "left out: the usual ones"
    assert settings.server == ServerSettings(base_url="http://10.0.0.5:8080")


def test_the_server_of_the_settings_may_have_headers_and_parameters_of_its_own(file: Path) -> None:
    assert (
        said(file, '[server]\nheaders = {X-Team = "a"}\n[server.parameters]\ntop_k = 20\n[parameters]\nseed = 1\n')
        == []
    )
    settings = load(file)[0]
    assert (settings.server.headers, settings.server.parameters) == ({"X-Team": "a"}, Parameters(top_k=20))
    assert settings.parameters == Parameters(seed=1)


def test_no_setting_of_a_server_is_called_as_a_parameter_is() -> None:
    servers, parameters = {item.name for item in fields(ServerSettings)}, set(Parameters.__struct_fields__)
    assert not servers & parameters, "or a profile's name with a dot could be taken for another one's section"


WORK = '[profiles.work]\nbase_url = "http://h"\n'


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (WORK + 'modle = "x"', "3:1: unknown setting profiles.work.modle; did you mean profiles.work.model?"),
        (
            WORK + "temperature = 1",
            "3:1: unknown setting profiles.work.temperature; temperature belongs under [profiles.work.parameters]",
        ),
        (
            WORK + "[profiles.work.parameters]\ntemprature = 1",
            "4:1: unknown setting profiles.work.parameters.temprature; did you mean profiles.work.parameters.temperature?",
        ),
        (
            WORK + '[profiles.work.parameters]\nmodel = "x"',
            "4:1: unknown setting profiles.work.parameters.model; model belongs under [profiles.work]",
        ),
        (
            WORK + 'theme = "x"',
            "3:1: unknown setting profiles.work.theme; theme belongs at the top, above the first [section]",
        ),
        (
            WORK + "timeout = 1.5",
            "3:1: profiles.work.timeout must be a whole number, not a number with a fraction; the default, 0, is used",
        ),
        (WORK + "timeout = 900", "3:1: profiles.work.timeout must be from 0 to 600; the default, 0, is used"),
        (
            WORK + 'locality = "cluod"',
            '3:1: profiles.work.locality must be one of "auto", "local", "cloud"; nothing is sent until that is corrected',
        ),
        (
            WORK + 'keep_alive = "a while"',
            '3:1: profiles.work.keep_alive must be a time such as "30m" or "24h", seconds '
            'such as "600", or "-1" for ever; it is left out',
        ),
        (
            WORK + 'session_headers = ["X-Session ID"]',
            '3:1: profiles.work.session_headers must hold names of headers, such as "X-Session-ID"; "X-Session ID" cannot be '
            "one of them; it is left out",
        ),
        (
            WORK + 'session_headers = ["Authorization"]',
            '3:1: profiles.work.session_headers must hold names of headers, such as "X-Session-ID"; "Authorization" cannot be '
            "one of them; it is left out",
        ),
        (
            WORK + 'session_headers = ["X-Session-ID", "X-Request-Id"]',
            '3:1: profiles.work.session_headers must hold names of headers, such as "X-Session-ID"; "X-Request-Id" cannot be '
            "one of them; it is left out",
        ),
        (
            WORK + 'session_fields = ["user", "messages"]',
            '3:1: profiles.work.session_fields must hold names of fields, such as "session_id"; "messages" cannot be one of '
            "them; it is left out",
        ),
        (
            WORK + 'api_key_keyring = "sk-1"',
            "3:1: profiles.work.api_key_keyring must be the service and the user name of "
            'the key, such as "llm/me", not the key itself; nothing is sent until that is corrected',
        ),
        (
            WORK + "parameters = 1",
            "3:1: profiles.work.parameters must be a section: [profiles.work.parameters] on a line "
            "of its own, its settings below",
        ),
        (
            WORK + "[profiles.work.parameters.extra]\nReasoning_Effort = 1",
            "4:1: profiles.work.parameters.extra.Reasoning_Effort cannot be set: it is an option of the model's template, and "
            "would change the prompt",
        ),
        ("[profiles.work]\nmodel = 'x'", "1:1: profiles.work has no base_url; it is left out"),
        ("[profiles.work]", "1:1: profiles.work has no base_url; it is left out"),
        ('[profiles.work]\nbase_url = ""', "1:1: profiles.work has no base_url; it is left out"),
        (
            "\n[profiles.work]\nbase_url = 'foo'",
            '3:1: profiles.work.base_url must be an address such as "http://127.0.0.1:9931"; the profile is left out',
        ),
        ("profiles = 1", "1:1: profiles must be a section: [profiles.NAME] on a line of its own, its settings below"),
        (
            "[[profiles]]\nbase_url = 'http://h'",
            "1:1: profiles must be a section: [profiles.NAME] on a line of its own, its settings below",
        ),
        (
            "[profiles]\nwork = 'http://h'",
            "2:1: profiles.work must be a section: [profiles.work] on a line of its own, its settings below",
        ),
        ("[profile.work]\nbase_url = 'http://h'", "1:1: unknown section [profile]; did you mean [profiles]?"),
        (
            '[profiles."my box"]\nbase_url = "http://h"',
            "1:1: profiles.my box is not used: a profile's name is made of at most 64 letters, digits, - _ and ., and does "
            "not end in .gguf",
        ),
        (
            '[profiles."qwen.gguf"]\nbase_url = "http://h"',
            "1:1: profiles.qwen.gguf is not used: a profile's name is made of at most 64 letters, digits, - _ and ., and does "
            "not end in .gguf",
        ),
        (
            'default_profile = "wrok"\n' + WORK,
            "1:1: default_profile names no profile that can be used: wrok (did you mean work?); nothing is sent until that is corrected",
        ),
        (
            'default_profile = "x"',
            "1:1: default_profile names no profile that can be used: x; nothing is sent until that is corrected",
        ),
    ],
)
def test_a_mistake_in_a_profile_is_told_with_its_line(file: Path, text: str, sentence: str) -> None:
    assert said(file, text) == [f"config.toml:{sentence}"]
    assert load(file)[0].default_profile == ""


def test_the_kind_of_a_server_is_one_that_is_known(file: Path) -> None:
    (sentence,) = said(file, WORK + 'kind = "lm studio"')
    assert sentence.startswith('config.toml:3:1: profiles.work.kind must be empty or one of "llama.cpp", ')
    assert '"lmstudio"' in sentence
    assert sentence.endswith("; nothing is sent until that is corrected")


def test_a_profiles_name_with_a_dot_needs_quotes_and_is_told_so(file: Path) -> None:
    assert said(file, '[profiles.gpu.lab]\nbase_url = "http://h"')[0] == (
        "config.toml:1:1: unknown setting profiles.gpu.lab; a profile's name with a dot stands in quotes: "
        '[profiles."gpu.lab"]'
    )


def test_a_profile_without_an_address_is_left_out_and_the_others_stay(file: Path) -> None:
    file.write_text("[profiles.a]\nmodel = 'x'\n" + WORK + "[profiles.c]\nbase_url = 'http://c'\n")
    assert list(load(file)[0].profiles) == ["work", "c"]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('"X Team" = "a"', 'profiles.work.headers."X Team" is no name that a header can have'),
        ('"" = "a"', 'profiles.work.headers."" is no name that a header can have'),
        ('"X-A\\r\\nX-B" = "a"', "is no name that a header can have"),
        ('Content-Length = "3"', "profiles.work.headers.Content-Length cannot be set: kvchat sends this header itself"),
        ('host = "h"', "profiles.work.headers.host cannot be set: kvchat sends this header itself"),
        (
            'x-conversation-id = "c"',
            "profiles.work.headers.x-conversation-id cannot be set: with it, llama.cpp goes on "
            "with an answer that was stopped",
        ),
        ("X-Team = 3", "profiles.work.headers.X-Team must be a text in quotes"),
        ('X-Team = ""', "profiles.work.headers.X-Team must be a text of one line"),
        ('X-Team = "SECRET\\nX-B: c"', "profiles.work.headers.X-Team must be a text of one line"),
        ('X-Team = "SECRETé"', "profiles.work.headers.X-Team must be a text of one line"),
    ],
)
def test_a_wrong_header_is_told_without_its_value_and_the_others_are_sent(file: Path, line: str, sentence: str) -> None:
    (told,) = said(file, f'{WORK}[profiles.work.headers]\n{line}\nX-Good = "b"\n')
    assert told.startswith("config.toml:4:1: ")
    assert sentence in told
    assert "SECRET" not in told
    assert load(file)[0].profiles["work"].headers == {"X-Good": "b"}


def test_a_key_written_into_a_profile_is_refused_and_never_repeated(file: Path) -> None:
    (sentence,) = said(file, WORK + 'api_key = "sk-abcdef123456"')
    assert "environment variable" in sentence
    assert "sk-abcdef" not in sentence + repr(load(file)[0])


def test_commands_of_profiles_in_a_file_that_anyone_may_write_are_not_used(file: Path) -> None:
    file.write_text(f'[server]\napi_key_command = "pass x"\n{WORK}api_key_command = "pass y"\n')
    file.chmod(0o600)
    assert load(file)[0].profiles["work"].api_key_command == "pass y"
    file.chmod(0o666)
    settings, problems = load(file)
    assert [settings.server.api_key_command, settings.profiles["work"].api_key_command] == ["", ""]
    assert [str(problem).partition(" is not used: ")[0] for problem in problems] == [
        "config.toml:2:1: server.api_key_command",
        "config.toml:5:1: profiles.work.api_key_command",
    ]


def test_the_default_profile_can_be_given_for_a_run(file: Path) -> None:
    file.write_text(TWO)
    settings = load(file)[0]
    assert effective(settings, {"KVCHAT_DEFAULT_PROFILE": "gpu.lab"})[0].default_profile == "gpu.lab"
    assert effective(settings, {}, {"default_profile": ""})[0].default_profile == ""
    barred, problems = effective(settings, {"KVCHAT_DEFAULT_PROFILE": "gpu.lap"})
    sentence = (
        "KVCHAT_DEFAULT_PROFILE names no profile that can be used: gpu.lap (did you mean gpu.lab?); nothing is sent "
        "until that is corrected"
    )
    assert problems == [Problem(None, None, None, sentence, ("default_profile",))]
    assert (barred.default_profile, barred.server.wrong) == ("", {"default_profile": sentence})


def test_what_is_shown_hides_the_values_of_headers_and_loads_again(file: Path) -> None:
    file.write_text(TWO)
    settings = changed(load(file)[0], "profiles.work.proxy", "http://me:secret@proxy:3128")
    text = described(settings)
    assert "# headers: X-Team, Authorization (set; the values are not shown)\n" in text
    for hidden in ("Q0FOQVJZ", "secret"):
        assert hidden not in text + repr(settings)
    file.write_text(text)
    again, problems = load(file)
    assert problems == []
    work = replace(settings.profiles["work"], headers={}, proxy="http://proxy:3128")
    assert again == replace(settings, profiles={**settings.profiles, "work": work})
    assert list(again.profiles) == list(settings.profiles)


@pytest.mark.parametrize(
    ("name", "value", "before", "after"),
    [
        ("profiles.work.model", "m", '"qwen3-32b"', '"m"'),
        ("profiles.work.proxy", "http://p", "session_fields = []\n", 'session_fields = []\nproxy = "http://p"\n'),
        ("profiles.gpu.lab.timeout", 5, '"llm/me"\n', '"llm/me"\ntimeout = 5\n'),
        (
            "profiles.gpu.lab.parameters.seed",
            5,
            '"llm/me"\n',
            '"llm/me"\n\n[profiles."gpu.lab".parameters]\nseed = 5\n',
        ),
        ("profiles.new.base_url", "http://n", '"llm/me"\n', '"llm/me"\n\n[profiles.new]\nbase_url = "http://n"\n'),
        ("profiles.a.b.base_url", "http://n", '"llm/me"\n', '"llm/me"\n\n[profiles."a.b"]\nbase_url = "http://n"\n'),
        ("profiles.work.parameters.temperature", None, "temperature = 0.2\n", ""),
        ("profiles.work.session_headers", [], '["X-Session-ID", "X-Team-Session"]', "[]"),
        ("server.parameters.seed", 1, '"llm/me"\n', '"llm/me"\n\n[server.parameters]\nseed = 1\n'),
        ("default_profile", "gpu.lab", '"work"\n[server]', '"gpu.lab"\n[server]'),
    ],
)
def test_one_setting_of_a_profile_changes_and_nothing_else(
    file: Path, name: str, value: object, before: str, after: str
) -> None:
    file.write_text(TWO)
    save_setting(file, name, value)
    assert file.read_text() == TWO.replace(before, after)
    assert load(file)[1] == []


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("profiles.work.no_such", 1, "There is no setting profiles.work.no_such."),
        ("profiles.work", {}, "There is no setting profiles.work."),
        ("profiles.my box.base_url", "http://h", "There is no setting profiles.my box.base_url."),
        ("profiles.work.base_url", "foo", "profiles.work.base_url is not saved: it must be an address"),
        ("profiles.work.headers", {"Host": "SECRET"}, "profiles.work.headers is not saved: Host cannot be set"),
        ("profiles.work.headers", {"X-A": "SECRET\n"}, "profiles.work.headers is not saved: X-A must be a text of one"),
        ("parameters.extra", {"messages": []}, "parameters.extra is not saved: messages cannot be set"),
    ],
)
def test_what_does_not_fit_a_profile_is_not_saved(file: Path, name: str, value: object, sentence: str) -> None:
    file.write_text(TWO)
    with pytest.raises(ConfigError) as caught:
        save_setting(file, name, value)
    assert str(caught.value).startswith(sentence)
    assert "SECRET" not in str(caught.value)
    assert file.read_text() == TWO


def test_headers_are_saved_whole(file: Path) -> None:
    file.write_text(WORK)
    save_setting(file, "profiles.work.headers", {"X-Team": "a", "X.b": "c d"})
    assert load(file)[0].profiles["work"].headers == {"X-Team": "a", "X.b": "c d"}


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("server.model", ("server", "model")),
        ("server.parameters.stop", ("server", "parameters", "stop")),
        ("profiles.a.b.model", ("profiles", "a.b", "model")),
        ("profiles.a.parameters.stop", ("profiles", "a", "parameters", "stop")),
        ("profiles.parameters.model", ("profiles", "parameters", "model")),
        ("profiles.parameters.parameters.stop", ("profiles", "parameters", "parameters", "stop")),
    ],
)
def test_a_setting_is_found_by_the_name_that_sentences_use(path: str, key: tuple[str, ...]) -> None:
    assert key_of(path) == key


PROFILES = st.dictionaries(
    st.from_regex(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,8}", fullmatch=True),
    st.builds(
        ServerSettings,
        base_url=st.sampled_from(["http://h", "https://10.0.0.5:1/v1", "http://[::1]:8080"]),
        model=st.text(st.characters(exclude_categories=["C", "Z"]), max_size=9),
        kind=st.sampled_from(["", *kinds.KINDS]),
        locality=st.sampled_from(["auto", "local", "cloud"]),
        timeout=st.integers(0, 600),
        session_headers=st.none() | st.lists(st.sampled_from(["X-A", "x.b"]), max_size=2).map(tuple),
        session_fields=st.none() | st.lists(st.sampled_from(["user", "session_id"]), max_size=2).map(tuple),
        context_size=st.integers(0, 1 << 24),
        keep_alive=st.sampled_from(["", "-1", "5m", "1h30m", "600"]),
        parameters=st.builds(
            Parameters,
            temperature=st.none() | st.floats(0, 5),
            seed=st.none() | st.integers(-1, 2**31),
            stop=st.lists(st.sampled_from(["#", '"', "é"]), max_size=2).map(tuple),
            response_format=st.none() | st.just({"type": "json_object"}),
            extra=st.dictionaries(st.sampled_from(["a", "b.c", "é", ""]), st.integers(0, 9), max_size=2),
        ),
    ),
    max_size=4,
)


@hypothesis_settings(max_examples=100, deadline=None)
@given(PROFILES)
def test_any_profiles_come_back_from_what_is_shown(
    tmp_path_factory: pytest.TempPathFactory, profiles: dict[str, ServerSettings]
) -> None:
    file = tmp_path_factory.mktemp("shown") / "config.toml"
    settings = Settings(profiles={name: server for name, server in profiles.items() if not name.endswith(".gguf")})
    settings = replace(settings, default_profile=next(iter(settings.profiles), ""))
    file.write_text(described(settings), encoding="utf-8")
    again, problems = load(file)
    assert problems == []
    assert again == settings
    assert list(again.profiles) == list(settings.profiles)
