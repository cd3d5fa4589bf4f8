"""The server of llama-cpp-python: known by its tokenizer calls and by an owner called "me".

It answers one request at a time and, as it is delivered (interrupt_requests), breaks an answer off when another
request comes for the model; its list of models counts as one. So the list is read only to identify it, never to see
whether it lives: that is asked by a GET of a path it has only for POST. It keeps the last sequence alone, streams
without any figures, and ends a stream without a reason where it would refuse the request. What it does not know of a
request (`chat_template_kwargs`, `stream_options`) it leaves out.
"""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from kvchat.backends.answer import ChatAnswer
from kvchat.backends.base import OneTokenWarmUp, one_token
from kvchat.backends.dialect import BackendError, ChatTurn, Emit, Ended, ServerInfo, Trouble, failure
from kvchat.backends.http.payload import Responses, said
from kvchat.backends.http.stream import Payload
from kvchat.backends.http.transport import Exchange
from kvchat.backends.kinds import Figures, ServerKind
from kvchat.cache.causes.remedies import Change, Flags
from kvchat.text.faults import Fault
from kvchat.text.servers import CACHED_TOKENS

COUNT_PATH = "/extras/tokenize/count"
REASON_S = 10.0


class LlamaCppPythonBackend(OneTokenWarmUp):
    kind = ServerKind(
        "llama-cpp-python",
        "llama-cpp-python",
        (8000,),
        Flags(
            "the server of llama-cpp-python", Change("--n_ctx {size}"), Change("--cache true"), Change("--cache true")
        ),
        keeps_one=True,
    )
    probes = (COUNT_PATH,)
    describing_disturbs = True
    health_path = COUNT_PATH
    takes_template_options = False

    @classmethod
    def recognises(cls, responses: Responses) -> bool:
        """By a path that only it has: its list of models is not asked for, because that breaks off a running answer."""
        return said(responses, COUNT_PATH).status == 405

    async def described(self) -> ServerInfo:
        models = await self.listed()
        chosen = models.chosen
        return replace(
            self._info,
            model=chosen.id if chosen else "",
            listing=models.all,
            slots=1,
            takes_local_extras=True,
            figures=Figures.NONE,
            unknown=("token counts", CACHED_TOKENS, "context size", "prompt progress"),
        )

    def answer(self, turn: ChatTurn, emit: Emit) -> LlamaCppPythonAnswer:
        return LlamaCppPythonAnswer(self.url, emit, self._info.context_size)

    async def chat(self, turn: ChatTurn, emit: Emit) -> Ended:
        """As ever; where the stream ended before it began, the reason is asked for."""
        ended = await super().chat(turn, emit)
        if isinstance(ended.error, NothingSaidError) and (reason := await self._reason(turn)) is not None:
            return replace(ended, error=reason)
        return ended

    async def _reason(self, turn: ChatTurn) -> BackendError | None:
        """Why the server begins no answer to `turn`: without streaming, it says so at once. None where it does not."""
        body = self.body(one_token(turn)).replace(b'"stream":true', b'"stream":false', 1)
        try:
            async with (
                asyncio.timeout(REASON_S),
                Exchange(
                    self._endpoint,
                    "POST",
                    self.chat_path,
                    headers=self.headers(turn),
                    body=body,
                ) as exchange,
            ):
                head = await exchange.head()
                return None if head.status == 200 else self._refusal(head, await exchange.start_of_body())
        except (TimeoutError, BackendError):
            return None


class NothingSaidError(BackendError):
    """The stream ended before its first part."""

    def __init__(self, url: str) -> None:
        super().__init__(Trouble.SERVER_ERROR, Fault.NOTHING_SAID, {"url": url})


class LlamaCppPythonAnswer(ChatAnswer):
    """An answer of a server that ends a stream early without a word of why: what came before tells."""

    _parts = 0

    def take(self, payload: Payload) -> None:
        self._parts += 1
        super().take(payload)

    def ended(self, error: BackendError | None = None) -> Ended:
        if (error is None or error.fault is Fault.UNFINISHED) and not self.finished:
            error = interrupted(self._url) if self._parts else NothingSaidError(self._url)
        return super().ended(error)


def interrupted(url: str) -> BackendError:
    return failure(Trouble.CUT, Fault.INTERRUPTED, url=url)
