"""The slash commands of plain mode: those of the app that make sense line by line, and two of its own.

Every slash command of the table of actions is carried out here, or says in a sentence why not and what does
it instead.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from kvchat.chat.conversations.personas import Personas
from kvchat.chat.events import MemoriesChanged
from kvchat.commands.actions import ACTIONS, Action
from kvchat.commands.acts import Acts
from kvchat.commands.command import CommandResult, SlashParser, TextTable
from kvchat.commands.slash import by_slash, no_command, snippets
from kvchat.commands.trunks import made
from kvchat.memory.place import index_path
from kvchat.plain.chat import PlainChat, Typed, said_by
from kvchat.plain.surface import PlainSurface
from kvchat.prompt.citations import name_of, sources
from kvchat.prompt.drafts import filled
from kvchat.prompt.message import Role
from kvchat.prompt.offered_tools import GROUPS
from kvchat.prompt.tags import FAVOURITE, own
from kvchat.sanitize import one_line
from kvchat.store.stats import side_work
from kvchat.text.cache import (
    accuracy,
    figures_sentence,
    prediction,
    side_work_words,
    totals_words,
    turn_name,
    warmth_words,
)
from kvchat.text.format import counted
from kvchat.text.memory import WHY_OFF
from kvchat.text.messages import held_reason
from kvchat.text.options import THINKING, beginning_words, thinking_words
from kvchat.text.prices import compaction_lines
from kvchat.text.tools import FORGOTTEN
from kvchat.transfer import format_by_suffix
from kvchat.transfer.formats import FileExists

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
    "export": "Where to? /export chat.md; the ending names the format: md, json, jsonl or html.",
    "find": "What? /find WORDS",
    "remember": "What? /remember I prefer metric units.",
    "forget": "What? /forget WORDS deletes the memory that has these words.",
    "plain.open": "Which one? /list names the conversations, /open NUMBER opens one.",
}
"""By action: what is said where nothing follows its command."""
NO_MESSAGE: Mapping[str, str] = {
    "transcript.edit": "No message to edit yet.",
    "transcript.regenerate": "No answer to regenerate yet.",
    "transcript.continue": "There is no answer to continue yet.",
    "transcript.fork": "Nothing to fork yet.",
    "transcript.delete": "No turn to delete yet.",
}
"""By action on the last message of the branch: what is said before there is one."""


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
        self._personas = Personas(paths.personas, chat.service.options)
        self._layers = layers
        chat.acts = Acts(PlainSurface(chat))
        self._editor = editor
        self._places: Sequence[ListedPlace] = ()
        self.is_over = False
        self._on_message: Mapping[str, Callable[[str], Awaitable[object]]] = {
            "transcript.edit": self._edit,
            "transcript.regenerate": partial(self._answered, "regenerate"),
            "transcript.continue": partial(self._answered, "continue"),
            "transcript.fork": self._fork,
            "transcript.delete": self._drop,
        }
        self._with_words: Mapping[str, Callable[[str], Awaitable[object]]] = {
            "persona": self._persona,
            "trunk": self._trunk,
            "list": self._list,
            "search": self._search,
            "export": self._export,
            "find": self._find,
            "system": self._system,
            "tools": self._tools,
            "model": self._model,
            "thinking": self._thinking,
            "memory": self._memory,
            "remember": self._remember,
            "forget": self._forget,
            "transcript.code": self._code,
            "transcript.source": self._source,
            "attach": self._attach,
            "plain.open": self._open,
            "plain.read": self._read,
        }
        self._alone: Mapping[str, Callable[[], Awaitable[object]]] = {
            "tree": self._tree,
            "transcript.branches": self._tree,
            "compact": self._compact,
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
        return frozenset((*acts, *self._on_message, *self._with_words, *self._alone))

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
        elif id in self._on_message:
            node = self._chat.target()
            await self._on_message[id](node) if node is not None else self._say(NO_MESSAGE[id])
        elif id in self._with_words and (argument.strip() or id not in MISSING):
            await self._with_words[id](argument)
        else:
            self._say(MISSING.get(id) or ELSEWHERE[id])

    def _say(self, *sentences: str) -> None:
        self._chat.speaker.say(*sentences)

    def _give(self, outcome: CommandResult) -> None:
        """Say what a command gives, a row of a table in a line."""
        for one in (*outcome.words, outcome.failed):
            rows = one.rows if isinstance(one, TextTable) else [[one]]
            self._say(*filter(None, (", ".join(one_line(cell) for cell in row if cell) for row in rows)))

    # -- conversations

    async def _persona(self, name: str) -> None:
        if name:
            persona = self._personas.find(name)
            self._say(*self._personas.problems(name))
            await self._chat.begin(persona.below(self._layers().options))
            return
        known = self._personas.all()
        self._say(
            *(f"{persona.name}{f': {one_line(persona.about, 100)}' if persona.about else ''}" for persona in known)
        )
        self._say(
            "/persona NAME begins a conversation with one."
            if known
            else f"There are no personas yet. They are TOML files in {self._personas.folder}."
        )

    async def _trunk(self, words: str) -> None:
        trunks, name = self._chat.service.trunks, words
        if trunks is not None and words.split()[:1] == ["add"]:
            name, sentence = await made(trunks, words.split()[1:])
            self._say(sentence)
        if name:
            await self._chat.begin_with_trunk(name)
            return
        names = trunks.names() if trunks else []
        self._say(*names)
        self._say(
            "/trunk NAME begins a conversation with one."
            if names
            else "There are no trunks yet. /trunk add NAME PATH makes one of files."
        )

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
        words = [self._chat.title(record.title), self._chat.facts(record.id)]
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
            self._say(f"{number}. {self._chat.title(hit.title)}, {who}: {snippet}")
        self._say("/open NUMBER goes there." if hits else "Nothing found.")

    async def _export(self, path: str) -> None:
        target = Path(path)
        try:
            done = await self._written(target, overwrite=False)
        except FileExists as there:
            if not await self._chat.speaker.agreed("Replace it?", [str(there)]):
                return
            done = await self._written(target, overwrite=True)
        self._say(f"Exported to {done}")

    async def _written(self, target: Path, *, overwrite: bool) -> Path:
        return await self._chat.service.exports.write(
            [self._chat.id], format_by_suffix(target), target, overwrite=overwrite
        )

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

    async def _compact(self) -> None:
        compactor = self._chat.service.compactor
        price = compactor.price(self._chat.id)
        if await self._chat.speaker.agreed(
            "Compact this conversation?",
            compaction_lines(price.plan, price.window, price.summary_seconds, price.read_seconds, "/undo"),
        ) and (await self._chat.may_leave_this_machine()):
            await self._chat.attempt(compactor.compact(self._chat.id))

    async def _system(self, text: str) -> None:
        if not text:
            self._say("The system prompt of this conversation:")
            self._chat.speaker.output.line(self._chat.conversation.instructions)
            self._say("/system TEXT changes it.")
        elif await self._chat.agreed("system", text=text):
            await self._chat.service.branches.set_instructions(self._chat.id, text)
            self._say("System prompt changed. /undo goes back.")

    async def _tools(self, words: str) -> None:
        service, names = self._chat.service, words.replace(",", " ").split()
        if not names:
            self._say(self._chat.tools_sentence())
            known = ", ".join([*GROUPS, *service.mcp.known()])
            self._say(f"/tools NAMES changes them: {known}, none. /tools forget takes back what you allowed.")
        elif names == ["forget"]:
            await service.tools.forget()
            await service.mcp.forget()
            self._say(FORGOTTEN)
        else:
            names = [] if names == ["none"] else names
            if await self._chat.can_have(names) and await self._chat.agreed("tools", text=" ".join(names)):
                await service.branches.set_tools(self._chat.id, names)
                self._say(self._chat.tools_sentence())

    async def _model(self, name: str) -> None:
        service = self._chat.service
        server = service.servers.info
        if not name:
            where = service.servers.title() or "the server"
            self._say(
                f"{one_line(service.servers.asked_model(self._chat.id) or 'The server’s own model', 80)} on "
                f"{where}, {service.servers.name or 'built in'}."
                if server is not None
                else f"{service.servers.connection.sentence or 'Not connected yet.'}"
            )
            others = [one_line(model, 80) for model in (server.models if server is not None else ())]
            self._say(*([f"Models: {', '.join(others)}."] if len(others) > 1 else []))
            self._say(
                *(
                    [f"Servers of the settings: {', '.join(service.settings.profiles)}."]
                    if service.settings.profiles
                    else []
                )
            )
            self._say("/model NAME changes to one.")
        else:
            await self._chat.attempt(self._use(name))

    async def _use(self, written: str) -> None:
        """Go on with the model or the server that `written` names. Raises ChatError."""
        service, id = self._chat.service, self._chat.id
        choice = service.chooser.meant(id, written)
        name = str(choice[1])
        if choice[0] == "pull":
            self._say(f"To fetch it first: kvchat pull {one_line(name, 200)}")
            return
        if choice[0] == "file":
            files = await service.chooser.files_at(choice[1])
            if len(files) > 1:
                self._say(*(one_line(str(file.path), 200) for file in files))
                return
            name = str(files[0].path)
        if not await self._chat.agreed("model", title="" if choice[0] == "model" else "Switch to another server?"):
            return
        if choice[0] == "model":
            await service.options.set_model(id, name)
        else:
            await service.chooser.use(id, name)
        self._say(f"This conversation goes on with {one_line(name, 200)}.")

    async def _thinking(self, word: str) -> None:
        change = await self._chat.service.options.thinking(self._chat.id, word)
        if change.lacks:
            self._say(change.lacks)
        elif change.options == self._chat.conversation.record.template_options or await self._chat.agreed(
            "template", title=f"{THINKING[change.word]} in this conversation?", options=change.options
        ):
            await self._chat.service.options.set_template_options(self._chat.id, change.options)
            self._say(f"{thinking_words(change.word, known=bool(change.is_known))}.")

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

    # -- memory

    async def _memory(self, words: str) -> None:
        service, id = self._chat.service, self._chat.id
        extraction, memory = service.extraction, service.memory
        match words.strip().lower():
            case "on" | "off" as state:
                await extraction.set_memory(id, state == "on")
                self._say(WHY_OFF[memory.why_off(id)])
            case "now":
                await extraction.request(id)
                self._say("Takes notes as soon as no answer is running.")
            case "":
                self._say(
                    WHY_OFF[memory.why_off(id)],
                    f"{side_work_words(side_work(service.store, service.clock().timestamp()))}.",
                    "/memory list shows what is remembered. /memory on and off switch it in this conversation.",
                )
            case _:
                from kvchat.commands.memory import MemoryDesk, add_arguments, carried_out

                add_arguments(parser := SlashParser("/memory"))
                args, index = parser.parse_args(words.split()), index_path(self._paths)
                self._give(
                    await memory.with_memories(lambda found: carried_out(MemoryDesk(args, service.store, found, index)))
                )
                service.events.tell(MemoriesChanged())

    async def _remember(self, text: str) -> None:
        await self._chat.service.memory.remember(text, self._chat.id)
        self._say(f"Remembered: {one_line(text, 200)}")

    async def _forget(self, words: str) -> None:
        many, gone = await self._chat.service.memory.forget(words)
        if gone is not None:
            self._say(f"Forgotten: {one_line(gone.text, 200)}")
        else:
            self._say(
                f"{many:,} memories have these words. Give more of them." if many else "No memory has these words."
            )

    # -- messages

    async def _edit(self, node: str) -> None:
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

    async def _answered(self, act: Literal["regenerate", "continue"], node: str) -> None:
        turns, id = self._chat.service.turns, self._chat.id
        if await self._chat.agreed(act, node) and await self._chat.may_leave_this_machine():
            await self._chat.attempt(turns.regenerate(id, node) if act == "regenerate" else turns.go_on(id, node))

    async def _fork(self, node: str) -> None:
        await self._chat.acts.conversations.fork(node)

    async def _drop(self, node: str) -> None:
        if await self._chat.agreed("delete", node):
            await self._chat.service.branches.delete_turn(self._chat.id, node)
            self._say("Turn deleted. /undo brings it back.")

    async def _code(self, number: str) -> None:
        from markdown_it import MarkdownIt

        wanted = int(number) if number.strip().isdecimal() else 1
        for node in reversed(self._chat.messages()):
            if node.role is Role.ASSISTANT:
                blocks = [token.content for token in MarkdownIt("commonmark").parse(node.text) if token.type == "fence"]
                if blocks and 0 < wanted <= len(blocks):
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
            await self._chat.may_leave_this_machine()
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
