"""What a driver is given, and what it can do."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(slots=True)
class Setting:
    """Where a client runs."""

    base_url: str
    """Of the recording proxy, without `/v1`."""
    home: Path
    """Its home, empty at the start."""
    programs: Path
    """The folder of its own programs."""
    path: str
    """PATH, with the Node that npm's clients need."""
    system: str
    """The system prompt, for clients that let a person set one."""
    tools: bool = False
    """Whether it is to offer a tool that reads a file, where it does not anyway."""
    options: Mapping[str, str] = field(default_factory=dict)
    clock: dict[str, str] = field(default_factory=dict)
    """Environment of a clock that is not the system's; it may change while the client runs."""
    more: Mapping[str, str] = field(default_factory=dict)
    """Environment that the catalogue adds."""

    @property
    def api(self) -> str:
        return f"{self.base_url}/v1"

    @property
    def workspace(self) -> Path:
        """The folder in which it is started, with `notes.txt` in it."""
        return self.home / "workspace"

    def write(self, path: str, text: str) -> Path:
        """A file under its home."""
        file = self.home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def environment(self, own: Mapping[str, str]) -> dict[str, str]:
        """All of a client's environment, `own` being what its driver sets."""
        folders = {
            "HOME": self.home,
            "XDG_CONFIG_HOME": self.home / ".config",
            "XDG_DATA_HOME": self.home / ".data",
            "XDG_CACHE_HOME": self.home / ".cache",
            "XDG_STATE_HOME": self.home / ".state",
        }
        return {name: str(folder) for name, folder in folders.items()} | {
            "PATH": self.path,
            "LANG": "C.UTF-8",
            **own,
            **self.more,
            **self.clock,
        }


class Driver:
    """Plays one client: conversation A, then B, back to A, and A again in a client that was started anew."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting

    def start(self) -> None:
        """Have it ready for the first message of A."""

    def say(self, message: str) -> None:
        """Submit a message in the open conversation; it may return before the answer is there."""
        raise NotImplementedError

    def new(self) -> None:
        """Begin conversation B."""
        raise NotImplementedError

    def switch(self) -> None:
        """Go back to A."""
        raise NotImplementedError

    def again(self) -> None:
        """End the client and start it in A, which is the open one."""
        raise NotImplementedError

    def stop(self) -> None:
        """End it."""

    @property
    def screen(self) -> str:
        """What it shows, for a look at a run that failed."""
        return ""


class Printed(Driver):
    """A client that runs once for each message and goes on with a conversation that is named."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.conversation = "A"
        self.names: dict[str, str] = {}
        """What the client calls each conversation, once it has begun."""
        self.said: list[str] = []

    def prepare(self) -> dict[str, str]:
        """Write its configuration; its own environment."""
        return {}

    def command(self, conversation: str, first: bool, message: str) -> list[str]:
        raise NotImplementedError

    def name_in(self, output: str) -> str:
        """What it calls the conversation that its first output is of."""
        return self.conversation

    def start(self) -> None:
        self.own = self.prepare()

    def say(self, message: str) -> None:
        first = self.conversation not in self.names
        result = subprocess.run(
            self.command(self.conversation, first, message),
            env=self.setting.environment(self.own),
            cwd=self.setting.workspace,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=180,
        )
        self.said.append(f"--- {message}\n{result.stdout[-3000:]}\n{result.stderr[-1500:]}")
        if first:
            self.names[self.conversation] = self.name_in(result.stdout)

    def program(self, name: str) -> str:
        return str(self.setting.programs / name)

    def new(self) -> None:
        self.conversation = "B"

    def switch(self) -> None:
        self.conversation = "A"

    def again(self) -> None:
        """Each message starts it anew as it is."""

    @property
    def screen(self) -> str:
        return "\n".join(self.said)


def newest(folder: Path) -> str:
    """The name of the entry of `folder` that was written last."""
    return max(
        (entry for entry in folder.iterdir() if entry.name[0] != "."), key=lambda entry: entry.stat().st_mtime
    ).name


def run(command: list[str], environment: dict[str, str], folder: Path) -> str:
    """The output of a client's program that is no turn."""
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=120).stdout


def inherited_path(*folders: Path) -> str:
    return os.pathsep.join([*map(str, folders), os.environ["PATH"]])
