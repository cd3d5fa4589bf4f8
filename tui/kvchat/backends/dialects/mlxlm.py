"""mlx-lm's server: known by its health check, its kind of 404, and models without an owner.

It stops at 512 tokens by default, so every request names a length. It loads whatever model a request names, also from
the internet, and by name without the adapter it was started with; so requests name the one it was started with as
`default_model`. Whatever keeps it from beginning an answer, a template's refusal too, comes as a 404.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath, PureWindowsPath

from msgspec.structs import replace

from kvchat.backends import errors
from kvchat.backends.answer import ChatAnswer
from kvchat.backends.base import Answer, OneTokenWarmUp, Watchdog
from kvchat.backends.dialect import BackendError, ChatTurn, Emit, Ended, Progressed, ServerInfo, Trouble, failure
from kvchat.backends.http.payload import Model, PayloadError, parsed_or_none
from kvchat.backends.http.stream import Decoder
from kvchat.backends.http.transport import Exchange, ResponseHead
from kvchat.backends.kinds import KINDS, Figures
from kvchat.backends.local_template import template_here
from kvchat.backends.template import facts_of_text, reasoning_option_in
from kvchat.figures.accounting import PromptProgress
from kvchat.text.faults import Fault

DEFAULT_MODEL = "default_model"
LONGEST_ANSWER = 32_768
"""Tokens: more than a model writes by itself; the server only counts up to it."""
_COUNT = re.compile(r"keepalive (\d{1,9})/(\d{1,9})")
_LENGTHS = ("max_tokens", "max_completion_tokens")


class MlxLmBackend(OneTokenWarmUp):
    kind = KINDS["mlx-lm"]
    _started_with = ""
    """The model that goes by `default_model`, as the list names it."""

    async def describe(self) -> ServerInfo:
        models = await self._models()
        if not any(_is_path(model.id) for model in models):
            # It does not say which one it was started with, and a list of those it found need not hold that one.
            models = (Model(DEFAULT_MODEL, about="the model it was started with"), *models)
        self._started_with = next(model.id for model in models if model.id == DEFAULT_MODEL or _is_path(model.id))
        template = await template_here(self._info, self._started_with)
        return replace(
            self._info,
            model=self._started_with,
            listing=models,
            takes_local_extras=True,
            reasoning_option=reasoning_option_in(template),
            template=facts_of_text(template),
            figures=Figures.AFTER,
            unknown=("context size", "slots"),
        )

    async def _models(self) -> tuple[Model, ...]:
        """The models it lists. It breaks off in the middle of that where no model was ever downloaded."""
        try:
            return (await self.listed()).all
        except (BackendError, PayloadError) as error:
            if isinstance(error, BackendError) and error.trouble is not Trouble.PROTOCOL:
                raise
            return ()

    def head(self, turn: ChatTurn) -> dict[str, object]:
        fields = super().head(turn)
        if fields.get("model") in (None, self._started_with):
            fields["model"] = DEFAULT_MODEL
        if not any(name in turn.parameters.given() for name in _LENGTHS):
            fields["max_tokens"] = LONGEST_ANSWER
        return fields

    def answer(self, turn: ChatTurn, emit: Emit) -> MlxLmAnswer:
        return MlxLmAnswer(self.url, emit, self._info.context_size, self._started_with)

    async def _read(self, exchange: Exchange, decoder: Decoder, watchdog: Watchdog, answer: Answer) -> Ended:
        if isinstance(answer, MlxLmAnswer):
            decoder.on_comment = answer.comment
        return await super()._read(exchange, decoder, watchdog, answer)

    def _error(self, head: ResponseHead, body: str) -> BackendError:
        said_so = _message_in(body) if head.status == 404 else ""
        if not said_so:
            return super()._error(head, body)
        known = errors.of_status(self.url, 400, body)
        if known.trouble is not Trouble.REFUSED:
            return known
        if "'NoneType'" in said_so:
            return failure(Trouble.REFUSED, Fault.STARTED_WITHOUT_MODEL, status=404, url=self.url)
        return failure(Trouble.REFUSED, Fault.NOT_BEGUN, status=404, url=self.url, words=errors.quoted(said_so))


class MlxLmAnswer(ChatAnswer):
    """An answer whose comments count the prompt as it is prefilled.

    They count only new tokens; the usage at the end reports the cached ones.
    """

    def __init__(self, url: str, emit: Emit, context_size: int | None, started_with: str) -> None:
        super().__init__(url, emit, context_size)
        self._started_with = started_with

    def comment(self, text: str) -> None:
        if counted := _COUNT.fullmatch(text.strip()):
            self.moves += 1
            self._emit(Progressed(PromptProgress(int(counted[2]), 0, int(counted[1]), only_new=True)))

    def ended(self, error: BackendError | None = None) -> Ended:
        ended = super().ended(error)
        return replace(ended, model=self._started_with) if ended.model == DEFAULT_MODEL else ended


def _is_path(name: str) -> bool:
    return PurePosixPath(name).is_absolute() or PureWindowsPath(name).is_absolute()


def _message_in(body: str) -> str:
    found = errors.error_in(parsed_or_none(body))
    return found[0] if found else ""
