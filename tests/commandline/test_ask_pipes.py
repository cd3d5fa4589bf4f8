"""What scripts want of `kvchat ask`: code or JSON alone on standard output, files, parameters, short names."""

from __future__ import annotations

import json
import socket

import pytest

from book_samples import epub
from engine_fixture import running_server
from toyserver import ToyServer, error, tokens

CODE = "Here it is:\n\n```python\nprint(1)\n\nprint(2)\n```\n\nand another:\n\n```\nno\n```\n"
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
STORED = "It is stored; kvchat show has it."


@pytest.fixture
def schema(tmp_path):
    path = tmp_path / "person.json"
    path.write_text(json.dumps(SCHEMA))
    return path


async def stored(run) -> str:
    """The last answer as the store has it."""
    out = (await run("export", json.loads((await run("list", "--json")).out)[0]["id"], "-f", "json")).out
    return json.loads(out)["conversations"][0]["nodes"][-1]["text"]


# -- code


async def test_only_the_first_code_block_is_printed_and_the_whole_answer_is_stored(run):
    async with ToyServer() as server:
        server.on_chat(tokens(CODE))
        done = await run("--base-url", server.url, "ask", "-x", "Write it.")
    assert (done.status, done.out, done.err) == (0, "print(1)\n\nprint(2)\n", "")
    assert await stored(run) == CODE


async def test_a_block_that_was_cut_is_printed_as_far_as_it_came(run):
    async with ToyServer() as server:
        server.on_chat(tokens("- in a list\n\n  ~~~sh\n  echo hi"))
        done = await run("--base-url", server.url, "ask", "--extract", "Write it.")
    assert (done.status, done.out) == (0, "echo hi\n")


async def test_an_answer_without_code_prints_nothing_and_fails(run):
    async with ToyServer() as server:
        server.on_chat(tokens("rm -rf / is what I would not do"))
        done = await run("--base-url", server.url, "ask", "-x", "Write it.")
    assert (done.status, done.out) == (1, "")
    assert done.err == f"kvchat: The answer has no code block. {STORED}\n"


# -- JSON by a schema


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "Ada", "age": 36}',
        ' {"name": "Ada",\n "age": 36}\n',
        'Here:\n```json\n{"name": "Ada", "age": 36}\n```\n',
    ],
)
async def test_the_server_is_asked_for_the_schema_and_what_fits_is_printed(run, schema, text):
    async with ToyServer() as server:
        server.on_chat(tokens(text))
        done = await run("--base-url", server.url, "ask", "--schema", schema, "Who?")
        assert server.chats[0].json["response_format"] == {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": SCHEMA},
        }
        assert (done.status, json.loads(done.out), done.err) == (0, {"name": "Ada", "age": 36}, "")
        assert await stored(run) == text
        await run("--base-url", server.url, "ask", "-c", "And now?")
        assert "response_format" not in server.chats[1].json, "it is of that answer only"
        messages = [visit.json["messages"] for visit in server.chats]
    assert messages[1][:2] == messages[0] and messages[1][2]["content"] == text


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("I do not know.", "The answer is not JSON."),
        ('{"name": "Ada", "age": NaN}', "The answer is not JSON."),
        ('{"name": "Ada"}', "The answer does not fit the schema: it must contain ['age'] properties."),
        ('{"name": "Ada", "age": "old"}', "The answer does not fit the schema: age must be integer."),
        ('{"name": "Ada", "age": -1}', "The answer does not fit the schema: age must be bigger than or equal to 0."),
        pytest.param("[" * 100_000, "The answer is not JSON.", id="deep"),
    ],
)
async def test_what_does_not_fit_is_not_printed(run, schema, text, sentence):
    async with ToyServer() as server:
        server.on_chat(tokens(text))
        done = await run("--base-url", server.url, "ask", "--schema", schema, "Who?")
    assert (done.status, done.out, done.err) == (1, "", f"kvchat: {sentence} {STORED}\n")


async def test_with_json_the_object_is_printed_and_the_status_tells_whether_it_fits(run, schema):
    async with ToyServer() as server:
        server.on_chat(tokens('{"name": "Ada"}'))
        done = await run("--base-url", server.url, "ask", "--json", "--schema", schema, "Who?")
    assert done.status == 1 and json.loads(done.out)["text"] == '{"name": "Ada"}'


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"{", ":1:2: not valid JSON: Expecting property name"),
        (b"\xff", "is not JSON"),
        (b"[1]", "is not a JSON schema: it is not an object."),
        (b'{"type": "thing"}', "is not a JSON schema that can be checked"),
        (b'{"$ref": "#/nowhere"}', "is not a JSON schema that can be checked"),
        (b'{"pattern": "("}', "is not a JSON schema that can be checked"),
        pytest.param(b"[" * 100_000, "is not JSON", id="deep"),
        pytest.param(b" " * (1 << 20) + b"{}", "is larger than 1 MiB.", id="large"),
    ],
)
async def test_a_schema_that_is_none_is_told_before_anything_is_asked(run, tmp_path, content, sentence):
    path = tmp_path / "wrong.json"
    path.write_bytes(content)
    async with ToyServer() as server:
        done = await run("--base-url", server.url, "ask", "--schema", path, "Who?")
        assert server.visits == []
    assert (done.status, done.out) == (1, "") and sentence in done.err and "Traceback" not in done.err
    assert (await run("ask", "--schema", tmp_path / "none.json", "x")).err == (
        f"kvchat: Cannot read the schema from {tmp_path / 'none.json'}: no such file or directory.\n"
    )


async def test_nothing_is_fetched_for_a_schema(run, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        elsewhere.setblocking(False)
        for address in (f"http://127.0.0.1:{elsewhere.getsockname()[1]}/x.json", "file:///etc/hostname", "other.json"):
            path = tmp_path / "far.json"
            path.write_text(json.dumps({"properties": {"a": {"$ref": address}}}))
            done = await run("ask", "--schema", path, "Who?")
            assert done.status == 1 and "nothing is fetched for a schema" in done.err, address
        with pytest.raises(BlockingIOError):
            elsewhere.accept()


async def test_code_alone_and_json_do_not_go_together(run, schema):
    for other in (("--json",), ("--schema", schema)):
        done = await run("ask", "-x", *other, "Who?")
        assert (done.status, done.out) == (2, "") and "-x prints the first code block and nothing else." in done.err


# -- files


async def test_files_are_attached_in_front_of_the_question(run, tmp_path):
    (tmp_path / "lamp.py").write_text("turns = 12\n")
    (tmp_path / "fog.txt").write_text("thick\n")
    async with ToyServer() as server:
        done = await run(
            "--base-url",
            server.url,
            "ask",
            "-a",
            tmp_path / "lamp.py",
            "--attach",
            tmp_path / "fog.txt",
            "Review.",
            stdin=b"piped in\n",
        )
        content = server.chats[0].json["messages"][-1]["content"]
    assert (done.status, done.err) == (0, "[1] lamp.py\n[2] fog.txt\n")
    places = [content.index(part) for part in ("piped in", "lamp.py", "turns = 12", "fog.txt", "thick", "Review.")]
    assert places == sorted(places)


async def test_an_e_book_is_attached_as_its_text(run, tmp_path):
    (tmp_path / "keeper.epub").write_bytes(epub("<h1>Dusk</h1><p>Whale oil smokes.</p>"))
    async with ToyServer() as server:
        done = await run("--base-url", server.url, "ask", "-a", tmp_path / "keeper.epub", "Why?")
        content = server.chats[0].json["messages"][-1]["content"]
    assert (done.status, done.err) == (0, "[1] keeper.epub\n")
    assert "Dusk\n\nWhale oil smokes." in content


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        (
            "photo.png",
            b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
            "photo.png cannot be attached: it is an image that cannot be read; save it as PNG or JPEG.",
        ),
        ("gone.txt", None, "There is no file gone.txt in"),
        ("torn.epub", epub("<p>x</p>")[:-9], "torn.epub cannot be attached: it is a broken e-book."),
        ("empty.txt", b" \n", "empty.txt cannot be attached: there is no text in it."),
    ],
)
async def test_what_cannot_be_attached_is_told_and_nothing_is_sent(run, tmp_path, name, content, sentence):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    async with ToyServer() as server:
        done = await run("--base-url", server.url, "ask", "-a", tmp_path / name, "What is it?")
        assert server.chats == []
    assert (done.status, done.out) == (1, "") and sentence in done.err
    assert json.loads((await run("list", "--json")).out) == []


async def test_a_missing_file_is_told_before_any_server_is_asked(run, tmp_path):
    done = await run("--base-url", "http://127.0.0.1:9", "ask", "-a", tmp_path / "gone.txt", "What is it?")
    assert (done.status, done.err) == (1, f"kvchat: There is no file gone.txt in {tmp_path}.\n")


# -- parameters, model, system prompt


async def test_parameters_go_along_for_this_answer(run):
    async with ToyServer() as server:
        done = await run(
            "--base-url",
            server.url,
            "ask",
            "-o",
            "temperature=0.25",
            "-o",
            "top_k=5",
            "-o",
            "stop=###",
            "-o",
            "mirostat=2",
            "-o",
            "grammar_name=plain",
            "-o",
            'response_format={"type": "json_object"}',
            "x",
        )
        await run("--base-url", server.url, "ask", "-c", "-o", 'stop=["a", "b"]', "y")
        first, second = (visit.json for visit in server.chats)
    assert done.status == 0
    assert {
        name: first[name] for name in ("temperature", "top_k", "stop", "mirostat", "grammar_name", "response_format")
    } == {
        "temperature": 0.25,
        "top_k": 5,
        "stop": ["###"],
        "mirostat": 2,
        "grammar_name": "plain",
        "response_format": {"type": "json_object"},
    }
    assert second["stop"] == ["a", "b"] and "temperature" not in second and "mirostat" not in second


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ("temperature", "temperature is no parameter; write it as temperature=0.2"),
        ("=1", "=1 is no parameter"),
        ("temperature=hot", "temperature must be a number"),
        ("temperature=9", "temperature must be from 0 to 5"),
        ("top_k=1.5", "top_k must be a whole number"),
        ("response_format=xml", "response_format must be text, json or a table"),
        ("response_format=[1]", "response_format must be text, json or a table"),
        ("stop=[1]", "stop must be a list of texts, not a list"),
        ("n=2", "n cannot be set: kvchat reads one streamed answer"),
        ("messages=[]", "messages cannot be set: kvchat sends this field itself"),
        ("enable_thinking=true", "enable_thinking cannot be set: it is an option of the model's template"),
    ],
)
async def test_a_parameter_that_cannot_be_set_is_wrong_usage(run, option, sentence):
    done = await run("ask", "-o", option, "x")
    assert (done.status, done.out) == (2, "") and sentence in done.err


async def test_model_and_system_prompt_have_short_names(run):
    async with ToyServer() as server:
        done = await run("ask", "-m", "toy", "-s", "Be brief.", "x", "--base-url", server.url)
        body = server.chats[0].json
    assert done.status == 0 and body["model"] == "toy"
    assert body["messages"][0]["content"].startswith("Be brief.\n")


async def test_a_server_that_refuses_is_told_and_nothing_is_printed(run, schema):
    async with ToyServer() as server:
        server.on_chat(error(400, "response_format json_schema is not supported"))
        done = await run("--base-url", server.url, "ask", "--schema", schema, "Who?")
    assert (done.status, done.out) == (1, "") and "response_format json_schema is not supported" in done.err


# -- on the real server


@pytest.mark.engine
async def test_a_real_server_keeps_to_the_schema(run, schema):
    """Its grammar has the smallest model write what fits; without it that writes prose."""
    question, options = "Ada Lovelace was 36. Who was she, and how old?", ("-o", "temperature=0", "--max-tokens", "80")
    with running_server() as server:
        plain = await run("--base-url", server.base_url, "ask", *options, question)
        assert plain.status == 0 and "{" not in plain.out
        done = await run("--base-url", server.base_url, "ask", "--schema", schema, *options, question)
    assert (done.status, done.err) == (0, "")
    found = json.loads(done.out)
    assert set(found) == {"name", "age"} and isinstance(found["age"], int)
