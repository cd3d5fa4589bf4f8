"""Actions on options: parameters, system prompt, model and server, thinking, appearance, the person's editor."""

from __future__ import annotations

from textual import work

from kvchat.ui.chat.messages import Decision, MessageActs

EFFORTS = ("low", "medium", "high")
THINKING = {"on": "Thinking on", "off": "Thinking off", "auto": "Thinking as the server has it",
            **{effort: f"Thinking at {effort} effort" for effort in EFFORTS}}
NEXT_THINKING: dict[object, str] = {None: "on", True: "off", False: "auto"}


class OptionActs(MessageActs):
    """What can be set for the conversation and the app."""

    @work(group="dialog")
    async def action_parameters(self) -> None:
        from kvchat.ui.screens.options import ParametersScreen

        conversation = self.conversation
        chosen = await self.ask(ParametersScreen(conversation.record.parameters))
        if chosen is not None:
            await self.service.options.set_parameters(conversation.id, chosen)

    @work(group="dialog")
    async def action_system(self, text: str = "") -> None:
        from kvchat.ui.screens.options import SystemPromptScreen

        conversation = self.conversation
        price = self.service.prices.estimate(conversation.id, "system")
        chosen: str | None = text
        if not text:
            chosen = await self.ask(
                SystemPromptScreen(conversation.instructions, price, self.service.options))
        if chosen is None:
            return
        # The screen has shown the price; a cheaper way, or words given with the command, are still asked about.
        decision: Decision | None = "go"
        if text or price.alternative is not None:
            decision = await self.decided("system", text=chosen, instead=True)
        if decision == "go":
            await self.attempt(self.service.branches.set_instructions(conversation.id, chosen))
        elif decision == "instead":
            self.append_words(f"From now on: {chosen}")

    @work(group="dialog")
    async def action_model(self, name: str = "") -> None:
        from kvchat.ui.screens.servers import ModelPicker

        if name:
            await self._use("model", name)
            return
        if await self.moved_or_waits():
            return
        chosen = await self.ask(ModelPicker(
            self.service.chooser.all(), current=self.model(), look=self.service.chooser.look,
            files=self.service.chooser.model_files))
        if chosen is not None:
            await self._use(*chosen)

    async def moved_or_waits(self) -> bool:
        """Whether the person has decided about a conversation whose server is off."""
        raise NotImplementedError

    async def _use(self, kind: str, value: object, model: str = "") -> None:
        live = self.conversation.live
        if live is not None and live.waiting is not None and live.waiting.phase == "gone" and kind != "model":
            # Nothing was sent: the question goes to the server that is chosen now.
            await self.service.chooser.use(self.conversation.id, str(value), model)
        elif self.conversation.id in self.service.conversations.streaming():
            self.say("An answer is still running. Stop it first (Esc), or wait for it.", "warning")
        elif kind == "model" and str(value) in self.service.settings.profiles:
            await self._use("server", value)
        elif (kind == "model" and (server := self.service.servers.info) and server.listing
                and not server.known(str(value))):
            self.say(f"{server.base_url} has no model {value}. {self.app.key_of('model')} lists those it has.",
                     "warning")
        elif kind == "model":
            if await self.agreed("model"):
                await self.service.options.set_model(self.conversation.id, str(value))
        elif await self.agreed("model", title="Go on with another server?"):
            await self.service.chooser.use(self.conversation.id, str(value), model)

    @work(group="dialog")
    async def action_doctor(self) -> None:
        from kvchat.ui.screens.doctor import DoctorScreen

        await self.ask(DoctorScreen(self.service.chooser.examined))

    @work(group="dialog")
    async def action_thinking(self, word: str = "") -> None:
        """On, off, or as the server has it: the next of the three; with a word that, or an effort."""
        conversation = self.conversation
        before = dict(conversation.record.template_options)
        options = {name: value for name, value in before.items() if name not in ("enable_thinking", "reasoning_effort")}
        word = word.strip().lower() or NEXT_THINKING.get(before.get("enable_thinking"), "auto")
        if word not in THINKING:
            self.say("Thinking is on, off, auto, low, medium or high.", "warning")
            return
        with self.app.key_queue.coming() as dialog:
            facts = await self.service.tracker.template_facts(conversation.id)
        if dialog.is_given_up:
            return
        has = None if facts is None else facts.takes_effort if word in EFFORTS else facts.switches_thinking
        if has is False and word != "auto":
            self.say(_missing(word, bool(facts and facts.takes_effort), bool(facts and facts.switches_thinking)))
            return
        if word in EFFORTS:
            options["reasoning_effort"] = word
        elif word != "auto":
            options["enable_thinking"] = word == "on"
        words = THINKING[word]
        if options == before or not await self.agreed("template", title=f"{words} in this conversation?",
                                                      options=options):
            return
        await self.service.options.set_template_options(conversation.id, options)
        self.say(f"{words}, if this model has the switch" if has is None and word != "auto" else words)

    def action_theme(self, name: str = "") -> None:
        if not name:
            self.app.search_themes()
        elif name in self.app.available_themes:
            self.app.theme = name
        else:
            self.say(f"There is no theme {name}. /theme shows them all.", "warning")

    def action_sidebar(self) -> None:
        self.show_sidebar = not self.sidebar.display
        self.set_sidebar(self.show_sidebar)

    def set_sidebar(self, shown: bool) -> None:
        if not shown and self.focused is self.sidebar:
            self.composer.focus()
        self.sidebar.display = shown

    @work(group="editor")
    async def action_editor(self) -> None:
        """Write the message in the person's editor; the answer streams on meanwhile, unseen."""
        from textual.app import SuspendNotSupported

        trouble = ""
        try:
            # Nothing may be raised in here, or Textual would not take the terminal back; and without the batch it
            # would paint the streaming answer over the editor.
            with self.app.key_queue.hold(), self.app.suspend(), self.app.batch_update():
                trouble = await self._edit_outside()
        except SuspendNotSupported:
            trouble = "This terminal cannot be handed to another program, so no editor can run in it."
        if trouble:
            self.say(trouble, "error")
        self.refresh(layout=True)
        self.composer.focus()

    async def _edit_outside(self) -> str:
        """Let the editor run; what went wrong, in words."""
        from kvchat.ui.editor import EditorError, edited

        try:
            self.composer.take_edited(await edited(self.composer.text, self.service.settings.editor))
        except EditorError as error:
            return str(error)
        return ""


def _missing(word: str, takes_effort: bool, switches: bool) -> str:
    """What a model lacks that was asked to think, and what it has instead."""
    if word in EFFORTS:
        return "This model has no thinking effort." + (" It thinks, or not: /thinking on or off." if switches else "")
    return "This model has no thinking switch." + (" It takes /thinking low, medium or high." if takes_effort else "")
