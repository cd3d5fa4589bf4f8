"""Names that earlier versions stored, and what they are called now.

The rule: old data, scripts and exports are read by these names for ever; what is written has the new ones.
"""

from __future__ import annotations

from collections.abc import Mapping

CAUSES: dict[str, str] = {
    "server restarted": "restarted",
    "model unloaded": "unloaded",
    "other model": "other_model",
    "not reported": "not_reported",
    "caching off": "caching_off",
    "our bytes changed": "our_bytes",
    "prompt cut": "cut",
    "context shifted": "shifted",
    "reasoning dropped": "reasoning",
    "template changed the prompt": "template",
    "reply re-tokenised": "retokenised",
    "cancelled request": "cancelled",
    "own side request": "own_request",
    "another client": "other_client",
    "slot taken": "slot_taken",
    "parked, not looked up": "not_looked_up",
    "cache memory full": "cache_full",
    "checkpoint limit": "checkpoint",
    "block size": "blocks",
}
"""Causes of wasted tokens, until version 5 of the database: their names on the screen were stored."""

EXPORT_FIELDS: dict[str, str] = {"searching": "retrieval"}
"""Fields of the lossless export, until version 6 of the database."""

JOB_STATES: dict[str, str] = {"parked": "paused"}
"""States of jobs in the database, until version 6 of it."""

STATUSES: dict[str, str] = {"proposed": "pending"}
"""Statuses of memories in the database and on the command line, until version 6 of the database."""

THEME_KEYS: dict[str, str] = {"cache-reused": "cache-cached", "cache-avoidable": "cache-wasted"}
"""Variables of themes, until version 6 of the database."""

JSON_FIELDS: dict[str, str] = {
    "avoidable_tokens": "wasted_tokens",
    "avoidable": "wasted",
    "reused": "cached",
    "reread": "to_prefill",
}
"""Fields of what `--json` prints, until version 6 of the database; printed beside the new ones."""


def with_old_names(found: Mapping[str, object]) -> dict[str, object]:
    """An object of `--json` for scripts that know its fields by their old names too."""
    return {**found, **{old: found[new] for old, new in JSON_FIELDS.items() if new in found}}


def renamed(names: Mapping[str, str]) -> str:
    """What a person is told who uses these old names; of each what it is called now."""
    return f"{', '.join(f'{old} is called {new} now' for old, new in names.items())}; old names still work"
