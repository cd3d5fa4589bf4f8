"""The themes that come with kvchat can be read by everyone, and a theme of one's own cannot break it."""

from __future__ import annotations

import random
from itertools import combinations
from pathlib import Path

import pytest
from textual.app import App, ComposeResult
from textual.theme import BUILTIN_THEMES, Theme
from textual.widgets import Static

from corpus import corpus
from kvchat.config import Settings
from kvchat.config.settings import BY_PATH
from kvchat.config.themes import AUTOMATIC, OWN_VARIABLES, load_theme, load_themes, own_theme, variable_defaults
from kvchat.paths import own_themes
from kvchat.ui.themes import DARK_THEME, LIGHT_THEME
from kvchat.ui.tones import TONES as TEXT_TONES
from tries import tries

THEMES, PROBLEMS = load_themes([own_themes()])
GROUNDS = ("background", "surface", "panel", "code-background")
TEXTS = (
    "foreground",
    "primary",
    "secondary",
    "accent",
    "success",
    "warning",
    "error",
    "text-muted",
    "link-color",
    "role-user",
    "role-assistant",
    "text-primary",
    "text-accent",
    "text-success",
    "text-warning",
    "text-error",
    "footer-key-foreground",
    "footer-description-foreground",
)
TONES = ("cache-cached", "cache-evaluated", "cache-wasted")


def colours(theme: Theme) -> dict[str, str]:
    return {**variable_defaults(theme), **theme.to_color_system().generate(), **theme.variables}


def luminance(colour: str) -> float:
    parts = [int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """The WCAG contrast ratio."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def mixed(colour: str, ground: str, share: float) -> str:
    """`$foreground 60%` on a ground."""
    parts = [(int(colour[i : i + 2], 16) * share + int(ground[i : i + 2], 16) * (1 - share)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(part):02x}" for part in parts)


def test_all_our_themes_load_without_a_problem() -> None:
    assert PROBLEMS == []
    assert {"kvchat-night", "kvchat-ember", "kvchat-day", "kvchat-paper", "kvchat-contrast", "kvchat-phosphor"} == set(
        THEMES
    )
    assert sum(theme.dark for theme in THEMES.values()) == 4
    assert Settings().theme == AUTOMATIC
    assert not THEMES[LIGHT_THEME].dark and THEMES[DARK_THEME].dark
    help = BY_PATH["theme"].spec.doc
    assert LIGHT_THEME in help and DARK_THEME in help
    assert all((own_themes() / f"{name}.toml").is_file() for name in THEMES)


@pytest.mark.parametrize("name", THEMES)
def test_every_text_stands_out_from_every_ground(name: str) -> None:
    found = colours(THEMES[name])
    least = 7.0 if name == "kvchat-contrast" else 4.5
    weak = {
        (text, ground): round(contrast(found[text], found[ground]), 2)
        for text in TEXTS
        for ground in GROUNDS
        if contrast(found[text], found[ground]) < least
    }
    assert weak == {}


@pytest.mark.parametrize("name", THEMES)
def test_the_tones_of_the_cache_stand_out_and_differ(name: str) -> None:
    found = colours(THEMES[name])
    least = 7.0 if name == "kvchat-contrast" else 3.0
    assert all(contrast(found[tone], found[ground]) >= least for tone in TONES for ground in GROUNDS)
    for one, other in combinations(TONES, 2):
        distance = (
            sum((int(found[one][i : i + 2], 16) - int(found[other][i : i + 2], 16)) ** 2 for i in (1, 3, 5)) ** 0.5
        )
        assert distance > 60, (one, other)


SEEN = {
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.3039)),
    "no lack": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
}
"""What is seen of linear red, green and blue (Machado, Oliveira and Fernandes 2009, severity 1)."""


def oklab(colour: str, seen: str) -> tuple[float, float, float]:
    """A colour as it is seen, in a space in which distances are those of the eye (Ottosson 2020)."""
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in (int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5))
    ]
    red, green, blue = (min(1, max(0, sum(a * b for a, b in zip(row, linear, strict=True)))) for row in SEEN[seen])
    long = (0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue) ** (1 / 3)
    middle = (0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue) ** (1 / 3)
    short = (0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue) ** (1 / 3)
    return (
        0.2104542553 * long + 0.793617785 * middle - 0.0040720468 * short,
        1.9779984951 * long - 2.428592205 * middle + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * middle - 0.808675766 * short,
    )


def apart(one: str, other: str, seen: str = "no lack") -> float:
    return sum((a - b) ** 2 for a, b in zip(oklab(one, seen), oklab(other, seen), strict=True)) ** 0.5


@pytest.mark.parametrize("seen", SEEN)
@corpus("name", THEMES)
def test_the_colour_blind_tell_the_tones_of_the_cache_apart(name: str, seen: str) -> None:
    found = colours(THEMES[name])
    assert min(apart(found[one], found[other], seen) for one, other in combinations(TONES, 2)) >= 0.1


@pytest.mark.parametrize("name", THEMES)
def test_the_accent_and_waste_are_no_warnings(name: str) -> None:
    found = colours(THEMES[name])
    assert apart(found["accent"], found["warning"]) >= 0.09
    assert apart(found["cache-wasted"], found["warning"]) >= 0.15
    assert apart(found["cache-wasted"], found["error"]) >= 0.08
    assert min(apart(found["accent"], found[tone]) for tone in TONES) >= 0.1


def test_only_warnings_have_the_colour_of_warnings() -> None:
    found = {name for name, style in TEXT_TONES.items() if "warning" in str(style)}
    assert found == {"warning", "alert", "problem", "badge"}


@pytest.mark.parametrize("name", THEMES)
def test_selected_text_and_cursors_can_be_read(name: str) -> None:
    found = colours(THEMES[name])
    assert contrast(found["block-cursor-foreground"], found["block-cursor-background"]) >= 4.5
    assert contrast(found["block-cursor-blurred-foreground"], found["block-cursor-blurred-background"]) >= 4.5
    assert contrast(found["foreground"], found["input-selection-background"]) >= 4.5
    assert contrast(found["border"], found["background"]) >= 2.5
    assert contrast(found["text-disabled"], found["background"]) >= 3


@pytest.mark.parametrize("name", THEMES)
def test_foreground_at_two_thirds_is_still_a_text(name: str) -> None:
    found = colours(THEMES[name])
    for ground in GROUNDS:
        assert contrast(mixed(found["foreground"], found[ground], 0.66), found[ground]) >= 4.5


@corpus("theme", [*BUILTIN_THEMES.values(), Theme("bare", primary="#336699")])
def test_our_variables_have_a_value_in_every_theme(theme: Theme) -> None:
    assert variable_defaults(theme).keys() == OWN_VARIABLES
    assert all(variable_defaults(theme).values())


class Panel(App[None]):
    """A screen that uses every variable of ours."""

    CSS = (
        "\n".join(
            f"#{name} {{ color: ${name}; border-left: solid ${name}; background: ${name} 20%; }}"
            for name in OWN_VARIABLES
        )
        + "\nScreen { background: $background; color: $text-muted; }"
    )

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return variable_defaults(self.current_theme)

    def compose(self) -> ComposeResult:
        yield from (Static(name, id=name, markup=False) for name in OWN_VARIABLES)


async def test_the_app_takes_every_theme_while_it_runs() -> None:
    app = Panel()
    async with app.run_test() as pilot:
        for theme in THEMES.values():
            app.register_theme(theme)
        for name in [*THEMES, "nord", "textual-light", "ansi-dark"]:
            app.theme = name
            await pilot.pause()
            assert app.theme == name


GOOD = """name = "mine"
dark = true
[colours]
primary = "#336699"
foreground = "#eeeeee"
background = "#111"
"""


def said(folder: Path, text: str | bytes, name: str = "mine.toml") -> list[str]:
    (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return [str(problem) for problem in load_themes([folder])[1]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "themes").mkdir()
    return tmp_path / "themes"


def test_a_theme_of_ones_own_loads_beside_ours_and_may_replace_one(folder: Path) -> None:
    (folder / "mine.toml").write_text(GOOD)
    (folder / "night.toml").write_text(GOOD.replace("mine", "kvchat-night"))
    themes, problems = load_themes([own_themes(), folder])
    assert problems == []
    assert themes["mine"].primary == "#336699"
    assert themes["kvchat-night"].primary == "#336699"
    assert len(themes) == len(THEMES) + 1


def test_each_of_ours_is_found_by_its_name_alone(folder: Path) -> None:
    assert {name: own_theme(name) for name in THEMES} == THEMES
    assert own_theme("mine") is None


def test_both_spellings_of_colours_are_right(folder: Path) -> None:
    assert said(folder, GOOD.replace("colours", "colors")) == []


def test_a_folder_that_is_not_there_has_no_themes(tmp_path: Path) -> None:
    assert load_themes([tmp_path / "none"]) == ({}, [])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            GOOD + "accent = red",
            "7:10: not valid TOML: there is no value here that TOML knows (a text needs quotes; true "
            "and false are lower case); this theme is left out",
        ),
        (b"\xff\xfe", "1:1: this is not UTF-8, which the file must be saved as; this theme is left out"),
        ("x" * 70_000, " is larger than 64 KiB; this theme is left out"),
        (
            GOOD.replace('name = "mine"', ""),
            '1:1: a theme needs a name such as name = "my-theme"; this theme is left out',
        ),
        (
            GOOD.replace("mine", "My theme"),
            '1:1: a theme needs a name such as name = "my-theme"; this theme is left out',
        ),
        (GOOD.replace("foreground", "text"), "5:1: unknown colour text; it is left out"),
        (GOOD.replace("foreground", "forground"), "5:1: unknown colour forground; did you mean foreground?"),
        (GOOD.replace("#111", "black"), '6:1: background must be a colour such as "#7c9cf5"; it is left out'),
        (GOOD.replace('"#111"', "111"), '6:1: background must be a colour such as "#7c9cf5"; it is left out'),
    ],
)
def test_a_theme_that_cannot_be_used_is_left_out_with_its_line(folder: Path, text: str | bytes, sentence: str) -> None:
    assert f"mine.toml:{sentence}" in said(folder, text)
    (folder / "good.toml").write_text(GOOD.replace("mine", "good"))
    assert list(load_themes([folder])[0]) == ["good"]


@pytest.mark.parametrize(
    ("addition", "sentence"),
    [
        ('accent = "#12"', '7:1: accent must be a colour such as "#7c9cf5"; it is left out'),
        ('[variables]\n"cache-cachd" = "#fff"', "8:1: unknown variable cache-cachd; did you mean cache-cached?"),
        (
            '[variables]\ncache-cached = "#fff; } * { display: none"',
            '8:1: cache-cached must be a colour such as "#7c9cf5"; it is left out',
        ),
        (
            '[variables]\nlink-style = "bold; color: red"',
            '8:1: link-style must be a style such as "bold"; it is left out',
        ),
        ("[style]\nx = 1", "7:1: unknown setting style; a theme has name, dark, [colours], [variables]"),
    ],
)
def test_a_wrong_line_of_a_theme_is_left_out_and_the_theme_loads(folder: Path, addition: str, sentence: str) -> None:
    assert said(folder, GOOD + addition) == [f"mine.toml:{sentence}"]
    assert list(load_themes([folder])[0]) == ["mine"]


def test_variables_and_styles_reach_the_theme(folder: Path) -> None:
    (folder / "mine.toml").write_text(
        GOOD + '[variables]\ncache-cached = "#00ff00"\nlink-style = "bold not underline"\n'
    )
    theme, problems = load_theme(folder / "mine.toml")
    assert problems == []
    assert theme is not None
    assert theme.variables == {"cache-cached": "#00ff00", "link-style": "bold not underline"}


def test_two_themes_of_one_name_are_told(folder: Path) -> None:
    (folder / "a.toml").write_text(GOOD)
    assert said(folder, GOOD, "b.toml") == ["b.toml:1:1: a.toml has the name mine too; this theme is left out"]


def test_a_folder_of_very_many_files_is_bounded(folder: Path) -> None:
    for number in range(205):
        (folder / f"t{number:03}.toml").write_text(GOOD.replace("mine", f"t{number}"))
    themes, problems = load_themes([folder])
    assert len(themes) == 200
    assert [str(problem) for problem in problems] == ["themes: holds 205 themes; the first 200 are loaded"]


def test_mutated_themes_never_crash_and_what_loads_can_be_shown(folder: Path) -> None:
    rng = random.Random(7)
    whole = (own_themes() / "kvchat-night.toml").read_text()
    path = folder / "mine.toml"
    loaded = 0
    for _ in range(tries("theme_files", 400)):
        text = whole
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(text))
            text = (
                text[:at]
                + rng.choice(['"', "#", "=", "[", "]", "\n", "x", "0", "", "\x00", "ü", "bold"])
                + text[at + rng.randint(0, 3) :]
            )
        path.write_text(text, encoding="utf-8")
        theme, problems = load_theme(path)
        assert all(problem.line is not None for problem in problems)
        if theme is not None:
            loaded += 1
            assert variable_defaults(theme)
            assert theme.to_color_system().generate()
        else:
            assert problems
    assert 50 < loaded < 400


@pytest.mark.parametrize(
    "copy",
    [
        "night.sync-conflict-20261101-101010-ABCDEFG.toml",
        "night (conflicted copy 2026-11-01 101010).toml",
        "night (Mac's conflicted copy 2026-11-01).toml",
        "night-DESKTOP-2.toml",
        "night 2.toml",
        "night (1).toml",
        "a-copy.toml",
    ],
)
@pytest.mark.parametrize("name", ["night", "tower"])
def test_another_version_of_a_theme_never_stands_before_it(tmp_path: Path, copy: str, name: str) -> None:
    text = f'name = "{name}"\n[colours]\nprimary = "#%s"\nforeground = "#ffffff"\nbackground = "#000000"\n'
    (tmp_path / "night.toml").write_text(text % "112233")
    (tmp_path / copy).write_text(text % "445566")
    themes, problems = load_themes([tmp_path])
    if (copy, name) == ("a-copy.toml", "tower"):
        return  # neither is called like it, and nothing says which was first
    assert themes[name].primary == "#112233"
    assert [problem.file and problem.file.name for problem in problems] == [copy]


def test_another_version_is_not_taken_where_the_theme_is_broken(tmp_path: Path) -> None:
    (tmp_path / "night.toml").write_text("name =")
    copy = tmp_path / "night (conflicted copy 2026-11-01).toml"
    copy.write_text('name = "night"\n[colours]\nprimary = "#112233"\nforeground = "#ffffff"\nbackground = "#000000"\n')
    themes, problems = load_themes([tmp_path])
    assert not themes and {problem.file for problem in problems} == {copy, tmp_path / "night.toml"}
