"""Hostile exports: every import format in every kind of harm that a file can do, made anew each time.

A format is a value of plain dicts and lists, and how it is written; a kind changes the value, the octets, or what lies
at the path. `size` makes the large ones: the tests use a small one, `FULL` is what an attacker would send.
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
import struct
import zipfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from transfer_samples import branched_conversation

import import_samples as samples
from kvchat.transfer.formats import render

FULL = bool(os.environ.get("KVCHAT_FULL"))


# -- formats ----------------------------------------------------------------------------------------------------------


def _rows(path: Path) -> dict[str, list[dict[str, object]]]:
    with closing(sqlite3.connect(path)) as db:
        db.row_factory = sqlite3.Row
        tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {table: [dict(row) for row in db.execute(f"SELECT * FROM {table}")] for table in tables}


def _database(value: Any, path: Path) -> None:
    """The tables of a value, whatever stands in them."""
    with closing(sqlite3.connect(path)) as db:
        for table, rows in value.items():
            names = list(dict.fromkeys(name for row in rows for name in row)) or ["id"]
            db.execute(f"CREATE TABLE {table}({', '.join(map(json.dumps, names))})")
            db.executemany(
                f"INSERT INTO {table} VALUES ({', '.join('?' * len(names))})",
                ([_cell(row.get(name)) for name in names] for row in rows),
            )
        db.commit()


def _cell(value: object) -> object:
    if isinstance(value, (dict, list, tuple)):
        return _json(value)
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass") if "\ud800" in value else value
    return float(value) if isinstance(value, int) and abs(value) >= 2**63 else value


def _yaml(value: Any, path: Path) -> None:
    lines = [f"model: {json.dumps(value.get('model'))}", "messages:"]
    for one in value.get("messages") or []:
        lines += [f"{'- ' if number == 0 else '  '}{key}: {_json(one[key])}" for number, key in enumerate(one)]
    path.write_text("\n".join(lines) + "\n", "utf-8", "surrogatepass")


def _json(value: object) -> str:
    """As JSON, with the numbers that Python does not write so far."""
    return json.dumps(value, ensure_ascii=False, default=str).replace('"number of 400 digits"', "9" * 400)


def _write_json(value: object, path: Path) -> None:
    path.write_text(_json(value), "utf-8", "surrogatepass")


def _write_trace(value: Any, path: Path) -> None:
    lines = [{"type": "session", **value["conv"]}, *({"type": "message", "message": one} for one in value["messages"])]
    path.write_text("".join(f"{_json(line)}\n" for line in lines), "utf-8", "surrogatepass")


def _llama(folder: Path) -> object:
    return {"conv": {"id": "llama-0", "name": "Night 0", "currNode": "b0.4"}, "messages": samples.llama_messages(0)}


def _openai(folder: Path) -> object:
    said = [("system", "Be brief."), ("user", "How many nights?"), ("assistant", "Watch 1: twenty-six.")]
    return {"title": "Night 0", "created": 1_760_000_000, "messages": [{"role": r, "content": c} for r, c in said]}


def _aichat(folder: Path) -> object:
    said = [("system", "Be brief."), ("user", "How many nights?"), ("assistant", "Watch 1: twenty-six.")]
    return {"model": "openai:gpt-4o-mini", "messages": [{"role": role, "content": text} for role, text in said]}


@dataclass(frozen=True)
class Form:
    """A format: a whole conversation of it, how it is written, and where its messages are in the value."""

    value: Callable[[Path], Any]
    write: Callable[[Any, Path], None]
    messages: tuple[str, ...]


FORMS = {
    "lossless": Form(
        lambda folder: json.loads(render("json", [branched_conversation()])), _write_json, ("conversations", "nodes")
    ),
    "chatgpt": Form(lambda folder: [samples.chatgpt_conversation(0)], _write_json, ("mapping",)),
    "claude": Form(lambda folder: [samples.claude_conversation(0)], _write_json, ("chat_messages",)),
    "open_webui": Form(
        lambda folder: [samples.open_webui_conversation(0)], _write_json, ("chat", "history", "messages")
    ),
    "llama_ui": Form(_llama, _write_json, ("messages",)),
    "llama_trace": Form(_llama, _write_trace, ("messages",)),
    "lm_studio": Form(lambda folder: samples.lm_studio_conversation(0), _write_json, ("messages",)),
    "openai": Form(_openai, _write_json, ("messages",)),
    "aichat": Form(_aichat, _yaml, ("messages",)),
    "oterm": Form(lambda folder: _rows(samples.oterm(folder, 1)), _database, ("message",)),
    "llm": Form(lambda folder: _rows(samples.llm(folder, 2)), _database, ("responses",)),
}


# -- what changes the value -------------------------------------------------------------------------------------------

IDS = {"id", "uuid", "hash", "convId", "conversation_id", "chat_id", "response_id", "thread_id"}
PARENTS = {"parent", "parentId", "parent_hash", "parent_message_hash", "currNode", "current_node", "currentId", "head"}
TIMES = {
    *("create_time", "update_time", "created_at", "updated_at", "timestamp", "createdAt", "datetime_utc", "created"),
    *("updated", "lastModified", "stepIdentifier"),
}
TEXTS = {"text", "content", "parts", "response", "prompt", "wire", "title", "name"}


def changed(value: Any, change: Callable[[str, Any], Any], key: str = "") -> Any:
    """The value with each leaf changed, which is given with the key that it stands under."""
    if isinstance(value, dict):
        return {name: changed(one, change, name) for name, one in value.items()}
    if isinstance(value, list):
        return [changed(one, change, key) for one in value]
    return change(key, value)


def under(keys: set[str], new: Any) -> Callable[[Any, Form, int], Any]:
    return lambda value, form, size: changed(value, lambda key, leaf: new if key in keys else leaf)


def missing(value: Any, form: Form, size: int) -> Any:
    """Every third field is not there."""
    count = 0

    def without(one: Any) -> Any:
        nonlocal count
        if isinstance(one, list):
            return [without(part) for part in one]
        if not isinstance(one, dict):
            return one
        kept = {}
        for name, field in one.items():
            count += 1
            if count % 3 or name in (form.messages[0], "mapping", "chat", "conv"):
                kept[name] = without(field)
        return kept

    return without(value)


def wrong_types(value: Any, form: Form, size: int) -> Any:
    others = [None, 1e308, True, "x", -1, [], {}, [[]], 0.5, {"x": [1]}]
    chance = random.Random(5)
    return changed(value, lambda key, leaf: chance.choice(others) if chance.random() < 0.5 else leaf)


def texts(make: Callable[[int], Any]) -> Callable[[Any, Form, int], Any]:
    """The first text that an answer holds becomes another."""

    def change(value: Any, form: Form, size: int) -> Any:
        new, is_done = make(size), False

        def leaf(key: str, old: Any) -> Any:
            nonlocal is_done
            if is_done or key not in TEXTS or not isinstance(old, str) or "atch 1" not in old:
                return old
            is_done = True
            return new

        return changed(value, leaf)

    return change


def _messages(value: Any, form: Form) -> Any:
    """The container of messages, list or dict."""
    for key in form.messages:
        value = (value[0] if isinstance(value, list) else value)[key]
        value = value[0] if isinstance(value, list) and key == "conversations" else value
    return value


def many(link: Callable[[int], int | None]) -> Callable[[Any, Form, int], Any]:
    """A message over and over, each below the one that `link` says."""

    def change(value: Any, form: Form, size: int) -> Any:
        held = _messages(value, form)
        one = dict(list(held.values() if isinstance(held, dict) else held)[-1])
        if size > 10**6:  # else a conversation is too long at once
            one = {}
        ids, parents = IDS & one.keys(), PARENTS & one.keys()
        copies = []
        for number in range(size):
            above = link(number)
            copy = {**one, **dict.fromkeys(ids, f"n{number}")}
            copies.append(copy | dict.fromkeys(parents, None if above is None else f"n{above}"))
        if isinstance(held, dict):
            held.clear()
            held.update((f"n{number}", copy) for number, copy in enumerate(copies))
        else:
            held[:] = copies
        return value

    return change


def objects(value: Any, form: Form, size: int) -> Any:
    held = _messages(value, form)
    one = list(held.values() if isinstance(held, dict) else held)[-1]
    one["more"] = [{}] * size
    return value


def _attachment(size: int) -> list[object]:
    url = f"data:image/png;base64,{'iVBORw0KGgo' + 'A' * size}"
    return [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": url}]


VALUES: dict[str, tuple[Callable[[Any, Form, int], Any], int, int]] = {
    "wrong types": (wrong_types, 0, 0),
    "missing fields": (missing, 0, 0),
    "numbers of 400 digits": (
        lambda value, form, size: changed(
            value, lambda key, leaf: "number of 400 digits" if isinstance(leaf, (int, float)) else leaf
        ),
        *(0, 0),
    ),
    "times of 400 digits": (under(TIMES, "number of 400 digits"), 0, 0),
    "times in the year 10^400": (under(TIMES, "1" + "0" * 400 + "-01-01T00:00:00Z"), 0, 0),
    "times before all": (under(TIMES, -1e300), 0, 0),
    "times that are lists": (under(TIMES, [1, 2]), 0, 0),
    "ids that are the same": (under(IDS, "same"), 0, 0),
    "ids that are nothing": (under(IDS, ""), 0, 0),
    "parents in a ring": (many(lambda number: number ^ 1), 64, 40_000),
    "each its own parent": (many(lambda number: number), 64, 40_000),
    "a long chain": (many(lambda number: number - 1 if number else None), 300, 40_000),
    "a tree that branches": (many(lambda number: number // 2 if number else None), 300, 40_000),
    "siblings": (many(lambda number: None), 300, 3_000_000),
    "objects": (objects, 3_000, 3_000_000),
    "one string": (texts(lambda size: "x" * size), 20_000, 100_000_000),
    "blank": (texts(lambda size: " \n" * size), 2_000, 10_000_000),
    "unclosed details": (texts(lambda size: '<details type="reasoning">' * size), 500, 220_000 // 26),
    "unclosed artifacts": (texts(lambda size: "<antArtifact x> " * size), 500, 220_000 // 16),
    "unclosed quotes and marks": (texts(lambda size: "\ue200cite\ue202<think>```【[(" * size), 200, 20_000),
    "images in base64": (texts(_attachment), 2_000, 90_000_000),
    "half a character": (texts(lambda size: "\ud800 \udfff x \x1b]0;x\x07 \u202e"), 0, 0),
    "nested": (texts(lambda size: json.loads("[" * size + "]" * size)), 300, 900),
}


# -- what changes the octets ------------------------------------------------------------------------------------------


def _spread(octets: bytes, some: bytes) -> bytes:
    return some.join(octets[at : at + 997] for at in range(0, len(octets), 997))


def _random(octets: bytes, size: int) -> bytes:
    chance = random.Random(3)
    changed = bytearray(octets)
    for _ in range(40):
        changed[chance.randrange(100 if octets.startswith(b"SQLite") else 2, len(changed))] = chance.randrange(256)
    return bytes(changed)


OCTETS: dict[str, tuple[Callable[[bytes, int], bytes], int, int]] = {
    "empty": (lambda octets, size: b"", 0, 0),
    "cut off": (lambda octets, size: octets[: len(octets) * 2 // 3], 0, 0),
    "only its beginning": (lambda octets, size: octets[:20], 0, 0),
    "without its end": (lambda octets, size: octets[:-1], 0, 0),
    "unclosed": (lambda octets, size: octets[:40] + b"[" * size, 500, 100_000),
    "nested brackets": (lambda octets, size: b'[{"mapping": ' + b"[" * size + b"]" * size + b"}]", 500, 100_000),
    "NUL octets": (lambda octets, size: _spread(octets, b"\0"), 0, 0),
    "not UTF-8": (lambda octets, size: _spread(octets, b"\xff\xfe\xc3\x28"), 0, 0),
    "UTF-16": (lambda octets, size: octets.decode("utf-8", "replace").encode("utf-16"), 0, 0),
    "octets at random": (_random, 0, 0),
    "twice": (lambda octets, size: octets * 2, 0, 0),
    "zeros behind it": (lambda octets, size: octets + b"\0" * size, 5_000, 50_000_000),
    "a string that does not end": (lambda octets, size: b'[{"messages": "' + b"\\" * size, 5_001, 50_000_001),
}


# -- what lies at the path --------------------------------------------------------------------------------------------


def _zip(path: Path, *members: tuple[str | zipfile.ZipInfo, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, octets in members:
            archive.writestr(name, octets)
    return path


def _zip_with_ways_out(file: Path, size: int) -> Path:
    octets = file.read_bytes()
    way = zipfile.ZipInfo("link.json")
    way.external_attr = 0o120777 << 16
    return _zip(
        file.with_suffix(".zip"),
        *(("../../../../etc/evil.json", octets), ("/etc/evil.json", octets), ("C:\\evil.json", octets)),
        *((way, b"/etc/passwd"), ("x/" * 300 + "x.json", octets), ("a.json", octets)),
    )


def _damaged_zip(file: Path, size: int) -> Path:
    path = _zip(file.with_suffix(".zip"), ("a.json", file.read_bytes()))
    octets = bytearray(path.read_bytes())
    octets[len(octets) // 3] ^= 0x55
    path.write_bytes(octets)
    return path


def _cut_zip(file: Path, size: int) -> Path:
    path = _zip(file.with_suffix(".zip"), ("a.json", file.read_bytes()))
    path.write_bytes(path.read_bytes()[:-60])
    return path


def _lying_zip(file: Path, size: int) -> Path:
    """Its directory says that a file is much larger than it is."""
    path = _zip(file.with_suffix(".zip"), ("a.json", file.read_bytes()))
    octets = path.read_bytes()
    at = octets.rindex(b"PK\x01\x02") + 24
    path.write_bytes(octets[:at] + struct.pack("<L", 0xFFFFFFF0) + octets[at + 4 :])
    return path


def _bomb(file: Path, size: int) -> Path:
    octets = file.read_bytes()
    if octets.startswith(b"SQLite"):
        octets = b"[]"
    path = file.with_suffix(".zip")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.json", octets)
        with archive.open("b.json", "w", force_zip64=True) as member:
            member.write(b"[")
            for _ in range(size):
                member.write(b" " * 2**20)
            member.write(octets.lstrip(b"[")[:1000])
    return path


def _zip_in_zip(file: Path, size: int) -> Path:
    path = file.with_suffix(".zip")
    octets = _zip(path, ("a.json", file.read_bytes())).read_bytes()
    for number in range(20):
        octets = _zip(path, (f"{number}.zip", octets)).read_bytes()
    return path


def _folder(file: Path, size: int) -> Path:
    """A folder in which links go round, and lead to what is no file."""
    folder = file.with_suffix(".folder")
    folder.mkdir()
    (folder / "round").symlink_to(folder)
    (folder / "zero.json").symlink_to("/dev/zero")
    (folder / "nowhere.json").symlink_to(folder / "nowhere")
    os.mkfifo(folder / "pipe.json")
    (folder / "a.json").write_bytes(file.read_bytes())
    return folder


def _zero(file: Path, size: int) -> Path:
    path = file.with_suffix(".zero")
    path.symlink_to("/dev/zero")
    return path


PLACES: dict[str, tuple[Callable[[Path, int], Path], int, int]] = {
    "zip with ways out": (_zip_with_ways_out, 0, 0),
    "damaged zip": (_damaged_zip, 0, 0),
    "cut off zip": (_cut_zip, 0, 0),
    "zip that lies": (_lying_zip, 0, 0),
    "bomb": (_bomb, 2, 4_000),
    "zip in zip": (_zip_in_zip, 0, 0),
    "folder": (_folder, 0, 0),
    "/dev/zero": (_zero, 0, 0),
}

KINDS = (*VALUES, *OCTETS, *PLACES)


def made(form: str, kind: str, file: Path, *, full: bool = FULL) -> Path:
    """A hostile export at a path, or beside it."""
    how = FORMS[form]
    with TemporaryDirectory() as folder:
        value = how.value(Path(folder))
    if kind in VALUES:
        change, small, large = VALUES[kind]
        value = change(value, how, large if full else small)
    how.write(value, file)
    if kind in OCTETS:
        alter, small, large = OCTETS[kind]
        file.write_bytes(alter(file.read_bytes(), large if full else small))
    if kind in PLACES:
        lay, small, large = PLACES[kind]
        return lay(file, large if full else small)
    return file
