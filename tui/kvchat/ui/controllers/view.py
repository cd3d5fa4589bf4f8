"""Show the open conversation as it is now, in the transcript and the bars around it.

It decides nothing that a test of the service could not see.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kvchat.chat.events import DeletedElsewhere, HeadAwaited, WrittenElsewhere
from kvchat.chat.question.mentions import spans_in
from kvchat.commands.acts import Deleted
from kvchat.figures.accounting import NOISE
from kvchat.prompt.images import images_in, sha256_of
from kvchat.prompt.message import Role, State
from kvchat.reports.warmth import Heat
from kvchat.sanitize import one_line
from kvchat.text.cache import HEAT_NAMES, cost_words, opening_words, roughly_known, shown_heat, to_prefill, to_read
from kvchat.text.format import duration
from kvchat.text.notes import note_sentence
from kvchat.ui.controllers.workspace import Workspace, in_worker
from kvchat.ui.view_models import item_of, live_row, prefilled, written_call
from kvchat.ui.widgets.sidebar_rows import Mark, mark_of, rows_of
from kvchat.ui.widgets.statusline import live_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from textual.timer import Timer

    from kvchat.figures.speed import SpeedFit
    from kvchat.prompt.message import Node
    from kvchat.ui.controllers.cache_panel import CachePanelController
    from kvchat.ui.controllers.compaction import CompactionController
    from kvchat.ui.controllers.documents import DocumentController
    from kvchat.ui.controllers.empty import EmptyConversation
    from kvchat.ui.controllers.queue import QueueController
    from kvchat.ui.controllers.server import ServerController
    from kvchat.ui.controllers.too_long import TooLongMessages

MOST_PICTURES = 50
"""Images of a conversation that are shown."""
TICK = 0.25
"""Seconds between looks at a running answer's clock."""
FOLLOWED = "Another window wrote here."
STAYED = "Another window wrote on another branch · /tree shows it"
DELETED = "Another window deleted this conversation · {key} brings it back"
WAITS = "Another window is answering · sends after it · {key} holds"


class ConversationView:
    """Feeds the widgets of the main screen from the service."""

    def __init__(
        self,
        workspace: Workspace,
        server: ServerController,
        compaction: CompactionController,
        too_long: TooLongMessages,
        documents: DocumentController,
        empty: EmptyConversation,
        panel: CachePanelController,
        queue: QueueController,
    ) -> None:
        self.workspace = workspace
        service, screen = workspace.service, workspace.screen
        self._service = service
        self._conversations = service.conversations
        self._tracker = service.tracker
        self._speeds = service.speeds
        self._server = server
        self._compaction = compaction
        self._too_long = too_long
        self._documents = documents
        self._empty = empty
        self._panel = panel
        self._queue = queue
        self._header = screen.header
        self._sidebar = screen.sidebar
        self._transcript = screen.transcript
        self._composer = screen.composer
        self._status = screen.status
        self._speed: SpeedFit | None = None
        """The prefill time by tokens on the server of the open conversation, once measured."""
        self._ticking: Timer | None = None
        self._summarising = False
        self._pictures: set[str] = set()
        """The images that were shown, or tried to be."""
        self._told_news: tuple[object, ...] = ()
        """What of the running answer's prompt was shown last."""
        self._kind = ""
        """The kind of server that the messages were shown for."""

    # -- the list

    def show_list(self) -> None:
        self._sidebar.set_rows(
            rows_of(
                self._conversations.shown(),
                self._conversations.streaming(),
                self.held(),
                self._service.claims.conversations(),
            )
        )
        if self.workspace.current is not None:
            self._sidebar.set_open(self.workspace.current.id)

    def mark(self, id: str) -> Mark:
        """The mark of a conversation in lists."""
        return mark_of(self._tracker.warmth(id), id in self._conversations.streaming())

    def state(self, id: str) -> str:
        """The same in a few words."""
        if id in self._conversations.streaming():
            return "answering"
        warmth = self._tracker.warmth(id)
        return opening_words(warmth) or ("" if warmth.heat is Heat.UNKNOWN else HEAT_NAMES[shown_heat(warmth)])

    def held(self) -> Mapping[str, int]:
        """The conversations whose queue waits for the user, each with the number of its messages."""
        queue = self._service.queue
        return {id: len(queue.of(id)) for id in queue.held_ids()}

    def warmth_changed(self) -> None:
        self._sidebar.refresh_marks()
        if self.workspace.current is not None:
            self._show_aside()
            self._panel.show()
            self._show_rail()
            self._empty.show()

    def server_changed(self) -> None:
        """Whether a cut answer can be continued is known once its server is."""
        server, current = self._service.servers.info, self.workspace.current
        if server is None or current is None or server.kind == self._kind:
            return
        self._kind = server.kind
        if any(node.is_cut for node in current.path()):
            self._transcript.set_source(self._compaction.items())

    # -- the conversation

    def show(self) -> None:
        """All of the open conversation."""
        conversation = self.workspace.conversation
        path = conversation.path()
        self._transcript.set_source(self._compaction.items())
        asked = [node for node in reversed(path) if node.role is Role.USER]
        self._composer.set_history([node.text for node in asked], lambda at: spans_in(asked[at].message))
        self._status.set_live(None)
        self._transcript.set_live(None)
        self._show_pictures(path)
        self._panel.show()
        self._show_rail()
        last = next((n for n in reversed(path) if n.role is Role.ASSISTANT), None)
        self._speed = self._speeds.on(path)
        self._status.set_turns(conversation.figures(), state=last.state if last else State.DONE)
        self._too_long.show()
        self._queue.show()
        self._show_waiting(conversation.id)
        self._show_aside()
        self._documents.show_retrieval()
        self._header.set_title(conversation.record.title if conversation.record.turns else "")
        self._show_context(conversation.context_used if len(path) > 1 else None, exact=conversation.context_is_exact)
        is_named = conversation.record.turns and not self._service.incognito  # lists and logs of the desktop have it
        self.workspace.host.desktop.show_title(conversation.record.title if is_named else "")
        self._empty.show()
        self.workspace.screen.show_footer()
        if conversation.id in self._conversations.streaming():
            self.tick()

    def _show_pictures(self, path: Sequence[Node]) -> None:
        """The images of a branch, the newest first, where the terminal has the colours for them."""
        names = [
            sha256_of(block)
            for node in reversed(path)
            if node.message.blocks
            for block in images_in(node.message.blocks)
        ]
        wanted = [name for name in dict.fromkeys(names[:MOST_PICTURES]) if name not in self._pictures]
        app = self.workspace.app
        if wanted and not app.no_color and app.console.color_system in ("truecolor", "256"):
            self._pictures.update(wanted)
            self._make_pictures(wanted)

    @in_worker("pictures")
    async def _make_pictures(self, names: Sequence[str]) -> None:
        self._transcript.add_pictures(await self._service.thumbnails.of(names))

    def _show_aside(self) -> None:
        """At the right of the status line: how far the conversation is read ahead, and how full its window is, what its
        next turn would read, or what was saved."""
        conversation = self.workspace.conversation
        warms_up = self._tracker.warming == conversation.id
        self._status.set_warm_up(warms_up, self._tracker.warmup_progress if warms_up else None)
        totals, warmth = conversation.totals(self._speed), self._tracker.warmth(conversation.id)
        words = ""
        if offer := self._compaction.offer_words():
            words = offer
        elif conversation.live is None and (tokens := to_read(warmth)) and tokens > NOISE:
            seconds = self._service.prices.estimate(conversation.id, "open").seconds
            amount = roughly_known(warmth) + cost_words(tokens, seconds)
            words = f"{HEAT_NAMES[shown_heat(warmth)]}: {to_prefill(amount)}"
        elif totals.seconds_saved and totals.cached_tokens > NOISE and totals.turns > 1:
            words = f"{duration(totals.seconds_saved)} saved so far"
        self._status.set_aside(words)

    def _show_rail(self) -> None:
        """Show next to the messages where their tokens are now."""
        self._transcript.set_rail(self._service.rail.stretches(self.workspace.conversation.id))

    def _show_context(self, used: int | None, *, exact: bool = True) -> None:
        self._header.set_context(used, self._service.servers.window(self.workspace.open_id), exact=exact)

    # -- a running answer

    def answer_began(self) -> None:
        self._begin_ticking()
        self.show_list()

    def show_progress(self) -> None:
        """What has come of the open conversation's answer."""
        live = self.workspace.conversation.live
        if live is None:
            return
        if live.text or live.reasoning or live.call:
            self._transcript.stream_text(live.node, live.text, live.reasoning, written_call(live.call))
        # Tokens are counted by the clock's tick; what is shown at once is the prompt's progress and its end.
        news = (live.prefill, live.waiting, live.first_token_at)
        if news != self._told_news:
            self._told_news = news
            self._show_rail()
            self.tick()

    def answer_ended(self, id: str, node: str) -> None:
        conversation, workspace = self._conversations.get(id), self.workspace
        if conversation is None or node not in conversation.tree:
            return
        answer, here = conversation.tree[node], workspace.shows(id)
        if here:
            self._transcript.end_stream(
                item_of(
                    conversation.tree, answer, None, workspace.model(), workspace.now(), continues=workspace.continues
                )
            )
            self._compaction.offer()
        elif answer.state is State.ERROR:
            workspace.say(f"{one_line(conversation.record.title, 40)}: {note_sentence(answer.note)}", "error")
        if self._service.settings.notify and not (here and workspace.app.app_focus):
            self._call(conversation.record.title, "Answer failed" if answer.state is State.ERROR else "Answer ready")
        self.show_list()

    def tool_asked(self, id: str) -> None:
        """A call waits for the user's word."""
        here = self.workspace.shows(id) and self.workspace.app.app_focus
        if id in self._service.tools.waiting and self._service.settings.notify and not here:
            self._call(self._conversations.title(id), "A call waits for your word")

    def _call(self, title: str, words: str) -> None:
        """Call the user to a conversation. A notification may be kept in the system's history."""
        app = self.workspace.app
        app.bell()
        if not app.app_focus:
            self.workspace.host.desktop.notify(words if self._service.incognito else f"{words}: {title}")

    def _show_prefilled(self) -> None:
        """In the terminal's tab: the open conversation's prefill, else that of another one."""
        host = self.workspace.host
        if not host.has_terminal:
            return
        found = None
        if self._service.settings.progress:
            now, current = time.monotonic(), self.workspace.current
            opened = [self._conversations.get(id) for id in self._conversations.streaming()]
            lives = [one.live for one in sorted(opened, key=lambda one: one is not current) if one and one.live]
            found = next((share for live in lives if (share := prefilled(live, now)) is not None), None)
        host.desktop.progress.show(found)

    def compaction_changed(self, id: str) -> None:
        """A summary begins, goes on, ends, or is put in place."""
        running = self._service.compacting is not None
        if running is not self._summarising:
            self._summarising = running
            self._too_long.forget(id)
            self.show_list()
            if self.workspace.shows(id):
                if running:
                    self._transcript.follow()
                self.show()
        if running:
            self._begin_ticking()
            self._compaction.show()
        elif self.workspace.shows(id):
            self._show_aside()

    def summary_prepared(self) -> None:
        """The status line and a notice say that one is ready for the open conversation."""
        self._compaction.announce()
        self._show_aside()

    def _begin_ticking(self) -> None:
        if self._ticking is None:
            self._ticking = self.workspace.screen.set_interval(TICK, self.tick)

    def tick(self) -> None:
        """The clock of a running answer, in the live row and the status line."""
        if not self._conversations.streaming() and self._ticking is not None:
            self._ticking.stop()
            self._ticking = None
        self._show_prefilled()
        self._compaction.show()
        conversation = self.workspace.current
        live = conversation.live if conversation is not None else None
        if conversation is None or live is None:
            return
        now = time.monotonic()
        speed = self._speeds.tokens_per_second(conversation.id)
        self._transcript.set_live(self._server.offline_row(live) or live_row(live, now, speed))
        self._status.set_live(live_of(live, now, speed=speed))
        self._panel.show()
        progress, reported = live.prefill, live.reported
        prompt = reported.prompt_tokens or (progress.total if progress else None)
        if prompt is not None:
            self._show_context(prompt + (reported.predicted_tokens or 0))

    # -- other windows

    def tell_elsewhere(self, event: WrittenElsewhere | DeletedElsewhere | HeadAwaited) -> None:
        """What another window does in the open conversation, in a line: how to get there or back."""
        match event:
            case WrittenElsewhere(followed=followed):
                self.workspace.say(FOLLOWED if followed else STAYED)
            case DeletedElsewhere(id):
                self.workspace.acts.conversations.did(Deleted(id))
                self.workspace.say(DELETED.format(key=self.workspace.key_of("undo")), "warning")
            case HeadAwaited(id):
                self._show_waiting(id)

    def _show_waiting(self, id: str) -> None:
        """Whether a message of this conversation waits for another window."""
        waits = WAITS.format(key=self.workspace.key_of("stop"))
        self._status.set_waiting(waits if self._conversations.awaits_reply(id) else "")
