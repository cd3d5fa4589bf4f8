"""What a model's chat template does that costs the cache: read from its text, and seen in the prompts it makes.

What was seen outweighs what was read, and what is neither seen nor read is None. Rendering a prompt costs the
model no time and nothing that is cached, but it wakes a server that sleeps; only invented texts are rendered.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import date, timedelta
from typing import Protocol, runtime_checkable

from msgspec import Struct

from kvchat.backends.dialect import Backend, BackendError, CacheAccess, ChatTurn, TemplateFacts, TemplateOption, Trouble
from kvchat.backends.http.payload import PayloadError, as_object, text_at
from kvchat.backends.kinds import kind_of
from kvchat.prompt.wire import canonical

SYSTEM = "You are a calm guide to a small garden."
QUESTIONS = ("Which flower opens first?", "And which one opens last?", "Why is that so?")
ANSWERS = ("The snowdrop is the first.", "The autumn crocus comes last.")
THOUGHT = "They ask about early blossoms."
"""Invented texts; none is part of another one."""
OLD_DATE = "01 Jan 2000"
REASONING_OPTIONS: tuple[TemplateOption, ...] = (
    ("preserve_thinking", True),
    ("clear_thinking", False),
    ("drop_thinking", False),
)
"""What templates call the option that keeps earlier reasoning, and the value that does: Qwen, GLM, DeepSeek."""
SESSION = "0" * 32
MOST_TEMPLATE = 1 << 18
"""Characters of a template that are looked at; the longest real ones have a tenth of that."""

_DATE = re.compile(
    r"strftime_now|date_string|current_?date|\btoday'?s?(?: current)? date|current date|datetime\.now", re.IGNORECASE
)
_REASONS = re.compile(r"think|reasoning|<\|channel", re.IGNORECASE)
_SPLIT = re.compile(r"split\(\s*['\"]</\w*think", re.IGNORECASE)
_ONLY_LAST = re.compile(
    r"last_(?:user|query|assistant)|lastUserIdx|strip_thinking|"
    r"\$last\b(?:(?!\$last\b)[^{}])*\.Thinking"
)
_RAISED = re.compile(r"raise_exception\(\s*(['\"])(.*?)\1", re.DOTALL)
_NO_SYSTEM = re.compile(r"system.{0,40}\b(?:not|un)\s?(?:supported|allowed)|no system", re.IGNORECASE)
_MOVED = re.compile(
    r"loop\.last\s+and\s+system_?\w*|loop\.last\s+and\s+ns\.system\w*|"
    r"\$\.System\s+\(eq \(len \(slice \$\.Messages \$\w+\)\) 1\)|"
    r"\(eq \(len \(slice \$\.Messages \$\w+\)\) 1\)\s+\$\.System"
)


@runtime_checkable
class TemplateText(Protocol):
    """A backend that has its own way to the text of the model's template."""

    async def template_text(self) -> str:
        """The chat template of the model in use; empty where the server does not give it. Raises BackendError."""


class Rendering(Struct, frozen=True):
    """What is known of a template, with what its options change."""

    facts: TemplateFacts
    keeps_when_asked: bool | None = None
    """Whether the option `preserve_reasoning` keeps earlier reasoning; None where there is none to keep."""
    date_option: bool | None = None
    """Whether the option `date_string` fixes the date; None where there is no date."""


async def template_facts(backend: Backend) -> TemplateFacts:
    """What the template of the model in use does. A server that gives neither its text nor prompts leaves all None."""
    return (await rendering(backend)).facts


async def rendering(backend: Backend) -> Rendering:
    """`template_facts` with what the options change. Never raises BackendError."""
    text = await template_text(backend)
    known = merged(backend.info.template or TemplateFacts(), facts_of_text(text))
    if not isinstance(backend, CacheAccess):
        return Rendering(known)
    try:
        return await _rendered(backend, known, text)
    except BackendError:
        return Rendering(known)


async def template_text(backend: Backend) -> str:
    """The text of the chat template in use; empty where it cannot be had."""
    try:
        if isinstance(backend, TemplateText):
            return await backend.template_text()
        if kind_of(backend.info.kind).shows_template and isinstance(backend, _TemplateSource):
            _, found = await backend.get_json("/props")
            return text_at(as_object(found, "properties"), "chat_template") or ""
    except (BackendError, PayloadError):
        pass
    return ""


@runtime_checkable
class _TemplateSource(Protocol):
    async def get_json(self, path: str) -> tuple[object, object]: ...


def merged(known: TemplateFacts, better: TemplateFacts) -> TemplateFacts:
    """`better`, and what it leaves open from `known`."""

    def of(name: str) -> bool | None:
        value: bool | None = getattr(better, name)
        old: bool | None = getattr(known, name)
        return old if value is None else value

    return TemplateFacts(**{name: of(name) for name in TemplateFacts.__struct_fields__})


# -- the text -------------------------------------------------------------------------------------------------------


def facts_of_text(template: str) -> TemplateFacts:
    """What a template's text tells, in Jinja or in Go's language (Ollama). It can only be guessed from words that such
    templates use, so a fact that needs more than that stays None."""
    template = template[:MOST_TEMPLATE]
    if not template.strip():
        return TemplateFacts()
    raised = [message for _, message in _RAISED.findall(template)]
    moves = bool(_MOVED.search(template))
    return TemplateFacts(
        date=bool(_DATE.search(template)),
        drops_reasoning=_drops(template),
        system_role=_has_system(template, raised),
        moves_system=moves,
        alternates=any("alternat" in message.lower() for message in raised),
        keeps_prefix=False if moves else None,
        switches_thinking=_reads(template, "enable_thinking"),
        takes_effort=_reads(template, "reasoning_effort"),
    )


def _reads(template: str, option: str) -> bool | None:
    """Whether a template that reasons looks at an option; a server may translate it into one that it does not name."""
    return True if option in template else None if _REASONS.search(template) else False


def _drops(template: str) -> bool | None:
    if not _REASONS.search(template):
        return False  # there is none to leave out
    if _ONLY_LAST.search(template):
        return True
    if _SPLIT.search(template) and "reasoning_content" not in template:
        return True
    return None


def _has_system(template: str, raised: list[str]) -> bool | None:
    if any(_NO_SYSTEM.search(message) for message in raised):
        return False
    return True if "system" in template.lower() else None


def reasoning_option_in(template: str) -> TemplateOption | None:
    """The option by which this template keeps earlier reasoning, as far as its text tells."""
    return next((option for option in REASONING_OPTIONS if option[0] in template[:MOST_TEMPLATE]), None)


# -- the prompts it makes -------------------------------------------------------------------------------------------


async def _rendered(backend: CacheAccess, known: TemplateFacts, text: str) -> Rendering:
    """`known`, corrected by what the server renders. Raises BackendError when it renders nothing at all."""
    plain = _said(QUESTIONS[0], ANSWERS[0], QUESTIONS[1])
    try:
        second = await _prompt(backend, plain, SYSTEM)
        has_system, system = known.system_role is not False and SYSTEM in second, SYSTEM
    except BackendError as error:
        if not _refused(error):
            raise
        second = await _prompt(backend, plain)
        has_system, system = False, ""
    third = await _prompt(backend, (*plain, *_said(ANSWERS[1], QUESTIONS[2], first="assistant")), system)
    dated = _has_date(second)
    keeps, asked = await _reasoning(backend, system, text)
    seen = TemplateFacts(
        date=dated,
        drops_reasoning=None if keeps is None else not keeps,
        system_role=has_system,
        moves_system=_moves(second, third) if system in second and system else None,
        alternates=await _alternates(backend),
        keeps_prefix=_keeps_prefix(second, third),
        switches_thinking=await _changed_by(backend, plain, system, "enable_thinking", (True, False)),
        takes_effort=await _changed_by(backend, plain, system, "reasoning_effort", ("low", "high")),
    )
    fixed = None
    if dated:
        fixed = not _has_date(await _prompt(backend, plain, system, {"date_string": OLD_DATE}))
    return Rendering(merged(known, seen), asked, fixed)


def _moves(second: str, third: str) -> bool:
    """Whether the system message comes in front of the newest question instead of staying where it was."""
    return (
        QUESTIONS[0] in second
        and second.find(SYSTEM) > second.find(QUESTIONS[0])
        and second.find(SYSTEM) != third.find(SYSTEM)
    )


def _keeps_prefix(second: str, third: str) -> bool | None:
    """Whether a prompt begins with all of the one before, up to where the answer begins."""
    at = second.find(QUESTIONS[1])
    return None if at < 0 else third.startswith(second[: at + len(QUESTIONS[1])])


async def _reasoning(backend: CacheAccess, system: str, text: str) -> tuple[bool | None, bool | None]:
    """Whether earlier reasoning is kept: by itself, and when asked. None for a template without reasoning."""
    messages = thought_about("reasoning_content")
    if THOUGHT in await _prompt(backend, messages, system):
        return True, True
    if text and not _REASONS.search(text):
        return None, None
    asked = THOUGHT in await _prompt(backend, messages, system, {"preserve_reasoning": True})
    if not text and not asked:
        return None, None  # it may not know reasoning at all
    return False, asked


async def reasoning_kept(prompt: Prompt, thought: str) -> tuple[bool | None, TemplateOption | None]:
    """Whether the template leaves earlier reasoning out, and the option that keeps it, from what a server makes of
    prompts (as token ids); None where neither changes one. `thought`: the field of a message that holds its reasoning.
    Raises what `prompt` raises."""
    messages = thought_about(thought)
    kept = await prompt(messages, {})
    if kept != await prompt(_said(QUESTIONS[0], ANSWERS[0], QUESTIONS[1]), {}):
        return False, None
    if await prompt(messages, dict(REASONING_OPTIONS)) == kept:
        return None, None
    for option in REASONING_OPTIONS:
        if await prompt(messages, dict([option])) != kept:
            return True, option
    return None, None


def thought_about(thought: str) -> tuple[Said, ...]:
    """A question, an answer with a thought in this field, and a question."""
    question, answer, next_one = _said(QUESTIONS[0], ANSWERS[0], QUESTIONS[1])
    return question, {**answer, thought: THOUGHT}, next_one


async def _changed_by(
    backend: CacheAccess, messages: tuple[Said, ...], system: str, option: str, values: tuple[object, object]
) -> bool | None:
    """Whether two values of an option give two prompts; None where one is refused."""
    try:
        one, other = [await _prompt(backend, messages, system, {option: value}) for value in values]
    except BackendError as error:
        if not _refused(error):
            raise
        return None
    return one != other


async def _alternates(backend: CacheAccess) -> bool | None:
    """Whether two questions in a row are refused."""
    first, second = _said(QUESTIONS[0]), _said(QUESTIONS[1])
    try:
        await _prompt(backend, (*first, *second))
    except BackendError as error:
        return True if _refused(error) else None
    return False


def _refused(error: BackendError) -> bool:
    """Whether the template, not the connection, said no: servers answer with 400 or 500 then."""
    return error.trouble in (Trouble.REFUSED, Trouble.SYSTEM_ROLE, Trouble.SERVER_ERROR)


Said = Mapping[str, object]
Prompt = Callable[[Sequence[Said], Mapping[str, object]], Awaitable[Sequence[object]]]
"""The token ids of the prompt that these messages make with these template options."""


def _said(*texts: str, first: str = "user") -> tuple[Said, ...]:
    """Messages of user and model in turn."""
    roles = ("user", "assistant") if first == "user" else ("assistant", "user")
    return tuple({"role": roles[index % 2], "content": text} for index, text in enumerate(texts))


async def _prompt(
    backend: CacheAccess, messages: tuple[Said, ...], system: str = "", options: Mapping[str, object] | None = None
) -> str:
    said = ({"role": "system", "content": system}, *messages) if system else messages
    return await backend.prompt_text(ChatTurn(tuple(map(canonical, said)), SESSION, template_options=options or {}))


def _has_date(prompt: str) -> bool:
    """Whether today's date is in a prompt, or that of a neighbouring day: the server may stand in another time zone."""
    today = date.today()
    prompt = prompt.lower()
    return any(written in prompt for days in (-1, 0, 1) for written in dates(today + timedelta(days)))


def dates(day: date) -> frozenset[str]:
    """A day as templates write it, in lower case; always in English."""
    month, short = _MONTHS[day.month - 1], _MONTHS[day.month - 1][:3]
    written = {day.isoformat(), f"{day:%d/%m/%Y}", f"{day:%m/%d/%Y}", f"{day:%Y/%m/%d}", f"{day:%d.%m.%Y}"}
    for number in {str(day.day), f"{day.day:02}"}:
        for name in (month, short):
            written |= {
                f"{number} {name} {day.year}",
                f"{name} {number}, {day.year}",
                f"{name} {number} {day.year}",
                f"{number}-{name}-{day.year}",
            }
    return frozenset(written)


_MONTHS = (
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
)
