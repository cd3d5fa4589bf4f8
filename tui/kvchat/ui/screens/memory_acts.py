"""What can be done with memories, changes and the queue, without writing.

The rule: whatever is done here can be undone here, and what cannot be done is said in a sentence.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, TypeVar

from textual import work

from kvchat.memory.entry import PROFILE, Change, Entry, Status
from kvchat.text.format import counted, moment
from kvchat.ui.screens.confirm import Choice, ConfirmScreen
from kvchat.ui.screens.memory_pages import MemoryPages
from kvchat.ui.screens.memory_source import EXTRACTION, Book, last_change, taken_back, why_off
from kvchat.ui.screens.memory_work import did, quoted, undone

T = TypeVar("T")
Which = Literal["session", "conversation"]


class MemoryActs(MemoryPages):
    """Deleting, accepting, undoing, and the queue."""

    async def act(self, act: Awaitable[T]) -> T | None:
        """Do something and look again; None when it cannot be done: that is said."""
        done = await self.tried(act)
        if done is not None:
            await self.look_again()
        return done

    async def change_memory(self, work: Callable[[Book], T], said: Callable[[T], str]) -> None:
        """Change the memory and say what was done."""
        done = await self.act(self.service.with_memories(work))
        if done is not None:
            self.tell(said(done))

    async def action_delete(self) -> None:
        entry = self.entry
        if entry is not None:
            said = "Discarded" if entry.status is Status.PROPOSED else "Deleted"
            await self.change_memory(lambda book: book.delete(entry.id),
                                     lambda _: f"{said}, and not noted again (u brings it back): {quoted(entry.text)}")

    async def action_accept(self) -> None:
        entry = self.entry
        if entry is not None and entry.status is not Status.PROPOSED:
            self.tell("It is remembered already; only what waits for your yes can be taken.")
        elif entry is not None:
            await self.change_memory(lambda book: book.accept(entry.id),
                                     lambda now: f"Taken, into {now.page}: {quoted(now.text)}")

    async def action_profile(self) -> None:
        """Have every new conversation begin with it."""
        entry = self.entry
        if entry is None:
            return
        if entry.page == PROFILE and entry.status is Status.LIVE:
            self.tell("It is in the profile already: every new conversation begins with it.")
            return

        def into(book: Book) -> Entry:
            taken = book.accept(entry.id) if entry.status is Status.PROPOSED else entry
            return taken if taken.page == PROFILE else book.move(taken.id, PROFILE)

        await self.change_memory(into, lambda now: "In the profile now; every new conversation begins with it: "
                                                   f"{quoted(now.text)}")

    # -- undoing

    async def action_undo(self) -> None:
        """The change under the cursor of the history, else the last one."""
        if self.looked is None:
            return
        change = self.change if self.view == "history" else last_change(self.looked.changes, self.opened_at)
        if change is None:
            self.tell("There is nothing to undo.")
        elif change.undone:
            self.tell("It is undone already.")
        else:
            seq, words = change.seq, undone(change)
            await self.change_memory(lambda book: book.undo(seq), lambda _: words)

    async def action_take_back(self) -> None:
        """Take back all that kvchat did by itself, in its last session or from this conversation."""
        here = self.conversation
        found = await self.tried(self.service.with_memories(lambda book: taken_back(book, here)))
        if found is None:
            return
        session, from_here = found
        if not session and not from_here:
            self.tell("kvchat has noted nothing by itself that is still in force.")
        else:
            self._ask_back(session, from_here)

    @work(group="dialog")
    async def _ask_back(self, session: list[Change], from_here: list[Change]) -> None:
        here = self.conversation
        since = moment(session[-1].at, self.service.now()) if session else ""
        which = await self.app.push_screen_wait(_question(session, from_here, since))
        if which is not None:

            def take_back(book: Book) -> tuple[int, int]:
                done = (book.undo_all(session=session[0].session) if which == "session"
                        else book.undo_all(conversation=here))
                return done, len(book.left)

            await self.change_memory(take_back, lambda done: (
                f"Took back {counted(done[0], 'change')}."
                + (f" {done[1]:,} stay as you have changed them since." if done[1] else " The history has them.")))

    # -- the queue

    async def action_retry(self) -> None:
        """Try again what was given up, or go through now what waits."""
        line = self.queued
        if line is None:
            return
        if line.state == "running":
            self.tell("It is under way.")
            return
        if line.state != "parked" and line.conversation:
            act = self.service.remember_now(line.conversation)
        elif line.kind == EXTRACTION:
            act = self.service.retry_memory(line.subject)
        else:
            act = self.service.retry_job(line.kind, line.subject)
        if await self.act(_finished(act)):
            self.tell("It is done as soon as nothing else runs.")

    async def action_switch(self) -> None:
        """Memory on or off in the open conversation."""
        id = self.conversation
        if not id:
            return
        if await self.act(_finished(self.service.set_memory(id, not self.service.memory_on(id)))):
            self.tell(why_off(self.service, id) or "Memory is on in this conversation.")


def _question(session: list[Change], from_here: list[Change], since: str) -> ConfirmScreen[Which | None]:
    choices: list[Choice[Which | None]] = []
    if session:
        choices.append(("s", f"All of the last session, since {since}: {did(session)}", "session"))
    if from_here:
        choices.append(("c", f"All from this conversation: {did(from_here)}", "conversation"))
    return ConfirmScreen(
        "Take back what kvchat noted?",
        [f"This takes back {counted(len(session or from_here), 'change')} that kvchat made to your memory by itself.",
         "What you wrote, accepted or edited yourself stays. The history keeps all of it; u there brings one back."],
        [*choices, ("n", "Cancel", None)])


async def _finished(act: Awaitable[object]) -> bool:
    await act
    return True
