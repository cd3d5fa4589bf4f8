"""Every gate of trust at its full size, as a table in Markdown: `make gates`.

A gate is a promise and the tests that hold it. Most of their tests run in CI too, with figures CI can wait for; here
they try as often as the gate asks. All of it takes hours; `--share 0.1` tries a tenth, `--only T1,D2` runs some.
G, what the tests reach of the parts that must not fail, needs pytest-cov.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

TESTS = Path(__file__).resolve().parent
USUAL = {
    "sse_streams": 100_000,
    "answer_streams": 600,
    "chaos": 300,
    "lists": 1_200,
    "store_kills": 100,
    "index_kills": 20,
    "kill_moments": 8,
    "act_kills": 6,
    "loop_kills": 6,
    "power_losses": 1_000,
    "hostile_strings": 300,
    "terminal_inputs": 3,
    "config_files": 2_000,
    "theme_files": 400,
    "mirror_turns": 40,
    "mcp_talks": 150,
    "key_walks": 12,
    "typed_sentences": 20,
    "mcp_reconnects": 12,
    "person_walks": 3,
}
"""What the tests try without being asked for more: a share goes no lower."""


class Gate(NamedTuple):
    """`tries`: how often its tests try, by the names that they give to `tries`."""

    name: str
    promise: str
    tests: str
    """Paths below `tests`."""
    tries: dict[str, int] = {}  # noqa: RUF012  a NamedTuple's default, and nobody writes to it


GATES = (
    Gate(
        "T1",
        "a stream means what the standard says, however it is cut",
        "backends/test_sse.py",
        {"sse_streams": 5_000_000},
    ),
    Gate(
        "T10",
        "however a server writes text, thoughts and calls, they are read as they are meant",
        "backends/test_grammar_of_streams.py",
        {"answer_streams": 100_000},
    ),
    Gate("T2", "captured answers end in the right state, with all their text", "backends/test_replay.py"),
    Gate("T3", "a stop closes the connection within 100 ms", "backends/test_cancel.py backends/test_transport.py"),
    Gate(
        "T4",
        "a question is posted once",
        "backends/test_posts.py backends/test_asked_again.py chat/test_queue.py",
    ),
    Gate("T5", "a broken line loses no text that came", "backends/test_chaos.py", {"chaos": 20_000}),
    Gate(
        "T6",
        "a real llama-server: closed, killed, stopped, overflowing",
        "backends/test_real_server.py chat/test_cancelled_slot.py engine/test_engine_process.py",
    ),
    Gate("T7", "half an hour of silence is waited through", "backends/test_watchdog.py"),
    Gate(
        "T8", "thousands of turns leave memory, files and tasks level", "chat/test_mirror.py", {"mirror_turns": 3_000}
    ),
    Gate(
        "D1",
        "kill -9 loses nothing acknowledged",
        "store/test_store_crash.py commandline/test_killed.py terminal/test_killed_in_every_act.py "
        "terminal/test_killed_in_loops.py",
        {"store_kills": 2_000, "kill_moments": 2_000, "act_kills": 2_000, "loop_kills": 500},
    ),
    Gate(
        "D2, D3",
        "neither does a power cut, or a fault at any I/O call",
        "store/test_power_loss.py",
        {"power_losses": 20_000},
    ),
    Gate(
        "D4",
        "eight processes write at once",
        "store/test_store_two_writers.py chat/test_two_processes.py",
    ),
    Gate("D5", "a full or read-only disk costs no text", "store/test_store_disk.py screens/test_quit_unsaved.py"),
    Gate(
        "D6",
        "a damaged database is set aside, and read as far as it can be",
        "store/test_store_damage.py store/test_store_salvage.py store/test_store_log.py store/test_store_backups.py",
    ),
    Gate(
        "D7",
        "a page of the memory is old or new, never half",
        "memory/test_folder.py memory/test_memory_crash.py memory/test_ledger.py",
    ),
    Gate(
        "D8",
        "kill -9 while documents are indexed loses and doubles nothing",
        "documents/test_documents_worker.py",
        {"index_kills": 100},
    ),
    Gate(
        "T9",
        "whatever list or error a server gives is read, or told in a sentence",
        "grammar/test_lists.py",
        {"lists": 200_000},
    ),
    Gate(
        "M1",
        "a call of an MCP server gives the right result or one sentence, and is carried out once",
        "grammar/test_mcp_talks.py tool_servers/test_client.py tool_servers/test_program.py",
        {"mcp_talks": 20_000, "mcp_reconnects": 200},
    ),
    Gate(
        "K1",
        "whatever is typed beside questions that open by themselves, a yes is meant and no letter is lost",
        "screens/test_grammar_of_keys.py screens/test_questions_in_app.py",
        {"key_walks": 4_000, "typed_sentences": 2_000},
    ),
    Gate(
        "S1",
        "nothing in a text reaches the terminal as a control",
        "screens/test_terminal_safety.py terminal/test_foreign_bytes.py",
        {"hostile_strings": 10_000, "terminal_inputs": 30},
    ),
    Gate("S2", "nothing in a text is taken for markup", "screens/test_screens_hostile.py"),
    Gate(
        "S3",
        "no connection but to the server chosen",
        "transfer/test_addresses_in_files.py commandline/test_tools_egress.py chat/test_web_tools.py",
    ),
    Gate(
        "S4",
        "an address is what it says",
        "backends/test_hosts.py backends/test_locality.py backends/test_locality_properties.py "
        "backends/test_locality_wire.py",
    ),
    Gate("S5", "keys stand in no log, export or crash", "config/test_logs.py config/test_config_secret.py"),
    Gate("S6", "files are the user's alone", "config/test_paths.py store/test_store_disk.py"),
    Gate("S7", "an exported page runs nothing", "transfer/test_export_html.py transfer/test_hostile_exports.py"),
    Gate(
        "S8",
        "a document gives no orders",
        "prompt/test_injection_corpus.py memory/test_vetting.py memory/test_others_words.py",
    ),
    Gate(
        "S9",
        "no settings file or theme ends kvchat",
        "config/test_config_fuzz.py config/test_themes.py",
        {"config_files": 20_000, "theme_files": 4_000},
    ),
    Gate(
        "K1",
        "whatever changes something was asked of what is marked on the screen, by a key meant for it",
        "screens/test_walks_of_a_person.py screens/test_letters_in_app.py",
        {"person_walks": 200},
    ),
)


COVERED = {
    "stream": "backends/http/stream.py",
    "transport": "backends/http/transport.py",
    "sanitize": "sanitize.py",
    "store": "store/",
    "prompt": "prompt/",
}
"""What tests must reach whole, by branches; paths below the package."""
COVERING = ("backends", "store", "prompt", "text", "chat", "transfer")
"""Folders of the tests that G runs."""


def asked(gate: Gate, share: float) -> dict[str, int]:
    return {name: max(USUAL[name], round(full * share)) for name, full in gate.tries.items()}


def run(gate: Gate, tries: dict[str, int]) -> tuple[str, float]:
    """What came of it, in words, and the minutes that it took."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "--timeout=0", "--tb=short", f"--junitxml={report}"]
        command += ["-m", "property or not property", *(str(TESTS / file) for file in gate.tests.split())]
        environment = os.environ | {"KVCHAT_TRIES": " ".join(f"{name}={times}" for name, times in tries.items())}
        environment.pop("CI", None)
        began = time.monotonic()
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        minutes = (time.monotonic() - began) / 60
        if not report.exists():
            return f"did not run: {done.stdout[-200:]}", minutes
        suite = next(ElementTree.parse(report).getroot().iter("testsuite")).attrib
    tests, failed = int(suite["tests"]), int(suite["failures"]) + int(suite["errors"])
    if failed:
        print(done.stdout, file=sys.stderr)
    skipped = int(suite["skipped"])
    parts = [
        f"{tests - failed - skipped} passed",
        f"{failed} failed" * bool(failed),
        f"{skipped} skipped" * bool(skipped),
    ]
    return ", ".join(filter(None, parts)), minutes


def coverage() -> str:
    """How much of `COVERED` the quick tests of `COVERING` reach: lines and branches, in percent."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "coverage.json"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "--timeout=0",
            "--cov=kvchat",
            "--cov-branch",
            f"--cov-report=json:{report}",
        ]
        subprocess.run(
            [*command, *(str(TESTS / name) for name in COVERING)],
            env=os.environ | {"COVERAGE_FILE": str(Path(folder) / "data")},
            capture_output=True,
            check=False,
        )
        files = json.loads(report.read_text())["files"]
    words = []
    for name, path in COVERED.items():
        sums = [found["summary"] for file, found in files.items() if f"kvchat/{path}" in file]
        reached = sum(one["covered_lines"] + one["covered_branches"] for one in sums)
        words.append(f"{name} {reached / sum(one['num_statements'] + one['num_branches'] for one in sums):.0%}")
    return ", ".join(words)


def tried(gate: Gate, tries: dict[str, int]) -> str:
    """`2,000 store_kills`, with what the gate asks where that is more."""
    words = []
    for name, times in tries.items():
        full = gate.tries[name]
        words.append(f"{times:,} {name.replace('_', ' ')}" + (f" [{full:,}]" if full > times else ""))
    return ", ".join(words)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=1.0, help="of the full figures")
    parser.add_argument("--only", default="", help="names of gates, with commas between them")
    options = parser.parse_args(arguments)
    print("| gate | promise | tried | tests | minutes |\n|---|---|---|---|--:|")
    failed = False
    for gate in GATES:
        if options.only and not set(options.only.split(",")) & set(gate.name.split(", ")):
            continue
        tries = asked(gate, options.share)
        result, minutes = run(gate, tries)
        failed |= "failed" in result or "did not run" in result
        print(f"| {gate.name} | {gate.promise} | {tried(gate, tries)} | {result} | {minutes:.1f} |", flush=True)
    if not options.only or "G" in options.only.split(","):
        began = time.monotonic()
        print(f"| G | tests reach every branch | {coverage()} | | {(time.monotonic() - began) / 60:.1f} |")
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
