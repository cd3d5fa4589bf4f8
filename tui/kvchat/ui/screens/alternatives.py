"""Show several answers while they stream, to choose one: in columns where there is room for them, else one at a time.

An answer is taken only when it is whole or was stopped; one that is chosen earlier is waited for.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.events import Key
from textual.widget import Widget
from textual.widgets import Static

from kvchat.cache import Price
from kvchat.chat.events import AnswerEnded, AnswerProgressed, ServiceEvent
from kvchat.chat.turns.alternatives import usual_choice
from kvchat.prompt.message import State
from kvchat.sanitize import one_line
from kvchat.text.format import counted
from kvchat.text.prices import STAYS_CACHED, next_prefill
from kvchat.text.servers import model_name
from kvchat.ui.bindings import bindings
from kvchat.ui.screens.branches import STATES
from kvchat.ui.screens.kit import ACCENT, BAD, CACHED, MUTED, STRONG, WASTED, DraftBehind, Modal, Part, content
from kvchat.ui.view_models import item_of, live_row
from kvchat.ui.widgets.transcript import Transcript

if TYPE_CHECKING:
    from kvchat.chat.conversations.live import LiveAnswer, OpenConversation
    from kvchat.chat.service import ChatService
    from kvchat.ui.widgets.composer.widget import Composer

NARROWEST = 34
"""Cells of a column at least."""
HELD_BACK = 1
"""Tokens of a cached answer that are prefilled all the same: the last one that was sampled is not held."""
DRAFT = 24
"""Cells for the end of what is written meanwhile."""
TICK = 0.25
"""Seconds between looks at the clock of the prefill."""


class AnswerColumn(Vertical):
    """One answer, under a line with its state."""

    def __init__(self, at: int, *, unfold_reasoning: bool) -> None:
        super().__init__()
        self.at = at
        self.line = Static(classes="line-of-answer")
        self.transcript = Transcript(unfold_reasoning=unfold_reasoning)
        self.transcript.can_focus = False
        self.live: LiveAnswer | None = None
        self.price: Price | None = None
        """What choosing it costs."""

    def compose(self) -> Iterable[Widget]:
        yield self.line
        yield self.transcript


class AlternativesScreen(Modal[str]):
    """Result: the answer that goes on; None: the usual one."""

    DEFAULT_CSS = """
    AlternativesScreen {
        & #sheet { height: 100%; max-height: 100%; }
        & #frame { width: 100%; max-width: 100%; height: 100%; padding: 0 1; }
        & Horizontal { height: 1fr; }
        & AnswerColumn { width: 1fr; height: 1fr; padding: 0 1 0 0; }
        & .line-of-answer { height: 1; margin-bottom: 1; background: transparent; }
        & #tabs { height: 1; display: none; background: transparent; }
        &.-tabs #tabs { display: block; }
        &.-tabs AnswerColumn { display: none; &.-here { display: block; } }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("alternatives")]

    def __init__(
        self,
        service: ChatService,
        conversation: OpenConversation,
        count: int,
        composer: Composer,
        *,
        cost: Callable[[str], Awaitable[Price]],
        draft: DraftBehind,
        written_at: float,
    ) -> None:
        """`composer` takes what is typed here and is no answer; `draft` knows how long a key counts as writing. `cost`:
        what choosing an answer costs, by its id. `written_at`: when the last key before was pressed, in monotonic
        seconds."""
        super().__init__()
        self._service = service
        self._conversation = conversation
        self._composer = composer
        self._cost = cost
        self._written_at = written_at
        self._draft = draft
        self._at = 0
        self._chosen: int | None = None
        self._ending = False
        unfold = service.settings.show_reasoning
        self._columns = [AnswerColumn(at, unfold_reasoning=unfold) for at in range(count)]
        self._tabs = Static(id="tabs")

    def body(self) -> Iterable[Widget]:
        yield self._tabs
        yield Horizontal(*self._columns)

    def on_mount(self) -> None:
        self.hear(self._service.events, self._on_service)
        self.set_interval(TICK, self._tick)
        self._fit()
        self._show()
        if self._is_over:
            self._all_ended()

    def on_resize(self, event: events.Resize) -> None:
        self._fit()
        self._show()

    def _fit(self) -> None:
        self.set_class(self.app.size.width - 4 < NARROWEST * len(self._columns), "-tabs")

    # -- what comes

    @property
    def _is_over(self) -> bool:
        """Whether all answers have ended."""
        return self._conversation.id not in self._service.turns.running

    def _on_service(self, event: ServiceEvent) -> None:
        match event:
            case AnswerProgressed(conversation=id) if id == self._conversation.id:
                self._show()
            case AnswerEnded(conversation=id) if id == self._conversation.id:
                self._show()
                self._all_ended()

    def _all_ended(self) -> None:
        if not self._service.turns.is_undecided(self._conversation.id):
            self.finish(None)  # it was refused
        elif self._chosen is not None:
            self._take(self._chosen)
        else:
            self.run_worker(self._price())

    async def _price(self) -> None:
        for column in self._columns:
            if column.live is not None and column.live.ended not in (None, State.ERROR):
                column.price = await self._cost(column.live.node)
                self._show()

    def _show(self) -> None:
        """All of them as they are now."""
        tree, now = self._conversation.tree, self._service.clock()
        model = self._service.servers.asked_model(self._conversation.id)
        for column, live in zip(self._columns, self._conversation.alternatives, strict=False):
            if live.node not in tree:
                continue
            node = tree[live.node]
            if column.live is None:
                column.live = live
                column.transcript.set_items([item_of(tree, node, live, model, now)])
            if node.state is not State.STREAMING:
                column.transcript.end_stream(item_of(tree, node, None, model, now))
            elif live.text or live.reasoning:
                column.transcript.set_live(None)
                column.transcript.stream_text(live.node, live.text, live.reasoning)
        for column in self._columns:
            column.set_class(column.at == self._at, "-here")
            column.line.update(self._line(column))
        self._tabs.update(Content("   ").join(self._line(column, short=True) for column in self._columns))
        self._tell()
        self._take_if_ended()

    def _tick(self) -> None:
        now = time.monotonic()
        speed = self._service.speeds.tokens_per_second(self._conversation.id)
        for column in self._columns:
            if column.live is not None and column.live.ended is None:
                column.transcript.set_live(live_row(column.live, now, speed))

    def _line(self, column: AnswerColumn, *, short: bool = False) -> Content:
        """The state of an answer: its number, its size, and what choosing it costs."""
        live, here = column.live, column.at == self._at
        parts: list[Part] = [(f"▸{column.at + 1}" if here else f" {column.at + 1}", ACCENT if here else STRONG)]
        if column.at == self._chosen:
            parts.append((" chosen", ACCENT))
        if live is None:
            state: Part = (" · waits" if not self._is_over else " · not asked", MUTED)
        elif live.ended is None:
            state = (" …", MUTED)
        elif live.ended is State.DONE:
            state = ("", MUTED)
        else:
            state = (f" · {STATES.get(live.ended, '')}", BAD if live.ended is State.ERROR else MUTED)
        if short or live is None:
            return content(*parts, state)
        if column.price is not None and column.price.tokens is not None:  # first: a narrow column cuts the line
            extra = column.price.tokens
            parts.append(
                (f" · {STAYS_CACHED}", CACHED) if extra <= HELD_BACK else (f" · {next_prefill(extra)}", WASTED)
            )
        parts.append(state)
        tokens = live.reported.predicted_tokens
        if tokens:
            parts.append((f" · {counted(tokens, 'token')}", MUTED))
        return content(*parts)

    def _tell(self) -> None:
        frame, count = self.query_one("#frame"), len(self._columns)
        models = [column.live.node for column in self._columns if column.live is not None]
        nodes = [self._conversation.tree[id] for id in models if id in self._conversation.tree]
        names = "".join(f" · {name}" for name in dict.fromkeys(model_name(node.model) for node in nodes) if name)
        draft = one_line(self._composer.text)
        written = f" · your draft: {draft if len(draft) <= DRAFT else f'…{draft[-DRAFT:]}'}" if draft else ""
        frame.border_title = content(f"{count} answers", (names, MUTED), (written, ACCENT))
        last = f"keep answer {nodes.index(usual_choice(nodes)) + 1}" if self._is_over and nodes else "stop all"
        self.show_hints(
            [
                (f"1–{count}", "choose"),
                ("alternatives.choose", "this one"),
                ("alternatives.previous alternatives.next", "another"),
                ("dialog.close", last),
            ]
        )

    # -- what the user does

    def on_key(self, event: Key) -> None:
        """A digit that comes alone chooses; who writes on writes in the draft."""
        text = event.character if event.is_printable and event.character else ""
        is_writing = event.time < self._written_at + self._draft.quiet_s
        if not is_writing and text.isdecimal() and 0 < int(text) <= len(self._columns):
            event.stop()
            self._choose(int(text) - 1)
        elif text or (is_writing and event.key == "enter"):
            event.stop()
            event.prevent_default()
            self._written_at = event.time
            self._composer.type(text)
            self._tell()

    def on_paste(self, event: events.Paste) -> None:
        self._composer.paste(event.text)
        self._tell()

    def action_choose(self) -> None:
        self._choose(self._at)

    def action_step(self, step: int) -> None:
        self._at = (self._at + step) % len(self._columns)
        self._show()

    def action_scroll(self, step: int) -> None:
        self._columns[self._at].transcript.scroll_relative(y=step, animate=False)

    def action_page(self, step: int) -> None:
        self._columns[self._at].transcript.action_page(step)

    def on_click(self, event: events.Click) -> None:
        """The answer that is clicked is the one that keys are about."""
        widget: Widget | None = event.widget
        while widget is not None and not isinstance(widget, AnswerColumn):
            parent = widget.parent
            widget = parent if isinstance(parent, Widget) else None
        if widget is not None:
            self._at = widget.at
            self._show()

    def _choose(self, at: int) -> None:
        if self._columns[at].live is None and self._is_over:
            return  # it was never asked for
        self._at = self._chosen = at
        self._show()

    def _take_if_ended(self) -> None:
        """Where the chosen one has ended, the others are not waited for."""
        if self._chosen is None:
            return
        live = self._columns[self._chosen].live
        if self._is_over:
            self._take(self._chosen)
        elif live is not None and live.ended is not None:
            self._stop()

    def _take(self, at: int) -> None:
        live = self._columns[at].live
        self.finish(live.node if live is not None else None)

    def _stop(self) -> None:
        if not self._ending:
            self._ending = True
            self.app.run_worker(self._service.turns.stop(self._conversation.id), group="stop")  # outlives the screen

    def action_close(self) -> None:
        """Esc: stop all, and when nothing runs any more leave with the usual one."""
        if self._is_over:
            self.finish(None)
        else:
            self._stop()
