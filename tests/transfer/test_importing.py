"""Files of other programs become trees: what is in them, what is left out, and what is wrong with them."""

from __future__ import annotations

import io
import json
import sqlite3
import sys
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transfer_samples import branched_conversation

from corpus import corpus
from import_samples import (
    SAMPLES,
    aichat_session,
    answer,
    chatgpt_conversation,
    claude_conversation,
    llama_messages,
    llama_trace,
    lm_studio_conversation,
    open_webui_conversation,
    question,
)
from kvchat.prompt.message import DEFAULT_INSTRUCTIONS, Node, Role, instructions_of
from kvchat.prompt.tools import INTERRUPTED
from kvchat.transfer.formats import Source, render
from kvchat.transfer.importing import json_values
from kvchat.transfer.importing.files import Files, FoundConversation, Missed, formats
from kvchat.transfer.importing.json_values import JsonValues
from kvchat.transfer.importing.thread import (
    ImportedMessage,
    ImportRefusal,
    JsonFormat,
    Loss,
    NotTaken,
    Thread,
    placeholder,
)
from kvchat.transfer.importing.tree import Grown, grown
from strict_history import check_tree

IMAGE = placeholder("image not imported")
TURNS = 5


def found_in(*paths: Path) -> tuple[list[FoundConversation], list[Missed]]:
    items = list(Files(paths))
    return [one for one in items if isinstance(one, FoundConversation)], [
        one for one in items if isinstance(one, Missed)
    ]


def tree_of(found: FoundConversation) -> Grown:
    assert isinstance(found.item, Thread)
    return grown(found.item, None, DEFAULT_INSTRUCTIONS, found.at)


def branch(made: Grown) -> list[Node]:
    return made.source.tree.path(made.source.conversation.head)


def texts(made: Grown) -> list[str]:
    """Of the branch in use: what was asked and answered, without the steps between."""
    return [node.text for node in branch(made)[1:] if node.role is not Role.TOOL and not node.message.calls]


def is_lawful(made: Grown) -> bool:
    """One system message first; questions and replies in turn, with results behind calls; bytes and digests as every
    message has them."""
    tree = made.source.tree
    check_tree(tree)
    return all(node.wire == node.message.wire() for node in tree) and not any(
        leaf.role is Role.USER for leaf in tree.leaves()
    )


# -- each format ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SAMPLES)
def test_every_format_is_told_by_its_content_and_comes_whole(name: str, tmp_path: Path) -> None:
    path = SAMPLES[name](tmp_path, 3)
    if path.is_file():
        path = path.rename(tmp_path / "anything")
    found, missed = found_in(path)
    assert (len(found), missed) == (3, [])
    for number, one in enumerate(found):
        made = tree_of(one)
        assert is_lawful(made)
        said = texts(made)
        assert len(said) == 2 * TURNS
        night = next(c for c in range(3) if question(c, 0) in said[0])
        for n in range(TURNS):
            assert question(night, n) in said[2 * n]
            assert said[2 * n + 1].strip().endswith((answer(night, n).strip(), answer(night, n, 1).strip())), number
        if name != "aichat":
            assert made.source.conversation.title == f"Night {night}"
        replies = [node for node in branch(made) if node.role is Role.ASSISTANT]
        assert name == "claude" or all(reply.model for reply in replies)
        assert made.source.conversation.turns == TURNS


@pytest.mark.parametrize(
    ("name", "branches", "losses"),
    [
        ("chatgpt", 4, {Loss.IMAGES: 1}),
        ("claude", 1, {}),
        ("open_webui", 6, {Loss.IMAGES: 1}),
        ("llama_ui", 6, {Loss.IMAGES: 1}),
        ("llama_trace", 6, {Loss.IMAGES: 1}),
        ("lm_studio", 6, {Loss.IMAGES: 1}),
        ("oterm", 1, {Loss.IMAGES: 1}),
        ("aichat", 1, {}),
    ],
)
def test_branches_come_along_and_what_is_left_out_is_counted(
    name: str, branches: int, losses: dict[Loss, int], tmp_path: Path
) -> None:
    found, _ = found_in(SAMPLES[name](tmp_path, 1))
    made = tree_of(found[0])
    assert len(made.source.tree.leaves()) == branches
    assert made.losses == losses
    if Loss.IMAGES in losses:
        assert sum(IMAGE[:-1] in node.text for node in made.source.tree) == 1


@pytest.mark.parametrize("name", ["open_webui", "lm_studio", "oterm", "aichat", "llama_ui"])
def test_the_system_prompt_of_the_source_is_the_frozen_one(name: str, tmp_path: Path) -> None:
    found, _ = found_in(SAMPLES[name](tmp_path, 1))
    root = branch(tree_of(found[0]))[0]
    assert instructions_of(root.text) in ("Be brief.", "Cite the log.", "Be brief: it's late.")


def test_reasoning_times_and_attached_text_come_along(tmp_path: Path) -> None:
    found, _ = found_in(SAMPLES["llama_ui"](tmp_path, 1))
    made = tree_of(found[0])
    first = next(node for node in made.source.tree if node.text == answer(0, 0).strip() or node.text == answer(0, 0))
    assert first.message.reasoning == "I count."
    asked = branch(made)[3]
    assert [(block.kind, block.source, block.text) for block in asked.message.blocks] == [
        ("file", "log.txt", "Night 34.")
    ]
    assert b"Night 34." in asked.wire
    assert asked.created == llama_messages(0)[5]["timestamp"] / 1000  # type: ignore[operator]
    assert made.source.conversation.updated == max(node.created for node in made.source.tree)


def test_thoughts_of_open_webui_leave_the_text() -> None:
    format = formats()[3]
    assert isinstance(format, JsonFormat)
    thread = format.read(open_webui_conversation(0))
    assert isinstance(thread, Thread)
    first = next(one for one in thread.messages if one.reasoning)
    assert first.reasoning == "I count the rows." and first.text == answer(0, 0).strip()


# -- what the programs write today ------------------------------------------------------------------------------------


def read_by(name: str, value: dict[str, object]) -> Grown:
    """What a value becomes that the format of this name reads."""
    format = next(one for one in formats() if isinstance(one, JsonFormat) and one.title == name)
    assert format.fits(value)
    thread = format.read(value)
    assert isinstance(thread, Thread)
    made = grown(thread, None, DEFAULT_INSTRUCTIONS, 1.0)
    assert is_lawful(made)
    return made


def chatgpt_value(*messages: dict[str, object], **more: object) -> dict[str, object]:
    """A conversation of ChatGPT: a question, then these messages, one below the other."""
    asked = {"author": {"role": "user"}, "content": {"content_type": "text", "parts": ["Where is the lamp?"]}}
    every = (asked, *({"author": {"role": "assistant"}, "recipient": "all", **one} for one in messages))
    mapping = {
        f"m{number}": {
            "parent": f"m{number - 1}" if number else None,
            "message": {"create_time": 1.78e9 + number, **one},
        }
        for number, one in enumerate(every)
    }
    return {"title": "Lamps", "conversation_id": "c", "mapping": mapping, "current_node": f"m{len(messages)}", **more}


def spoken(text: str, **metadata: object) -> dict[str, object]:
    return {"content": {"content_type": "text", "parts": [text]}, "metadata": metadata}


def mark(*parts: str) -> str:
    return f"\ue200{chr(0xE202).join(parts)}\ue201"


def test_thoughts_of_chatgpt_are_reasoning_and_the_day_the_model_and_the_archive_come_along() -> None:
    thoughts = [{"summary": "Looking", "content": "It is in Brest."}, {"summary": "", "content": "Sure."}, 7]
    made = read_by(
        "ChatGPT",
        chatgpt_value(
            {"content": {"content_type": "thoughts", "thoughts": thoughts}},
            {"content": {"content_type": "reasoning_recap", "content": "Thought for 4s"}},
            spoken("In Brest."),
            default_model_slug="gpt-5-6-thinking",
            is_archived=True,
            is_starred=True,
            create_time=1.78e9,
        ),
    )
    reply = branch(made)[-1]
    assert (reply.text, reply.message.reasoning) == ("In Brest.", "**Looking**\n\nIt is in Brest.\n\nSure.")
    assert (reply.model, reply.created, made.losses) == ("gpt-5-6-thinking", 1.78e9 + 1, {})
    assert made.source.conversation.tags == ("archive", "favourite")


SOURCE = {"title": "Lamp [news]", "url": "https://lamp.example/a b"}


@corpus(
    ("text", "metadata", "shown"),
    [
        (mark("cite", "turn0search1"), {"alt": "([A](https://a.example))"}, "([A](https://a.example))"),
        (mark("cite", "turn0search1"), {"items": [SOURCE]}, "([Lamp news](https://lamp.example/a%20b))"),
        (mark("cite", "turn0search1"), SOURCE, "([Lamp news](https://lamp.example/a%20b))"),
        (
            mark("cite", "turn0search1"),
            {"safe_urls": ["https://a.example"]},
            "([https://a.example](https://a.example))",
        ),
        (mark("filecite", "turn0file0"), {"type": "file", "name": "log.txt"}, "(log.txt)"),
        (mark("entity", '["city","Brest",0]'), {}, "Brest"),
        (mark("entity", '["city","Brest",0]'), {"type": "entity", "name": "Brest, France"}, "Brest, France"),
        (mark("entity", "[broken"), {}, ""),
        (mark("url", "The lamp", "https://lamp.example"), {}, "[The lamp](https://lamp.example)"),
        (mark("image_group", '{"query":["lamp"]}'), {"items": [None, 3]}, ""),
        ("\ue203seen\ue204" + mark("cite", "turn9view9"), {"alt": None}, "seen"),
        ("\ue200cite\ue202turn0sea", {}, ""),
        ("【12†source】", {"items": [SOURCE]}, "([Lamp news](https://lamp.example/a%20b))"),
        ("【12†source】", {}, "【12†source】"),
    ],
)
def test_the_marks_of_chatgpt_become_what_stands_for_them(text: str, metadata: dict[str, object], shown: str) -> None:
    references = [{"matched_text": text[text.find("\ue200") :] if "【" not in text else text, **metadata}, "odd", {}]
    made = read_by("ChatGPT", chatgpt_value(spoken(f"It is there {text}", content_references=references)))
    assert branch(made)[-1].text.strip() == f"It is there {shown}".strip()


def test_marks_of_older_exports_have_their_links_by_their_places() -> None:
    cited = [{"start_ix": 6, "end_ix": 17, "metadata": SOURCE}, {"start_ix": "x"}]
    made = read_by("ChatGPT", chatgpt_value(spoken("Seen. 【12†source】", citations=cited)))
    assert branch(made)[-1].text == "Seen. ([Lamp news](https://lamp.example/a%20b))"


def test_the_canvas_of_chatgpt_is_text() -> None:
    def call(name: str, value: object) -> dict[str, object]:
        text = value if isinstance(value, str) else json.dumps(value)
        return {"recipient": f"canmore.{name}", "content": {"content_type": "code", "text": text}}

    told = {"author": {"role": "tool", "name": "canmore.create_textdoc"}, **spoken("Successfully created.")}
    made = read_by(
        "ChatGPT",
        chatgpt_value(
            call("create_textdoc", {"name": "Log", "type": "document", "content": "# Night 1"}),
            told,
            call("create_textdoc", {"name": "turn.py", "type": "code/python", "content": "print('```')\n"}),
            call("update_textdoc", {"updates": [{"pattern": ".*", "multiple": False, "replacement": "# Night 2"}]}),
            call("comment_textdoc", {"comments": []}),
            call("create_textdoc", "{broken"),
            spoken("There it is."),
        ),
    )
    assert branch(made)[-1].text == (
        "**Log**\n\n# Night 1\n\n**turn.py**\n\n````python\nprint('```')\n````\n\n# Night 2\n\n"
        "[tool call: canmore.comment_textdoc]\n\n[tool call: canmore.create_textdoc]\n\nThere it is."
    )
    assert made.losses == {Loss.TOOL_CALLS: 2}


def claude_value(*content: object, **more: object) -> dict[str, object]:
    messages = [
        {"uuid": "q", "sender": "human", "text": "Where?", "created_at": "2026-11-11T09:00:00Z"},
        {
            "uuid": "a",
            "sender": "assistant",
            "text": "",
            "content": list(content),
            "created_at": "2026-11-11T09:01:00Z",
        },
    ]
    return {"uuid": "c", "name": "Lamps", "chat_messages": messages, **more}


def test_artifacts_and_sources_of_claude_are_text() -> None:
    cited = {"end_index": 9, "details": {"type": "web_search_citation", **SOURCE}}
    made = read_by(
        "Claude",
        claude_value(
            {"type": "text", "text": "In Brest. So:", "citations": [cited, cited, {"end_index": 99}, 4]},
            {
                "type": "tool_use",
                "name": "artifacts",
                "input": {
                    "command": "create",
                    "title": "turn.py",
                    "type": "application/vnd.ant.code",
                    "language": "python",
                    "content": "turns = 12",
                },
            },
            {"type": "tool_result", "name": "artifacts", "content": [{"type": "text", "text": "OK"}]},
            {"type": "tool_use", "name": "create_file", "input": {"path": "/out/log.md", "file_text": "# Night 1\n"}},
            {"type": "tool_use", "name": "bash_tool", "input": {"command": "ls"}},
            {
                "type": "text",
                "text": 'And <antArtifact identifier="x" type="text/html" title="A &amp; B">\n<p>\n</antArtifact>',
            },
            {"type": "of tomorrow", "x": 1},
            model="claude-opus-5",
            is_starred=True,
        ),
    )
    step, result, reply = branch(made)[-3:]
    assert step.text.rstrip() == (
        "In Brest. ([Lamp news](https://lamp.example/a%20b)) So:\n\n**turn.py**\n\n```python\nturns = 12\n```\n\n"
        "**log.md**\n\n# Night 1"
    )
    assert step.message.call.name == "bash_tool" and result.text == INTERRUPTED
    assert reply.text.rstrip() == "And\n\n**A & B**\n\n```html\n<p>\n```"
    assert (reply.model, made.source.conversation.tags) == ("claude-opus-5", ("favourite",))
    assert made.losses == {Loss.OTHER: 1}


def test_open_webui_says_what_is_pinned_archived_and_tagged() -> None:
    value = open_webui_conversation(0, 1)
    value |= {"pinned": True, "archived": True, "meta": {"tags": ["Machine learning", {"name": "light/lamp"}, 7, ""]}}
    made = read_by("Open WebUI", value)
    assert made.source.conversation.tags == ("archive", "favourite", "light-lamp", "machine-learning")
    assert made.losses == {Loss.OTHER: 2}
    assert read_by("Open WebUI", open_webui_conversation(0, 1) | {"pinned": "no"}).source.conversation.tags == ()


@pytest.mark.parametrize(
    ("program", "more", "tags", "losses"),
    [
        ("Open WebUI", {"folder_id": "b1946ac9"}, (), {Loss.FOLDERS: 1}),
        ("Open WebUI", {"folder_id": "b1946ac9", "folder": {"name": "Sea charts"}}, ("sea-charts",), {}),
        ("Open WebUI", {"folder_id": None}, (), {}),
        ("ChatGPT", {"conversation_template_id": "g-p-6789"}, (), {Loss.FOLDERS: 1}),
        ("ChatGPT", {"conversation_template_id": "g-6789"}, (), {}),
    ],
)
def test_a_folder_or_project_is_told_where_it_has_no_name(
    program: str, more: dict[str, object], tags: tuple[str, ...], losses: dict[Loss, int]
) -> None:
    sample = open_webui_conversation if program == "Open WebUI" else chatgpt_conversation
    plain, made = read_by(program, sample(0, 1)), read_by(program, sample(0, 1) | more)
    assert made.source.conversation.tags == tags
    assert made.losses == Counter(plain.losses) + Counter(losses)


@pytest.mark.parametrize(
    ("written", "thought"),
    [
        ("> I count.\n> &gt; twice &lt;3", "I count.\n> twice <3"),
        ("&gt; I count.\n&gt;\n&gt; Twice.", "I count.\n\nTwice."),
        ("> a quote in\nthoughts", "> a quote in\nthoughts"),
    ],
)
def test_quoted_thoughts_of_open_webui_are_as_they_were(written: str, thought: str) -> None:
    value = json.loads(json.dumps(open_webui_conversation(0, 1)))
    for message in value["chat"]["history"]["messages"].values():
        if message["role"] == "assistant":
            message["content"] = (
                f'<details type="reasoning" done="true">\n<summary>x</summary>\n{written}\n</details>\nHere.'
            )
    assert [node.message.reasoning for node in read_by("Open WebUI", value).source.tree.leaves()] == [thought] * 2


@settings(deadline=None)
@given(st.data())
def test_a_field_of_another_kind_costs_itself_alone(data: st.DataObject) -> None:
    odd = st.sampled_from([None, 7, -1.5, True, "", "x", [], [None], [{}], {}, {"type": "x"}, {"parts": 3}])
    sample = data.draw(
        st.sampled_from([chatgpt_conversation(0, 3), claude_conversation(0, 3), open_webui_conversation(0, 3)])
    )
    value = json.loads(json.dumps(sample))
    place: object = value
    for _ in range(data.draw(st.integers(1, 7))):
        if not isinstance(place, dict | list) or not place:
            break
        keys = sorted(place) if isinstance(place, dict) else range(len(place))
        key, above = data.draw(st.sampled_from(keys)), place
        place = place[key]
        if data.draw(st.booleans()):
            above[key] = data.draw(odd)
            break
    for format in formats():
        if isinstance(format, JsonFormat) and format.fits(value):
            try:
                thread = format.read(value)
                assert isinstance(thread, Thread) and is_lawful(grown(thread, None, DEFAULT_INSTRUCTIONS, 1.0))
            except NotTaken:
                pass


def test_the_older_json_and_the_trace_of_llama_cpp_are_one_conversation(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(llama_trace(0))
    (tmp_path / "b.json").write_text(
        json.dumps({"conv": {"id": "llama-0", "name": "x"}, "messages": llama_messages(0)})
    )
    found, _ = found_in(tmp_path / "a.jsonl", tmp_path / "b.json")
    one, other = map(tree_of, found)
    assert one.source.conversation.id == other.source.conversation.id
    assert {node.digest for node in one.source.tree} == {node.digest for node in other.source.tree}


def test_a_trace_without_ids_is_one_branch(tmp_path: Path) -> None:
    lines = [
        {"type": "session", "harness": "x", "id": "1", "name": "Trace"},
        *(
            {"type": "message", "message": {"role": role, "content": text}}
            for role, text in (("system", "Be brief."), ("user", "A?"), ("assistant", "B."), ("user", "C?"))
        ),
    ]
    (tmp_path / "x").write_text("\n".join(map(json.dumps, lines)))
    found, _ = found_in(tmp_path / "x")
    made = tree_of(found[0])
    assert texts(made) == ["A?", "B.", "C?", ""]


def test_the_yaml_of_aichat_in_all_its_quotes(tmp_path: Path) -> None:
    (tmp_path / "odd.yaml").write_text(
        "model: openai:gpt-4o\nsave_session: null\nmessages:\n- role: system\n  content: >-\n".replace(">-", "''")
        + '- role: user\n  content: "tab\\tquote\\" \\u263a"\n'
        "- role: assistant\n  content: |2-\n      indented\n    plain\n\n    last\n"
        "- role: user\n  content:\n  - type: text\n    text: 'it''s'\n  - type: image_url\n    image_url:\n"
        "      url: data:x\n- role: assistant\n  content: 'plain # no comment'\ndata_urls: {}\n"
    )
    found, missed = found_in(tmp_path / "odd.yaml")
    assert not missed
    made = tree_of(found[0])
    assert texts(made) == ['tab\tquote" ☺', "  indented\nplain\n\nlast", f"it's\n\n{IMAGE}", "plain # no comment"]
    assert made.source.conversation.title == "odd"


def test_without_the_extra_for_yaml_sessions_of_aichat_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    found, missed = found_in(SAMPLES["aichat"](tmp_path, 1))
    assert not found and [one.why.kind for one in missed] == ["no_yaml"]


def test_a_conversation_of_llm_that_went_on_as_a_thread_is_one(tmp_path: Path) -> None:
    path = SAMPLES["llm"](tmp_path, 2)
    thread = next(one for one in found_in(path)[0] if isinstance(one.item, Thread) and one.item.id == "th0")
    with sqlite3.connect(path) as db:  # as a newer llm goes on with it
        db.execute("UPDATE conversations SET id = 'th0'")
        db.execute("UPDATE responses SET conversation_id = 'th0'")
    found, _ = found_in(path)
    assert [one.item.id for one in found if isinstance(one.item, Thread)] == ["th0"]
    assert texts(tree_of(found[0])) == texts(tree_of(thread))


def test_lossless_json_keeps_every_digest(tmp_path: Path) -> None:
    source = branched_conversation()
    (tmp_path / "x.json").write_text(render("json", [source]))
    found, _ = found_in(tmp_path / "x.json")
    read = found[0].item
    assert isinstance(read, Source)
    assert {node.id: node.digest for node in read.tree} == {node.id: node.digest for node in source.tree}


# -- the tree -------------------------------------------------------------------------------------------------------


def made_of(*messages: ImportedMessage, **more: object) -> Grown:
    return grown(Thread("x", "1", "T", list(messages), **more), None, "Be brief.", 1_000.0)  # type: ignore[arg-type]


def test_messages_of_one_role_in_a_row_become_one() -> None:
    made = made_of(
        ImportedMessage("1", None, Role.USER, "A?"),
        ImportedMessage("2", "1", Role.ASSISTANT, "I look."),
        ImportedMessage("3", "2", Role.SYSTEM, ""),
        ImportedMessage("4", "3", Role.ASSISTANT, "Found."),
        ImportedMessage("5", "3", Role.ASSISTANT, "Nothing."),
        head="5",
    )
    assert texts(made) == ["A?", "I look.\n\nNothing."]
    assert sorted(leaf.text for leaf in made.source.tree.leaves()) == ["I look.\n\nFound.", "I look.\n\nNothing."]


def test_a_question_without_a_reply_gets_an_empty_one_and_a_reply_without_a_question_a_line() -> None:
    made = made_of(ImportedMessage("1", None, Role.ASSISTANT, "Welcome."), ImportedMessage("2", "1", Role.USER, "Who?"))
    assert is_lawful(made)
    assert texts(made) == ["[the conversation begins with a reply]", "Welcome.", "Who?", ""]
    assert made.losses == {Loss.NO_QUESTION: 1}


def test_loose_and_ringed_messages_and_late_system_messages_are_counted() -> None:
    made = made_of(
        ImportedMessage("1", None, Role.USER, "A?"),
        ImportedMessage("2", "1", Role.SYSTEM, "Late."),
        ImportedMessage("3", "2", Role.ASSISTANT, "B."),
        ImportedMessage("4", "gone", Role.USER, "C?"),
        ImportedMessage("5", "6", Role.USER, "ring"),
        ImportedMessage("6", "5", Role.USER, "ring"),
    )
    assert made.losses == {Loss.LATE_SYSTEM: 1, Loss.LOOSE: 3}
    assert is_lawful(made) and {"A?", "B.", "C?"} <= {node.text for node in made.source.tree}


def test_a_thread_in_which_nobody_asked_is_not_taken() -> None:
    with pytest.raises(NotTaken, match="empty"):
        made_of(ImportedMessage("1", None, Role.SYSTEM, "Be brief."), ImportedMessage("2", "1", Role.USER, "  "))


ROLES = st.sampled_from([Role.SYSTEM, Role.USER, Role.ASSISTANT])


@st.composite
def threads(draw: st.DrawFn) -> Thread:
    """Trees of any shape, in any order, some of them broken."""
    count = draw(st.integers(1, 12))
    messages = []
    for number in range(count):
        parent = draw(st.none() | st.integers(0, count).map(str))
        role, text = draw(ROLES), draw(st.sampled_from(["", " ", "\ud800", f"t{number}"]))
        thought = draw(st.sampled_from(["", "why"])) if role is Role.ASSISTANT else ""
        messages.append(
            ImportedMessage(str(number), parent, role, text, draw(st.none() | st.floats(1, 1e9)), reasoning=thought)
        )
    return Thread(
        "x",
        "1",
        "T",
        draw(st.permutations(messages)),
        draw(st.none() | st.integers(0, count).map(str)),
        own_ids=draw(st.booleans()),
    )


@given(threads())
def test_whatever_comes_in_is_lawful_and_loses_no_word(thread: Thread) -> None:
    try:
        made = grown(thread, None, "Be brief.", 1_000.0)
    except NotTaken:
        return
    assert is_lawful(made)
    assert made.source.conversation.head in made.source.tree
    lost = made.losses[Loss.LATE_SYSTEM] + made.losses[Loss.LOOSE]
    said = "\n".join(node.text for node in made.source.tree)
    words = [one.text for one in thread.messages if one.text.startswith("t") and one.role is not Role.SYSTEM]
    assert sum(word not in said for word in words) <= lost


@given(threads(), st.integers(0, 12))
def test_a_second_import_makes_nothing_and_a_longer_one_only_adds(thread: Thread, kept: int) -> None:
    try:
        whole = grown(thread, None, "Be brief.", 1_000.0)
    except NotTaken:
        return
    again = grown(thread, whole.source.tree, "Be brief.", 2_000.0)
    assert [node for node in again.new if node.role is not Role.SYSTEM] == []
    part = Thread("x", "1", "T", thread.messages[:kept], own_ids=thread.own_ids)
    try:
        first = grown(part, None, "Be brief.", 1_000.0)
    except NotTaken:
        return
    later = grown(thread, first.source.tree, "Be brief.", 2_000.0)
    assert all(later.source.tree[node.id] == node for node in first.source.tree)
    assert is_lawful(later)


# -- files that are not whole ---------------------------------------------------------------------------------------


def reasons(missed: list[Missed]) -> Counter[str]:
    return Counter(one.why.kind for one in missed)


@pytest.mark.parametrize("name", ["chatgpt", "claude", "open_webui", "llama_ui"])
def test_a_broken_row_costs_itself_alone(name: str, tmp_path: Path) -> None:
    found, missed = found_in(SAMPLES[name](tmp_path, 4, broken=3))
    assert len(found) == 4
    assert reasons(missed) == {ImportRefusal.NOT_JSON: 2, ImportRefusal.NOT_ONE: 1}
    assert not any(one.whole for one in missed)


def test_a_file_that_ends_in_the_middle_gives_what_is_whole(tmp_path: Path) -> None:
    text = json.dumps([chatgpt_conversation(c) for c in range(3)])
    (tmp_path / "x").write_text(text[:-100])
    found, missed = found_in(tmp_path / "x")
    assert len(found) == 2 and reasons(missed) == {ImportRefusal.CUT_OFF: 1}


def zipped(path: Path, *members: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return path


def encrypted(folder: Path) -> Path:
    path = zipped(folder / "x.zip", ("conversations.json", b"[]"))
    octets = bytearray(path.read_bytes())
    for mark, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        octets[octets.index(mark) + at] |= 1
    path.write_bytes(octets)
    return path


def damaged_member(folder: Path) -> Path:
    path = zipped(folder / "x.zip", ("conversations.json", json.dumps([chatgpt_conversation(0)]).encode()))
    octets = bytearray(path.read_bytes())
    octets[200:240] = bytes(40)
    path.write_bytes(octets)
    return path


def written(content: bytes) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / "x").write_bytes(content)
        return folder / "x"

    return write


def cut_database(folder: Path) -> Path:
    path = SAMPLES["oterm"](folder, 50)
    path.write_bytes(path.read_bytes()[:6000])
    return path


def own_database(folder: Path) -> Path:
    with sqlite3.connect(folder / "kvchat.db") as db:
        db.execute("PRAGMA application_id = 0x6B766368")
        db.execute("CREATE TABLE conversation(id)")
    return folder / "kvchat.db"


def other_database(folder: Path) -> Path:
    with sqlite3.connect(folder / "x.db") as db:
        db.execute("CREATE TABLE chat(id)")
    return folder / "x.db"


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda folder: folder / "none", ImportRefusal.MISSING),
        (written(b""), ImportRefusal.FOREIGN),
        (written(b"\x00\xff" * 100), ImportRefusal.FOREIGN),
        (written(b"hello"), ImportRefusal.FOREIGN),
        (written(b'{"name": "x", "messages": [{"role": "user"}]}'), ImportRefusal.FOREIGN),
        (written(b"[" + b"1," * 10_000 + b"1]"), ImportRefusal.FOREIGN),
        (written(b"[" + b'{"a": 1},' * 10_000), ImportRefusal.FOREIGN),
        (written(b"[" * 1_000_000), ImportRefusal.CUT_OFF),
        (
            written(b'{"format": "kvchat-conversations", "version": 99, "conversations": [{"x": 1}]}'),
            ImportRefusal.NEWER,
        ),
        (written(b"PK\x03\x04 but no archive"), ImportRefusal.BROKEN_ZIP),
        (encrypted, ImportRefusal.ENCRYPTED),
        (damaged_member, ImportRefusal.BROKEN_ZIP),
        (lambda folder: zipped(folder / "x.zip", ("x.png", b"\x89PNG")), ImportRefusal.FOREIGN),
        (
            lambda folder: zipped(folder / "x.zip", ("conversations.json", b"[" + b" " * (110 * 2**20))),
            ImportRefusal.BOMB,
        ),
        (cut_database, ImportRefusal.BROKEN_DATABASE),
        (own_database, ImportRefusal.OWN_DATABASE),
        (other_database, ImportRefusal.FOREIGN),
    ],
)
def test_what_is_wrong_with_a_file_is_told(make: Callable[[Path], Path], reason: ImportRefusal, tmp_path: Path) -> None:
    found, missed = found_in(make(tmp_path))
    assert found == [] or reason is ImportRefusal.BROKEN_DATABASE
    assert reasons(missed) == {reason: 1}
    assert missed[0].whole


def test_a_folder_passes_over_what_is_no_conversation(tmp_path: Path) -> None:
    path = SAMPLES["lm_studio"](tmp_path, 2)
    (path / "notes.txt").write_text("hello")
    (path / "picture").write_bytes(b"\x89PNG")
    files = Files([path])
    assert sum(isinstance(one, FoundConversation) for one in files) == 2
    assert files.passed_over == 2


def test_an_empty_folder_is_told(tmp_path: Path) -> None:
    _, missed = found_in(tmp_path)
    assert reasons(missed) == {ImportRefusal.NO_FILES: 1}


_MADE = {"chatgpt": chatgpt_conversation, "claude": claude_conversation, "open_webui": open_webui_conversation}


def odd(name: str, folder: Path, change: Callable[[str], str], encoding: str = "utf-8") -> list[str]:
    """The texts of an export of two conversations whose text was changed."""
    text = json.dumps([_MADE[name](0, 1), _MADE[name](1, 1)], ensure_ascii=False)
    assert change(text) != text
    (folder / "conversations.json").write_bytes(change(text).encode(encoding))
    found, missed = found_in(folder)
    assert (len(found), missed) == (2, [])
    return [text for one in found for text in texts(tree_of(one))]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig"])
@pytest.mark.parametrize("name", _MADE)
def test_a_file_in_a_wide_encoding_is_read(name: str, encoding: str, tmp_path: Path) -> None:
    read = odd(name, tmp_path, lambda text: text.replace("Watch 0", "Wache 日本 🕯 0"), encoding)
    assert any("Wache 日本 🕯 0" in text for text in read)


def test_a_session_of_aichat_in_utf_16_is_read(tmp_path: Path) -> None:
    (path,) = (one for one in SAMPLES["aichat"](tmp_path, 1).rglob("*") if one.is_file())
    path.write_bytes(path.read_text("utf-8").encode("utf-16"))
    found, missed = found_in(path)
    assert (len(found), missed) == (1, [])


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize("name", _MADE)
def test_numbers_that_json_has_not_cost_no_conversation(name: str, constant: str, tmp_path: Path) -> None:
    assert odd(name, tmp_path, lambda text: text.replace("{", f'{{"score": {constant}, ', 1))


@pytest.mark.parametrize("name", _MADE)
def test_raw_control_characters_cost_no_conversation(name: str, tmp_path: Path) -> None:
    read = odd(name, tmp_path, lambda text: text.replace("Watch 0", "Watch\t0\x07"))
    assert any("Watch\t0\x07" in text for text in read)


def test_lone_surrogates_and_octets_that_are_no_text_are_replaced(tmp_path: Path) -> None:
    conversation = claude_conversation(0, 1)
    text = json.dumps([conversation]).replace("Watch 0", "Watch \\ud800 0").encode().replace(b"twice", b"tw\xffce")
    (tmp_path / "x").write_bytes(text)
    found, _ = found_in(tmp_path / "x")
    assert "Watch \ufffd 0" in texts(tree_of(found[0]))[1]


def test_a_conversation_that_is_too_long_or_too_deep_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_values, "LONGEST", 100_000)
    long = claude_conversation(1, 1)
    long["name"] = 'x\\"' * 100_000
    deep = json.dumps(claude_conversation(2, 1)).replace('"account": {"uuid": "x"}', '"a": ' + "[" * 300 + "]" * 300)
    (tmp_path / "x").write_text(
        f"[{json.dumps(claude_conversation(0, 1))}, {json.dumps(long)}, {deep}, "
        f"{json.dumps(claude_conversation(3, 1))}]"
    )
    found, missed = found_in(tmp_path / "x")
    assert len(found) == 2
    assert reasons(missed) == {ImportRefusal.TOO_LARGE: 1, ImportRefusal.TOO_DEEP: 1}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["[", '"', "\\"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(
    st.lists(st.dictionaries(st.text(max_size=8), JSON, max_size=4) | st.lists(JSON, max_size=4), max_size=6),
    st.integers(1, 9),
    st.sampled_from(["array", "lines", "wrapped"]),
)
def test_values_come_as_they_are_however_they_are_cut(values: list[object], chunk: int, shape: str) -> None:
    if shape == "lines":  # an array there would be its elements
        values = [value for value in values if isinstance(value, dict)]
    dumped = [json.dumps(value, ensure_ascii=False) for value in values]
    text = {
        "array": f"[{' , '.join(dumped)}]",
        "lines": "\n".join(dumped),
        "wrapped": f'{{"version": 1, "conversations": [{",".join(dumped)}], "more": [[1], {{}}]}}',
    }[shape]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_values, "CHUNK", chunk)
        patch.setattr(json_values, "LARGEST_CHUNK", chunk)
        read = list(JsonValues(io.BytesIO(text.encode("utf-8", "surrogatepass"))))
    assert [json.dumps(value) for value in read] == [json.dumps(json.loads(one)) for one in map(json.dumps, values)]


@st.composite
def near_exports(draw: st.DrawFn) -> str:
    """An export in which some values were put in place of others."""
    samples = [
        chatgpt_conversation(0, 2),
        claude_conversation(0, 2),
        open_webui_conversation(0, 2),
        {"conv": {"id": "1"}, "messages": llama_messages(0, 2)},
        lm_studio_conversation(0, 2),
    ]
    value = draw(st.sampled_from(samples))
    for _ in range(draw(st.integers(1, 4))):
        place: object = value
        while True:
            keys = list(place if isinstance(place, dict) else range(len(place)))  # type: ignore[arg-type]
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            inner = place[key]  # type: ignore[index]
            if isinstance(inner, (dict, list)) and inner and draw(st.integers(0, 4)):
                place = inner
                continue
            place[key] = draw(JSON)  # type: ignore[index]
            break
    return json.dumps([value])


@settings(deadline=None)
@given(near_exports())
def test_no_foreign_value_breaks_a_format(text: str) -> None:
    for value in json.loads(text):
        for format in formats():
            if isinstance(format, JsonFormat) and format.fits(value):
                try:
                    thread = format.read(value)
                    if isinstance(thread, Thread):
                        assert is_lawful(grown(thread, None, "Be brief.", 1_000.0))
                except NotTaken:
                    pass


@given(st.text(alphabet="-: '\"|amr\n\\[]{}#x", max_size=80))
def test_no_yaml_breaks_aichat(tail: str) -> None:
    format = formats()[-1]
    for text in (f"model: x\nmessages:\n{tail}", aichat_session(0, 2)[: len(tail) * 3] + tail):
        try:
            format.read(text, "x")  # type: ignore[call-arg, arg-type]
        except NotTaken:
            pass
