"""Paths as they are shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvchat.text.format import home_path


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("{home}/notes/a.md", "~/notes/a.md"),
        ("{real}/notes/a.md", "~/notes/a.md"),
        ("{home}", "{home}"),
        ("{home}body/a.md", "{home}body/a.md"),
        ("/srv/a.md", "/srv/a.md"),
        ("notes/a.md", "notes/a.md"),
        ("{home}/a\n\x1bb", "~/a ␛b"),
    ],
)
def test_a_path_below_the_home_folder_has_a_tilde(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, shown: str
) -> None:
    """The real folder too: what leads out of the working folder is named by where it really is."""
    home, real = tmp_path / "link", tmp_path / "disk"
    real.mkdir()
    home.symlink_to(real)
    monkeypatch.setenv("HOME", str(home))
    assert home_path(path.format(home=home, real=real)) == shown.format(home=home)
