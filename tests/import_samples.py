"""Exports of other programs, made up: as many conversations as one likes, with branches, pictures, tools and broken
rows. One function for each format; it writes the file or files and gives back the path to import. `image`: the octets
of the picture in each conversation, for those formats that carry them; None: a stub that is none."""

from __future__ import annotations

import base64
import json
import sqlite3
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

Image = Callable[[int], bytes]
STUB = "AAAA"
BEGIN = 1_760_000_000.0
WORDS = (
    "The lamp turned {n} times in night {c}. The keeper wrote the hour into the log, looked at the barometer, and "
    "called the harbour when the needle had fallen by more than two marks.\n\n```python\nturns = {n}\n```\n"
)


def question(c: int, n: int) -> str:
    return f"How many turns in night {c}, watch {n}?"


def answer(c: int, n: int, again: int = 0) -> str:
    return f"Watch {n} of night {c}{', seen again' * again}: " + WORDS.format(n=n, c=c)


def _base64(image: Image | None, c: int) -> str:
    return base64.b64encode(image(c)).decode() if image is not None else STUB


def _time(c: int, n: int) -> float:
    return BEGIN + 86_400 * c + 60 * n


# -- ChatGPT ---------------------------------------------------------------------------------------------------------


def chatgpt_conversation(c: int, turns: int = 5, asset: str = "x") -> dict[str, object]:
    """A tree: each answer of an even watch has two versions, the second one in use. `asset`: its picture."""
    mapping: dict[str, object] = {"root": {"id": "root", "message": None, "parent": None, "children": []}}

    def put(id: str, parent: str, role: str, content: dict[str, object], n: int, **more: object) -> str:
        author = {"role": role, "name": None}
        mapping[id] = {
            "id": id,
            "parent": parent,
            "children": [],
            "message": {
                "id": id,
                "author": author,
                "create_time": _time(c, n),
                "content": content,
                "recipient": "all",
                "metadata": {"model_slug": "gpt-4o"} if role == "assistant" else {},
                **more,
            },
        }
        return id

    def text(said: str) -> dict[str, object]:
        return {"content_type": "text", "parts": [said]}

    tip = put(f"s{c}", "root", "system", text(""), 0)
    for n in range(turns):
        asked: dict[str, object] = text(question(c, n))
        if n == 1:
            asked = {
                "content_type": "multimodal_text",
                "parts": [
                    {"content_type": "image_asset_pointer", "asset_pointer": f"file-service://{asset}"},
                    question(c, n),
                ],
            }
        tip = put(f"q{c}.{n}", tip, "user", asked, 3 * n + 1)
        if n == 2:
            tip = put(
                f"t{c}.{n}",
                tip,
                "assistant",
                {"content_type": "code", "text": "search('lamp')"},
                3 * n + 2,
                recipient="browser",
            )
            tip = put(f"r{c}.{n}", tip, "tool", text("42 turns"), 3 * n + 2)
        first = put(f"a{c}.{n}", tip, "assistant", text(answer(c, n)), 3 * n + 2)
        tip = put(f"b{c}.{n}", tip, "assistant", text(answer(c, n, 1)), 3 * n + 3) if n % 2 == 0 else first
    return {
        "title": f"Night {c}",
        "create_time": _time(c, 0),
        "update_time": _time(c, 99),
        "mapping": mapping,
        "current_node": tip,
        "conversation_id": f"chatgpt-{c}",
    }


def _asset(c: int) -> str:
    return f"file-Lamp{c:06}"


def chatgpt(folder: Path, count: int = 3, *, broken: int = 0, image: Image | None = None) -> Path:
    """A zip of partitioned files, with other files in it."""
    path = folder / "chatgpt.zip"
    rows = [chatgpt_conversation(c, asset=_asset(c) if image is not None else "x") for c in range(count)]
    half = (count + 1) // 2
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, some in enumerate((rows[:half], rows[half:])):
            archive.writestr(f"conversations-{number:03}.json", _array(some, broken if number == 0 else 0))
        archive.writestr("user.json", json.dumps({"id": "user-1", "email": "x"}))
        archive.writestr("chat.html", "<html></html>")
        archive.writestr("file-x.png", b"\x89PNG")
        for c in range(count if image is not None else 0):
            archive.writestr(f"{_asset(c)}-lamp.png", image(c))  # type: ignore[misc]
    return path


def _array(rows: list[dict[str, object]], broken: int = 0) -> str:
    """A JSON array; `broken` rows in it are no JSON, and one is nothing."""
    texts = [json.dumps(row, ensure_ascii=False) for row in rows]
    for number in range(broken):
        texts.insert(number * 2 + 1, '{"mapping": {"x": }}' if number % 2 == 0 else "null")
    return f"[{', '.join(texts)}]"


# -- Claude ----------------------------------------------------------------------------------------------------------


def claude_conversation(c: int, turns: int = 5) -> dict[str, object]:
    messages = []
    for n in range(turns):
        at = f"2026-0{c % 9 + 1}-11T09:{n * 2:02}:00.123456Z"
        attached = [{"file_name": "log.txt", "file_type": "txt", "extracted_content": "Night 34: 101 turns."}]
        messages += [
            {
                "uuid": f"q{c}.{n}",
                "sender": "human",
                "text": question(c, n),
                "created_at": at,
                "files": [],
                "content": [{"type": "text", "text": question(c, n)}],
                "attachments": attached if n == 1 else [],
            },
            {
                "uuid": f"a{c}.{n}",
                "sender": "assistant",
                "text": answer(c, n),
                "created_at": at,
                "files": [],
                "attachments": [],
                "content": [
                    *(
                        [
                            {"type": "tool_use", "name": "web_search", "input": {}},
                            {"type": "tool_result", "content": []},
                        ]
                        if n == 2
                        else []
                    ),
                    {"type": "text", "text": answer(c, n)},
                ],
            },
        ]
    return {
        "uuid": f"claude-{c}",
        "name": f"Night {c}",
        "created_at": "2026-01-11T09:00:00Z",
        "updated_at": "2026-01-11T10:00:00Z",
        "account": {"uuid": "x"},
        "chat_messages": messages,
    }


def claude(folder: Path, count: int = 3, *, broken: int = 0, image: Image | None = None) -> Path:
    path = folder / "claude.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("users.json", json.dumps([{"uuid": "x", "full_name": "x"}]))
        archive.writestr("conversations.json", _array([claude_conversation(c) for c in range(count)], broken))
    return path


# -- Open WebUI ------------------------------------------------------------------------------------------------------


def open_webui_conversation(c: int, turns: int = 5, image: Image | None = None) -> dict[str, object]:
    messages: dict[str, object] = {}
    tip: str | None = None

    def put(id: str, role: str, content: str, n: int, **more: object) -> str:
        messages[id] = {
            "id": id,
            "parentId": tip,
            "childrenIds": [],
            "role": role,
            "content": content,
            "timestamp": int(_time(c, n)),
            **more,
        }
        return id

    for n in range(turns):
        files = [{"type": "image", "url": f"data:image/png;base64,{_base64(image, c)}"}] if n == 1 else []
        tip = put(f"q{c}.{n}", "user", question(c, n), 3 * n, files=files)
        thought = (
            (
                '<details type="reasoning" done="true" duration="2">\n<summary>Thought for 2 seconds</summary>\n'
                "&gt; I count the rows.\n</details>\n"
            )
            if n == 0
            else ""
        )
        put(f"a{c}.{n}", "assistant", thought.replace("&gt;", ">") + answer(c, n), 3 * n + 1, model="qwen3:8b")
        tip = put(f"b{c}.{n}", "assistant", answer(c, n, 1), 3 * n + 2, model="llama3.2:3b")
    return {
        "id": f"webui-{c}",
        "user_id": "u",
        "title": f"Night {c}",
        "updated_at": int(_time(c, 99)),
        "created_at": int(_time(c, 0)),
        "chat": {
            "title": f"Night {c}",
            "models": ["qwen3:8b"],
            "params": {"system": "Be brief."},
            "history": {"currentId": tip, "messages": messages},
            "messages": [],
        },
    }


def open_webui(folder: Path, count: int = 3, *, broken: int = 0, image: Image | None = None) -> Path:
    path = folder / "open_webui.json"
    path.write_text(_array([open_webui_conversation(c, image=image) for c in range(count)], broken), "utf-8")
    return path


# -- llama.cpp -------------------------------------------------------------------------------------------------------


def llama_messages(c: int, turns: int = 5, image: Image | None = None) -> list[dict[str, object]]:
    made: list[dict[str, object]] = [
        {
            "id": f"root{c}",
            "convId": f"llama-{c}",
            "type": "root",
            "role": "system",
            "content": "",
            "parent": None,
            "timestamp": 1000 * _time(c, 0),
            "children": [],
        },
        {
            "id": f"sys{c}",
            "convId": f"llama-{c}",
            "type": "system",
            "role": "system",
            "content": "Cite the log.",
            "parent": f"root{c}",
            "timestamp": 1000 * _time(c, 0),
            "children": [],
        },
    ]
    tip = f"sys{c}"
    for n in range(turns):
        picture = f"data:image/png;base64,{_base64(image, c)}"
        extra = (
            [
                {"type": "TEXT", "name": "log.txt", "content": "Night 34."},
                {"type": "IMAGE", "name": "lamp.png", "base64Url": picture},
            ]
            if n == 1
            else []
        )
        for id, parent, role, content, more in (
            (f"q{c}.{n}", tip, "user", question(c, n), {"extra": extra} if extra else {}),
            (f"a{c}.{n}", f"q{c}.{n}", "assistant", answer(c, n), {"reasoningContent": "I count.", "model": "m"}),
            (f"b{c}.{n}", f"q{c}.{n}", "assistant", answer(c, n, 1), {"model": "m"}),
        ):
            made.append(
                {
                    "id": id,
                    "convId": f"llama-{c}",
                    "type": "text",
                    "timestamp": 1000 * _time(c, len(made)),
                    "role": role,
                    "content": content,
                    "parent": parent,
                    "children": [],
                    **more,
                }
            )
        tip = f"b{c}.{n}"
    return made


def llama_json(folder: Path, count: int = 3, *, broken: int = 0, image: Image | None = None) -> Path:
    path = folder / "llama.json"
    path.write_text(
        _array(
            [
                {
                    "conv": {
                        "id": f"llama-{c}",
                        "name": f"Night {c}",
                        "lastModified": 1000 * _time(c, 99),
                        "currNode": f"b{c}.4",
                    },
                    "messages": llama_messages(c, image=image),
                }
                for c in range(count)
            ],
            broken,
        ),
        "utf-8",
    )
    return path


def llama_trace(c: int, image: Image | None = None) -> str:
    lines: list[dict[str, object]] = [
        {"type": "session", "harness": "llama.app", "id": f"llama-{c}", "name": f"Night {c}", "currNode": f"b{c}.4"}
    ]
    lines += [{"type": "message", "message": one} for one in llama_messages(c, image=image)]
    return "".join(f"{json.dumps(line)}\n" for line in lines)


def llama_traces(folder: Path, count: int = 3, *, broken: int = 0, image: Image | None = None) -> Path:
    path = folder / "llama.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for c in range(count):
            archive.writestr(f"conv_{c}.jsonl", llama_trace(c, image))
        for number in range(broken):
            archive.writestr(f"broken_{number}.jsonl", llama_trace(count + number)[:-40])
    return path


# -- LM Studio -------------------------------------------------------------------------------------------------------


def lm_studio_conversation(c: int, turns: int = 5) -> dict[str, object]:
    messages = []
    for n in range(turns):
        content = [{"type": "text", "text": question(c, n)}]
        if n == 1:
            content.append({"type": "file", "fileType": "image", "fileIdentifier": "lamp.png"})
        messages.append(
            {"versions": [{"type": "singleStep", "role": "user", "content": content}], "currentlySelected": 0}
        )
        messages.append(
            {
                "currentlySelected": 1,
                "versions": [
                    {
                        "type": "multiStep",
                        "role": "assistant",
                        "senderInfo": {"senderName": "qwen3-8b"},
                        "steps": [
                            {
                                "type": "contentBlock",
                                "style": {"type": "thinking"},
                                "content": [{"type": "text", "text": "I count."}],
                            },
                            {
                                "type": "contentBlock",
                                "stepIdentifier": f"{int(1000 * _time(c, n))}-0.{again}",
                                "content": [{"type": "text", "text": answer(c, n, again)}],
                                "genInfo": {"identifier": "qwen3-8b"},
                            },
                            {"type": "debugInfoBlock", "debugInfo": "x"},
                        ],
                    }
                    for again in range(2)
                ],
            }
        )
    return {
        "name": f"Night {c}",
        "createdAt": int(1000 * _time(c, 0)),
        "tokenCount": 1,
        "systemPrompt": "Be brief.",
        "messages": messages,
    }


def lm_studio(folder: Path, count: int = 3, *, broken: int = 0, image: Image | None = None) -> Path:
    path = folder / "conversations"
    path.mkdir()
    for c in range(count):
        (path / f"{c}.conversation.json").write_text(json.dumps(lm_studio_conversation(c)), "utf-8")
    for number in range(broken):
        (path / f"broken_{number}.conversation.json").write_text('{"name": "x", "messages": [', "utf-8")
    return path


# -- databases -------------------------------------------------------------------------------------------------------


def oterm(folder: Path, count: int = 3, *, broken: int = 0, image: Image | None = None) -> Path:
    """`broken`: chats in which nothing was said."""
    path = folder / "store.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE chat(id INTEGER PRIMARY KEY, name TEXT, model TEXT, system TEXT, format TEXT)")
        db.execute(
            "CREATE TABLE message(id INTEGER PRIMARY KEY, chat_id INTEGER, author TEXT, text TEXT,"
            " images TEXT DEFAULT '[]')"
        )
        for c in range(count + broken):
            db.execute("INSERT INTO chat VALUES (?, ?, 'llama3.2', 'Be brief.', '')", (c + 1, f"Night {c}"))
            for n in range(5 if c < count else 0):
                pictures = json.dumps([_base64(image, c)]) if n == 1 else "[]"
                db.executemany(
                    "INSERT INTO message(chat_id, author, text, images) VALUES (?, ?, ?, ?)",
                    [(c + 1, "user", question(c, n), pictures), (c + 1, "assistant", answer(c, n), "[]")],
                )
        db.commit()
    return path


def llm(folder: Path, count: int = 3, *, broken: int = 0, image: Image | None = None) -> Path:
    """Half of the conversations in the older tables, half in the tree of messages; `broken`: without a response."""
    path = folder / "logs.db"
    with closing(sqlite3.connect(path)) as db:
        db.executescript("""
            CREATE TABLE conversations(id TEXT PRIMARY KEY, name TEXT, model TEXT);
            CREATE TABLE responses(id TEXT PRIMARY KEY, model TEXT, prompt TEXT, system TEXT, response TEXT,
                conversation_id TEXT, datetime_utc TEXT, reasoning TEXT);
            CREATE TABLE attachments(id TEXT PRIMARY KEY, type TEXT, path TEXT, url TEXT, content BLOB);
            CREATE TABLE prompt_attachments(response_id TEXT, attachment_id TEXT, "order" INTEGER);
            CREATE TABLE messages(hash TEXT PRIMARY KEY, parent_hash TEXT, role TEXT, provider_metadata TEXT);
            CREATE TABLE parts(id INTEGER PRIMARY KEY, message_hash TEXT, position INTEGER, type TEXT, tool_name TEXT,
                text TEXT, payload TEXT);
            CREATE TABLE fragments(id INTEGER PRIMARY KEY, hash TEXT, content TEXT, source TEXT);
            CREATE TABLE part_fragments(part_id INTEGER, fragment_id INTEGER, "order" INTEGER);
            CREATE TABLE threads(id TEXT PRIMARY KEY, name TEXT, tip_message_hash TEXT, forked_from TEXT,
                datetime_utc TEXT);
            CREATE TABLE turns(id TEXT PRIMARY KEY, thread_id TEXT, parent_message_hash TEXT, tip_message_hash TEXT,
                model TEXT, datetime_utc TEXT);
            CREATE INDEX parts_of ON parts(message_hash);
            CREATE INDEX responses_of ON responses(conversation_id);
            CREATE INDEX turns_of ON turns(thread_id);
            INSERT INTO attachments VALUES ('x', 'image/png', '/home/x/lamp.png', NULL, NULL);""")
        for c in range(count + broken):
            if c % 2 or c >= count:
                db.execute("INSERT INTO conversations VALUES (?, ?, 'gpt-4o')", (f"c{c}", f"Night {c}"))
                for n in range(5 if c < count else 0):
                    db.execute(
                        "INSERT INTO responses VALUES (?, 'gpt-4o', ?, ?, ?, ?, ?, '')",
                        (
                            f"r{c}.{n}",
                            question(c, n),
                            "Be brief." if n == 0 else None,
                            answer(c, n),
                            f"c{c}",
                            f"2026-02-{c % 28 + 1:02}T09:{n:02}:00.000000",
                        ),
                    )
                    if n == 1:
                        picture = f"x{c}" if image is not None else "x"
                        db.execute("INSERT INTO prompt_attachments VALUES (?, ?, 0)", (f"r{c}.{n}", picture))
                        if image is not None:
                            db.execute(
                                "INSERT INTO attachments VALUES (?, 'image/png', NULL, NULL, ?)", (picture, image(c))
                            )
            else:
                tip = None
                for n in range(5):
                    for role, text in (("user", question(c, n)), ("assistant", answer(c, n))):
                        hash = f"{role}{c}.{n}"
                        db.execute("INSERT INTO messages VALUES (?, ?, ?, NULL)", (hash, tip, role))
                        db.execute(
                            "INSERT INTO parts(message_hash, position, type, text) VALUES (?, 0, 'text', ?)",
                            (hash, text),
                        )
                        tip = hash
                    db.execute(
                        "INSERT INTO turns VALUES (?, ?, NULL, ?, 'qwen3:8b', ?)",
                        (f"t{c}.{n}", f"th{c}", tip, f"2026-03-{c % 28 + 1:02}T09:{n:02}:00.000000+00:00"),
                    )
                db.execute(
                    "INSERT INTO threads VALUES (?, ?, ?, NULL, '2026-03-01T09:00:00')", (f"th{c}", f"Night {c}", tip)
                )
        db.commit()
    return path


# -- aichat ----------------------------------------------------------------------------------------------------------


def aichat_session(c: int, turns: int = 5) -> str:
    lines = [
        "model: openai:gpt-4o-mini",
        "temperature: 0.5",
        "messages:",
        "- role: system",
        "  content: 'Be brief: it''s late.'",
    ]
    for n in range(turns):
        lines += ["- role: user", f"  content: {question(c, n)}", "- role: assistant", "  content: |"]
        lines += [f"    {line}" if line else "" for line in answer(c, n).rstrip("\n").split("\n")]
    return "\n".join(lines) + "\n"


def aichat(folder: Path, count: int = 3, *, broken: int = 0, image: Image | None = None) -> Path:
    path = folder / "sessions"
    path.mkdir()
    for c in range(count):
        (path / f"night-{c}.yaml").write_text(aichat_session(c), "utf-8")
    for number in range(broken):
        (path / f"broken-{number}.yaml").write_text("model: x\nmessages:\n  }{\n", "utf-8")
    return path


SAMPLES: dict[str, Callable[..., Path]] = {
    "chatgpt": chatgpt,
    "claude": claude,
    "open_webui": open_webui,
    "llama_ui": llama_json,
    "llama_trace": llama_traces,
    "lm_studio": lm_studio,
    "oterm": oterm,
    "llm": llm,
    "aichat": aichat,
}


def large_array(path: Path, count: int) -> Iterator[int]:
    """Writes one `conversations.json` of ChatGPT, a conversation at a time; after each, the octets so far."""
    with path.open("w", encoding="utf-8") as file:
        for c in range(count):
            file.write(("," if c else "[") + json.dumps(chatgpt_conversation(c, 40)))
            yield file.tell()
        file.write("]")


def endless_view(folder: Path) -> Path:
    """A database whose messages never come to an end, and the size of which says nothing of it."""
    path = folder / "endless.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE chat(id, name, model, system)")
        db.execute("INSERT INTO chat VALUES (1, 'x', 'x', '')")
        db.execute("CREATE TABLE conversations(id, name)")
        db.execute("INSERT INTO conversations VALUES ('1', 'x')")
        db.execute("CREATE TABLE responses(id, prompt, system, response, model, datetime_utc, conversation_id)")
        db.execute("INSERT INTO responses VALUES ('1', 'x', '', 'x', 'x', '', '1')")
        db.execute("CREATE TABLE fragments(id, source, content)")
        db.execute("INSERT INTO fragments VALUES (1, 'x', 'x')")
        db.execute(
            "CREATE VIEW prompt_fragments AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
            " SELECT 'no' || i AS response_id, i AS fragment_id, i AS \"order\" FROM n"
        )
    return path
