"""The slash commands of plain mode: those of the app that make sense line by line, and two of its own.

Every slash command of the table of actions is carried out here, or says in a sentence why not and what does
it instead.

In the order in which they are called:

1. `carry_out`: what was typed, as the act that all surfaces share, or a method here.
2. `_list`, `_search`, `_tree`: number what they name (`ListedPlace`); `_open` goes to a number.
3. `_edit`, `_attach`, `_queue`: the message that is written next. `_code`, `_source`, `_read`: what is there already.
4. `plain_help`: each command with what it does here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from msgspec import Struct

from kvchat.commands.actions import ACTIONS, Action
from kvchat.commands.acts import Acts, meant
from kvchat.commands.slash import by_slash, no_command, snippets
from kvchat.plain.chat import PlainChat, Typed, said_by
from kvchat.plain.surface import PlainSurface
from kvchat.prompt.citations import name_of, sources
from kvchat.prompt.drafts import filled
from kvchat.prompt.message import Role
from kvchat.prompt.tags import FAVOURITE, own
from kvchat.sanitize import one_line
from kvchat.text.cache import (
    accuracy,
    figures_sentence,
    prediction,
    totals_words,
    turn_name,
    warmth_words,
)
from kvchat.text.format import counted, spoken_title
from kvchat.text.messages import held_reason
from kvchat.text.options import beginning_words

if TYPE_CHECKING:
    from kvchat.config.layers import Layers
    from kvchat.paths import Paths
    from kvchat.prompt.conversation import Conversation

SHOWN = 20
"""Conversations that a list names at once."""

OWN: tuple[Action, ...] = (
    Action(
        "plain.open",
        "",
        "Open",
        "Open a conversation or branch by its number in the last list, or by the first digits of its id.",
        argument="NUMBER|ID",
        group="Conversations",
        slash="open",
    ),
    Action(
        "plain.read",
        "",
        "Read",
        "Read this conversation, or one message of it, again.",
        argument="NUMBER",
        group="This conversation",
        slash="read",
    ),
)
"""What the app has no command for: there one goes to a row, and looks."""
ELSEWHERE: Mapping[str, str] = {
    "import": "kvchat import FILE takes in conversations, from the command line.",
    "suspend": "Ctrl+Z suspends kvchat; fg goes on.",
    "stop": "Nothing is running. Ctrl+C stops an answer.",
    "alternatives": "kvchat ask --alternatives 3 asks for several answers, from the command line.",
    "parameters": "kvchat config set parameters.temperature 0.7 changes the parameters of new conversations, from the "
    "command line.",
    "doctor": "kvchat doctor examines the server, from the command line.",
    "documents": "kvchat documents indexes folders, from the command line. @NAME in a message brings passages of one.",
    "transcript.copy": "Your terminal copies text. /export FILE writes the conversation to a file.",
    "copy_answer": "Your terminal copies text. /export FILE writes the conversation to a file.",
    "copy_all": "Your terminal copies text. /export FILE writes the conversation to a file.",
    "transcript.fold": "Nothing is folded in plain mode. The setting show_reasoning prints a model's reasoning.",
    "sidebar": "There is no sidebar in plain mode. /list names the conversations.",
    "panel": "There is no panel in plain mode. /cache tells how the server's cache did.",
    "theme": "There are no colours in plain mode.",
    "jump": "There are no jump letters in plain mode. /code NUMBER, /source NUMBER and /open NUMBER go to things.",
    "settings": "kvchat config shows the settings and changes them, from the command line.",
}
"""By action: what is said where its command has no place here."""


HELP: Mapping[str, str] = {
    "list": "Name the conversations; /list all names more than the first twenty.",
    "export": "Write this conversation to a file; its ending is the format: md, json, jsonl or html.",
    "memory": "Switch memory on or off in this conversation, or have notes taken now; or do what kvchat memory does: "
    "/memory list.",
    "forget": "Delete the memory that has these words.",
    "transcript.code": "Print the code block of this number of the last answer that has one.",
    "transcript.source": "Name what questions were sent with, or read one of it.",
    "transcript.branches": "Name the branches of this conversation.",
    "tree": "Name the branches of this conversation.",
    "system": "Read the system prompt, or change it. Shows the cost first.",
    "tools": "Name the tools that the model may call here, or choose them by name; none takes them away, forget takes "
    "back what you allowed.",
    "model": "Name the models and servers, or go on with another one. Shows the cost first.",
    "keep": "Keep this conversation's state on the disk, warm after every restart, or release it.",
    "inspector": "Tell how the server's cache did, turn by turn.",
    "attach": "Attach a file to the next message, as it is now; /attach none leaves out what is attached.",
    "queue": "Name the messages that wait here, and send them.",
    "persona": "List personas, or begin a conversation with one.",
    "trunk": "Name the trunks, or begin a conversation with one; /trunk add NAME PATH makes one of files.",
    "help": "Name the commands.",
    "quit": "Leave.",
}
"""By action: what its command does here, where that is another thing than in the app."""


MISSING: Mapping[str, str] = {
    "search": "What for? /search WORDS",
    "find": "What? /find WORDS",
    "plain.open": "Which one? /list names the conversations, /open NUMBER opens one.",
}
"""By action: what is said where nothing follows its command."""


class ListedPlace(Struct, frozen=True):
    """What a number of the last list refers to."""

    conversation: str
    node: str | None = None
    is_branch: bool = False
    """Whether the branch that ends there is gone to."""


class Commands:
    """Carries out commands in a plain conversation."""

    def __init__(
        self,
        chat: PlainChat,
        paths: Paths,
        layers: Callable[[], Layers],
        editor: Callable[[str, str], Awaitable[str]],
    ) -> None:
        """`editor`: a text as it was left in the user's editor, and with which one. Raises ChatError."""
        self._chat = chat
        self._paths = paths
        chat.acts = Acts(PlainSurface(chat, paths, layers))
        self._editor = editor
        self._places: Sequence[ListedPlace] = ()
        self.is_over = False
        self._with_words: Mapping[str, Callable[[str], Awaitable[object]]] = {
            "list": self._list,
            "search": self._search,
            "find": self._find,
            "transcript.code": self._code,
            "transcript.source": self._source,
            "attach": self._attach,
            "plain.open": self._open,
            "plain.read": self._read,
        }
        self._alone: Mapping[str, Callable[[], Awaitable[object]]] = {
            "transcript.edit": self._edit,
            "tree": self._tree,
            "transcript.branches": self._tree,
            "inspector": self._cache,
            "queue": self._queue,
            "editor": self._write_outside,
            "help": self._help,
            "quit": self._quit,
        }

    @property
    def done_here(self) -> frozenset[str]:
        """The ids of the actions whose commands are carried out."""
        acts = (action.id for action in ACTIONS if action.slash and action.method.startswith("acts."))
        return frozenset((*acts, *self._with_words, *self._alone))

    async def carry_out(self, name: str, argument: str) -> None:
        """Do `/name argument`. Raises ChatError and CommandError."""
        action = next((one for one in OWN if one.slash == name.lower()), None) or by_slash(name)
        id = action.id if action is not None else ""
        if action is None:
            await self._put_snippet(name, argument)
        elif action.method.startswith("acts."):
            act = attrgetter(action.method)(self._chat)
            await (act(argument) if argument and action.argument else act())
        elif id in self._alone:
            await self._alone[id]()
        elif id in self._with_words and (argument.strip() or id not in MISSING):
            await self._with_words[id](argument)
        else:
            self._say(MISSING.get(id) or ELSEWHERE[id])

    def _say(self, *sentences: str) -> None:
        self._chat.speaker.say(*sentences)

    # -- conversations

    async def _list(self, argument: str) -> None:
        known = [record for record in self._chat.service.conversations.shown() if record.turns]
        shown = known if argument.strip().lower() == "all" else known[:SHOWN]
        self._places = [ListedPlace(record.id) for record in shown]
        self._say(*(f"{number}. {self._row(record)}" for number, record in enumerate(shown, 1)))
        if not shown:
            archived = any(record.turns for record in self._chat.service.conversations.all())
            self._say(
                "All conversations are archived. /search finds them." if archived else "There are no conversations yet."
            )
        elif len(shown) < len(known):
            self._say(f"{len(known) - len(shown):,} more: /list all. /open NUMBER opens one.")
        else:
            self._say("/open NUMBER opens one.")

    def _row(self, record: Conversation) -> str:
        words = [spoken_title(record.title), self._chat.facts(record.id)]
        words += ["favourite"] if FAVOURITE in record.tags else []
        words += ["kept"] if record.id in self._chat.service.claims.conversations() else []
        words += ["open now"] if record.id == self._chat.id else []
        words += ["new answer"] if record.unread else []
        words += [f"tagged {' '.join(own(record.tags))}"] if own(record.tags) else []
        return ", ".join(words)

    async def _open(self, wanted: str) -> None:
        wanted = wanted.strip()
        if wanted.isdecimal() and 0 < int(wanted) <= len(self._places):
            place = self._places[int(wanted) - 1]
            if place.is_branch and place.node is not None:
                await self._chat.service.branches.select(place.conversation, place.node)
                await self._chat.open(place.conversation)
            else:
                await self._chat.open(place.conversation, place.node)
            return
        if wanted.isdecimal() and len(wanted) < 4:
            self._say(
                f"The last list has no number {wanted}."
                if self._places
                else "There was no list yet. /list names the conversations."
            )
            return
        await self._chat.open(self._chat.service.conversations.find(wanted).id)

    async def _search(self, words: str) -> None:
        hits = await self._chat.service.conversations.search(words, SHOWN, ranked=True)
        self._places = [ListedPlace(hit.conversation, hit.node) for hit in hits]
        for number, hit in enumerate(hits, 1):
            who = "you" if hit.role == Role.USER else "answer" if hit.role == Role.ASSISTANT else hit.role
            snippet = one_line(hit.unmarked, 200)
            self._say(f"{number}. {spoken_title(hit.title)}, {who}: {snippet}")
        self._say("/open NUMBER goes there." if hits else "Nothing found.")

    # -- this conversation

    async def _read(self, number: str) -> None:
        path = self._chat.messages()
        if not number.strip():
            self._chat.read(range(len(path)))
            if not path:
                self._say("There is no message yet.")
        elif number.strip().isdecimal() and 0 < int(number) <= len(path):
            self._chat.read([int(number) - 1])
        else:
            self._say(f"This conversation has {counted(len(path), 'message')}. /read NUMBER reads one.")

    async def _find(self, words: str) -> None:
        wanted = words.casefold()
        found = [(at, node) for at, node in enumerate(self._chat.messages(), 1) if wanted in node.text.casefold()]
        for at, node in found:
            line = next((line for line in node.text.splitlines() if wanted in line.casefold()), node.text)
            self._say(f"{at}. {said_by(node)}: {one_line(line, 200)}")
        self._say("/read NUMBER reads one." if found else "Not found in this conversation.")

    async def _tree(self) -> None:
        conversation = self._chat.conversation
        leaves = [leaf for leaf in conversation.tree.leaves() if len(conversation.tree.path(leaf.id)) > 1]
        self._places = [ListedPlace(self._chat.id, leaf.id, is_branch=True) for leaf in leaves]
        for number, leaf in enumerate(leaves, 1):
            path = conversation.tree.path(leaf.id)
            asked = next((node for node in reversed(path) if node.role is Role.USER), leaf)
            here = ", you are here" if leaf.id == conversation.record.head else ""
            self._say(
                f"{number}. Branch of {counted(len(path) - 1, 'message')}, last question: "
                f"{one_line(asked.text, 100)}{here}"
            )
        self._say(
            "/open NUMBER goes to one."
            if len(leaves) > 1
            else "There is one branch."
            if leaves
            else "There is no message yet."
        )

    async def _cache(self) -> None:
        report = await self._chat.service.cache_reports.report(self._chat.id)
        now = self._chat.service.clock().timestamp()
        self._say(f"This conversation is {warmth_words(report.warmth, now)}.")
        if report.beginning is not None:
            self._say(f"It begins with {beginning_words(report.beginning)}.")
        for at, turn in enumerate(report.turns):
            if turn.figures is not None and (words := figures_sentence(turn.figures)):
                self._say(f"T{turn_name(report.turns, at)[1:]}: {words}")
        last = report.turns[-1].figures if report.turns else None
        self._say(
            f"In all: {totals_words(report.here)}; predictions {accuracy(report)}.",
            *([f"{said[0].upper()}{said[1:]}."] if (said := prediction(last)) else []),
        )

    # -- messages

    async def _edit(self) -> None:
        if (node := meant(self._chat.conversation, None)) is None:
            self._say("No message to edit yet.")
            return
        question, _ = self._chat.conversation.tree.turn_of(node)
        if not await self._chat.agreed("edit", question.id):
            return
        self._say("Change your message, and press Enter:")
        edits = self._chat.service.drafts.of(self._chat.conversation).edits
        left = next((edit.draft.text for edit in edits if edit.question == question.id), question.text)
        self._chat.editing = question.id
        text = await self._chat.speaker.asked("Edit: ", left)
        self._chat.editing, self._chat.line = "", None
        if text is None or not text.strip():
            self._say("Not done.")
        elif text == question.text:
            self._say("Message unchanged.")
        else:
            await self._chat.edit(question.id, text)

    async def _code(self, number: str) -> None:
        from kvchat.commonmark import code_blocks

        wanted = int(number) if number.strip().isdecimal() else 1
        for node in reversed(self._chat.messages()):
            blocks = code_blocks(node.text) if node.role is Role.ASSISTANT else []
            if 0 < wanted <= len(blocks):
                self._chat.speaker.output.write(blocks[wanted - 1])
                self._chat.speaker.output.end()
                return
        self._say(f"There is no code block {wanted}.")

    async def _source(self, number: str) -> None:
        known = sources(self._chat.messages())
        if not number.strip():
            self._say(*(f"Source {at}: {one_line(name_of(block), 100)}." for at, block in known.items()))
            self._say("/source NUMBER reads one." if known else "Nothing was sent with this conversation.")
        elif number.strip().isdecimal() and int(number) in known:
            block = known[int(number)]
            self._say(f"{one_line(name_of(block), 100)}:")
            self._chat.speaker.output.write(block.text)
            self._chat.speaker.output.end()
        else:
            self._say(f"There is no source {one_line(number, 20)} here.")

    async def _attach(self, path: str) -> None:
        attached = ", ".join(one_line(block.source, 100) for block in self._chat.attached)
        if path == "none":
            self._chat.attached.clear()
            self._say(f"Left out: {attached}." if attached else "Nothing is attached.")
            return
        if not path:
            self._say(f"Attached: {attached}. /attach none leaves it out." if attached else "Which file? /attach FILE")
            return
        block = await self._chat.service.retrieval.attach(self._chat.id, path)
        self._chat.attached.append(block)
        self._say(f"Attached: {one_line(block.source, 100)}. It goes with the next message.")

    async def _queue(self) -> None:
        queue, id = self._chat.service.queue, self._chat.id
        items = queue.of(id)
        if not items:
            self._say("No message waits.")
            return
        self._say(*(f"{number}. {one_line(item.question.text, 200)}" for number, item in enumerate(items, 1)))
        held = queue.held(id)
        if await self._chat.speaker.agreed("Send them now?", [f"They wait: {held_reason(held)}."] if held else []) and (
            await self._chat.acts.messages.may_leave_this_machine(id)
        ):
            await self._chat.attempt(self._chat.service.turns.send_now(id, items[0].question, queued=items[0].id))

    async def _write_outside(self) -> None:
        text = await self._editor(self._chat.unsent, self._chat.service.settings.editor)
        self._chat.unsent = ""
        await self._send_written(text)

    async def _put_snippet(self, name: str, argument: str) -> None:
        """What a snippet makes of the words is sent, when the user has read it."""
        snippet = snippets(self._paths.snippets)[0].get(name)
        if snippet is None:
            names = [action.slash for action, _ in plain_help()]
            self._say(f"{no_command(name, names)} · /help lists them")
        else:
            await self._send_written(filled(snippet.text, argument))

    async def _send_written(self, text: str) -> None:
        if not text.strip():
            self._say("Nothing was written.")
            return
        self._say("Your message:")
        self._chat.speaker.output.write(text)
        if await self._chat.speaker.agreed("Send it?"):
            await self._chat.send(Typed(text))
        else:
            self._chat.unsent = text

    # -- general

    async def _help(self) -> None:
        group = ""
        for action, help in plain_help():
            if action.group != group:
                group = action.group
                self._say(f"{group}:")
            self._say(f"  /{action.slash}{f' {action.argument}' if action.argument else ''}: {help}")
        self._say(
            'A line is a message. A backslash at its end goes on in the next line; """ begins and ends a text of '
            "several lines. Ctrl+C stops an answer; at the prompt twice, and Ctrl+D, leave."
        )

    async def _quit(self) -> None:
        self.is_over = True


def plain_help() -> Iterator[tuple[Action, str]]:
    """The commands that are carried out here, each with what it does, by their groups."""
    for group in dict.fromkeys(action.group for action in ACTIONS):
        for action in (*OWN, *ACTIONS):
            if action.group == group and action.slash and action.id not in ELSEWHERE:
                yield action, HELP.get(action.id, action.help)
