"""The conversation service: everything a person can do with conversations, behind one object.

The rule: the screen and the command line call it and listen to its events; it alone speaks to the store and the
server. A message is stored before anything is sent.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from kvchat.backends.dialect import Backend, BackendError, ChatTurn, Emit, Ended, ServerInfo, Waiting
from kvchat.cache.accounting import Totals, measured_speed, totals
from kvchat.cache.price import Act, Price, price, reread_tokens
from kvchat.chat.answering import Answering
from kvchat.chat.connection import Connection, Connector
from kvchat.chat.errors import ChatError
from kvchat.chat.events import (
    AnswerEnded,
    AnswerProgressed,
    AnswerStarted,
    ConversationChanged,
    ConversationsChanged,
    Noticed,
    ServerChanged,
    ServiceEvent,
    StorageChanged,
)
from kvchat.chat.keeper import Keeper
from kvchat.chat.lane import Lane
from kvchat.chat.live import LiveAnswer, OpenConversation
from kvchat.config import Settings
from kvchat.prompt.branching import Branch, asked, awaited, under_system, without_turn
from kvchat.prompt.context import TIME, ContextBlock
from kvchat.prompt.conversation import NEW_TITLE, Conversation, SavedPrompt, SearchHit, title_of
from kvchat.prompt.message import DEFAULT_INSTRUCTIONS, Node, Role, State, new_id, node, system_message
from kvchat.prompt.request import Parameters, body_sha256, wires_of
from kvchat.prompt.tree import Tree
from kvchat.prompt.wire import whole_characters
from kvchat.store import Store, StoreError, StoreUnavailable

if TYPE_CHECKING:
    from kvchat.backends.engine.models import ModelFile
    from kvchat.transfer import Source

Listener = Callable[[ServiceEvent], None]
QUIT_SECONDS = 2.0
TRASH_DAYS = 30


def system_clock() -> datetime:
    """Now, in the system's time zone."""
    return datetime.now().astimezone()


class ChatService:
    """Conversations on a store, talking through a connector. All methods belong to one event loop."""

    def __init__(
        self, store: Store, settings: Settings, *, incognito: bool = False, strict: bool = False,
        clock: Callable[[], datetime] = system_clock, snapshots: Path | None = None,
    ) -> None:
        self.settings = settings
        self.incognito = incognito
        self.asks_before_leaving = False
        """Whether nothing goes to another machine until the person agreed (`allow_sending_to`)."""
        self._store = store
        self._clock = clock
        self._listeners: list[Listener] = []
        self._keeper = Keeper(lambda trouble: self._tell(StorageChanged(trouble)), strict=strict)
        self._connector = Connector(settings, lambda: self._tell(ServerChanged()), snapshot_folder=snapshots)
        self._lane = Lane()
        self._open: dict[str, OpenConversation] = {}
        self._answering: dict[str, tuple[Answering, asyncio.Task[None]]] = {}
        self._undo: dict[str, list[str | None]] = {}
        self._list: list[Conversation] | None = None
        self._seen_version = store.data_version()
        self._looked_at = ""

    # -- listening ------------------------------------------------------------------------------------------------

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with every event, on the loop, until the returned function is called."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _tell(self, event: ServiceEvent) -> None:
        for listener in tuple(self._listeners):
            listener(event)

    # -- the list -------------------------------------------------------------------------------------------------

    def conversations(self) -> list[Conversation]:
        """All conversations but the deleted ones, newest first."""
        if self._list is None:
            self._list = self._store.conversations()
        return self._list

    def streaming(self) -> frozenset[str]:
        """The conversations whose answer is running or waiting."""
        return frozenset(self._answering)

    def refresh(self) -> None:
        """Look whether another process changed the store; tell if so."""
        version = self._store.data_version()
        if version != self._seen_version:
            self._seen_version = version
            self._list_changed()

    def _list_changed(self) -> None:
        self._list = None
        self._tell(ConversationsChanged())

    async def create(self, instructions: str | None = None, *, reuse: bool = True) -> OpenConversation:
        """A new conversation. `reuse`: an empty one that nobody has written in is used again."""
        if instructions is None:
            instructions = self.settings.system_prompt or DEFAULT_INSTRUCTIONS
        message = system_message(instructions)
        for known in self.conversations() if reuse else ():
            if known.turns == 0 and known.id not in self._answering and not self._store.draft(known.id):
                conversation = await self.open(known.id)
                if conversation.tree[known.head or ""].text != message.text:
                    await self.set_instructions(known.id, instructions)
                return conversation
        now = self._clock().timestamp()
        root = node(None, message, now)
        record = Conversation(id=new_id(), head=root.id, created=now, updated=now,
                              parameters=self.settings.parameters)
        return await self._create(record, root)

    async def _create(self, record: Conversation, root: Node) -> OpenConversation:
        record = await self._keeper.call(lambda: self._store.create(record, root))
        self._list_changed()
        return await self.open(record.id)

    async def open(self, id: str) -> OpenConversation:
        """The conversation, loaded. Opening it marks it as read. Raises UnknownConversation."""
        conversation = self._open.get(id)
        if conversation is None:
            record = self._store.conversation(id)
            conversation = OpenConversation(record, self._store.tree(record.id), self._store.draft(record.id))
            self._open[record.id] = conversation
        self._looked_at = conversation.id
        if conversation.record.unread:
            await self._update(conversation, unread=False)
        return conversation

    def get(self, id: str) -> OpenConversation | None:
        """The conversation if it is open."""
        return self._open.get(id)

    def find(self, id: str) -> Conversation:
        """The conversation whose id begins with `id`. Raises ChatError."""
        try:
            return self._store.conversation(id)
        except StoreError as error:
            raise ChatError(str(error)) from None

    def now(self) -> datetime:
        """Now, as the time stamps have it."""
        return self._clock()

    async def rename(self, id: str, title: str) -> None:
        title = " ".join(whole_characters(title).split()) or NEW_TITLE
        await self._update(await self._opened(id), title=title[:200])

    async def delete(self, id: str) -> None:
        """Move the conversation to the trash; `restore` brings it back."""
        await self.stop(id)
        await self._update(await self._opened(id), trashed=self._clock().timestamp())

    async def restore(self, id: str) -> None:
        await self._update(await self._opened(id), trashed=None)

    async def _opened(self, id: str) -> OpenConversation:
        looked_at = self._looked_at
        conversation = await self.open(id)
        self._looked_at = looked_at
        return conversation

    async def _update(self, conversation: OpenConversation, **changes: object) -> None:
        conversation.record = record = replace(conversation.record, **changes)  # type: ignore[arg-type]
        await self._keeper.write(lambda: self._store.update(record))
        self._list_changed()
        self._tell(ConversationChanged(record.id))

    # -- talking --------------------------------------------------------------------------------------------------

    async def send(self, id: str, text: str, blocks: Sequence[ContextBlock] = (), *,
                   parameters: Parameters | None = None) -> None:
        """Store the question, then let the answer stream in its own task. `parameters` replace the conversation's
        for this turn. Raises ChatError."""
        conversation = await self._free(id)
        await self._grow(conversation, self._asked(conversation, conversation.record.head, text, blocks), parameters)

    def _asked(self, conversation: OpenConversation, head: str | None, text: str,
               blocks: Sequence[ContextBlock]) -> Branch:
        every = timedelta(minutes=self.settings.time_stamp_minutes) if self.settings.time_stamp else None
        return asked(conversation.tree, head or "", text, blocks, self._clock(), every)

    async def _free(self, id: str) -> OpenConversation:
        if id in self._answering:
            raise ChatError("An answer is still running in this conversation. Stop it first (Esc), or wait for it.")
        return await self._opened(id)

    async def _grow(self, conversation: OpenConversation, branch: Branch, parameters: Parameters | None = None) -> None:
        """Store a branch that ends in an empty answer, move the head to it, and start the answer."""
        record = conversation.record
        question = next((n for n in branch.nodes if n.role is Role.USER), None)
        if question is not None:
            title = title_of(question.text) if record.turns == 0 and record.title == NEW_TITLE else record.title
            record = replace(record, title=title, turns=record.turns + 1)
        record = replace(record, head=branch.head, updated=branch.nodes[-1].created)
        await self._keeper.write(lambda: self._store.add(record, branch.nodes))
        conversation.record = record
        for new in branch.nodes:
            conversation.tree.put(new)
        self._list_changed()
        self._start(conversation, branch.nodes[-1], parameters)

    def _start(self, conversation: OpenConversation, answer: Node, parameters: Parameters | None) -> None:
        live = LiveAnswer(answer.id, time.monotonic())
        path = conversation.tree.path(answer.parent)

        async def checkpoint(text: str, reasoning: str) -> None:
            await self._keeper.write(lambda: self._store.append(answer.id, text, reasoning, live.reasoning_field))

        async def chat(emit: Emit) -> Ended:
            return await self._chat(conversation, path, parameters, emit)

        def changed() -> None:
            self._tell(AnswerProgressed(conversation.id, answer.id))

        answering = Answering(answer, path, live, chat=chat, checkpoint=checkpoint, changed=changed)
        conversation.live = live
        self._answering[conversation.id] = (answering, asyncio.create_task(self._answer(conversation, answering)))
        self._tell(ConversationChanged(conversation.id))
        self._tell(AnswerStarted(conversation.id, answer.id))

    async def _chat(self, conversation: OpenConversation, path: Sequence[Node], parameters: Parameters | None,
                    emit: Emit) -> Ended:
        """Wait for the lane and the server, then send the one request."""
        live = conversation.live
        if self._lane.holder:
            emit(Waiting("lane", 0.0))
        async with self._lane.chat(conversation.id):
            emit(Waiting("connecting", 0.0))
            backend = await self._connector.ready()
            if self.asks_before_leaving and not self.may_send_to(backend.info):
                return Ended(State.ERROR, f"{backend.info.base_url} is not on this machine, and you have not agreed to "
                                          "send to it. Nothing was sent; try again to be asked.")
            await self._freeze_template(conversation, backend)
            record = conversation.record
            turn = ChatTurn(wires_of(path), record.id, record.model or self.settings.server.model or backend.info.model,
                            parameters or record.parameters, record.template_options)
            sha = body_sha256(backend.body(turn))
            answer = live.node if live else ""
            info = backend.info
            await self._keeper.write(lambda: self._store.record_request(
                answer, body_sha256=sha, server=info.base_url, kind=info.kind, build=info.build, model=turn.model))
            if live:
                live.sent_at = time.monotonic()
            return await backend.chat(turn, emit)

    async def _freeze_template(self, conversation: OpenConversation, backend: Backend) -> None:
        """At a conversation's first message, decide once whether the template is asked to keep reasoning."""
        options = conversation.record.template_options
        first = conversation.record.turns == 1
        if first and backend.info.preserves_reasoning and "preserve_reasoning" not in options:
            await self._update(conversation, template_options={**options, "preserve_reasoning": True})

    async def _answer(self, conversation: OpenConversation, answering: Answering) -> None:
        def context_size() -> int | None:
            info = self._connector.info
            return info.context_size if info else None

        answer = await answering.run(context_size)
        used = answer.figures.context_used if answer.figures else None
        record = replace(
            conversation.record, updated=max(conversation.record.updated, self._clock().timestamp()),
            context_used=used if used is not None else conversation.record.context_used,
            unread=self._looked_at != conversation.id,
        )
        conversation.record = record
        conversation.tree.put(answer)
        try:
            await self._keeper.write(lambda: self._store.settle(answer, record))
        except StoreUnavailable as error:
            self._tell(Noticed(str(error), "error"))
        conversation.live = None
        del self._answering[conversation.id]
        self._list_changed()
        self._tell(AnswerEnded(conversation.id, answer.id))
        self._tell(ConversationChanged(conversation.id))

    async def stop(self, id: str) -> None:
        """End the running answer and keep what came; return when it is settled. Nothing runs: nothing happens."""
        running = self._answering.get(id)
        if running is not None:
            running[0].stop()
            await asyncio.wait({running[1]})

    async def wait(self, id: str) -> None:
        """Return when the running answer is settled."""
        running = self._answering.get(id)
        if running is not None:
            await asyncio.wait({running[1]})

    # -- branches -------------------------------------------------------------------------------------------------

    async def edit(self, id: str, node_id: str, text: str) -> None:
        """Ask a question differently: a sibling of it, answered anew. The old branch stays."""
        conversation = await self._free(id)
        question, _ = conversation.tree.turn_of(node_id)
        kept = [b for b in question.message.blocks if b.kind != TIME and (b.kind != "paste" or _chip(b) in text)]
        branch = self._asked(conversation, question.parent, text, kept)
        self._remember(conversation)
        await self._grow(conversation, branch)

    async def regenerate(self, id: str, node_id: str) -> None:
        """Another answer to the same question. An answer that failed without a word makes room for it."""
        conversation = await self._free(id)
        question, answer = conversation.tree.turn_of(node_id)
        if answer is None:
            answer = next((n for n in conversation.tree.children(question.id) if n.role is Role.ASSISTANT), None)
        fresh = awaited(question, self._clock())
        self._remember(conversation)
        await self._grow(conversation, Branch((fresh,), fresh.id))
        if answer is not None and _said_nothing(answer) and not conversation.tree.children(answer.id):
            dropped = answer.id
            conversation.tree.drop(dropped)
            self._undo[id] = [head for head in self._undo.get(id, []) if head != dropped]
            await self._keeper.write(lambda: self._store.drop(dropped))
            self._tell(ConversationChanged(id))

    async def fork(self, id: str, node_id: str) -> OpenConversation:
        """A new conversation that shares this one up to the answer `node_id`; at a question, up to before it, with
        the question as the draft."""
        conversation = await self._opened(id)
        at = conversation.tree[node_id]
        draft = ""
        if at.role is Role.USER:
            draft, at = at.text, conversation.tree[at.parent or ""]
        path = conversation.tree.path(at.id)
        now = self._clock().timestamp()
        figures = [n.figures for n in path if n.figures]
        record = replace(
            conversation.record, id=new_id(), head=at.id, created=now, updated=now, forked_from=conversation.id,
            turns=sum(n.role is Role.USER for n in path), unread=False, trashed=None,
            context_used=figures[-1].context_used if figures else None,
            title=f"{conversation.record.title} (fork)",
        )
        fork = await self._create(record, path[0])
        if draft:
            await self.set_draft(fork.id, draft)
        return fork

    async def delete_turn(self, id: str, node_id: str) -> None:
        """Go on without the turn of `node_id`: the later turns stand on a new branch, the old one stays."""
        conversation = await self._free(id)
        await self._move(conversation, without_turn(conversation.tree, conversation.record.head or "", node_id))

    async def select(self, id: str, node_id: str) -> None:
        """Go to the branch through `node_id`, at its tip."""
        conversation = await self._free(id)
        await self._move(conversation, Branch((), conversation.tree.tip(node_id)))

    async def walk(self, id: str, node_id: str, step: int) -> None:
        """Go to the sibling of `node_id` that is `step` further; at the ends nothing happens."""
        conversation = await self._free(id)
        siblings = [n.id for n in conversation.tree.siblings(node_id)]
        at = siblings.index(node_id) + step
        if 0 <= at < len(siblings):
            await self._move(conversation, Branch((), conversation.tree.tip(siblings[at])))

    async def undo(self, id: str) -> bool:
        """Back to the branch before the last edit, regenerate, delete or switch; False if there is none."""
        conversation = await self._free(id)
        heads = self._undo.get(id, [])
        while heads:
            head = heads.pop()
            if head in conversation.tree and head != conversation.record.head:
                await self._update(conversation, head=head)
                return True
        return False

    def _remember(self, conversation: OpenConversation) -> None:
        self._undo.setdefault(conversation.id, []).append(conversation.record.head)

    async def _move(self, conversation: OpenConversation, branch: Branch) -> None:
        self._remember(conversation)
        record = replace(conversation.record, head=branch.head)
        if branch.nodes:
            await self._keeper.write(lambda: self._store.add(record, branch.nodes))
            for new in branch.nodes:
                conversation.tree.put(new)
        await self._update(conversation, head=branch.head)

    def price(self, id: str, act: Act, node_id: str | None = None) -> Price:
        """What `act` would make the server read again."""
        conversation = self._open[id]
        path = conversation.path()
        answers = [n for n in path if n.role is Role.ASSISTANT]
        turn = max(0, sum(n.role is Role.USER for n in path) - 1)
        if node_id is not None and any(n.id == node_id for n in path):
            turn = sum(n.role is Role.USER for n in conversation.tree.path(node_id)) - 1
        samples = conversation.figures()
        return price(reread_tokens(act, [n.figures for n in answers], turn), self.prefill_speed(id), len(samples))

    def prefill_speed(self, id: str) -> float | None:
        """The server's prefill speed in tokens/s as measured in this conversation, else on this server lately."""
        conversation = self._open.get(id)
        info = self._connector.info
        return (measured_speed(conversation.figures()) if conversation else None) or (
            measured_speed(self._store.speed_samples(info.base_url, info.model)) if info else None)

    # -- options --------------------------------------------------------------------------------------------------

    async def set_instructions(self, id: str, instructions: str) -> None:
        """Another system prompt: a new branch below a new system message. The old branch stays."""
        conversation = await self._free(id)
        message = system_message(instructions)
        if conversation.path()[0].text == message.text:
            return
        branch = under_system(conversation.tree, conversation.record.head or "", message, self._clock().timestamp())
        await self._move(conversation, branch)

    async def set_parameters(self, id: str, parameters: Parameters) -> None:
        await self._update(await self._opened(id), parameters=parameters)

    async def set_template_options(self, id: str, options: Mapping[str, object]) -> None:
        """Options of the chat template. They are part of the prefix: the next turn may read everything again."""
        await self._update(await self._opened(id), template_options=dict(options))

    async def set_model(self, id: str, model: str) -> None:
        await self._update(await self._opened(id), model=model)

    async def set_draft(self, id: str, text: str) -> None:
        conversation = await self._opened(id)
        conversation.draft = text = whole_characters(text)
        await self._keeper.write(lambda: self._store.set_draft(id, text))

    def prompts(self) -> list[SavedPrompt]:
        """The library of system prompts, by name."""
        return self._store.prompts()

    async def save_prompt(self, prompt: SavedPrompt) -> None:
        await self._keeper.write(lambda: self._store.save_prompt(prompt))

    async def delete_prompt(self, name: str) -> None:
        await self._keeper.write(lambda: self._store.delete_prompt(name))


    # -- finding and giving out -----------------------------------------------------------------------------------

    async def search(self, query: str, limit: int = 50, ranked: bool = False) -> list[SearchHit]:
        """Messages and titles that match, newest first; `ranked`: best first among the newest."""
        return await self._keeper.call(lambda: self._store.search(query, limit, ranked=ranked))

    def sent_texts(self, id: str) -> list[str]:
        """The person's messages in this conversation, newest first."""
        return [n.text for n in reversed(self._open[id].path()) if n.role is Role.USER]

    async def export(self, ids: Sequence[str], format: str, path: Path, *, all_branches: bool = False,
                     overwrite: bool = False) -> Path:
        """Write conversations to the file `path` and return it. Raises TransferError."""
        from kvchat.transfer import export

        sources = [await self._source(id) for id in ids]
        return await asyncio.to_thread(export, path, format, sources, all_branches=all_branches, overwrite=overwrite)

    async def export_text(self, ids: Sequence[str], format: str, *, all_branches: bool = False) -> str:
        """Conversations as the text of an export file."""
        from kvchat.transfer import render

        return render(format, [await self._source(id) for id in ids], all_branches=all_branches)

    async def _source(self, id: str) -> Source:
        """A copy, so that a thread can read it while the conversation goes on."""
        from kvchat.transfer import Source

        conversation = await self._opened(id)
        return Source(conversation.record, Tree(conversation.tree))

    def all_time(self, days: float = 7) -> Totals:
        """The totals over all conversations of the last `days`."""
        since = self._clock().timestamp() - days * 86400
        return totals(self._store.figures(since))

    # -- the server -----------------------------------------------------------------------------------------------

    @property
    def server(self) -> ServerInfo | None:
        return self._connector.info

    @property
    def connection(self) -> Connection:
        return self._connector.connection

    def may_send_to(self, server: ServerInfo) -> bool:
        """Whether the server is on this machine, or the person agreed to send to it."""
        return server.host_class == "loopback" or bool(self._store.setting(_agreement(server)))

    async def allow_sending_to(self, server: ServerInfo) -> None:
        """The person agrees that conversations go to this server. Kept over restarts."""
        await self._keeper.write(lambda: self._store.set_setting(_agreement(server), "yes"))

    async def connect(self) -> None:
        """Look for a server or start the engine; how it went is in `connection`."""
        try:
            await self._connector.ready()
        except BackendError:
            pass

    async def restart_server(self) -> None:
        """Connect anew; the embedded engine is started again."""
        try:
            await self._connector.restart()
        except BackendError:
            pass

    async def use_url(self, base_url: str) -> None:
        try:
            await self._connector.use_url(base_url)
        except BackendError:
            pass

    async def use_model_file(self, path: Path) -> None:
        try:
            await self._connector.use_model_file(path)
        except BackendError:
            pass

    async def model_files(self) -> list[ModelFile]:
        """The model files on this machine's disk that the embedded engine can run."""
        return await self._connector.find_models()

    def model_folders(self) -> list[str]:
        """Where model files are looked for, in words."""
        return [f"{source}: {folder}" for source, folder in self._connector.folders()]

    async def housekeeping(self) -> None:
        """What is done when nobody waits: a daily backup, and what lay in the trash for 30 days is removed."""
        before = self._clock().timestamp() - TRASH_DAYS * 86400
        try:
            await self._keeper.call(lambda: self._store.purge_trash(before))
            await self._keeper.call(self._store.backup_if_due)
        except StoreError as error:
            self._tell(Noticed(str(error), "warning"))

    async def aclose(self) -> None:
        """Stop what runs, keep what came, write what waits, end the engine."""
        for answering, _ in self._answering.values():
            answering.stop()
        if tasks := {task for _, task in self._answering.values()}:
            await asyncio.wait(tasks, timeout=QUIT_SECONDS)
        await self._connector.aclose()
        await self._keeper.aclose()
        self._store.close()


def _agreement(server: ServerInfo) -> str:
    return f"allowed {server.host_class} {server.base_url}"


def _chip(block: ContextBlock) -> str:
    return f"[{block.source.replace(' (', ': ').removesuffix(')')}]"


def _said_nothing(answer: Node) -> bool:
    return not answer.text and not answer.message.reasoning and answer.state in (
        State.ERROR, State.CANCELLED, State.INTERRUPTED, State.EMPTY)
