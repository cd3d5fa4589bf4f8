"""Every import format in every kind of harm: each file ends in conversations or in a sentence, and costs itself alone.

`KVCHAT_FULL=1` sends them at the size that an attacker would choose, one at a time, with `-s` for a line of each.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest
from hostile_exports import FORMS, FULL, KINDS, made

from import_samples import SAMPLES
from kvchat.chat import imports
from kvchat.chat.service import ChatService
from kvchat.config import Settings
from kvchat.prompt.message import Role, chained
from kvchat.store import Store
from kvchat.text.imports import why
from kvchat.transfer.importing import FORMATS
from kvchat.transfer.importing.files import FoundConversation, Missed
from kvchat.transfer.importing.import_process import FilesApart
from kvchat.transfer.importing.thread import ImportRefusal

LIMIT_S, LIMIT_OCTETS = 5.0, 1 << 30


class Recorded(FilesApart):
    """Keeps what was found."""

    items: list[FoundConversation | Missed]

    def __iter__(self) -> Iterator[FoundConversation | Missed]:
        for item in super().__iter__():
            self.items.append(item)
            yield item


def sound(store: Store, folder: Path) -> int:
    """How many conversations there are, each of them whole."""
    (path,) = folder.glob("*.db")
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []
    rows = store.conversations()
    for row in rows:
        tree = store.tree(row.id)
        assert row.head in tree and row.turns == sum(node.role is Role.USER for node in tree) > 0
        path_of_head = tree.path(row.head)
        assert path_of_head[0].role is Role.SYSTEM and path_of_head[0].digest == chained(b"", path_of_head[0].wire)
        for above, node in pairwise(path_of_head):
            assert node.digest == chained(above.digest, node.wire) and node.wire == node.message.wire()
            assert node.role is not above.role
    return len(rows)


def resident(files: FilesApart) -> int:
    """Bytes of memory that the process which reads has had at most, where the system tells."""
    try:
        status = Path(f"/proc/{files._process.pid if files._process else 0}/status").read_text()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM:"))


def test_all_formats_are_tried() -> None:
    assert {*FORMATS, "llama_trace"} == set(FORMS)


@pytest.mark.parametrize("form", FORMS)
async def test_each_is_a_sentence_or_conversations(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "files").mkdir()
    paths = {
        made(form, kind, tmp_path / "files" / f"export-{number:02}.json", full=False): kind
        for number, kind in enumerate(KINDS)
    }
    good = SAMPLES["claude"](tmp_path, 2)
    Recorded.items = []
    monkeypatch.setattr(imports, "FilesApart", Recorded)
    service = ChatService(Store.open(tmp_path / "data"), Settings())
    try:
        report = await service.imports.run([*paths, good])
        for path, kind in paths.items():
            of_it = [item for item in Recorded.items if path.name in item.file]
            assert of_it, f"nothing was said of {kind}"
            for item in of_it:
                if isinstance(item, Missed):
                    assert item.why.kind != ImportRefusal.FAULTY, f"{kind} met a format that did not expect it"
                    assert "\n" not in why(item.why)
        assert all("\n" not in line and "Traceback" not in line for line in report.lines())
        assert (
            sum(isinstance(item, FoundConversation) and item.file.startswith(good.name) for item in Recorded.items) == 2
        )
        count = sound(service.store, tmp_path / "data")
        assert count == report.made >= 2
        again = await service.imports.run([*paths, good])
        assert (again.made, again.grown) == (0, 0), "something had come in half"
        await service.imports.undo()
        assert sound(service.store, tmp_path / "data") == 0
    finally:
        await service.aclose()


@pytest.mark.slow
@pytest.mark.skipif(not FULL, reason="a quarter of an hour: run with KVCHAT_FULL=1")
@pytest.mark.parametrize("kind", KINDS if FULL else ["all"])
@pytest.mark.parametrize("form", FORMS if FULL else ["all"])
def test_large_ones_end_or_can_be_ended(form: str, kind: str, tmp_path: Path) -> None:
    path = made(form, kind, tmp_path / "export.json", full=True)
    files, items = FilesApart([path]), list[FoundConversation | Missed]()
    going = threading.Thread(target=lambda: items.extend(files), daemon=True)
    begun, peak = time.monotonic(), 0
    going.start()
    while going.is_alive() and time.monotonic() < begun + LIMIT_S:
        going.join(0.02)
        peak = max(peak, resident(files))
    stopped = time.monotonic()
    if is_late := going.is_alive():
        files.stop()
        going.join(LIMIT_S)
    ended = time.monotonic()
    found = sum(isinstance(item, FoundConversation) for item in items)
    reasons = ", ".join(sorted({item.why.kind for item in items if isinstance(item, Missed)}))
    size = path.stat().st_size / 1e6 if path.is_file() else 0
    print(
        f"\n| {form} | {kind} | {size:.1f} MB | {found} | {reasons} | "
        f"{f'stopped in {ended - stopped:.2f} s' if is_late else f'{ended - begun:.1f} s'} | {peak >> 20} MB |"
    )
    assert not going.is_alive()
    assert peak < LIMIT_OCTETS
    assert not files._process or not files._process.is_alive
