"""text-generation-webui: it leaves the oldest messages out of a prompt that is too long, without a word.

The rule: template options go out as its own fields, and the counts of each turn are compared with those before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from msgspec.structs import replace

from kvchat.backends.answer import ChatAnswer
from kvchat.backends.base import MODELS_PATH, Answer
from kvchat.backends.dialect import ChatTurn, Emit, Ended, ServerInfo, Trouble, failure
from kvchat.backends.dialects.program import ProgramBackend, Remedy
from kvchat.backends.http.payload import Models, Responses, as_object, figures_at, is_object, models_in, said, text_at
from kvchat.backends.http.stream import Payload
from kvchat.backends.kinds import Figures, ServerKind
from kvchat.cache.causes.remedies import Change, Flags
from kvchat.prompt.message import State
from kvchat.prompt.wire import whole_characters
from kvchat.text.faults import Fault
from kvchat.text.servers import CACHED_TOKENS

INFO_PATH = "/v1/internal/model/info"
NO_MODEL = "None"
OPTIONS = {
    "enable_thinking": "enable_thinking",
    "reasoning_effort": "reasoning_effort",
    "preserve_reasoning": "preserve_thinking",
    "preserve_thinking": "preserve_thinking",
}
"""Its own fields for options of the chat template."""
LOAD = "Load one in its Model tab, then try again."


class TextGenBackend(ProgramBackend):
    kind = ServerKind(
        "text-generation-webui",
        "text-generation-webui",
        (5000,),
        Flags(window=Change("--ctx-size {size}"), beside=Change("--parallel 2")),
    )
    probes = (INFO_PATH,)
    health_path = "/v1/internal/health"
    takes_template_options = False
    ignores_model = True
    renamed: ClassVar[Mapping[str, str]] = {"repeat_penalty": "repetition_penalty"}
    room = "load the model with a larger ctx-size in text-generation-webui"
    keys = "text-generation-webui's key is what it was started with as --api-key."
    remedies: ClassVar[tuple[Remedy, ...]] = (
        Remedy(
            "invalid host header",
            "answers only to localhost and 127.0.0.1. Use one of these, or start it with --listen.",
        ),
    )

    @classmethod
    def recognises(cls, responses: Responses) -> bool:
        fields = said(responses, INFO_PATH).fields
        return "model_name" in fields and "lora_names" in fields

    async def described(self) -> ServerInfo:
        _, found = await self.get_json(INFO_PATH)
        _, listing = await self.get_json(MODELS_PATH)
        fields = as_object(found, "a model's description")
        named = whole_characters(text_at(fields, "model_name") or "")
        name = "" if named == NO_MODEL else named
        models = Models(
            tuple(
                replace(model, loaded=model.id == name, about=text_at(fields, "loader") or "")
                for model in models_in(listing).all
            )
        )
        return replace(
            self._info,
            model=name,
            listing=models.all,
            figures=Figures.NONE,
            unknown=(CACHED_TOKENS, "context size", "slots", "version"),
        )

    def head(self, turn: ChatTurn) -> dict[str, object]:
        return super().head(turn) | {
            OPTIONS[name]: value for name, value in turn.template_options.items() if name in OPTIONS
        }

    def answer(self, turn: ChatTurn, emit: Emit) -> Answer:
        return TextGenAnswer(self.url, emit, self.window_of(turn))

    def _explained_end(self, ended: Ended) -> Ended:
        ended = super()._explained_end(ended)
        error = ended.error
        if self.info.model or not (ended.state is State.EMPTY or (error and error.trouble is Trouble.CUT)):
            return ended
        trouble = error.trouble if error else Trouble.REFUSED
        unloaded = failure(trouble, Fault.PROGRAM, title=self.title, url=self.url, told=f"has no model loaded. {LOAD}")
        return replace(ended, remark=unloaded.note, error=error and unloaded)


class TextGenAnswer(ChatAnswer):
    """An answer whose prompt counts 0 tokens where the loader does not count."""

    def take(self, payload: Payload) -> None:
        if is_object(payload.value) and figures_at(payload.value, "usage").get("prompt_tokens") == 0:
            payload = replace(
                payload, value={key: value for key, value in payload.value.items() if key != "usage"} | {"usage": None}
            )
        super().take(payload)
