"""Calls of tools come in as steps, bound to what they gave, from each program that keeps them."""

from __future__ import annotations

import html
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corpus import corpus
from kvchat.prompt.message import DEFAULT_INSTRUCTIONS, Role
from kvchat.prompt.tools import INTERRUPTED
from kvchat.prompt.tree import Tree
from kvchat.transfer.formats import render
from kvchat.transfer.importing.files import Files, FoundConversation
from kvchat.transfer.importing.thread import ImportedMessage, Loss, Thread, call_of, result_of
from kvchat.transfer.importing.tree import Grown, grown
from strict_history import check_tree

LAMP, KEEPER = {"path": "lamp.txt"}, {"path": "keeper.txt", "lines": 2}
TURNS, ADA = "It turns in 10 s.\n", "Ada, since 1911."
ASKED, LOOKS, ANSWER, MORE, THANKS = "Who keeps the lamp?", "I look.", "Ada does.", "Sure?", "Yes."
THOUGHT = "The files say it."


def calls(*ids: str) -> list[dict[str, Any]]:
    pairs = zip(ids, (LAMP, KEEPER), strict=False)
    return [
        {"id": id, "type": "function", "function": {"name": "read_file", "arguments": json.dumps(given)}}
        for id, given in pairs
    ]


def openai(folder: Path) -> Path:
    """https://platform.openai.com/docs/api-reference/chat/create"""
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": ASKED},
        {"role": "assistant", "content": LOOKS, "tool_calls": calls("call_1", "call_2")},
        {"role": "tool", "tool_call_id": "call_2", "content": ADA},
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": TURNS}]},
        {"role": "assistant", "content": ANSWER},
        {"role": "user", "content": MORE},
        {"role": "assistant", "content": None, "tool_calls": calls("call_3")},
        {"role": "assistant", "content": THANKS},
    ]
    return written(folder / "chat.json", {"messages": messages})


def old_openai(folder: Path) -> Path:
    """As before `tool_calls`: one function at a time, without ids."""
    call = [one["function"] for one in calls("a", "b")]
    messages = [
        {"role": "user", "content": ASKED},
        {"role": "assistant", "content": LOOKS, "function_call": call[0]},
        {"role": "function", "name": "read_file", "content": TURNS},
        {"role": "assistant", "content": None, "function_call": call[1]},
        {"role": "function", "name": "read_file", "content": ADA},
        {"role": "assistant", "content": ANSWER},
        {"role": "user", "content": MORE},
        {"role": "assistant", "content": "", "function_call": call[0]},
        {"role": "assistant", "content": THANKS},
    ]
    return written(folder / "chat.json", {"messages": messages})


def llama_ui(folder: Path) -> Path:
    """llama.cpp: `toolCalls` is JSON in a text (tools/ui, DatabaseMessage)."""
    rows: list[dict[str, Any]] = [
        {"role": "user", "content": ASKED},
        {"role": "assistant", "content": LOOKS, "toolCalls": json.dumps(calls("c1", "c2")), "model": "m.gguf"},
        {"role": "tool", "content": TURNS, "toolCallId": "c1"},
        {"role": "tool", "content": ADA, "toolCallId": "c2"},
        {"role": "assistant", "content": ANSWER, "toolCalls": "", "model": "m.gguf"},
        {"role": "user", "content": MORE},
        {"role": "assistant", "content": "", "toolCalls": json.dumps(calls("c3")), "model": "m.gguf"},
        {"role": "assistant", "content": THANKS, "model": "m.gguf"},
    ]
    for at, row in enumerate(rows):
        row |= {"id": f"m{at}", "parent": f"m{at - 1}" if at else "root", "convId": "c", "timestamp": 1_760_000_000_000}
    conv = {"id": "c", "name": "Lamp", "currNode": "m7", "lastModified": 1}
    return written(folder / "chat.json", {"conv": conv, "messages": rows})


def chatgpt(folder: Path) -> Path:
    """A call names its tool as the recipient, and has no id; a tool may say several things."""

    def said(role: str, text: str, kind: str = "text", name: str | None = None, to: str = "all") -> dict[str, Any]:
        content = {"content_type": kind, "parts": [text]} if kind == "text" else {"content_type": kind, "text": text}
        return {"author": {"role": role, "name": name}, "content": content, "recipient": to, "metadata": {}}

    thoughts = {"content_type": "thoughts", "thoughts": [{"summary": "", "content": THOUGHT}]}
    rows = [
        said("user", ASKED),
        said("assistant", LOOKS),
        {**said("assistant", ""), "content": thoughts},
        said("assistant", json.dumps(LAMP), "code", to="files.read"),
        said("tool", "It turns", "execution_output", "files.read"),
        said("tool", "in 10 s.", "text", "files.read"),
        said("assistant", "open('keeper.txt')", "code", to="python"),
        said("tool", ADA, "execution_output", "python"),
        said("assistant", ANSWER),
        said("user", MORE),
        said("assistant", json.dumps(LAMP), "code", to="files.read"),
        said("assistant", THANKS),
    ]
    mapping: dict[str, Any] = {"root": {"id": "root", "message": None, "parent": None, "children": []}}
    for at, row in enumerate(rows):
        parent = f"m{at - 1}" if at else "root"
        mapping[f"m{at}"] = {"id": f"m{at}", "parent": parent, "children": [], "message": {"id": f"m{at}", **row}}
    value = {"title": "Lamp", "conversation_id": "c", "mapping": mapping, "current_node": f"m{len(rows) - 1}"}
    return written(folder / "conversations.json", [value])


def claude(folder: Path) -> Path:
    def use(id: str, given: object) -> dict[str, Any]:
        return {"type": "tool_use", "id": id, "name": "read_file", "input": given}

    def gave(id: str, text: str) -> dict[str, Any]:
        content = [{"type": "text", "text": text}]
        return {"type": "tool_result", "tool_use_id": id, "name": "read_file", "content": content, "is_error": False}

    def said(id: str, sender: str, *content: dict[str, Any]) -> dict[str, Any]:
        at = f"2026-11-11T09:0{'qarb'.index(id)}:00Z"
        return {"uuid": id, "sender": sender, "text": "", "content": list(content), "created_at": at}

    messages = [
        said("q", "human", {"type": "text", "text": ASKED}),
        said(
            "a",
            "assistant",
            {"type": "text", "text": LOOKS},
            use("toolu_1", LAMP),
            use("toolu_2", KEEPER),
            gave("toolu_1", TURNS),
            gave("toolu_2", ADA),
            {"type": "thinking", "thinking": THOUGHT},
            {"type": "text", "text": ANSWER},
        ),
        said("r", "human", {"type": "text", "text": MORE}),
        said("b", "assistant", use("toolu_3", LAMP), {"type": "text", "text": THANKS}),
    ]
    return written(folder / "conversations.json", [{"uuid": "c", "name": "Lamp", "chat_messages": messages}])


def lm_studio(folder: Path) -> Path:
    def block(*content: dict[str, Any]) -> dict[str, Any]:
        return {"type": "contentBlock", "content": list(content), "genInfo": {"identifier": "m"}}

    def asks(id: str, given: object) -> dict[str, Any]:
        return {
            "type": "toolCallRequest",
            "callId": 7,
            "toolCallRequestId": id,
            "name": "read_file",
            "parameters": given,
        }

    def gave(id: str, text: str) -> dict[str, Any]:
        content = json.dumps([{"type": "text", "text": text}])
        return {"type": "toolCallResult", "callId": 7, "toolCallRequestId": id, "content": content}

    def text(words: str) -> dict[str, Any]:
        return {"type": "text", "text": words}

    def user(words: str) -> dict[str, Any]:
        return {"versions": [{"type": "singleStep", "role": "user", "content": [text(words)]}], "currentlySelected": 0}

    def reply(*steps: dict[str, Any]) -> dict[str, Any]:
        return {"versions": [{"type": "multiStep", "role": "assistant", "steps": list(steps)}], "currentlySelected": 0}

    messages = [
        user(ASKED),
        reply(
            block(text(LOOKS)),
            block(asks("1", LAMP)),
            {"type": "toolStatus", "callId": 7},
            block(gave("1", TURNS)),
            block(asks("2", KEEPER)),
            block(gave("2", ADA)),
            {**block(text(THOUGHT)), "style": {"type": "thinking"}},
            block(text(ANSWER)),
        ),
        user(MORE),
        reply(block(asks("3", LAMP)), block(text(THANKS))),
    ]
    return written(
        folder / "1.conversation.json", {"name": "Lamp", "createdAt": 1_760_000_000_000, "messages": messages}
    )


def open_webui(folder: Path) -> Path:
    def call(id: str, given: object, result: str | None, *, within: bool = False) -> str:
        about = f'id="{id}" name="read_file" arguments="{html.escape(json.dumps(json.dumps(given)))}"'
        if result is None:
            return f'<details type="tool_calls" done="false" {about}>\n<summary>Executing...</summary>\n</details>\n'
        gave = html.escape(json.dumps(result))
        shown = "" if within else f' result="{gave}" files="" embeds=""'
        body = f"{gave}\n" if within else ""
        return f'<details type="tool_calls" done="true" {about}{shown}>\n<summary>Tool Executed</summary>\n{body}</details>\n'

    thought = (
        f'<details type="reasoning" done="true" duration="2">\n<summary>Thought</summary>\n&gt; {THOUGHT}\n</details>\n'
    )
    texts = [
        ("user", ASKED),
        ("assistant", f"{LOOKS}\n{call('c1', LAMP, TURNS)}{call('c2', KEEPER, ADA, within=True)}{thought}{ANSWER}"),
        ("user", MORE),
        ("assistant", f"{call('c3', LAMP, None)}{THANKS}"),
    ]
    messages = {
        f"m{at}": {"id": f"m{at}", "parentId": f"m{at - 1}" if at else None, "role": role, "content": text}
        for at, (role, text) in enumerate(texts)
    }
    chat = {"title": "Lamp", "history": {"messages": messages, "currentId": "m3"}}
    return written(folder / "export.json", [{"id": "c", "title": "Lamp", "chat": chat}])


def aichat(folder: Path) -> Path:
    def result(given: object, output: object, id: str) -> str:
        call = json.dumps({"name": "read_file", "arguments": given, "id": id})
        return f"    - call: {call}\n      output: {json.dumps(output)}\n"

    text = (
        f"model: ollama:m\nmessages:\n- role: user\n  content: {ASKED}\n"
        f"- role: tool\n  content:\n    text: {LOOKS}\n    tool_results:\n"
        f"{result(LAMP, TURNS, 'c1')}{result(KEEPER, ADA, 'c2')}"
        f"- role: assistant\n  content: {ANSWER}\n- role: user\n  content: {MORE}\n- role: assistant\n  content: {json.dumps(THANKS)}\n"
    )
    path = folder / "Lamp.yaml"
    path.write_text(text)
    return path


def llm(folder: Path) -> Path:
    """llm 0.26 to 0.31: a step is a response of its own, whose prompt has no text but results."""
    path = folder / "logs.db"
    db = sqlite3.connect(path)
    db.executescript("""
        CREATE TABLE conversations(id TEXT PRIMARY KEY, name TEXT, model TEXT);
        CREATE TABLE responses(id TEXT PRIMARY KEY, model TEXT, prompt TEXT, system TEXT, response TEXT,
            conversation_id TEXT, datetime_utc TEXT);
        CREATE TABLE tool_calls(id INTEGER PRIMARY KEY, response_id TEXT, tool_id INTEGER, name TEXT, arguments TEXT,
            tool_call_id TEXT);
        CREATE TABLE tool_results(id INTEGER PRIMARY KEY, response_id TEXT, tool_id INTEGER, name TEXT, output TEXT,
            tool_call_id TEXT);
        INSERT INTO conversations VALUES ('c', 'Lamp', 'm');
    """)
    rows = [("1", ASKED, LOOKS), ("2", "", ANSWER), ("3", MORE, ""), ("4", "", THANKS)]
    for at, (id, prompt, response) in enumerate(rows):
        time = f"2026-11-11T09:0{at}:00"
        db.execute("INSERT INTO responses VALUES (?, 'm', ?, NULL, ?, 'c', ?)", (id, prompt, response, time))
    made = [("1", LAMP, "c1"), ("1", KEEPER, "c2"), ("3", LAMP, "c3")]
    for response, given, id in made:
        db.execute(
            "INSERT INTO tool_calls(response_id, name, arguments, tool_call_id) VALUES (?, 'read_file', ?, ?)",
            (response, json.dumps(given), id),
        )
    for output, id in ((TURNS, "c1"), (ADA, "c2")):
        db.execute(
            "INSERT INTO tool_results(response_id, name, output, tool_call_id) VALUES ('2', 'read_file', ?, ?)",
            (output, id),
        )
    db.commit()
    db.close()
    return path


def llm_threads(folder: Path) -> Path:
    """llm from 0.32 on: a message has parts."""
    path = folder / "logs.db"
    db = sqlite3.connect(path)
    db.executescript("""
        CREATE TABLE conversations(id TEXT PRIMARY KEY, name TEXT, model TEXT);
        CREATE TABLE responses(id TEXT PRIMARY KEY, model TEXT, prompt TEXT, system TEXT, response TEXT,
            conversation_id TEXT, datetime_utc TEXT);
        CREATE TABLE messages(hash TEXT PRIMARY KEY, parent_hash TEXT, role TEXT, provider_metadata TEXT);
        CREATE TABLE parts(id INTEGER PRIMARY KEY, message_hash TEXT, position INTEGER, type TEXT, tool_name TEXT,
            text TEXT, payload TEXT);
        CREATE TABLE threads(id TEXT PRIMARY KEY, name TEXT, tip_message_hash TEXT, forked_from TEXT, datetime_utc TEXT);
        CREATE TABLE turns(id TEXT PRIMARY KEY, thread_id TEXT, parent_message_hash TEXT, tip_message_hash TEXT,
            model TEXT, datetime_utc TEXT);
        INSERT INTO threads VALUES ('c', 'Lamp', 'm7', NULL, '2026-11-11T09:00:00');
    """)

    def call(id: str, given: object) -> tuple[str, str | None, str | None, dict[str, Any]]:
        return "tool_call", "read_file", None, {"arguments": given, "tool_call_id": id}

    def gave(id: str, output: str) -> tuple[str, str | None, str | None, dict[str, Any]]:
        return "tool_result", "read_file", None, {"output": output, "tool_call_id": id}

    def text(words: str, kind: str = "text") -> tuple[str, str | None, str | None, dict[str, Any]]:
        return kind, None, words, {}

    rows = [
        ("user", [text(ASKED)]),
        ("assistant", [text(LOOKS), call("c1", LAMP), call("c2", KEEPER)]),
        ("tool", [gave("c1", TURNS), gave("c2", ADA)]),
        ("assistant", [text(THOUGHT, "reasoning"), text(ANSWER)]),
        ("user", [text(MORE)]),
        ("assistant", [call("c3", LAMP)]),
        ("tool", []),
        ("assistant", [text(THANKS)]),
    ]
    for at, (role, parts) in enumerate(rows):
        db.execute("INSERT INTO messages VALUES (?, ?, ?, NULL)", (f"m{at}", f"m{at - 1}" if at else None, role))
        for place, (kind, name, words, payload) in enumerate(parts):
            db.execute(
                "INSERT INTO parts(message_hash, position, type, tool_name, text, payload) VALUES (?, ?, ?, ?, ?, ?)",
                (f"m{at}", place, kind, name, words, json.dumps(payload)),
            )
    db.commit()
    db.close()
    return path


def written(path: Path, value: object) -> Path:
    path.write_text(json.dumps(value))
    return path


SOURCES: list[Callable[[Path], Path]] = [
    openai,
    old_openai,
    llama_ui,
    chatgpt,
    claude,
    lm_studio,
    open_webui,
    aichat,
    llm,
    llm_threads,
]


def made_of(path: Path, known: Tree | None = None) -> Grown:
    [found] = list(Files([path]))
    assert isinstance(found, FoundConversation) and isinstance(found.item, Thread), found
    made = grown(found.item, known, DEFAULT_INSTRUCTIONS, found.at)
    check_tree(made.source.tree)
    return made


def steps(made: Grown) -> list[tuple[Role, str]]:
    """The branch in use: a call with its arguments, a result with what it is of."""
    found = []
    for node in made.source.tree.path(made.source.conversation.head)[1:]:
        text = node.text or "".join(block.text for block in node.message.blocks)
        if node.role is Role.TOOL:
            found.append((node.role, f"{text.strip()} < {node.message.call.arguments}"))
        else:
            found.append((node.role, " ".join([text, *(call.arguments for call in node.message.calls)]).strip()))
    return found


@pytest.mark.parametrize("source", SOURCES)
def test_a_call_is_a_step_and_what_it_gave_is_bound_to_it(source: Callable[[Path], Path], tmp_path: Path) -> None:
    made = made_of(source(tmp_path))
    found, lamp, keeper = steps(made), json.dumps(LAMP), json.dumps(KEEPER)
    if source is aichat:
        keeper = json.dumps({**KEEPER, "lines": "2"})  # a file in YAML is read as texts
    if source is chatgpt:
        keeper = json.dumps({"input": "open('keeper.txt')"})
    said = [text for role, text in found if role is Role.USER or not text.endswith("}")]
    assert said == [ASKED, ANSWER, MORE, THANKS]
    first = found[1 : found.index((Role.ASSISTANT, ANSWER))]
    made_calls = " ".join(text for role, text in first if role is Role.ASSISTANT)
    assert made_calls == f"{LOOKS} {lamp} {keeper}"
    results = [" ".join(text.split()) for role, text in first if role is Role.TOOL]
    assert sorted(results) == sorted([f"{TURNS.strip()} < {lamp}", f"{ADA} < {keeper}"])
    if source is not aichat:  # which keeps no call without its result
        assert found[-3:-1] == [(Role.ASSISTANT, lamp), (Role.TOOL, f"{INTERRUPTED} < {lamp}")]
    assert not {Loss.TOOL_CALLS, Loss.TOOL_RESULTS} & made.losses.keys()
    thoughts = [node.message.reasoning for node in made.source.tree if node.message.reasoning]
    assert thoughts == ([THOUGHT] if source in (chatgpt, claude, lm_studio, open_webui, llm_threads) else [])
    assert {node.message.call.name for node in made.source.tree if node.role is Role.TOOL} <= {
        "read_file",
        "files_read",
        "python",
    }


@pytest.mark.parametrize("source", SOURCES)
def test_a_second_import_finds_what_the_first_one_made(source: Callable[[Path], Path], tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    first = made_of(source(tmp_path))
    again = made_of(source(tmp_path / "again"), first.source.tree)
    assert not again.new and again.source.conversation.head == first.source.conversation.head
    assert again.source.tree.leaves() == first.source.tree.leaves() and not again.losses


@pytest.mark.parametrize("source", [llama_ui, chatgpt, claude, open_webui])
def test_an_answer_that_was_taken_with_a_line_for_its_call_gets_no_second_branch(
    source: Callable[[Path], Path], tmp_path: Path
) -> None:
    """As kvchat imported them before: what is stored stays, and nothing hangs beside it."""
    path = source(tmp_path)
    [found] = list(Files([path]))
    assert isinstance(found, FoundConversation) and isinstance(found.item, Thread)
    before = Thread(**{name: getattr(found.item, name) for name in Thread.__struct_fields__})
    before.messages, above = [], None
    for one in found.item.messages:
        last = one.id.partition("\n")[0]
        if "\n" in one.id or one.role is Role.TOOL:
            above = above or one.parent
            continue
        text = f"[tool call]\n\n{one.text}" if one.calls else one.text
        before.messages.append(ImportedMessage(last, above or one.parent, one.role, text))
        above = None
        if one.calls:
            above = last
    earlier = grown(before, None, DEFAULT_INSTRUCTIONS, 1.0)
    again = grown(found.item, earlier.source.tree, DEFAULT_INSTRUCTIONS, 1.0)
    check_tree(again.source.tree)
    assert not again.new
    assert len(again.source.tree.leaves()) == 1


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        ({"a": "é"}, '{"a": "é"}'),
        ('{"a":  1}', '{"a":  1}'),
        ("search('lamp')", '{"input": "search(\'lamp\')"}'),
        ("[1]", '{"input": "[1]"}'),
        ("", "{}"),
        (None, "{}"),
        (7, "{}"),
    ],
)
def test_arguments_of_any_form_can_be_sent_back(arguments: object, sent: str) -> None:
    call = call_of(1, "web.run", arguments)
    assert (call.id, call.name, call.arguments) == ("1", "web_run", sent) and not call.fault
    assert not call_of(None, None, arguments).fault


def said(*rows: tuple[Role, str, tuple[object, ...]]) -> Thread:
    """A thread of one branch."""
    thread = Thread("test", "c")
    for at, (role, text, made) in enumerate(rows):
        parent = str(at - 1) if at else None
        thread.messages.append(ImportedMessage(str(at), parent, role, text, calls=made))  # type: ignore[arg-type]
    thread.head = str(len(rows) - 1)
    return thread


ONE, TWO = call_of("1", "look", LAMP), call_of("2", "look", KEEPER)
USER, TOOL, REPLY = Role.USER, Role.TOOL, Role.ASSISTANT


@corpus(("rows", "roles", "lost"), [
        ([(REPLY, "", (ONE, TWO)), (TOOL, "a", (result_of("2"),)), (REPLY, "x", ())], "assistant tool tool assistant", 0),
        ([(REPLY, "", (ONE,)), (USER, "And?", ()), (REPLY, "x", ())], "assistant tool assistant user assistant", 0),
        ([(REPLY, "", (ONE,)), (TOOL, "a", (result_of("9"),)), (REPLY, "x", ())], "assistant tool assistant", 1),
        ([(TOOL, "a", (result_of("1"),)), (REPLY, "x", ())], "assistant", 1),
        ([(REPLY, "", (ONE,)), (TOOL, "a", (result_of(""),)), (USER, "And?", ())], "assistant tool assistant user assistant", 0),
        ([(REPLY, "x", ()), (TOOL, "a", (result_of(""),)), (REPLY, "y", ())], "assistant", 1),
        ([(REPLY, "", (ONE, ONE)), (TOOL, "", (result_of("1"),))], "assistant tool", 0),
        ([(REPLY, "", (ONE,))], "assistant", 0),
    ])  # fmt: skip
def test_what_a_file_lacks_is_mended(rows: list[Any], roles: str, lost: int) -> None:
    made = grown(said((USER, "Who?", ()), *rows), None, DEFAULT_INSTRUCTIONS, 1.0)
    check_tree(made.source.tree)
    path = made.source.tree.path(made.source.conversation.head)[2:]
    tip = made.source.tree.path(made.source.tree.tip(made.source.conversation.head or ""))[2:]
    assert " ".join(node.role for node in max(path, tip, key=len)) == roles
    assert made.losses[Loss.TOOL_RESULTS] == lost


def fenced(body: str, source: str = "read_file") -> str:
    return f'<context source="{source}">\n{body}\n</context>\n'


@pytest.mark.parametrize(
    ("content", "sent"),
    [
        (fenced(ADA) + "\n", fenced(ADA) + "\n"),
        (fenced(ADA).strip(), fenced(ADA) + "\n"),
        (
            fenced(ADA, "One, a page") + fenced(TURNS.strip(), "Two") + "\n",
            fenced(ADA, "One, a page") + fenced(TURNS.strip(), "Two") + "\n",
        ),
        (fenced("") + "\n", fenced("") + "\n"),
        (f"{fenced(ADA)}and more", fenced(f"{fenced(ADA)}and more".replace("<", "‹")) + "\n"),
        (ADA, fenced(ADA) + "\n"),
    ],
    ids=["exported", "without its last lines", "two passages", "nothing in it", "words behind it", "another program's"],
)
def test_a_result_that_kvchat_exported_is_not_fenced_again(content: str, sent: str, tmp_path: Path) -> None:
    messages = [
        {"role": "user", "content": ASKED},
        {"role": "assistant", "content": None, "tool_calls": calls("call_1")},
        {"role": "tool", "tool_call_id": "call_1", "content": content},
        {"role": "assistant", "content": ANSWER},
    ]
    made = made_of(written(tmp_path / "chat.json", {"messages": messages}))
    [result] = [node for node in made.source.tree if node.role is Role.TOOL]
    assert json.loads(result.wire)["content"] == sent


def test_a_tool_loop_that_was_exported_comes_back_in_the_same_bytes(tmp_path: Path) -> None:
    first = made_of(openai(tmp_path))
    (tmp_path / "again.jsonl").write_text(render("jsonl", [first.source]), encoding="utf-8")
    again = made_of(tmp_path / "again.jsonl")
    paths = [one.source.tree.path(one.source.conversation.head)[1:] for one in (first, again)]
    told = [[node.wire for node in path if INTERRUPTED not in node.wire.decode()] for path in paths]
    assert told[1] == told[0] and len(told[0]) == 8
