"""What a person wrote for an earlier version goes on."""

from __future__ import annotations

from pathlib import Path

from kvchat.commands.keymap import keymap
from kvchat.config.load import load

OLD = Path(__file__).parents[1] / "fixtures" / "settings_of_old.toml"


def test_settings_and_keys_of_an_earlier_version_are_all_known_and_say_nothing() -> None:
    settings, problems = load(OLD)
    found, trouble = keymap(settings.keys, OLD)
    assert [str(problem) for problem in (*problems, *trouble)] == []
    assert len(settings.keys) == 55 and found["transcript.edit"] == "e"
