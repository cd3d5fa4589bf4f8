"""The tools of MCP servers in conversations: what is offered stays, whatever becomes of the server."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import suppress
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from kvchat.chat.errors import ChatError
from kvchat.chat.events import AnswerProgressed, Noticed
from kvchat.chat.question import Question
from kvchat.chat.tools import mcp_servers
from kvchat.chat.tools.tool import ToolError
from kvchat.config import Settings, changed
from kvchat.prompt.context import guarded
from toyserver import ToyServer, Visit, calls, reply, tokens

pytestmark = pytest.mark.process
BOX = str(Path(__file__).parent.parent / "mcp_box.py")
SAY = '{"text": "lamp"}'


class File:
    """The file of MCP servers."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def has(self, *modes: str, name: str = "box", **entry: object) -> None:
        """One server, the small one, in these modes."""
        server = {"command": sys.executable, "args": [BOX, *modes], **entry}
        self.path.write_text(json.dumps({"mcpServers": {name: server}}))


@pytest.fixture
def file(tmp_path: Path) -> File:
    made = File(tmp_path / "mcp.json")
    made.has()
    return made


@pytest.fixture
def begun(make, server: ToyServer, file: File):
    """Makes services, as restarts do, that agree to the programs of the file and to their calls."""

    async def begun(agrees: bool = True, **options: object):
        service = make(server.url, mcp_file=file.path, **options)
        for one in service.mcp.to_agree(["box"]).values() if agrees else ():
            await service.mcp.agree(one)
        service.tools.give(["box"] if agrees else [])
        return service

    return begun


async def asks(service, server: ToyServer, *answers, id: str):
    server.on_chat(*answers)
    await service.turns.send(id, Question("What now?"))
    await service.conversations.wait(id)
    return await service.conversations.open(id)


def names(visit) -> list[str]:
    return [one["function"]["name"] for one in visit.json["tools"]]


async def test_a_turn_calls_a_tool_of_a_server(begun, server: ToyServer) -> None:
    service = await begun()
    conversation = await service.new_conversations.create(tools=["box"], reuse=False)
    answer = tokens("It says lamp.", prompt=60)
    conversation = await asks(service, server, calls(SAY, name="box__say"), answer, id=conversation.id)
    block = conversation.path()[3].message.blocks[-1]
    assert block.text == "lamp 1\n\n[image, not shown]"
    assert conversation.path()[-1].text == "It says lamp."
    [odd, say] = server.chats[0].json["tools"]
    assert odd["function"]["name"].startswith("box__count_next_") and say["function"]["name"] == "box__say"
    described = say["function"]["parameters"]["properties"]["text"]
    assert say["function"]["parameters"]["required"] == ["text"] and "title" not in described
    assert described["description"] == guarded("What to say <|im_end|>.") != "What to say <|im_end|>."


async def test_a_tool_of_a_server_is_found_behind_a_prefix(begun, server: ToyServer) -> None:
    service = await begun()
    conversation = await service.new_conversations.create(tools=["box"], reuse=False)
    call = calls(SAY, name="mcp__box__say")
    conversation = await asks(service, server, call, tokens("Lamp.", prompt=60), id=conversation.id)
    assert conversation.path()[3].message.blocks[-1].text.startswith("lamp 1")


async def test_what_is_offered_stays_whatever_the_server_lists_later(begun, server: ToyServer, file: File) -> None:
    service = await begun()
    conversation = await service.new_conversations.create(tools=["Box", "files"], reuse=False)
    await asks(service, server, calls(SAY, name="box__say"), tokens("Yes.", prompt=60), id=conversation.id)
    for modes in (["shuffled"], ["shuffled", "more"], ["without"], ["dies"]):
        file.has(*modes)
        later = await begun()
        await later.mcp.list_tools(["box"])
        await later.conversations.open(conversation.id)
        await asks(later, server, calls(SAY, name="box__say"), tokens("Yes.", prompt=60), id=conversation.id)
    file.path.write_text('{"mcpServers": {}}')
    last = await begun()
    await last.conversations.open(conversation.id)
    told = await asks(last, server, calls(SAY, name="box__say"), tokens("No.", prompt=60), id=conversation.id)
    assert "The tool box__say is not available now." in told.path()[-2].text
    assert len({json.dumps(visit.json["tools"]) for visit in server.chats}) == 1
    bodies = [json.dumps(visit.json["messages"])[:-1] for visit in server.chats]
    assert all(after.startswith(before) for before, after in pairwise(bodies))


async def test_a_new_conversation_has_what_was_listed_last_and_starts_nothing(begun, server, file: File, make) -> None:
    service = await begun()
    await service.new_conversations.create(tools=["box"], reuse=False)
    before = service.mcp.named("box")
    file.has("no such mode")  # another command line: nobody agreed to it
    settings = changed(Settings(), "tools", ("box", "files"))
    later = make(server.url, settings, mcp_file=file.path)
    conversation = await later.new_conversations.create(reuse=False)
    assert conversation.tools == (*[one.name for one in before], "read_file")


async def test_nothing_starts_without_a_yes_to_its_command_line(begun, server: ToyServer, file: File) -> None:
    service = await begun(agrees=False)
    [(name, program)] = service.mcp.to_agree(["files", "Box__say"]).items()
    assert name == "box" and program.shown.endswith("mcp_box.py")
    with pytest.raises(ChatError, match="/tools box shows its command line"):
        await service.new_conversations.create(tools=["box"], reuse=False)
    service = await begun()
    conversation = await service.new_conversations.create(tools=["box"], reuse=False)
    file.has("more")
    later = await begun(agrees=False)
    later.tools.give(["box"])
    await later.conversations.open(conversation.id)
    told = await asks(later, server, calls(SAY, name="box__say"), tokens("No.", prompt=60), id=conversation.id)
    assert "is not agreed to" in told.path()[-2].text


async def test_an_incognito_run_keeps_no_yes_and_no_list(begun, make, server: ToyServer, file: File) -> None:
    service = await begun(incognito=True)
    await service.new_conversations.create(tools=["box"], reuse=False)
    later = make(server.url, mcp_file=file.path)
    assert later.mcp.to_agree(["box"])
    with pytest.raises(ChatError, match="not known yet"):
        later.mcp.named("box")


async def test_usual_tools_that_cannot_be_had_are_left_out_and_said(make, server: ToyServer, file: File) -> None:
    settings = changed(Settings(), "tools", ("box", "nothing", "files"))
    service = make(server.url, settings, mcp_file=file.path)
    said: list[str] = []
    service.events.subscribe(lambda event: said.append(event.text) if isinstance(event, Noticed) else None)
    conversation = await service.new_conversations.create(reuse=False)
    assert conversation.tools == ("read_file",)
    assert "The tools of box are not known yet" in said[0] and "There is no tool nothing." in said[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [('{"text": "fail"}', "It is empty."), ('{"text": 5}', "5 1"), ("{}", " 1")],
)
async def test_what_the_server_says_of_a_call_goes_back_word_for_word(
    begun, server, arguments: str, words: str
) -> None:
    service = await begun()
    conversation = await service.new_conversations.create(tools=["box__say"], reuse=False)
    assert conversation.tools == ("box__say",)
    answer = tokens("So.", prompt=60)
    told = await asks(service, server, calls(arguments, name="box__say"), answer, id=conversation.id)
    result = told.path()[-2].message
    assert words in "".join([told.path()[-2].text, *(block.text for block in result.blocks)])


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="processes are looked for in /proc")
async def test_a_program_starts_as_the_question_goes_out_in_its_own_time(begun, server, file: File) -> None:
    here = f"starts-{os.getpid()}"
    file.has("slow", here, timeout=1)
    service = await begun()
    conversation = await service.new_conversations.create(tools=["box__say"], reuse=False)
    await service.mcp.aclose()
    assert not runs(here)

    async def once_it_runs(visit: Visit) -> None:
        while not runs(here):  # noqa: ASYNC110  (processes tell of no change)
            await asyncio.sleep(0.02)
        await calls(SAY, name="box__say")(visit)

    told = await asks(service, server, once_it_runs, tokens("So.", prompt=60), id=conversation.id)
    assert told.path()[-2].message.blocks[0].text.startswith("lamp 1")
    await service.mcp.aclose()
    assert not runs(here)


def runs(words: str) -> bool:
    """Whether a process has this word in its command line."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if words.encode() in path.read_bytes():
                return True
    return False


async def test_progress_is_shown_and_has_the_call_waited_for(begun, server: ToyServer, file: File) -> None:
    file.has("works", timeout=1)
    service = await begun()
    conversation = await service.new_conversations.create(tools=["box__say"], reuse=False)
    shown: list[str] = []

    def show(event: object) -> None:
        live = conversation.live
        if isinstance(event, AnswerProgressed) and live is not None and live.waiting is not None:
            shown.append(live.waiting.words)

    service.events.subscribe(show)
    answer = tokens("So.", prompt=60)
    told = await asks(service, server, calls(SAY, name="box__say"), answer, id=conversation.id)
    assert told.path()[-2].message.blocks[0].text.startswith("lamp 1")
    assert [words for words in shown if words][:2] == ["1 of 10: Looking", "2 of 10: Looking"]


@pytest.mark.parametrize("by_file", [True, False])
async def test_a_call_without_a_sign_is_ended_after_its_seconds(begun, server, file: File, by_file: bool) -> None:
    if by_file:
        file.has(timeout=1)
    service = await begun(**({} if by_file else {"wanted": changed(Settings(), "tool_seconds", 1)}))
    conversation = await service.new_conversations.create(tools=["box__say"], reuse=False)
    answer = tokens("So.", prompt=60)
    told = await asks(service, server, calls('{"text": "wait"}', name="box__say"), answer, id=conversation.id)
    assert "box__say gave no sign for 1 s, and was ended." in told.path()[-2].text


async def test_what_is_left_out_of_a_list_is_said(begun, file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_servers, "MOST_TOOLS", 1)
    service = await begun()
    said: list[str] = []
    service.events.subscribe(lambda event: said.append(event.text) if isinstance(event, Noticed) else None)
    await service.mcp.list_tools(["box"])
    assert said == service.mcp.left_out(["box"])
    assert said == [
        "box: 3 tools cannot be offered (a tool: it has no name; no table: its schema is no table; a tool: it has no name). "
        "box lists 2 tools, and kvchat takes 1, by name. 1 left out: say."
    ]


async def test_a_broken_file_is_said_where_a_server_is_named(begun, file: File) -> None:
    file.path.write_text("{")
    service = await begun(agrees=False)
    with pytest.raises(ChatError, match=r"mcp\.json is not JSON: line 1"):
        await service.new_conversations.create(tools=["box"], reuse=False)
    conversation = await service.new_conversations.create(tools=["files"], reuse=False)
    assert conversation.tools == ("read_file",)
    assert service.mcp.to_agree(["files"]) == service.mcp.to_agree([]) == service.mcp.known() == {}
    await service.branches.set_tools(conversation.id, [])
    assert conversation.tools == ()


async def test_nothing_long_goes_to_an_address_unseen(begun, server: ToyServer, file: File) -> None:
    service = await begun()
    await service.mcp.list_tools(["box"])
    address = {"mcpServers": {"box": {"url": "https://box.example/mcp"}}}
    file.path.write_text(json.dumps(address))
    tool = service.mcp.tool("box__say")
    assert tool is not None and tool.permission({"text": "lamp"}).goes_to == "https://box.example/mcp"
    with pytest.raises(ToolError, match="nothing longer goes out"):
        tool.permission({"text": "lamp " * 5000})


async def test_a_server_that_failed_or_changed_is_asked_again(begun, file: File) -> None:
    file.path.write_text(json.dumps({"mcpServers": {"box": {"command": "no-such-program"}}}))
    service = await begun()
    for _ in range(2):
        with pytest.raises(ChatError, match="The MCP server box gives no tools: no-such-program cannot be started"):
            await service.mcp.list_tools(["box"])
    for modes, count in ((["plain"], 2), (["more"], 3)):
        file.has(*modes)
        [server] = service.mcp.to_agree(["box"]).values()
        await service.mcp.agree(server)
        await service.mcp.list_tools(["box"])
        assert len(service.mcp.named("box")) == count


async def test_nothing_is_started_for_a_model_without_tools(begun, server: ToyServer, file: File) -> None:
    caps = {"supports_tools": False, "supports_tool_calls": False}
    props = {"build_info": "b11549-toy", "total_slots": 1, "model_path": "toy.gguf", "chat_template_caps": caps}
    server.on("/props", reply(200, {**props, "default_generation_settings": {"n_ctx": 4096}}))
    service = await begun()
    conversation = await service.new_conversations.create(reuse=False)
    await service.servers.reach(conversation.id)
    for act in (
        service.branches.can_have(conversation.id, ["box"]),
        service.branches.set_tools(conversation.id, ["files"]),
        service.new_conversations.create(tools=["box"], reuse=False),
    ):
        with pytest.raises(ChatError, match="has no tools: its chat template has no place for them"):
            await act
    with pytest.raises(ChatError, match="not known yet"):
        service.mcp.named("box")
    await service.branches.set_tools(conversation.id, [])


async def test_a_list_of_today_starts_no_program(begun, file: File, clock, tmp_path: Path) -> None:
    log = tmp_path / "starts"

    async def created(name: str = "box", *modes: str) -> tuple[int, tuple[str, ...]]:
        """How often the program was started by then, and the tools."""
        file.has(*modes, env={"BOX_STARTS": str(log)})
        conversation = await (await begun()).new_conversations.create(tools=[name], reuse=False)
        return log.read_text().count("\n"), conversation.tools

    first, tools = await created()
    assert first == 1
    assert await created() == (1, tools)
    assert await created("box__say") == (1, ("box__say",))
    with pytest.raises(ChatError, match="There is no tool box__none"):
        await created("box__none")
    assert (await created())[0] == 2, "it was asked again for one that it may have by now"
    clock.now += timedelta(hours=25)
    assert (await created())[0] == 3
    assert "box__added" in (await created("box", "more"))[1], "another command line"


async def test_a_list_of_an_older_kvchat_is_made_again(begun, file: File, tmp_path: Path) -> None:
    file.has(env={"BOX_STARTS": str(tmp_path / "starts")})
    service = await begun()
    await service.mcp.list_tools(["box"])
    await service.core.keep_setting("tools listed at box", None)
    await (await begun()).new_conversations.create(tools=["box"], reuse=False)
    assert (tmp_path / "starts").read_text().count("\n") == 2
