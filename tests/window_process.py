"""A kvchat without a screen: one service on the store in a folder, told what to do in lines of JSON.

    python window_process.py FOLDER BASE_URL

Each line on standard input is `{"n": 1, "do": "rename", "id": "...", ...}`; it is answered by `{"n": 1, "gives": ...}`
or `{"n": 1, "refused": "a sentence"}` when it is done. Commands run beside each other. What happens of itself is told
as `{"event": "waits" | "began" | "text" | "ended", "id": "..."}`.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from kvchat.chat.errors import ChatError
from kvchat.chat.events import AnswerEnded, AnswerProgressed, AnswerStarted, HeadAwaited, ServiceEvent
from kvchat.chat.question import Question
from kvchat.chat.service import ChatService
from kvchat.config import Settings, changed
from kvchat.store import Store


class WindowProcess:
    def __init__(self, folder: Path, url: str) -> None:
        settings = changed(Settings(), "server.base_url", url)
        self.service = ChatService(Store.open(folder), settings, lanes=folder / "lanes")
        self.service.events.subscribe(self.tell)

    def say(self, **line: object) -> None:
        print(json.dumps(line), flush=True)

    def tell(self, event: ServiceEvent) -> None:
        match event:
            case HeadAwaited(id) if self.service.conversations.awaits_reply(id):
                self.say(event="waits", id=id)
            case AnswerStarted(id):
                self.say(event="began", id=id)
            case AnswerProgressed(id):
                conversation = self.service.conversations.get(id)
                if conversation is not None and conversation.live is not None and conversation.live.text:
                    self.say(event="text", id=id)
            case AnswerEnded(id):
                self.say(event="ended", id=id)

    async def do(self, command: dict[str, Any]) -> None:
        n = command.pop("n")
        try:
            self.say(n=n, gives=await getattr(self, f"do_{command.pop('do')}")(**command))
        except ChatError as error:
            self.say(n=n, refused=str(error))

    async def do_create(self) -> str:
        return (await self.service.new_conversations.create("Be brief.", reuse=False)).id

    async def do_open(self, id: str) -> None:
        await self.service.conversations.open(id)

    async def do_send(self, id: str, text: str) -> None:
        await self.service.turns.send(id, Question(text))

    async def do_queue(self, id: str, text: str) -> None:
        await self.service.turns.queue_up(id, Question(text))

    async def do_edit(self, id: str, node: str, text: str) -> None:
        await self.service.turns.edit(id, node, text)

    async def do_fork(self, id: str, node: str) -> str:
        return (await self.service.branches.fork(id, node)).id

    async def do_rename(self, id: str, title: str) -> None:
        await self.service.conversations.rename(id, title)

    async def do_memory(self, id: str, on: bool) -> None:
        await self.service.extraction.set_memory(id, on)

    async def do_delete(self, id: str) -> None:
        await self.service.conversations.delete(id)

    async def do_restore(self, id: str) -> None:
        await self.service.conversations.restore(id)

    async def do_stop(self, id: str) -> None:
        await self.service.conversations.stop(id)

    async def do_look(self) -> None:
        self.service.refresh()

    async def do_state(self, id: str) -> dict[str, Any]:
        conversation = self.service.conversations.get(id)
        assert conversation is not None
        path = [
            {"id": node.id, "role": node.role, "text": node.text, "state": node.state}
            for node in conversation.path()[1:]
        ]
        conversations = self.service.conversations
        return {"path": path, "waits": conversations.awaits_reply(id), "running": id in conversations.streaming()}


async def main(folder: str, url: str) -> None:
    window, tasks = WindowProcess(Path(folder), url), set[asyncio.Task[None]]()
    window.say(event="ready", id="")
    while line := await asyncio.to_thread(sys.stdin.readline):
        tasks.add(task := asyncio.create_task(window.do(json.loads(line))))
        task.add_done_callback(tasks.discard)
    await window.service.aclose()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
