"""The composer: where a message is written, a command is given, and earlier messages are recalled.

Nothing typed or pasted is lost or sent by accident. Only a key sends; clearing can be undone; a draft goes out under
the key of the conversation it was loaded for.

Its parts: the text, `context` (what goes with the message), `commands` and `mentions` (what the text at the cursor can
become).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Self, TypeAlias

from rich.cells import cell_len
from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.document._document import Selection
from textual.timer import Timer
from textual.widgets import Static, TextArea

from kvchat.chat.question import Question
from kvchat.chat.question.mentions import MentionScope
from kvchat.commands.slash import no_command
from kvchat.prompt.context import ContextBlock
from kvchat.prompt.drafts import FIELD, Draft, Span, Spans, blocks_in, decoded, expanded, given, plain_paste
from kvchat.sanitize import one_line
from kvchat.ui.bindings import binding
from kvchat.ui.key_queue import idle
from kvchat.ui.widgets.composer import messages, slash
from kvchat.ui.widgets.composer.completion import MentionCompletion
from kvchat.ui.widgets.composer.context import MessageContext
from kvchat.ui.widgets.composer.context_items import MEMORY, Picked
from kvchat.ui.widgets.composer.mentions import MentionList
from kvchat.ui.widgets.composer.text import ComposerText

_SHELL_OR_NOTE = re.compile(r"[!#][A-Za-z~./][^\n]*")
"""What other programs run in a shell, or note."""
_HINTS = {"!": "There is no shell here", "#": "/remember keeps a note"}
DRAFT_DELAY = 0.4
"""Seconds without a change after which the draft is announced."""


class Composer(Vertical):
    """A text area of 1 to 12 lines, with a list of commands above it when the text begins with /, or of documents
    where a mention is typed.

    `enter_sends` (a setting, may be changed at any time): enter sends, and shift+enter, ctrl+j, alt+enter or a
    trailing backslash make a new line. Off, they swap: enter makes a new line, and shift+enter, ctrl+j or alt+enter
    send. ctrl+enter always sends, where the terminal reports it.
    """

    DEFAULT_CSS = """
    Composer {
        height: auto; padding: 0 1; background: $surface; border-top: inner $surface;
        &.-editing { border-title-color: $accent; }
        &:ansi { border-top: solid $rule; }
        & > Horizontal { height: auto; }
        & .composer-prompt { width: 2; height: 1; color: $text-accent; text-style: bold; }
        & .composer-hint { height: 1; width: 1fr; color: $text-muted; text-align: right; text-wrap: nowrap; }
        &.-low .composer-hint { display: none; }
        &.-low.-costs .composer-hint { display: block; }
        &:ansi .composer-hint { color: ansi_default; text-style: dim; }
    }
    """
    BINDING_GROUP_TITLE = "Composer"
    BINDINGS: ClassVar[list[BindingType]] = [binding("composer.end", "app.quit")]
    """What the text area leaves of this key."""
    LOW: ClassVar[int] = 30
    """Rows of the screen below which the keys stand in the empty text, and have no row of their own."""

    Submitted: TypeAlias = messages.Submitted
    NextRequested: TypeAlias = messages.NextRequested
    TakeBackRequested: TypeAlias = messages.TakeBackRequested
    SlashCommand: TypeAlias = messages.SlashCommand
    DraftChanged: TypeAlias = messages.DraftChanged
    Rested: TypeAlias = messages.Rested
    Mentioning: TypeAlias = messages.Mentioning
    ContextChanged: TypeAlias = messages.ContextChanged
    PathPasted: TypeAlias = messages.PathPasted
    PasteRequested: TypeAlias = messages.PasteRequested
    Loaded: TypeAlias = messages.Loaded
    Notice: TypeAlias = messages.Notice
    QuestionWanted: TypeAlias = messages.QuestionWanted

    def __init__(
        self,
        *,
        enter_sends: bool = True,
        cursor_blink: bool = True,
        placeholder: str = "Message",
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        super().__init__(id=id, classes=classes)
        self._enter_sends = enter_sends
        self.is_first: Callable[[str], bool] = lambda sign: True
        """Whether what begins with this sign, ! or #, is to be sent for the first time; from now on it was."""
        self._key = ""
        self._area = ComposerText(self._on_decision, cursor_blink=cursor_blink)
        self.context = MessageContext(self, self._area)
        self.commands = slash.SlashCommands(self._area)
        self.mentions = MentionCompletion(self, self._area, self.commands)
        self._hint = Static(classes="composer-hint", markup=False)
        self._timer: Timer | None = None
        self._announced = ""
        self._told_of_field = False
        """Whether an empty field was reported since the text changed."""
        self._cost = "", False
        self._send_keys = "enter", "^J"
        """What the rows of keys call Enter and the key of a new line."""
        self._placeholder = placeholder
        self.commanded: Question | None = None
        """What stood behind the last slash command, as a question."""
        self.has_queue = False
        """Whether messages of this conversation wait for the answer before them."""
        self.has_question = False
        """Whether a question waits for the user's word."""

    def compose(self) -> ComposeResult:
        yield self.commands.list
        yield self.mentions.list
        yield self.context.line
        with Horizontal():
            yield Static(Content("›"), classes="composer-prompt", markup=False)
            yield self._area
        yield self._hint

    # What the app sets and reads.

    @property
    def text(self) -> str:
        return self._area.text

    @property
    def spans(self) -> Spans:
        """What of the text was pasted, attached or mentioned."""
        return self._area.spans

    @property
    def blocks(self) -> tuple[ContextBlock, ...]:
        """The pastes and attached files whose chips are in the text."""
        return blocks_in(self.spans)

    @property
    def key(self) -> str:
        """The one that was given with `load`."""
        return self._key

    @property
    def contents(self) -> Draft:
        """The text, and what in it was pasted, attached or mentioned."""
        return self._area.draft

    @property
    def draft(self) -> str:
        """The same as one string for the store."""
        return self._area.draft.encoded()

    @property
    def enter_sends(self) -> bool:
        return self._enter_sends

    @enter_sends.setter
    def enter_sends(self, sends: bool) -> None:
        self._enter_sends = sends
        if self.is_mounted:
            self._fit_to_screen()

    @property
    def cursor_blink(self) -> bool:
        return self._area.cursor_blink

    @cursor_blink.setter
    def cursor_blink(self, blink: bool) -> None:
        self._area.cursor_blink = blink

    def load(self, draft: str, key: str = "") -> None:
        """Show the draft of the conversation `key`; a draft of the last one that was not announced yet is, first."""
        self.flush()
        self._key = key
        self._area.chips = {}
        self._area.load(decoded(draft))
        self._area.move_cursor(self._area.document.end)
        self._announced = self.draft
        self._close_lists()
        self.context.begin()
        self.post_message(self.Loaded(key))

    def replace_text(self, text: str) -> None:
        """Replace the text with `text`, which the user did not type; undoable."""
        self.replace(Draft(text, given(text)))

    def replace(self, draft: Draft) -> None:
        """Put this in place of the text; undoable."""
        self._area.put(draft)

    def take_edited(self, text: str) -> None:
        """Replace the text with what the user made of it in an editor: what they wrote there counts as typed."""
        self._area.put(self._area.draft.rewritten(plain_paste(text)))

    def insert(self, text: str) -> None:
        """Insert at the cursor as a paste would."""
        self._area.paste(text)

    def fill(self, text: str) -> None:
        """Put the text of a snippet in place of what is written, its first field selected; Tab goes to the next."""
        self.replace_text(f"/{text}" if text.startswith("/") and not text.startswith("//") else text)
        self._area.fields = frozenset(found[0] for found in FIELD.finditer(text))
        self._area.move_cursor((0, 0))
        if not self._area.select_field():
            self._area.move_cursor(self._area.document.end)
        self._area.focus()

    def act_done(self) -> None:
        """An act was done: the key to undo takes it back before what was typed until now."""
        self._area.act_done()

    def act_undone(self) -> None:
        """That act was taken back: what was typed before it is the next."""
        self._area.act_undone()

    def type(self, text: str) -> None:
        """Insert at the cursor what was typed while another widget had the keys."""
        self._area.type(text)

    def paste(self, text: str) -> None:
        """As `type`, of what was pasted."""
        self._area.post_message(events.Paste(text))

    async def written(self) -> None:
        """Wait until every key that was given to the composer is in the text."""
        await idle([self._area])

    def attach(self, block: ContextBlock, instead_of: str = "") -> None:
        """Put an attached file into the text as a chip: in the place of `instead_of` where the text has it, else at the
        cursor."""
        self._area.attach(block, instead_of)

    def restore(
        self,
        draft: Draft,
        dropped: frozenset[str] = frozenset(),
        memories: bool = True,
        taken: frozenset[str] = frozenset(),
        agreed: frozenset[str] = frozenset(),
    ) -> None:
        """Put back a message that could not be sent, in front of what has been typed since. What was left out of it,
        or taken along, stays so."""
        items = self.context.items
        none = items.none if memories else items.none | {MEMORY}
        self.context.begin(Picked(dropped | items.dropped, taken | items.taken), none, agreed | items.agreed)
        self._area.put(draft.before(self._area.draft))

    def begin(self, words: str) -> None:
        """Put words in front, to be finished and sent as the next message."""
        self.restore(Draft(words, given(words)))
        self.focus()

    def set_history(self, sent: Sequence[str], spans: Callable[[int], Iterable[Span]] = lambda at: ()) -> None:
        """The messages sent before in this conversation, newest first. `mentions`: those in one of them."""
        self._area.sent, self._area.spans_of_sent = tuple(sent), spans

    def set_commands(self, commands: Sequence[tuple[str, str]]) -> None:
        """The slash commands on offer, as (name without the slash, description)."""
        self.commands.offered = [slash.Command(*command) for command in commands]

    def set_keys(self, choose: str, complete: str = "Tab", enter: str = "enter", newline: str = "^J") -> None:
        """As for the line of what goes with the message; `enter`, `newline`: as the row of keys shows them."""
        self.context.set_keys(choose, complete)
        self._send_keys = enter, newline
        if self.is_mounted:
            self._fit_to_screen()

    def set_cost(self, words: str, *, quietly: bool = False) -> None:
        """Show what sending the attachments costs in the row of the keys; empty: nothing. `quietly`: only where that
        row is shown anyway, for what no act of the user caused."""
        if (words, quietly) != self._cost:
            self._cost = words, quietly
            self._fit_to_screen()

    def flush(self) -> None:
        """Announce the draft now if it changed since it was last announced."""
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        if (draft := self.draft) != self._announced:
            self._announced = draft
            self.post_message(self.DraftChanged(draft, self._key))

    def focus(self, scroll_visible: bool = True) -> Self:
        self._area.focus(scroll_visible)
        return self

    # Keys.

    def _on_decision(self, key: str) -> bool:
        """Act on a key of the text area; False when it is not used here."""
        area = self._area
        if self.mentions.key(key) or key == "click":
            return True
        if key in ("enter", "other"):
            sends = (key == "enter") == self.enter_sends
            if key == "enter" and (command := self.commands.list.chosen):
                self._run(command.name, "")
            elif sends and not self._continued(key):
                self.submit()
            elif not sends:
                area.put_newline()
            return True
        if key == "send":
            self.submit()
            return True
        if key == "interrupt":
            return self._interrupt()
        if key == "end":
            if not self.text:
                return False
            area.action_delete_right()
            return True
        if key in ("up", "down"):
            step = -1 if key == "up" else 1
            if self.commands.list.is_open:
                self.commands.list.move(step)
                return True
            if self.has_question and area.is_at_edge(step):
                self.post_message(self.QuestionWanted())
                return True
            if key == "up" and self.has_queue and not self.text:
                self.post_message(self.TakeBackRequested())
                return True
            return area.recall(-step)
        if not self.commands.list.is_open:
            if key == "tab" and self.has_question:
                self.post_message(self.QuestionWanted())
                return True
            return key == "tab" and self._area.select_field()
        if key == "tab":
            area.put(Draft(f"/{(self.commands.list.chosen or self.commands.list.items[0]).name} "))
        self.commands.list.close()
        return True

    def _continued(self, key: str) -> bool:
        """Whether a backslash before the cursor turned this enter into a new line. Two of them are just two."""
        row, column = self._area.cursor_location
        before = self._area.document[row][:column]
        if key != "enter" or not self._area.selection.is_empty or (len(before) - len(before.rstrip("\\"))) % 2 == 0:
            return False
        self._area.action_delete_left()
        self._area.put_newline()
        return True

    def _interrupt(self) -> bool:
        if self._area.selected_text:
            self._area.action_copy()
        elif self.text and not self.screen.get_selected_text():
            self._area.put(Draft())
        else:
            return False  # the screen copies what is selected there, or stops the answer
        return True

    def submit(self) -> None:
        """Send what is written, or run it when it is a command. An empty message is not sent: it asks for the next one
        of the queue."""
        text = self.text
        command, rest = self.commands.parsed()
        if command is not None:
            if (known := self.commands.known(command)) is not None:
                spans = self.context.spans_of(rest)
                self.commanded = Question(rest, self.blocks, MentionScope(spans, frozenset(self.context.items.agreed)))
                self._run(known, expanded(rest, spans))
            else:
                self._area.selection = Selection((0, 0), (0, 1 + len(command)))  # what is typed takes its place
                self.post_message(self.Notice(no_command(command, [c.name for c in self.commands.offered])))
            return
        if (hint := _HINTS.get(text[:1], "")) and _SHELL_OR_NOTE.fullmatch(text) and self.is_first(text[0]):
            self.post_message(self.Notice(f"{hint} · the same key again sends it as it is"))
            return
        if not text.strip():
            if self.has_queue:
                self.post_message(self.NextRequested())
            return
        if not self._told_of_field and self._area.select_field():
            self._told_of_field = True
            self.post_message(
                self.Notice(
                    f"Fill in {one_line(self._area.selected_text, 40)}, or press the key again to send it as it is."
                )
            )
            return
        if (submitted := self.take()) is not None:
            self.post_message(submitted)

    def take(self) -> Submitted | None:
        """The message that is written, taken out of the composer; None: there is none, or it is a command."""
        command, rest = self.commands.parsed()
        if command is not None or not rest.strip():
            return None
        context = self.context
        picked, found = context.picked(), context.passages_for(rest)
        meant = MentionScope(context.spans_of(rest), frozenset(context.items.agreed))
        question = Question(
            rest,
            self.blocks,
            meant,
            None if found is None else tuple(one.block for one in found),
            context.files_for(rest),
            without=picked.dropped,
            taken=picked.taken,
            recalls=MEMORY not in context.items.none,
        )
        submitted = self.Submitted(question, self._key)
        self._empty(keep_chips=True)
        return submitted

    def _run(self, command: str, argument: str) -> None:
        """Do a command; one from the list may bring its argument."""
        name, _, offered = command.partition(" ")
        argument = argument or offered
        self._empty()
        self.post_message(self.SlashCommand(name, argument))

    def _empty(self, keep_chips: bool = False) -> None:
        """Empty the area. A sent message's chips stay at hand for recalling it."""
        if not keep_chips:
            self._area.chips = {}
        self._area.load(Draft())
        self._close_lists()
        self.context.begin()
        self.flush()

    def _close_lists(self) -> None:
        self.commands.list.close()
        self.mentions.list.close()

    # Events.

    def on_mount(self) -> None:
        self._fit_to_screen()

    def on_resize(self, event: events.Resize) -> None:
        self._fit_to_screen()

    def _fit_to_screen(self) -> None:
        send, line = self._send_keys if self.enter_sends else reversed(self._send_keys)
        keys, low = f"{send} send · {line} newline · / commands", self.app.size.height < self.LOW
        inside = f"{self._placeholder} · {keys}"
        fits = low and cell_len(inside) < self.size.width - 6
        self._area.placeholder = Content(inside if fits else self._placeholder)
        words, quietly = self._cost
        self.set_class(low, "-low")
        self.set_class(bool(words) and not quietly, "-costs")
        hint = Content("   ".join(filter(None, (one_line(words), keys))))
        if hint != self._hint.content:  # an update lays out all of the screen
            self._hint.update(hint)

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        event.stop()
        self._told_of_field = False
        self.commands.look()
        self.mentions.look()
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_timer(DRAFT_DELAY, self.rest)

    def rest(self) -> None:
        """Announce the draft and the text to look up for, as if the typing had rested."""
        self.flush()
        command, text = self.commands.parsed()
        self.context.rest_on(text if command is None and text.strip() else "", self._key)

    def on_slash_list_command_chosen(self, event: slash.SlashList.CommandChosen) -> None:
        event.stop()
        self._run(event.command.name, "")

    def on_mention_list_mention_chosen(self, event: MentionList.MentionChosen) -> None:
        event.stop()
        self.mentions.complete(event.mention)

    def on_text_area_selection_changed(self, event: TextArea.SelectionChanged) -> None:
        event.stop()
        self.mentions.cursor_moved()

    def on_descendant_blur(self) -> None:
        self._close_lists()

    def on_click(self) -> None:
        self.focus()
