"""Fill an empty conversation: the server, the last conversations, some tips; while there is no server, the first-run
panel."""

from __future__ import annotations

from importlib.util import find_spec

from textual.content import Content

from kvchat.prompt.tags import ARCHIVE
from kvchat.text.cache import HEAT_GLYPHS, opening_words, shown_heat
from kvchat.text.format import age
from kvchat.text.options import beginning_words
from kvchat.text.problems import draft_lines
from kvchat.text.servers import place_words, server_facts
from kvchat.text.tools import tools_in_brief
from kvchat.ui.controllers.workspace import Workspace, in_worker

RECENT = 5
"""Conversations to go back to."""


class EmptyConversation:
    """Shows it in place of the transcript."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        service, screen = workspace.service, workspace.screen
        self._servers = service.servers
        self._service = service
        self._around = screen.conversation_column
        self._hello = screen.hello
        self._transcript = screen.transcript
        self._composer = screen.composer

    def show(self) -> None:
        """The panel while there is nothing to talk to; else what to do, and where the keys are."""
        current = self.workspace.current
        if current is None:
            return
        nothing_there = self._is_nothing_there()
        panels = self._around.query("WelcomePanel")
        if nothing_there and not current.record.turns:
            if not panels:
                self._mount_panel()
        else:
            panels.remove()
        empty = len(current.path()) < 2
        self._hello.display = empty and not nothing_there
        self._transcript.display = not empty
        if self._hello.display:
            self._hello.update(self._content())

    def _is_nothing_there(self) -> bool:
        """Whether there is neither a server nor a substitute for the one used last."""
        return self._servers.connection.phase == "none" or bool(self._servers.last_off)

    def _content(self) -> Content:
        from kvchat.ui.widgets.empty import Recent, empty_screen, first_steps, tips

        service = self._service
        key, server, now = self.workspace.key_of, self._servers.info, service.clock().timestamp()
        others = [record for record in service.conversations.all() if record.turns and ARCHIVE not in record.tags]
        warmth = {record.id: service.tracker.warmth(record.id) for record in others[:RECENT]}
        recent = [
            Recent(
                HEAT_GLYPHS[shown_heat(warmth[record.id])],
                record.title,
                opening_words(warmth[record.id]) or f"{age(now - record.updated)} ago",
            )
            for record in others[:RECENT]
        ]
        notes = self._beginning()
        if tools := self.workspace.conversation.tools:
            notes.append(tools_in_brief(tools, service.prices.of_its_tools(self.workspace.conversation.id)))
        if server is not None and server.is_demo:
            notes.append(f"Bundled demo model: fast, not smart · {key('model')} for a real one")
        elif service.settings.memory.enabled and not service.incognito:
            notes.append(f"Memory keeps facts from chats · {key('memory')}, {key('memory.switch')} turns it off")
        facts = (
            "no server yet"
            if server is None
            else server_facts(server.model, server.context_size, server.slots, service.speeds.fit())
        )
        area = self._around.size
        return empty_screen(
            area.width - 6,
            area.height - self._composer.outer_size.height - 2,
            facts=facts,
            notes=notes,
            recent=recent,
            tips=tips(key, len(others)) if others else first_steps(key),
            left=[line for place in service.store.unread_drafts() for line in draft_lines(place)],
        )

    def _beginning(self) -> list[str]:
        """The files that stand in front of the conversation, where a trunk is its beginning, and what of that is left
        to prefill."""
        conversation = self.workspace.conversation
        if not any(block.ref for block in conversation.path()[0].message.blocks):
            return []
        beginning = self._service.cache_reports.beginning(conversation.path())
        assert beginning is not None
        warmth = self._service.tracker.warmth(conversation.id)
        cost = opening_words(warmth)
        return [
            f"{HEAT_GLYPHS[shown_heat(warmth)]} Begins with {beginning_words(beginning)}{f' · {cost}' if cost else ''}"
        ]

    @in_worker("welcome", exclusive=True)
    async def _mount_panel(self) -> None:
        from kvchat.ui.screens.servers import WelcomePanel

        models = await self._service.chooser.model_files()
        if self._is_nothing_there():
            self._transcript.display = False
            engine = find_spec("xllamacpp") is not None
            panel = WelcomePanel(
                self._servers.usual_places().split(", "),
                models=models,
                engine=engine,
                folders=self._service.chooser.model_folders(),
                last=place_words(last) if (last := self._servers.last_off) else "",
            )
            with self.workspace.key_queue.hold():  # what was typed so far decides who has the next key
                await self._around.mount(panel, before=0)
                await self._composer.written()
                if not self._composer.text:
                    self.workspace.screen.set_focus(panel)
