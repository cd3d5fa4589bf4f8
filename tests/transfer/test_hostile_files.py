"""Hostile files: each ends, or can be ended, costs nothing but itself, and no process of it is left."""

from __future__ import annotations

import json
import os
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from import_samples import SAMPLES, chatgpt_conversation, claude_conversation, endless_view, open_webui_conversation
from kvchat.prompt.message import DEFAULT_INSTRUCTIONS, instructions_of
from kvchat.transfer.importing import import_process
from kvchat.transfer.importing.files import Files, FoundConversation, Missed
from kvchat.transfer.importing.import_process import FilesApart
from kvchat.transfer.importing.thread import MOST_MESSAGES, ImportRefusal, NotTaken, Thread
from kvchat.transfer.importing.tree import grown


def spread_tree(folder: Path) -> Path:
    """A chain of one role with a reply at each: what stands above them all becomes part of each."""
    mapping: dict[str, object] = {}
    for n in range(4_000):
        message = {"author": {"role": "user"}, "content": {"content_type": "text", "parts": ["x" * 60]}}
        mapping[f"q{n}"] = {"parent": f"q{n - 1}" if n else None, "message": message}
        reply = {"author": {"role": "assistant"}, "content": {"content_type": "text", "parts": ["y"]}}
        mapping[f"a{n}"] = {"parent": f"q{n}", "message": reply}
    return written(folder, [{"id": "x", "mapping": mapping}])


def written(folder: Path, value: object) -> Path:
    path = folder / "x.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def unclosed(folder: Path) -> Path:
    chat = json.dumps(open_webui_conversation(0, 1))
    tag = json.dumps('<details type="reasoning">')[1:-1]
    return written(folder, f"[{chat.replace('Watch 0', tag * 200_000)}]")


def unclosed_artifacts(folder: Path) -> Path:
    return written(
        folder, [json.loads(json.dumps(claude_conversation(0, 1)).replace("Watch 0", "<antArtifact x> " * 100_000))]
    )


def many(folder: Path) -> Path:
    mapping = {str(n): {"parent": str(n - 1), "message": None} for n in range(MOST_MESSAGES + 1)}
    return written(folder, [{"id": "x", "mapping": mapping}])


HOSTILE: dict[str, Callable[[Path], Path]] = {
    "time": lambda folder: written(folder, json.dumps([chatgpt_conversation(0)]).replace("1760000000.0", "1" * 400)),
    "unclosed": unclosed,
    "unclosed artifacts": unclosed_artifacts,
    "spread": spread_tree,
    "many": many,
    "deep": lambda folder: written(folder, '[{"mapping": ' + "[" * 100_000),
    "siblings": lambda folder: written(
        folder,
        [
            {
                "id": "x",
                "mapping": {
                    str(n): {
                        "parent": None,
                        "message": {"author": {"role": "user"}, "content": {"content_type": "text", "parts": [str(n)]}},
                    }
                    for n in range(4_000)
                },
            }
        ],
    ),
    "ring": lambda folder: written(
        folder,
        [{"id": "x", "mapping": {"a": {"parent": "b"}, "b": {"parent": "a"}}}],
    ),
    "objects": lambda folder: written(folder, '[{"mapping": {"a": [' + "{}," * 300_000 + "{}]}}]"),
    "text in one": lambda folder: written(folder, [{"messages": [{"role": "user", "content": "x" * 40_000_000}]}]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_it_ends_and_what_stands_beside_it_comes(name: str, tmp_path: Path) -> None:
    (tmp_path / "hostile").mkdir()
    beside = tmp_path / "z.json"
    beside.write_text(json.dumps([claude_conversation(7)]))
    items = list(FilesApart([HOSTILE[name](tmp_path / "hostile"), beside]))
    last = items[-1]
    assert isinstance(last, FoundConversation) and isinstance(last.item, Thread) and last.item.title == "Night 7"
    for item in items:
        if isinstance(item, FoundConversation) and isinstance(item.item, Thread):
            try:
                grown(item.item, None, DEFAULT_INSTRUCTIONS, item.at)
            except NotTaken as error:
                assert (
                    name == "spread" and error.why.kind == ImportRefusal.MUCH_TEXT
                ) or error.why.kind == ImportRefusal.EMPTY
            else:
                assert name != "spread" or item is last
    assert not [item for item in items if isinstance(item, Missed) and item.why.kind == ImportRefusal.FAULTY]


def test_what_never_ends_is_left_and_the_next_file_comes(tmp_path: Path) -> None:
    items = list(FilesApart([endless_view(tmp_path), SAMPLES["claude"](tmp_path, 2)], seconds=3.0))
    assert [item.why.kind for item in items if isinstance(item, Missed)] == [ImportRefusal.TOO_SLOW]
    assert sum(isinstance(item, FoundConversation) for item in items) == 2


def test_it_is_stopped_at_once_and_no_process_is_left(tmp_path: Path) -> None:
    files = FilesApart([endless_view(tmp_path)], seconds=600.0)
    items: list[FoundConversation | Missed] = []
    going = threading.Thread(target=lambda: items.extend(files))
    going.start()
    while files._process is None or not files.progress.number:
        time.sleep(0.01)
    pid = files._process.pid
    files.stop()
    going.join(60)
    assert not going.is_alive() and items == []
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_reader_that_dies_or_lies_costs_the_import_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, frames in enumerate((b"", b"zzz", b'f{"program": "x"}', b"r[1]", b'm["x", "no reason", {}, true]')):
        (tmp_path / f"lying{number}.py").write_text(
            "import sys\nfrom kvchat.apart.frames import put, take\n"
            f"take(sys.stdin.buffer), take(sys.stdin.buffer)\nput(sys.stdout.buffer, {frames!r})\n"
        )
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setattr(import_process, "MODULE", f"lying{number}")
        items = list(FilesApart([tmp_path / "x"]))
        assert [item.why.kind for item in items if isinstance(item, Missed)] == [ImportRefusal.FAULTY]


@pytest.mark.parametrize("name", SAMPLES)
def test_what_comes_out_of_the_process_is_what_is_in_the_file(name: str, tmp_path: Path) -> None:
    path = SAMPLES[name](tmp_path, 3)

    def seen(items: list[FoundConversation | Missed]) -> list[object]:
        return [
            (one.item, one.program, one.at, one.file) if isinstance(one, FoundConversation) else one for one in items
        ]

    there = seen(list(FilesApart([path])))
    if name in ("chatgpt",):  # its images are filled in on the way
        assert len(there) == 3
    else:
        assert there == seen(list(Files([path])))


def test_messages_as_openai_has_them(tmp_path: Path) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Lamp?"}]
    messages += [{"role": "assistant", "content": [{"type": "text", "text": "Lit."}], "reasoning_content": "Hm."}]
    for number, text in enumerate(
        (
            json.dumps({"messages": messages, "model": "m"}, indent=1),
            json.dumps([{"messages": messages, "model": "m"}]),
            f"{json.dumps({'messages': messages, 'model': 'm'})}\n",
        )
    ):
        (tmp_path / str(number)).write_text(text)
        (found,) = Files([tmp_path / str(number)])
        assert isinstance(found, FoundConversation) and isinstance(found.item, Thread)
        made = grown(found.item, None, DEFAULT_INSTRUCTIONS, 1.0)
        path = made.source.tree.path(made.source.conversation.head)
        assert [instructions_of(node.text) for node in path] == ["Be brief.", "Lamp?", "Lit."]
        assert path[-1].message.reasoning == "Hm." and path[-1].model == "m"


def test_zips_of_hostile_files_end_too(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for number, name in enumerate(("time", "spread", "ring")):
            (tmp_path / str(number)).mkdir()
            archive.write(HOSTILE[name](tmp_path / str(number)), f"{number}.json")
    assert len(list(FilesApart([tmp_path / "x.zip"]))) == 3
