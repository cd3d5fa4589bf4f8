"""What the clients are compared with."""

from __future__ import annotations

import json
import threading
import urllib.request
from datetime import datetime, timedelta

from drivers.base import Driver, Setting

Message = dict[str, str]


class Ideal(Driver):
    """Appends, and sends nothing else."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.conversations: dict[str, list[Message]] = {"A": [], "B": []}
        self.current = "A"

    def system(self) -> str:
        return self.setting.system

    def post(self, messages: list[Message]) -> str:
        body = json.dumps({"model": "parrot", "messages": messages}).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.setting.api}/chat/completions", body, headers)
        with urllib.request.urlopen(request, timeout=120) as response:
            return str(json.load(response)["choices"][0]["message"]["content"])

    def say(self, message: str) -> None:
        history = self.conversations[self.current]
        history.append({"role": "user", "content": message})
        reply = self.post([{"role": "system", "content": self.system()}, *history])
        history.append({"role": "assistant", "content": reply})

    def new(self) -> None:
        self.current = "B"

    def switch(self) -> None:
        self.current = "A"

    again = switch


class Naive(Ideal):
    """A clock of minutes in front of the system prompt, and a request for memories behind each answer."""

    EXTRACT = "Extract durable facts about the user from this conversation as a JSON list."
    AFTER_S = 1.8

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._now = datetime(2026, 6, 7, 9, 16)

    def system(self) -> str:
        return f"Current date and time: {self._now:%Y-%m-%d %H:%M} UTC.\n\n{self.setting.system}"

    def say(self, message: str) -> None:
        self._now += timedelta(seconds=30)
        super().say(message)
        threading.Timer(self.AFTER_S, self._extract, [list(self.conversations[self.current])]).start()

    def _extract(self, history: list[Message]) -> None:
        talk = "\n".join(f"{message['role']}: {message['content']}" for message in history[-8:])
        self.post([{"role": "system", "content": self.EXTRACT}, {"role": "user", "content": talk}])
