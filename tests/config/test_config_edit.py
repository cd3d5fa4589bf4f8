"""Saving a setting from the screen: the person's file stays theirs."""

from __future__ import annotations

import stat
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from kvchat.config import ConfigError, Settings, load
from kvchat.config.edit import save_setting
from kvchat.config.settings import OPTIONS, changed
from kvchat.config.show import described, example, table

MINE = """# my settings
theme   =  "kvchat-day"   # like paper

[server]  # the box upstairs
base_url = 'http://10.0.0.5:8080'

[keys]
export = "f11"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "settings" / "config.toml"
    path.parent.mkdir()
    path.write_text(MINE)
    return path


@pytest.mark.parametrize(
    ("name", "value", "before", "after"),
    [
        ("theme", "kvchat-paper", 'theme   =  "kvchat-day"   # like', 'theme   =  "kvchat-paper"   # like'),
        ("sidebar", False, "# like paper\n", "# like paper\nsidebar = false\n"),
        ("server.model", "qwen", "8080'\n", '8080\'\nmodel = "qwen"\n'),
        ("server.base_url", "http://h", "'http://10.0.0.5:8080'", '"http://h"'),
        ("engine.slots", 4, 'export = "f11"\n', 'export = "f11"\n\n[engine]\nslots = 4\n'),
        ("keys.transcript.edit", "x", 'export = "f11"\n', 'export = "f11"\n"transcript.edit" = "x"\n'),
        ("parameters.stop", ["a", 'b"'], 'export = "f11"\n', 'export = "f11"\n\n[parameters]\nstop = ["a", "b\\""]\n'),
        ("keys.export", None, 'export = "f11"\n', ""),
        ("engine.slots", None, "", ""),
    ],
)
def test_one_setting_changes_and_nothing_else(file: Path, name: str, value: object, before: str, after: str) -> None:
    save_setting(file, name, value)
    assert file.read_text() == MINE.replace(before, after)
    assert load(file)[1] == []


def test_a_file_is_made_with_its_folder_and_is_private(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "config.toml"
    save_setting(path, "theme", "kvchat-day")
    assert path.read_text() == 'theme = "kvchat-day"\n'
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.parent.parent.stat().st_mode) == 0o700
    assert [item.name for item in path.parent.iterdir()] == ["config.toml"]


def test_windows_line_ends_stay(file: Path) -> None:
    file.write_bytes(MINE.replace("\n", "\r\n").encode())
    save_setting(file, "server.model", "m")
    assert b'8080\'\r\nmodel = "m"\r\n' in file.read_bytes()
    assert b"\n" not in file.read_bytes().replace(b"\r\n", b"")


@pytest.mark.parametrize(
    "text",
    [
        'server = { base_url = "http://a" }',
        'server.base_url = "http://a"',
        '[server]\nbase_url = "http://a"',
        '[ "server" ]\n"base_url" = "http://a"\n',
    ],
)
def test_every_way_to_write_a_section_can_be_saved_to(file: Path, text: str) -> None:
    file.write_text(text)
    save_setting(file, "server.model", "m")
    save_setting(file, "server.base_url", "http://b")
    settings, problems = load(file)
    assert (settings.server.model, settings.server.base_url, problems) == ("m", "http://b", [])


def test_a_key_bound_in_a_nested_table_is_changed_in_place(file: Path) -> None:
    file.write_text('[keys]\ntranscript.edit = "x"\n')
    save_setting(file, "keys.transcript.edit", "z")
    assert file.read_text() == '[keys]\ntranscript.edit = "z"\n'


def test_a_multi_line_value_is_replaced_whole(file: Path) -> None:
    file.write_text('system_prompt = """\na = 1\n# x\n"""  # mine\nmouse = false\n')
    save_setting(file, "system_prompt", 'one\ntwo "q" \\ \u007f')
    assert load(file)[0].system_prompt == 'one\ntwo "q" \\ \u007f'
    assert file.read_text().endswith("  # mine\nmouse = false\n")


def test_a_commented_line_inside_a_text_is_not_taken_for_a_comment(file: Path) -> None:
    text = 'system_prompt = """\n# theme = 1\n"""\n'
    file.write_text(text)
    save_setting(file, "theme", "kvchat-day")
    assert file.read_text() == text + 'theme = "kvchat-day"\n'


def test_saving_into_the_example_puts_each_setting_below_its_words(file: Path) -> None:
    file.write_text(example())
    save_setting(file, "theme", "kvchat-day")
    save_setting(file, "parameters.temperature", 0.3)
    text = file.read_text()
    assert '# theme = "auto"\ntheme = "kvchat-day"\n' in text
    assert "# temperature = 0.7\ntemperature = 0.3\n" in text
    assert len(text.splitlines()) == len(example().splitlines()) + 2


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("no_such", 1, "There is no setting no_such."),
        ("engine.slots", 0, "engine.slots is not saved: it must be from 1 to 64."),
        ("mouse", "yes", "mouse is not saved: it must be true or false, not a text."),
        ("keys.export", 1, "keys.export is not saved: it must be a text of keys."),
        ("theme", "\ud800", "theme is not saved: "),
        ("parameters.extra", {"a": None}, "parameters.extra is not saved: a TOML file cannot hold null."),
        ("parameters.extra", {"a": [[None]]}, "parameters.extra is not saved: a TOML file cannot hold null."),
        ("parameters.response_format", {"n": {"a": None}}, "parameters.response_format is not saved: a TOML file"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_and_the_file_stays(
    file: Path,
    name: str,
    value: object,
    sentence: str,
) -> None:
    with pytest.raises(ConfigError, match=f"^{sentence}"):
        save_setting(file, name, value)
    assert file.read_text() == MINE


def test_a_broken_file_is_never_written(file: Path) -> None:
    file.write_text("theme = day  # my own words\n")
    with pytest.raises(ConfigError, match=r"^theme is not saved: config\.toml:1:9: not valid TOML"):
        save_setting(file, "theme", "kvchat-day")
    assert file.read_text() == "theme = day  # my own words\n"


def test_a_link_to_a_file_elsewhere_stays_a_link(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "linked.toml"
    link.symlink_to(file)
    save_setting(link, "theme", "kvchat-paper")
    assert link.is_symlink()
    assert "kvchat-paper" in file.read_text()


def test_a_failed_write_leaves_the_old_file_and_no_litter(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(ConfigError, match="no space left on device"):
        save_setting(file, "theme", "kvchat-paper")
    assert file.read_text() == MINE
    assert [item.name for item in file.parent.iterdir()] == ["config.toml"]


@pytest.mark.parametrize(
    ("before", "name", "value", "after"),
    [
        (
            "# a\n[parameters.extra]  # mine\nx = 1  # one\ny = 2\n",
            "parameters.extra",
            {"x": 3, "y": 2, "z": 4},
            "# a\n[parameters.extra]  # mine\nx = 3  # one\ny = 2\nz = 4\n",
        ),
        ("# a\n[parameters.extra]  # mine\nx = 1\n", "parameters.extra", None, "# a\n[parameters.extra]  # mine\n"),
        (
            "# a\nserver = {model = 'm'}  # mine\n",
            "server.kind",
            "ollama",
            '# a\nserver = {model = "m", kind = "ollama"}  # mine\n',
        ),
        ("# a\nparameters.extra.x = 1  # one\n", "parameters.extra", {"x": 2}, "# a\nparameters.extra.x = 2  # one\n"),
    ],
)
def test_comments_stay_in_tables_too(file: Path, before: str, name: str, value: object, after: str) -> None:
    file.write_text(before)
    save_setting(file, name, value)
    assert file.read_text() == after


def test_kvchats_that_save_at_the_same_time_do_not_undo_each_other(file: Path) -> None:
    names = [("notify", False), ("mouse", False), ("engine.slots", 4), ("cache.compact_at", 70), ("editor", "nano")]
    with ThreadPoolExecutor(len(names)) as windows:
        list(windows.map(lambda change: save_setting(file, *change), names))
    settings, problems = load(file)
    assert problems == [] and settings.theme == "kvchat-day"
    assert (settings.notify, settings.mouse, settings.engine.slots) == (False, False, 4)
    assert (settings.cache.compact_at, settings.editor) == (70, "nano")


SAVES = st.lists(
    st.one_of(
        st.tuples(st.just("theme"), st.text(st.characters(exclude_categories=["Cs"]), max_size=10)),
        st.tuples(st.just("system_prompt"), st.text(st.characters(exclude_categories=["Cs"]), max_size=20)),
        st.tuples(st.just("mouse"), st.booleans()),
        st.tuples(st.just("server.model"), st.sampled_from(["a", "# b", '"', None])),
        st.tuples(st.just("profiles.a-b.model"), st.sampled_from(["m", "# b", None])),
        st.tuples(st.just("profiles.a-b.headers"), st.sampled_from([{"X-A": "b"}, {"X-A": "c", "x.y": "d"}, None])),
        st.tuples(st.just("parameters.extra"), st.just({"a": {"b": [1, "x"]}})),
        st.tuples(st.just("engine.slots"), st.sampled_from([1, 2, None])),
        st.tuples(st.just("keys.transcript.edit"), st.sampled_from(["x", "é", None])),
    ),
    max_size=6,
)


@hypothesis_settings(max_examples=100, deadline=None)
@given(
    SAVES,
    st.sampled_from(
        [
            MINE,
            "",
            example(),
            "mouse = false",
            'keys.new = "f9"\n[server]\n[parameters]\nseed = 1',
            '[profiles.a-b] # mine\nbase_url = "http://h"\n[profiles.a-b.headers]\nx = "y"\n',
            'profiles.a-b = {}\nprofiles.c.model = "x"',
        ]
    ),
)
def test_after_any_saves_the_file_says_what_was_saved_last(
    tmp_path_factory: pytest.TempPathFactory,
    saves: list[tuple[str, object]],
    start: str,
) -> None:
    path = tmp_path_factory.mktemp("saves") / "config.toml"
    path.write_text(start)
    expected = tomllib.loads(start)
    for name, value in saves:
        save_setting(path, name, value)
        section, _, rest = name.partition(".")
        holder = expected.setdefault(section, {}) if rest else expected
        if section == "profiles":
            profile, _, rest = rest.partition(".")
            holder = holder.setdefault(profile, {})
        if value is None:
            holder.pop(rest, None)
        else:
            holder[rest or section] = value
    found = tomllib.loads(path.read_text(encoding="utf-8"))

    def filled(values: dict[str, object]) -> dict[str, object]:
        inner = {key: filled(value) if isinstance(value, dict) else value for key, value in values.items()}
        return {key: value for key, value in inner.items() if value != {}}

    assert filled(found) == filled(expected)


def test_the_example_is_a_file_of_defaults_and_names_every_setting(file: Path) -> None:
    file.write_text(example())
    assert load(file) == (Settings(), [])
    for option in OPTIONS:
        if option.name != "keys":
            assert f"# {option.name} = " in example()
    uncommented = "\n".join(
        line.removeprefix("# ")
        for line in example().splitlines()
        if "[" in line[:3] or (" = " in line and line[2:3].islower())
    )
    file.write_text(uncommented)
    settings, problems = load(file)
    assert problems == []
    assert list(settings.profiles) == [settings.default_profile] == ["work"]


def test_the_settings_in_use_can_be_shown_and_loaded_again(file: Path) -> None:
    settings = changed(Settings(), "theme", "kvchat-day")
    settings = changed(settings, "server.proxy", "http://me:secret@proxy:3128")
    settings = changed(settings, "parameters.extra", {"a": [1, {"b": "c"}]})
    settings = changed(settings, "keys", {"transcript.edit": "x"})
    text = described(settings)
    assert "secret" not in text
    file.write_text(text)
    again, problems = load(file)
    assert problems == []
    assert again == changed(settings, "server.proxy", "http://proxy:3128")


def test_the_table_for_the_documentation_has_a_row_for_every_setting() -> None:
    rows = table().splitlines()
    assert len(rows) == 2 + len(OPTIONS) + 2, "the settings of profiles, and the server's parameters, are not repeated"
    assert all(row.count("|") - row.count("\\|") == 4 for row in rows)
    assert "| `profiles.NAME.*` |" in table()
    assert '| `theme` | `"auto"` | The colours.' in table()
