"""The table of clients: what each has a llama.cpp server prefill, counted by the server.

    python tests/bench/clients install NAME...     # at the versions of catalogue.toml, with Node where it is needed
    python tests/bench/clients run NAME... [--case plain tools midnight hybrid] [--runs N]
    python tests/bench/clients table               # of the runs in the folder; --results: of results.json
    python tests/bench/clients keep                # write results.json and the tables of docs/clients.md from them
    python tests/bench/clients check               # what differs by more than 3 % from results.json

Each run is a fresh llama-server with a model that always gives the same eight tokens, a proxy that records, and a client
that is driven by keys or started for each message: five turns in a conversation, two in another, back to the first, the
client ended and started again, one more. NAME is a name in catalogue.toml, or `all`. Needs tmux, `uv sync`, and
libfaketime for the case `midnight`. Nothing but the installations leaves this machine.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))
from catalogue import Listed, catalogue
from play import CASES, Place, play
from table import differences, rows_in, summed_up, table, written

RESULTS = Path(__file__).parent / "results.json"
PAGE = Path(__file__).parents[3] / "docs" / "clients.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("act", choices=("install", "run", "table", "keep", "check"))
    parser.add_argument("names", nargs="*", metavar="NAME")
    folder = Path(tempfile.gettempdir()) / "kvchat-clients"
    parser.add_argument("--folder", type=Path, default=folder, help="installations, models and runs (%(default)s)")
    parser.add_argument("--case", nargs="+", choices=CASES, default=["plain"])
    parser.add_argument("--runs", type=int, help="instead of the catalogue's; what has run is not run again")
    parser.add_argument("--again", action="store_true", help="but for this")
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--host-cache", type=int, help="MiB of the server's RAM cache, instead of its own default")
    parser.add_argument("--results", action="store_true", help="the rows of results.json, not those of the folder")
    options = parser.parse_intermixed_args()
    known = catalogue()
    names = list(known) if options.names == ["all"] else options.names
    if unknown := set(names) - set(known):
        parser.error(f"not in catalogue.toml: {', '.join(sorted(unknown))}")
    place = Place(options.folder.resolve(), options.slots, options.host_cache)
    notes = {client.name: client.note for client in known.values()}
    match options.act:
        case "install":
            for name in names:
                _install(known[name], place)
        case "run":
            for case in options.case:
                for name in names:
                    _run(known[name], case, place, options.runs, again=options.again)
        case "table":
            rows = json.loads(RESULTS.read_text()) if options.results else summed_up(rows_in(place.folder))
            for case in CASES:
                if any(row["case"] == case for row in rows):
                    print(f"\n{case}\n\n{table(rows, case, notes)}")
        case "keep":
            rows = summed_up(rows_in(place.folder))
            lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
            RESULTS.write_text(f"[\n{lines}\n]\n")
            PAGE.write_text(written(PAGE.read_text(), rows, notes))
        case "check":
            found = differences(summed_up(rows_in(place.folder)), json.loads(RESULTS.read_text()))
            print("\n".join(found) or "each figure is within 3 %")
            sys.exit(bool(found))


def _install(client: Listed, place: Place) -> None:
    try:
        place.installations.install(client)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"{client.name}: {error}", file=sys.stderr)


def _run(client: Listed, case: str, place: Place, runs: int | None, *, again: bool) -> None:
    if case == "tools" and not client.call:
        print(f"{client.name}: no tool call in catalogue.toml", file=sys.stderr)
        return
    for number in range(1, (runs or (client.runs if case == "plain" else 1)) + 1):
        if (place.run(client, case, number) / "row.json").exists() and not again:
            continue
        try:
            row = play(client, case, number, place)
        except Exception:  # one client's fault does not end the others' runs
            print(f"{client.name}, {case}: failed", file=sys.stderr)
            traceback.print_exc()
        else:
            print(
                json.dumps({key: value for key, value in row.items() if key != "changes"}, ensure_ascii=False),
                flush=True,
            )


if __name__ == "__main__":
    main()
