"""Clients with a screen or a prompt of lines, driven by keys."""

from __future__ import annotations

import json
import subprocess
import time
from shlex import quote

from drivers.base import Driver, Setting, newest, run
from drivers.terminal import Terminal

MODEL = "parrot"
LOOK = '''def read(path: str) -> str:
    """Read a file of the folder."""
    with open(path) as file:
        return file.read()
'''


class Typed(Driver):
    """A client in a terminal."""

    ready = ""
    """A pattern that is on the screen when it takes keys."""
    settled = 1.0
    """Seconds after that in which it may still lose what is typed."""
    enter = "Enter"
    variables: dict[str, str]

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.variables = {}
        self._terminal: Terminal | None = None
        self._started = 0

    @property
    def terminal(self) -> Terminal:
        assert self._terminal, "the client was not started"
        return self._terminal

    @property
    def screen(self) -> str:
        return self._terminal.screen if self._terminal else ""

    def launch(self, command: str) -> None:
        """Start `command`, whose first word is a program of the client's, and wait until it takes keys."""
        self._started += 1
        environment = self.setting.environment(self.variables)
        name = f"{type(self).__name__.lower()}{self._started}"
        program = f"{quote(str(self.setting.programs))}/{command}"
        self._terminal = Terminal(program, environment, self.setting.workspace, name)
        self.terminal.wait(self.ready)
        time.sleep(self.settled)

    def say(self, message: str) -> None:
        self.terminal.submit(message, self.enter)

    def leave(self, words: str, seconds: float = 2.0) -> None:
        """End it in its own way: by `words` that it takes for that."""
        self.say(words)
        time.sleep(seconds)
        self.terminal.end()

    def stop(self) -> None:
        if self._terminal:
            self._terminal.end()


class Kvchat(Typed):
    """kvchat; Ctrl+N begins a conversation, F9 goes back to the other one."""

    ready = "Message"
    WARM = "● New conversation"
    """The list's mark of a new conversation whose system prompt is in the server's cache."""

    def start(self) -> None:
        home = self.setting.home
        self.settled = 0
        self.variables = {"KVCHAT_DATA_DIR": str(home / "data"), "KVCHAT_CONFIG": str(home / "config.toml")}
        if self.setting.tools:
            self.setting.write("config.toml", 'tools = ["files"]\n')
        prompt = self.setting.write("system.txt", self.setting.system)
        self._allowed = False
        self.launch(f"{self._command} --system @{prompt}")
        if self.setting.options.get("first") != "at once":
            self.terminal.wait(self.WARM)

    @property
    def _command(self) -> str:
        return f"kvchat --base-url {self.setting.base_url}"

    def say(self, message: str) -> None:
        super().say(message)
        if self.setting.tools and not self._allowed:
            self.terminal.wait("(?i)always")
            time.sleep(1)
            self.terminal.press("a")
            self._allowed = True

    def new(self) -> None:
        self.terminal.press("C-n")
        time.sleep(1)

    def switch(self) -> None:
        self.terminal.press("F9")
        time.sleep(1)

    def again(self) -> None:
        self.terminal.press("C-q")
        time.sleep(3)
        self.terminal.end()
        self.launch(f"{self._command} -c")
        time.sleep(2)


class Llm(Typed):
    """llm's chat; a conversation is resumed by its number."""

    ready = r"(?m)^> ?$"

    def start(self) -> None:
        home = self.setting.home
        tools = "  supports_tools: true\n" if self.setting.tools else ""
        entry = f'- model_id: {MODEL}\n  model_name: {MODEL}\n  api_base: "{self.setting.api}"\n{tools}'
        self.setting.write("llm/extra-openai-models.yaml", entry)
        prompt = self.setting.write("system.txt", self.setting.system)
        self._tools = f" --functions {self.setting.write('functions.py', LOOK)}" if self.setting.tools else ""
        self.variables = {"LLM_USER_PATH": str(home / "llm"), "OPENAI_API_KEY": "none"}
        self._command = f'llm chat -m {MODEL} -s "$(cat {quote(str(prompt))})"{self._tools}'
        self.launch(self._command)

    def new(self) -> None:
        program = str(self.setting.programs / "llm")
        environment = self.setting.environment(self.variables)
        logs = run([program, "logs", "list", "-n", "1", "--json"], environment, self.setting.home)
        self._number = json.loads(logs)[0]["conversation_id"]
        self.leave("exit")
        self.launch(self._command)

    def switch(self) -> None:
        self.leave("exit")
        self.launch(f"llm chat --cid {self._number}{self._tools}")

    again = switch


class Oterm(Typed):
    """oterm; both chats are made in its store beforehand, as its dialog does."""

    ready = r"chat-?A"
    settled = 2.0
    MAKE = """
import asyncio, sys
from oterm.store.store import Store
from oterm.types import ChatModel
async def main():
    store = await Store.get_store()
    for name in "AB":
        chat = ChatModel(name="chat" + name, model="parrot", system=open(sys.argv[1]).read(), provider="openai-compat/local")
        await store.save_chat(chat)
asyncio.run(main())
"""

    def start(self) -> None:
        data = self.setting.home / "data"
        provider = {"local": {"base_url": self.setting.api, "api_key": "none"}}
        settings = {"theme": "textual-dark", "splash-screen": False, "openaiCompatible": provider}
        self.setting.write("data/config.json", json.dumps(settings))
        prompt = self.setting.write("system.txt", self.setting.system)
        self.variables = {"OTERM_DATA_DIR": str(data), "OLLAMA_HOST": "127.0.0.1:1"}
        subprocess.run(
            [str(self.setting.programs / "python"), "-c", self.MAKE, str(prompt)],
            env=self.setting.environment(self.variables),
            check=True,
            capture_output=True,
        )
        self.launch("oterm")
        self._open("chatA")

    def _open(self, name: str) -> None:
        self.terminal.press("C-f")
        time.sleep(3)
        self.terminal.type(name)
        time.sleep(3)
        self.terminal.press("Enter")
        time.sleep(3)

    def new(self) -> None:
        self._open("chatB")

    def switch(self) -> None:
        self._open("chatA")

    def again(self) -> None:
        self.terminal.press("C-q")
        time.sleep(2)
        self.terminal.end()
        self.launch("oterm")
        self._open("chatA")


class Elia(Typed):
    """elia; its home lists conversations, the newest on top."""

    ready = "Send message"
    enter = "C-j"

    def start(self) -> None:
        self.setting.write(
            ".config/elia/config.toml",
            f'''default_model = "openai/{MODEL}"
system_prompt = {json.dumps(self.setting.system)}
[[models]]
name = "openai/{MODEL}"
api_base = "{self.setting.api}"
api_key = "none"
temperature = 0
''',
        )
        self.variables = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        self.launch("elia")

    def new(self) -> None:
        self.terminal.press("Escape")
        time.sleep(1)

    def switch(self) -> None:
        self.new()
        self.terminal.press("Tab", "Down", "Enter")
        time.sleep(2)

    def again(self) -> None:
        self.terminal.end()
        self.launch("elia")
        self.terminal.press("Tab", "Enter")
        time.sleep(2)


class Gptme(Typed):
    """gptme's prompt of lines, without tools; it names conversations by itself."""

    ready = r"(?m)(User|you)[^\n]*[:>❯] *$"

    def start(self) -> None:
        settings = f'OPENAI_BASE_URL = "{self.setting.api}"\nOPENAI_API_KEY = "none"\nMODEL = "local/{MODEL}"\n'
        self.setting.write(".config/gptme/config.toml", f"[env]\n{settings}")
        self._prompt = self.setting.write("system.txt", self.setting.system)
        self.variables = {"OPENAI_BASE_URL": self.setting.api, "OPENAI_API_KEY": "none"}
        self._open("first")

    def _open(self, name: str) -> None:
        prompt = f'"$(cat {quote(str(self._prompt))})"'
        folder = quote(str(self.setting.workspace))
        self.launch(f"gptme -m local/{MODEL} --tools none --system {prompt} --name {name} -w {folder}")

    def new(self) -> None:
        self.leave("/exit")
        self._open("second")

    def switch(self) -> None:
        self.leave("/exit")
        self._open("first")

    again = switch


class Aider(Typed):
    """aider in ask mode; a history file for each conversation."""

    ready = r"(?m)^(ask)?> *$"

    def start(self) -> None:
        self.variables = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "AIDER_ANALYTICS": "false"}
        self._open("A")

    def _open(self, conversation: str, *more: str) -> None:
        home = quote(str(self.setting.home))
        self.launch(
            f"aider --model openai/{MODEL} --openai-api-base {self.setting.api} --openai-api-key none --no-git "
            "--no-check-update --no-show-model-warnings --analytics-disable --no-show-release-notes --no-detect-urls "
            f"--yes-always --chat-mode ask --map-tokens 0 --chat-history-file {home}/{conversation}.md "
            f"--input-history-file {home}/input {' '.join(more)}"
        )

    def new(self) -> None:
        self.leave("/exit")
        self._open("B")

    def switch(self) -> None:
        self.leave("/exit")
        self._open("A", "--restore-chat-history")

    again = switch


class Cline(Typed):
    """Cline's screen, its own prompt and tools: in print mode it takes no message for a session that goes on."""

    ready = "Auto-approve"
    settled = 4.0

    def start(self) -> None:
        self.variables = {"CLINE_TELEMETRY_DISABLED": "1"}
        self._run("auth", "-p", "openai", "-k", "none", "-m", MODEL, "-b", self.setting.api)
        self._open()

    def _run(self, *arguments: str) -> None:
        command = [str(self.setting.programs / "cline"), *arguments]
        run(command, self.setting.environment(self.variables), self.setting.workspace)

    def _open(self, arguments: str = "") -> None:
        self.launch(f"cline -i -P openai-compatible -m {MODEL} {arguments}")
        self.terminal.press("Escape")  # whatever lies over it closes at any key
        time.sleep(1)

    def new(self) -> None:
        self._first = newest(self.setting.home / ".cline/data/sessions")
        self.terminal.end()
        time.sleep(1)
        self._open()

    def switch(self) -> None:
        self.terminal.end()
        time.sleep(1)
        self._open(f"--id {self._first}")

    again = switch

    def stop(self) -> None:
        super().stop()
        self._run("hub", "stop")
