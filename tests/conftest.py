"""What every test stands on: its own folders, a calm terminal, and no settings of the person who runs it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # helpers beside this file: toyserver, engine_fixture

for name in ("NO_COLOR", "TEXTUAL_THEME", "KVCHAT_BASE_URL", "KVCHAT_DATA_DIR", "KVCHAT_CONFIG", "EDITOR", "VISUAL"):
    os.environ.pop(name, None)
os.environ["TEXTUAL_ANIMATIONS"] = "none"
os.environ["TZ"] = "UTC"


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Data, settings and home in a folder of this test alone."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("KVCHAT_DATA_DIR", str(home / "data"))
    monkeypatch.setenv("KVCHAT_CONFIG", str(home / "config" / "config.toml"))
    for variable in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    return home
