"""The personas that conversations can begin with: files of the user's own, and the saved system prompts.

A saved system prompt is a persona that has nothing but a system prompt. Both stand in both lists; a file
comes before a saved prompt of its name, and is changed in an editor only.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kvchat.chat.conversations.options import Options
from kvchat.chat.errors import ChatError
from kvchat.config.unknown import nearest
from kvchat.prompt.conversation import SavedPrompt
from kvchat.sanitize import one_line
from kvchat.text.problems import ChatProblem

if TYPE_CHECKING:
    from kvchat.config.personas import Persona
    from kvchat.config.problem import Problem


class Personas:
    """Finds personas. Files are read whenever they are asked for: they may be open in an editor."""

    def __init__(self, folder: Path, options: Options) -> None:
        self.folder = folder
        self._options = options

    def all(self) -> list[Persona]:
        """Every persona, by name."""
        from kvchat.config.personas import Persona

        saved = {prompt.name: Persona(prompt.name, system_prompt=prompt.text) for prompt in self._options.prompts()}
        return sorted({**saved, **self._files()[0]}.values(), key=lambda persona: persona.name.casefold())

    def find(self, name: str) -> Persona:
        """The persona of this name; any case. Raises ChatError."""
        known = self.all()
        for persona in known:
            if persona.name.casefold() == name.strip().casefold():
                return persona
        shown = one_line(name, 40)
        near = nearest(name, [persona.name for persona in known])
        broken = next((problem for problem in self._files()[1] if problem.file and problem.file.stem == name), None)
        if broken is not None:
            raise ChatError(ChatProblem.BROKEN_PERSONA, name=shown, problem=broken)
        raise ChatError(
            ChatProblem.NO_PERSONA_BUT if near else ChatProblem.NO_PERSONA, name=shown, near=near, folder=self.folder
        )

    def problems(self, name: str) -> list[str]:
        """What in the file of this persona is not used, a sentence each."""
        wanted = name.strip().casefold()
        return [
            f"{problem}."
            for problem in self._files()[1]
            if problem.file is not None and problem.file.stem.casefold() == wanted
        ]

    def _files(self) -> tuple[dict[str, Persona], list[Problem]]:
        from kvchat.config.personas import load_personas

        return load_personas(self.folder)

    # The library of system prompts, as its screen has it.

    def prompts(self) -> list[SavedPrompt]:
        """Every system prompt of a persona."""
        return [SavedPrompt(persona.name, persona.system_prompt) for persona in self.all() if persona.system_prompt]

    async def save_prompt(self, prompt: SavedPrompt) -> None:
        """Raises ChatError."""
        self._no_file(prompt.name)
        await self._options.save_prompt(prompt)

    async def delete_prompt(self, name: str) -> None:
        """Raises ChatError."""
        self._no_file(name)
        await self._options.delete_prompt(name)

    def _no_file(self, name: str) -> None:
        if name in self._files()[0]:
            raise ChatError(ChatProblem.PERSONA_FILE, name=name, folder=self.folder)
