"""A settings file as a person may write it: what is right is used, what is wrong is told with its place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from corpus import corpus
from kvchat.config import Problem, ServerSettings, Settings, effective, load
from kvchat.config.option import as_text, from_text
from kvchat.config.settings import PARAMETERS
from kvchat.prompt.request import Parameters


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


def said(file: Path, text: str | bytes) -> list[str]:
    """The problems of a file with this content, as they are printed."""
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return [str(problem) for problem in load(file)[1]]


def test_a_file_that_does_not_exist_gives_the_defaults_and_no_problem(file: Path) -> None:
    assert load(file) == (Settings(), [])


def test_every_kind_of_setting_is_read(file: Path) -> None:
    file.write_text("""
        theme = "kvchat-day"
        enter_sends = false
        time_stamp_minutes = 30
        [server]
        base_url = "http://10.0.0.5:8080/v1"
        [engine]
        context_size = 4096
        [parameters]
        temperature = 1
        top_k = 20
        stop = ["###", "END"]
        extra = { mirostat = 2, dry = { base = 1.75 } }
        [keys]
        export = "f11"
        search = ["ctrl+r", "f6"]
        transcript.edit = "x"
        "transcript.copy" = "c"
    """)
    settings, problems = load(file)
    assert problems == []
    assert (settings.theme, settings.enter_sends, settings.time_stamp_minutes) == ("kvchat-day", False, 30)
    assert settings.server.base_url == "http://10.0.0.5:8080/v1"
    assert settings.engine.context_size == 4096
    assert settings.parameters == Parameters(
        temperature=1.0, top_k=20, stop=("###", "END"), extra={"mirostat": 2, "dry": {"base": 1.75}}
    )
    assert settings.keys == {"export": "f11", "search": "ctrl+r,f6", "transcript.edit": "x", "transcript.copy": "c"}


def test_a_byte_order_mark_and_windows_line_ends_are_no_problem(file: Path) -> None:
    file.write_bytes(b'\xef\xbb\xbftheme = "kvchat-day"\r\n[server]\r\nmodel = "m"\r\n')
    settings, problems = load(file)
    assert (settings.theme, settings.server.model, problems) == ("kvchat-day", "m", [])


def test_what_is_wrong_is_left_at_its_default_and_the_rest_is_used(file: Path) -> None:
    file.write_text('sidebar = "no"\ntheme = "kvchat-day"\n[parameters]\ntop_p = 7\nseed = 4\n')
    settings, problems = load(file)
    assert settings.sidebar is True
    assert settings.theme == "kvchat-day"
    assert settings.parameters == Parameters(seed=4)
    assert [problem.line for problem in problems] == [1, 4]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "theme = day",
            "1:9: not valid TOML: there is no value here that TOML knows (a text needs quotes; true and false "
            "are lower case); nothing is sent until that is corrected",
        ),
        (
            "\n theme",
            "2:7: not valid TOML: a key needs = and a value after it; nothing is sent until that is corrected",
        ),
        (
            'theme = "day',
            "1:13: not valid TOML: a text is not closed, it needs a quote at its end; nothing is sent until that is corrected",
        ),
        (
            "a = [1,\n2",
            "2:2: not valid TOML: a list is not closed, it needs a ] at its end; nothing is sent until that is corrected",
        ),
        (
            "sidebar = true true",
            "1:16: not valid TOML: there is something left behind the value (a text needs quotes, and "
            "each setting its own line); nothing is sent until that is corrected",
        ),
        (
            "mouse = true\nmouse = true",
            "2:13: not valid TOML: this is set twice, one of the two must go; nothing is sent until that is corrected",
        ),
        (
            "[server]\n[server]",
            "2:8: not valid TOML: cannot declare ('server',) twice; nothing is sent until that is corrected",
        ),
    ],
)
def test_a_syntax_error_is_told_with_line_and_column(file: Path, text: str, sentence: str) -> None:
    assert said(file, text) == [f"config.toml:{sentence}"]
    barred = ServerSettings(wrong={"server": f"config.toml:{sentence}"})
    assert load(file)[0] == Settings(server=barred)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('them = "x"', "1:1: unknown setting them; did you mean theme?"),
        ('[server]\nmodle = "x"', "2:1: unknown setting server.modle; did you mean server.model?"),
        ("[servr]", "1:1: unknown section [servr]; did you mean [server]?"),
        ("quite_other = 1", "1:1: unknown setting quite_other; it is not used"),
        ('base_url = "http://x"', "1:1: unknown setting base_url; base_url belongs under [server]"),
        (
            '[engine]\ntheme = "x"',
            "2:1: unknown setting engine.theme; theme belongs at the top, above the first [section]",
        ),
        ("theme = 3", '1:1: theme must be a text in quotes, not a whole number; the default, "auto", is used'),
        ('sidebar = "yes"', "1:1: sidebar must be true or false, not a text; the default, true, is used"),
        ("mouse = 1979-05-27", "1:1: mouse must be true or false, not a date or time; the default, true, is used"),
        (
            "time_stamp_minutes = true",
            "1:1: time_stamp_minutes must be a whole number, not true or false; the default, 10, is used",
        ),
        ("time_stamp_minutes = 0", "1:1: time_stamp_minutes must be from 1 to 10080; the default, 10, is used"),
        (
            "[engine]\n\n# x\ncontext_size = 8192.0",
            "4:1: engine.context_size must be a whole number, not a number with a fraction; the default, 0, is used",
        ),
        ("[parameters]\ntop_p = 3", "2:1: parameters.top_p must be from 0 to 1; it is left out"),
        (
            f"time_stamp_minutes = {'9' * 400}",
            "1:1: time_stamp_minutes must be from 1 to 10080; the default, 10, is used",
        ),
        (f"[parameters]\ntemperature = {'9' * 400}", "2:1: parameters.temperature must be from 0 to 5; it is left out"),
        (f"[parameters]\nseed = -{'9' * 400}", "2:1: parameters.seed must be from -1 to 4294967295; it is left out"),
        (
            f"[parameters.extra]\nx = [{{y = {'9' * 400}}}]",
            "1:1: parameters.extra must not hold nan, inf or a whole number of more than 64 bits; the default, {}, is used",
        ),
        ("[parameters]\ntemperature = nan", "2:1: parameters.temperature must be from 0 to 5; it is left out"),
        ("[parameters]\nstop = [1]", "2:1: parameters.stop must be a list of texts, not a list; it is left out"),
        (
            "[parameters]\nextra = 1",
            "2:1: parameters.extra must be a table, not a whole number; the default, {}, is used",
        ),
        (
            "[parameters.extra]\nx = inf",
            "1:1: parameters.extra must not hold nan, inf or a whole number of more than 64 bits; the default, {}, is used",
        ),
        (
            '[parameters.extra]\nmodel = "x"',
            "2:1: parameters.extra.model cannot be set: kvchat sends this field itself",
        ),
        (
            '[server]\nbase_url = "foo"',
            '2:1: server.base_url must be an address such as "http://127.0.0.1:9931"; nothing is sent until that is corrected',
        ),
        (
            '[server]\nproxy = "x"',
            '2:1: server.proxy must be an address such as "http://127.0.0.1:3128"; nothing is sent until that is corrected',
        ),
        (
            '[server]\napi_key_command = "pass \'x"',
            "2:1: server.api_key_command has a quote that is not closed; nothing is sent until that is corrected",
        ),
        ("server = 1", "1:1: server must be a section: [server] on a line of its own, its settings below"),
        (
            "keys = 1",
            "1:1: keys must be a table of actions and their keys, not a whole number; the default, {}, is used",
        ),
        ("[keys]\nexport = 4", '2:1: keys.export must be a text of keys, such as "ctrl+x, f5"; the default is used'),
    ],
)
def test_a_wrong_setting_is_told_with_its_line(file: Path, text: str, sentence: str) -> None:
    assert said(file, text) == [f"config.toml:{sentence}"]


def test_fields_that_kvchat_sends_itself_do_not_reach_the_parameters(file: Path) -> None:
    file.write_text("[parameters.extra]\nmessages = []\nstream = false\nmirostat = 2\n")
    assert load(file)[0].parameters.extra == {"mirostat": 2}


@pytest.mark.parametrize(
    "text",
    [
        '[server]\napi_key = "sk-abcdef123456"',
        '[server]\napi_key_env = "sk-abcdef123456"',
        'api_key = "sk-abcdef123456"',
    ],
)
def test_a_key_written_into_the_file_is_refused_and_never_repeated(file: Path, text: str) -> None:
    (sentence,) = said(file, text)
    assert "environment variable" in sentence
    assert "sk-abcdef" not in sentence + repr(load(file)[0])


def test_a_file_that_is_not_utf_8_is_told_with_the_line_of_the_first_wrong_byte(file: Path) -> None:
    assert said(file, b'mouse = true\ntheme = "\xe4"\n') == [
        "config.toml:2:10: this is not UTF-8, which the file must be saved as; nothing is sent until that is corrected"
    ]


def test_a_file_that_is_too_large_is_not_read(file: Path) -> None:
    assert said(file, "# x\n" * 70_000) == [
        "config.toml: is larger than 256 KiB; nothing is sent until that is corrected"
    ]


def test_a_folder_in_the_place_of_the_file_is_told(file: Path) -> None:
    file.mkdir()
    assert [str(problem) for problem in load(file)[1]] == [
        "config.toml: is not a file; nothing is sent until that is corrected"
    ]


def test_a_named_pipe_in_the_place_of_the_file_does_not_hang(file: Path) -> None:
    os.mkfifo(file)
    assert [str(problem) for problem in load(file)[1]] == [
        "config.toml: is not a file; nothing is sent until that is corrected"
    ]


def test_endless_nesting_is_told_with_its_line(file: Path) -> None:
    assert said(file, "mouse = true\nx = " + "[" * 20_000) == [
        "config.toml:2: too many lists or tables inside each other; nothing is sent until that is corrected"
    ]


def test_a_number_without_end_is_told_with_its_line(file: Path) -> None:
    assert said(file, "mouse = true\n[parameters]\nseed = " + "9" * 5_000) == [
        "config.toml:3: a number here is too long; nothing is sent until that is corrected"
    ]


@pytest.mark.parametrize("part", ["a", '"a" ', "'' "])
def test_a_key_of_many_parts_is_told_and_not_worked_on(file: Path, part: str) -> None:
    assert said(file, "mouse = true\nx." + ".".join([part] * 20_000) + " = 1") == [
        "config.toml:2:1: a key of too many parts; nothing is sent until that is corrected"
    ]


def test_a_key_of_some_parts_is_told_in_a_short_line(file: Path) -> None:
    assert said(file, ".".join(["a"] * 150) + " = 1") == ["config.toml:1:1: unknown section [a]; it is not used"]


def test_control_characters_in_a_name_do_not_reach_the_screen(file: Path) -> None:
    (sentence,) = said(file, '"\\u001b]52;c;eA==\\u0007" = 1')
    assert "\x1b" not in sentence
    assert "\x07" not in sentence


def test_a_command_in_a_file_that_anyone_may_write_is_not_used(file: Path) -> None:
    file.write_text('[server]\napi_key_command = "pass x"\n')
    file.chmod(0o600)
    assert load(file)[0].server.api_key_command == "pass x"
    file.chmod(0o666)
    settings, problems = load(file)
    assert settings.server.api_key_command == ""
    assert str(problems[0]).startswith("config.toml:2:1: server.api_key_command is not used: anyone may write to this")


def test_the_working_directory_has_no_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    Path("config.toml").write_text('theme = "kvchat-day"')
    assert load(tmp_path / "config.toml")[0].theme == "auto"


def test_the_environment_comes_before_the_file_and_the_command_line_before_both(file: Path) -> None:
    file.write_text('theme = "a"\n[server]\nmodel = "file"\nbase_url = "http://file"\n')
    env = {
        "KVCHAT_MODEL": "env",
        "KVCHAT_SERVER_BASE_URL": "http://env",
        "KVCHAT_MOUSE": "off",
        "KVCHAT_PARAMETERS_TEMPERATURE": "0.5",
        "KVCHAT_THEME": "",
    }
    overrides = {"server.model": "cli", "engine.slots": None, "engine.threads": 3}
    settings, problems = effective(load(file)[0], env, overrides)
    assert problems == []
    assert (settings.theme, settings.server.model, settings.server.base_url) == ("a", "cli", "http://env")
    assert (settings.mouse, settings.parameters.temperature, settings.engine.threads) == (False, 0.5, 3)


def test_a_wrong_variable_is_told_by_its_name() -> None:
    settings, problems = effective(
        Settings(), {"KVCHAT_MOUSE": "perhaps", "KVCHAT_ENGINE_SLOTS": "many"}, {"parameters.top_p": "2"}
    )
    assert settings == Settings()
    assert problems == [
        Problem(None, None, None, "KVCHAT_MOUSE must be true or false; it is not used"),
        Problem(None, None, None, "KVCHAT_ENGINE_SLOTS must be a whole number; it is not used"),
        Problem(None, None, None, "parameters.top_p must be from 0 to 1; it is not used"),
    ]


@corpus(
    ("name", "text", "value"),
    [
        ("stop", "END", ("END",)),
        ("stop", '["a", "b"]', ("a", "b")),
        ("stop", "[INST]", ("[INST]",)),
        ("stop", "[/INST]", ("[/INST]",)),
        ("stop", "[###", ("[###",)),
        ("response_format", "json", {"type": "json_object"}),
        ("response_format", '{"type": "x", "n": null}', {"type": "x", "n": None}),
        ("response_format", '{type = "x"}', {"type": "x"}),
        ("extra", "mirostat = 2", {"mirostat": 2}),
        ("extra", '{"mirostat": 2}', {"mirostat": 2}),
    ],
)
def test_a_list_or_a_table_in_a_field_is_written_as_in_the_file_or_as_json(name: str, text: str, value: object) -> None:
    spec = PARAMETERS[name]
    assert from_text(spec, text) == value
    assert from_text(spec, as_text(spec, value)) == value


def test_the_shape_of_answers_may_be_a_word_in_the_file(file: Path) -> None:
    file.write_text('[parameters]\nresponse_format = "JSON"\n')
    settings, problems = load(file)
    assert (settings.parameters.response_format, problems) == ({"type": "json_object"}, [])
    file.write_text('[parameters]\nresponse_format = "xml"\n')
    assert "parameters.response_format must be text, json or a table" in str(load(file)[1][0])
