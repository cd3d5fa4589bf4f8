"""Personas and snippets from files: what is right is used, what is wrong is told with its line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvchat.config.personas import load_personas, load_snippets
from kvchat.prompt.drafts import FIELD, filled
from kvchat.prompt.request import Parameters

WHOLE = """about = "Reviews code"
system_prompt = "You review code."
profile = "work"
model = "qwen"
first_message = "Review this: "
[parameters]
temperature = 0.2
extra = {mirostat = 2}
"""


def test_a_persona_has_all_that_its_file_says(tmp_path: Path) -> None:
    (tmp_path / "reviewer.toml").write_text(WHOLE)
    found, problems = load_personas(tmp_path)
    one = found["reviewer"]
    assert problems == []
    assert (one.name, one.about, one.system_prompt, one.profile, one.model, one.first_message) == (
        "reviewer",
        "Reviews code",
        "You review code.",
        "work",
        "qwen",
        "Review this: ",
    )
    assert one.parameters == Parameters(temperature=0.2, extra={"mirostat": 2})


@pytest.mark.parametrize(
    ("text", "said", "is_used"),
    [
        (
            "system_prompt = You",
            "one.toml:1:17: not valid TOML: there is no value here that TOML knows (a text needs "
            "quotes; true and false are lower case); this persona is left out",
            False,
        ),
        (
            'system_promt = "x"\nmodel = "m"',
            "one.toml:1:1: unknown setting system_promt; did you mean system_prompt?",
            True,
        ),
        (
            'model = "m"\ncolour = 1',
            "one.toml:2:1: unknown setting colour; a persona has about, system_prompt, profile, "
            "model, tools, first_message, [parameters]",
            True,
        ),
        (
            'model = "m"\n[parameters]\ntop_p = 7',
            "one.toml:3:1: parameters.top_p must be from 0 to 1; it is left out",
            True,
        ),
        (
            'model = "m"\n[parameters.extra]\nmessages = 1',
            "one.toml:3:1: parameters.extra.messages cannot be set: kvchat sends this field itself",
            True,
        ),
        ("model = 3\n", "one.toml:1:1: model must be a text in quotes, not a whole number; it is left out", False),
        ("", "one.toml: says nothing: it needs system_prompt; this persona is left out", False),
    ],
)
def test_a_mistake_is_told_with_its_place_and_the_rest_works(
    tmp_path: Path,
    text: str,
    said: str,
    is_used: bool,
) -> None:
    (tmp_path / "one.toml").write_text(text)
    (tmp_path / "two.toml").write_text(WHOLE)
    found, problems = load_personas(tmp_path)
    assert said in [str(problem) for problem in problems]
    assert ("one" in found, "two" in found) == (is_used, True)


def test_a_number_of_400_digits_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "one.toml").write_text(f'system_prompt = "x"\n[parameters]\ntop_p = {"9" * 400}\n')
    found, problems = load_personas(tmp_path)
    assert "one" in found
    assert list(map(str, problems)) == ["one.toml:3:1: parameters.top_p must be from 0 to 1; it is left out"]


def test_files_that_are_none_are_told_and_a_missing_folder_is_nothing(tmp_path: Path) -> None:
    assert load_personas(tmp_path / "none") == ({}, [])
    (tmp_path / "a b.toml").write_text('system_prompt = "x"')
    (tmp_path / "large.toml").write_text(f'system_prompt = "{"x" * 70_000}"')
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "folder.toml").mkdir()
    found, problems = load_personas(tmp_path)
    assert found == {} and len(problems) == 4


def test_a_snippet_is_a_text_with_fields(tmp_path: Path) -> None:
    (tmp_path / "explain.toml").write_text('text = "Explain {{topic}} to a {{ reader }}. {{topic}}!"')
    (tmp_path / "empty.toml").write_text('about = "nothing"')
    found, problems = load_snippets(tmp_path)
    assert [str(problem) for problem in problems] == [
        "empty.toml: says nothing: it needs text; this snippet is left out"
    ]
    text = found["explain"].text
    assert filled(text, "monads") == "Explain monads to a {{ reader }}. monads!"
    assert filled(text, "") == text
    assert filled("Be brief.\n", "Why?") == "Be brief.\n\nWhy?"


@given(st.text(), st.text())
def test_the_words_that_fill_a_field_stay_as_they_are(before: str, words: str) -> None:
    """Neither a backslash nor a field in them means anything."""
    text = before.replace("{", "").replace("}", "") + "{{x}}"
    assert filled(text, words) == (text[:-5] + words if words else text)
    assert FIELD.search(text)
