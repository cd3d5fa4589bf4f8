"""Files that name servers and other places: nothing is connected to or looked up but the server that the user gave,
over the import, the conversation in the app, and the next question."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hostile_exports import FORMS, changed

from egress import GUARD, guarded
from kvchat.store import Store
from terminal_output import Terminal
from toyserver import ToyServer, tokens

pytestmark = pytest.mark.process

FIELDS = ("server", "base_url", "api_base", "endpoint", "host", "url", "proxy", "profile", "provider", "webhook")


def with_addresses(form: str, folder: Path, foreign: str) -> Path:
    """A conversation of a format that names a server wherever something may stand."""
    how = FORMS[form]
    (folder / form).mkdir()
    value = how.value(folder / form)
    texts = f"see {foreign}/in-text ![lamp]({foreign}/image.png) <img src='{foreign}/tag.png'> @{foreign}/mention"

    def leaf(key: str, old: Any) -> Any:
        if key in ("text", "content", "parts", "prompt", "response") and isinstance(old, str) and old:
            return f"{old}\n\n{texts}"
        return foreign if key in ("model", "model_slug", "path", "url", "asset_pointer", "base64Url") else old

    def fields(one: Any) -> Any:
        if isinstance(one, list):
            return [fields(part) for part in one]
        if not isinstance(one, dict):
            return one
        parts = {name: fields(part) for name, part in one.items()}
        return parts if form == "llm" else parts | {name: foreign for name in FIELDS if name not in parts}

    if form == "lossless":  # what is said in it cannot be changed
        record = value["conversations"][0]["conversation"]
        record |= {"server": foreign, "model": foreign, "collections": ["work"], "retrieval": "always"}
        record["parameters"]["extra"] = dict.fromkeys(FIELDS, foreign)
        value["conversations"][0] |= dict.fromkeys(FIELDS, foreign)
    elif form == "oterm":
        value = changed(value, leaf)
    else:
        value = fields(changed(value, leaf)) if form != "llm" else changed(value, leaf)
    path = folder / f"{form}.export"
    how.write(value, path)
    return path


async def test_only_the_given_server_is_met(tmp_path: Path, own_folders: Path) -> None:
    heard = tmp_path / "heard"
    environment = os.environ | {
        "TERM": "xterm-256color",
        "COLORTERM": "truecolor",
        "KVCHAT_TEST_HEARD": str(heard),
    }
    async with ToyServer() as server, ToyServer() as foreign:
        server.on_chat(tokens("All well."))
        paths = [with_addresses(form, tmp_path, foreign.url) for form in FORMS]
        imported = await guarded(environment, "import", "--json", *map(str, paths))
        report = json.loads(imported.stdout)
        assert report["skipped"] == [] and report["new"] >= len(FORMS) - 1, report
        assert not heard.exists(), heard.read_text()
        store = Store.open(own_folders / "data")
        ids = [row.id for row in store.conversations()]
        store.close()
        with Terminal(["-c", GUARD, "--base-url", server.url], environment) as terminal:
            await terminal.shows("this machine")
            for _ in ids:
                await terminal.press("\x1b[6;5~")  # the next conversation
            await terminal.shows("typed last", "typed last")
            await terminal.press("\x15", "\x11")
            await terminal.ended()
        for id in ids:
            done = await guarded(environment, "ask", "--conversation", id, "--base-url", server.url, "And now?")
            assert "All well." in done.stdout, done.stderr
        assert foreign.visits == []
        own = int(server.url.rpartition(":")[2])
        assert {line for line in heard.read_text().splitlines() if f"{own}" not in line} == set()
