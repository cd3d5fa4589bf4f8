"""What can be done with collections: adding, updating, stopping, removing, and searching in them by itself.

The rule: nothing here touches a file of the person; what cannot be done is said in a sentence.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Awaitable
from pathlib import Path

from textual import work

from kvchat.documents.collection import Collection, Status
from kvchat.sanitize import one_line
from kvchat.text.format import counted
from kvchat.ui.screens.confirm import ConfirmScreen
from kvchat.ui.screens.documents_pages import DocumentsPages
from kvchat.ui.screens.source_file import home_path
from kvchat.ui.terminal.clipboard import copy


class DocumentsActs(DocumentsPages):
    """The acts of the screen."""

    async def act(self, act: Awaitable[object]) -> bool:
        """Do something; whether it was done. What cannot be done is told."""
        async def done() -> bool:
            await act
            return True

        return bool(await self.tried(done()))

    # -- adding and removing

    def action_add(self, path: str = "") -> None:
        from kvchat.ui.screens.documents_add import AddDocumentsScreen

        known = {one.root: one.name for one in self.collections or ()}

        def then(added: Collection | None) -> None:
            if added is not None:
                self._added(added, added.root in known)

        self.app.push_screen(AddDocumentsScreen(self.service.add_documents, known, path=path), then)

    @work(group="dialog")
    async def _added(self, added: Collection, known: bool) -> None:
        await self.look_again(at=added.name)
        if added.name in self.service.indexing:
            name = one_line(added.name, 40)
            self.tell_while_indexing(added.name, f"Looking for changes in {name}." if known else
                                     f"{name} is being indexed. You may close this; it goes on beside your chat.")

    def action_remove(self) -> None:
        one = self.collection
        if one is None:
            return

        def then(sure: bool | None) -> None:
            if sure:
                self._removed(one)

        self.app.push_screen(remove_question(one, self.telling.statuses.get(one.name)), then)

    @work(group="dialog")
    async def _removed(self, one: Collection) -> None:
        if await self.act(self.service.remove_documents(one.name)):
            left = self.searching.without(one.name)
            if left != self.searching:
                await self.act(self.service.set_searching(self.conversation, left.mode, left.collections))
            await self.look_again()
            self.tell(f"{one_line(one.name, 40)} is removed; its files stay.")

    # -- indexing

    async def action_update(self, anew: bool = False) -> None:
        """Look for changes now, or read everything again."""
        one = self.collection
        if one is None:
            return
        if one.name in self.service.indexing:
            self.tell("It is being indexed; c stops that.")
        elif await self.act(self.service.index_documents(one.name, anew)):
            self.tell_while_indexing(one.name, f"Every file of {one_line(one.name, 40)} is read again." if anew else
                                     f"Looking for changes in {one_line(one.name, 40)}.")

    def action_stop_indexing(self) -> None:
        one = self.collection
        if one is not None and one.name in self.service.indexing:
            self.service.stop_indexing(one.name)
            self.tell("Stopped. What is indexed is kept; r goes on.")
        else:
            self.tell("It is not being indexed.")

    # -- this conversation

    async def action_cycle(self) -> None:
        """The next of off, ask and always for the collection under the cursor."""
        one = self.collection
        if one is None:
            return
        if not self.conversation:
            self.tell("There is no open conversation.")
            return
        before = self.searching
        after = before.cycled(one.name)
        if await self.act(self.service.set_searching(self.conversation, after.mode, after.collections)):
            self.fill()
            others = len(after.collections) - 1
            shared = after.mode != before.mode and others > 0 and one.name in after.collections
            self.tell(f"So it is for the {counted(others, 'other')} searched here too." if shared else "")

    # -- the folder

    async def action_folder(self) -> None:
        """Open the folder in the system's own window; where there is none its path is copied."""
        one = self.collection
        if one is None:
            return
        root = Path(one.root)
        folder = root if await asyncio.to_thread(root.is_dir) else root.parent
        if not await asyncio.to_thread(folder.is_dir):
            self.tell(f"There is no folder {home_path(folder)}.", bad=True)
        elif await asyncio.to_thread(_shown, folder):
            self.tell(f"Opened {home_path(folder)}.")
        else:
            self.tell(f"No file manager can be opened from here; the path is in {copy(self.app, str(folder))}.")


def remove_question(one: Collection, status: Status | None = None) -> ConfirmScreen[bool]:
    """Whether a collection is to be removed. Enter leaves it: a key meant for something else removes nothing."""
    chunks = f", {counted(status.chunks, 'chunk')}," if status is not None else ""
    return ConfirmScreen(
        f"Remove {one_line(one.name, 40)}?",
        [f"Its part of the index{chunks} is thrown away. The files in {home_path(one.root)} stay as they are.",
         "What was sent of it stands in the conversations as before."],
        [("n", "Cancel", False), ("y", "Remove", True)])


def _shown(folder: Path) -> bool:
    """Open a folder in the system's file manager; whether there is one."""
    if os.environ.get("SSH_CONNECTION"):
        return False
    command = {"darwin": "open", "win32": "explorer"}.get(sys.platform, "xdg-open")
    has_screen = sys.platform in ("darwin", "win32") or os.environ.get("WAYLAND_DISPLAY") or os.environ.get("DISPLAY")
    if not has_screen or shutil.which(command) is None:
        return False
    try:
        subprocess.Popen([command, str(folder)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL, start_new_session=True)
    except OSError:
        return False
    return True
