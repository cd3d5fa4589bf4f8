"""Calls that the server read out of what a model wrote, whose arguments the template prints as they came or anew."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from corpus import corpus
from kvchat.backends.dialect import ChatTurn
from kvchat.cache.llamacpp.cache_config import Shape
from kvchat.cache.llamacpp.simulator import Simulator
from kvchat.cache.tokens import Tokens
from kvchat.chat.cache.prompt_tokens import PromptTokens
from kvchat.chat.cache.server_cache import ServerCache
from kvchat.chat.cache.tracked_turn import EndedAnswers, PredictedRequest
from kvchat.chat.events import EventBus
from kvchat.figures.accounting import TurnFigures
from kvchat.prompt.message import Message, Role, node
from kvchat.prompt.tools import ToolCall, calls_in

ASKED = "Q: And?|A: "
SPACED, COMPACT, BROKEN = '{"path": "a.txt", "from": 2}', '{"path":"a.txt","from":2}', '{"path":\n"a.txt", "from": 2}'
ODD = '{"path" :"a.txt", "from" :2}'
TAGS = "<path>a.txt</path><from>2</from>"
QUESTION = Message(Role.USER, "And?")


class PrintingServer:
    """Each character is a token; its template prints the calls of an answer in these words, invented ones as they
    are."""

    def __init__(self, *printed: str) -> None:
        self.printed = printed

    async def prompt_text(self, turn: ChatTurn) -> str:
        last, answer = json.loads(turn.wires[-1]), json.loads(turn.wires[1])
        made = calls_in(turn.wires[1])
        printed = self.printed if made and made[0].id == "id0" else [call.arguments for call in made]
        return f"{ASKED}{answer['content']}{''.join(printed)}|R: {last['content']}"

    async def tokens_of(self, text: str, known: object = None) -> Tokens:
        return Tokens(map(ord, text))


async def behind(text: str, came: list[str], printed: list[str]) -> tuple[str | None, str]:
    """A text and calls whose arguments came so and are printed so: what they are followed as (None: as printed), and
    what is surely the same of it where the model sampled them otherwise."""
    prompts = PromptTokens(PrintingServer(*printed), EventBus())  # type: ignore[arg-type]
    calls = tuple(ToolCall(f"id{at}", "look", arguments) for at, arguments in enumerate(came))
    turn = ChatTurn((QUESTION.wire(), Message(Role.ASSISTANT, text, calls=calls).wire()), "one", "toy")
    assert await prompts.prefix(turn) and not prompts.is_retokenised(turn)
    followed = await prompts.with_calls_as_they_came(turn, ASKED)
    same = await prompts.retokenised(turn, ASKED, len(ASKED), text)
    assert prompts.is_retokenised(turn)
    words = "".join(map(chr, followed)).removeprefix(ASKED).removesuffix("|R: ") if followed is not None else None
    return words, "".join(map(chr, same))


@corpus(
    ("came", "printed", "followed"),
    [
        ([COMPACT], [SPACED], COMPACT),
        ([SPACED], [COMPACT], SPACED),
        ([BROKEN], [SPACED], BROKEN),
        ([COMPACT, BROKEN], [SPACED, SPACED], COMPACT + BROKEN),
        ([SPACED, COMPACT], [SPACED, SPACED], SPACED + COMPACT),
        ([COMPACT], [COMPACT], None),
        ([BROKEN], [BROKEN], None),
        ([COMPACT], [TAGS], None),
        (["{}"], ["{}"], None),
    ],
)
async def test_a_call_is_followed_as_it_came(came: list[str], printed: list[str], followed: str | None) -> None:
    assert (await behind("", came, printed))[0] == followed


@pytest.mark.parametrize(
    ("text", "same"), [("", "{"), ("I look.", "I look.{"), ("Let me see:\n", "Let me see:\n{"), ("{", "{{")]
)
async def test_what_stands_before_a_call_is_the_same_in_other_tokens(text: str, same: str) -> None:
    assert (await behind(text, [SPACED], [SPACED]))[1] == same


@pytest.mark.parametrize(
    ("came", "printed", "count", "held"),
    [
        (BROKEN, SPACED, len(SPACED) + 1, f"{BROKEN}|"),
        (ODD, SPACED, len(SPACED) + 1, f"{ODD}|"),
        (SPACED, SPACED, len(SPACED) + 1, f"{SPACED}|"),
        (COMPACT, SPACED, len(COMPACT) + 1, f"{COMPACT}|"),
        (COMPACT, SPACED, len(SPACED) + 1, "{"),
        (SPACED, SPACED, len(SPACED) + 3, "{"),
    ],
)
async def test_as_many_other_tokens_are_not_taken_for_the_same(came: str, printed: str, count: int, held: str) -> None:
    """What a slot is believed to hold behind a prompt: as many tokens as the model sampled, as far as they are
    known."""
    prompts = PromptTokens(PrintingServer(printed), EventBus())  # type: ignore[arg-type]
    asked = node(None, QUESTION, 1.0)
    answer = node(asked, Message(Role.ASSISTANT, "", calls=(ToolCall("id0", "look", came),)), 2.0)
    answer = replace(answer, figures=TurnFigures(predicted_tokens=count))
    turn = ChatTurn((asked.wire,), "one", "toy")
    prompt = Tokens(map(ord, ASKED))
    request = PredictedRequest(
        turn, [asked], number=1, tokens=prompt, rendered=ASKED, prediction=Simulator(Shape()).predict(prompt)
    )
    cache = SimpleNamespace(prompts=prompts, is_brief=False)
    settled = ChatTurn((asked.wire, answer.wire), "one", "toy")
    sampled = await ServerCache._sampled(cache, request, EndedAnswers([answer]), settled, is_shown=False)  # type: ignore[arg-type]
    assert len(sampled) == count
    assert "".join(map(chr, sampled.first(sampled.known))) == held
    assert prompts.is_retokenised(settled) == (held != f"{printed}|")
    assert prompts.known_history(settled) == len(ASKED + printed), "what follows the call, as it is printed, is new"
