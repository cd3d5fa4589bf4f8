"""An answer taken apart into reasoning and content, by the tags around a thought.

Every character that came is given once, but for the tags and the white space next to them; those are the frame,
so that the content as it came can be put together again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from kvchat.patterns import compiled_later
from kvchat.prompt.message import PLACE


class ThoughtTags(Struct, frozen=True):
    """What a template puts around an answer's reasoning; empty where it has none that kvchat knows."""

    begin: str = ""
    end: str = ""
    closing: str = ""
    """From a thought's last character to the answer's first."""

    def leaves_open(self, prompt: str) -> bool:
        """Whether what is sampled behind this prompt is a thought."""
        return bool(self.begin) and prompt.rstrip().endswith(self.begin)


NO_TAGS = ThoughtTags()

_BEGIN = compiled_later(r"(<[\w:|-]+>|\[[A-Z_]+\])\s*\Z")
_END = compiled_later(r"\s*(</[\w:|-]+>|\[/[A-Z_]+\])\s*")


def tags_in(rendered: str, thought: str, answer: str) -> ThoughtTags:
    """The tags of a template, seen in a prompt that ends with an answer and its thought."""
    before, _, rest = rendered.rpartition(thought)
    begin, end = _BEGIN.search(before), _END.match(rest)
    if begin is None or end is None or begin[1][1:] != end[1][2:] or not rest.startswith(end[0] + answer):
        return NO_TAGS
    return ThoughtTags(begin[1], end[1], end[0])


# -- thoughts that a server leaves in the text ------------------------------------------------------------------------


COMMON = (
    *(ThoughtTags(f"<{name}>", f"</{name}>") for name in ("think", "seed:think")),
    ThoughtTags("[THINK]", "[/THINK]"),
    ThoughtTags("◁think▷", "◁/think▷"),
    *(ThoughtTags(f"<{name}>", f"</{name}>") for name in ("thinking", "thought", "reasoning", "reason")),
    ThoughtTags("<|begin_of_thought|>", "<|end_of_thought|>"),
    ThoughtTags("<|channel>thought", "<channel|>"),
    ThoughtTags("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
)
"""The tags that models are trained to write."""
_TAGS = "|".join(re.escape(tag) for tags in COMMON for tag in (tags.begin, tags.end))
_FRAME = compiled_later(rf"\s*(?:{_TAGS})?\s*\{{\}}(?:\s*(?:{_TAGS}))*\s*", re.IGNORECASE)


def is_frame(field: str) -> bool:
    """Whether this is what is around a thought in a text: tags, white space, and its place."""
    return _FRAME.fullmatch(field) is not None


Begins = Literal["start", "thought", "answer"]
"""Where an answer begins: `start`, where it may open a thought itself."""
Part = tuple[Literal["content", "reasoning_content", "was_thought"], str]
"""`was_thought`: all content until now was this thought, which the prompt had opened."""


class Thoughts:
    """Takes an answer apart into reasoning and content as it comes. What may become a tag, or is white space next
    to one, is held back until that shows.

    `tags`: those of the template. None: nothing is known of it, so COMMON count, several thoughts in a row are one, and
    a lone end tells that all before it was a thought. A tag in the midst of an answer is text.
    """

    def __init__(self, tags: ThoughtTags | None, at: Begins = "start") -> None:
        self._tags = COMMON if tags is None else (tags,) if tags.begin else ()
        self._in_text = tags is None
        self._at: Begins | Literal["behind"] = at if self._tags else "answer"
        self._end = self._tags[0].end if self._tags else ""
        self._told: list[str] | None = [] if self._in_text else None
        """The content so far, while it may prove to be a thought."""
        self._held = self._before = self._after = ""
        self._has_thought = self._skips = False
        """Whether white space that comes next belongs to a tag."""

    @property
    def frame(self) -> str:
        """What came around the thought, with PLACE for itself; empty where there was none."""
        return f"{self._before}{PLACE}{self._after}" if self._has_thought else ""

    def passes(self, text: str) -> bool:
        """Whether a text is content as it is: most is, and need not be taken apart."""
        if self._at != "answer" or self._held or (self._told is not None and _MAY_BEGIN.search(text)):
            return False
        if self._told is not None:
            self._told.append(text)
        return True

    def take(self, text: str) -> list[Part]:
        self._held += text
        found: list[Part] = []
        while self._goes_on(found):
            pass
        return found

    def ended(self) -> list[Part]:
        """What was held back to the end."""
        found: list[Part] = []
        if self._at == "answer":
            self._answer(found, ended=True)
        if self._held:
            found.append(("reasoning_content" if self._at == "thought" else "content", self._held))
            self._held = ""
        return found

    def _goes_on(self, found: list[Part]) -> bool:
        """Read what is held. Whether there may be more in it."""
        match self._at:
            case "start":
                return self._start()
            case "thought":
                return self._thought(found)
            case "behind":
                return self._behind(found)
            case _:
                return self._answer(found)

    def _start(self) -> bool:
        begun = self._held.lstrip()
        if opened := self._opened_by(begun):
            self._before = self._held[: len(self._held) - len(begun) + len(opened)]
            self._at, self._held, self._skips = "thought", begun[len(opened) :], True
            self._has_thought = True
        elif not _may_become(begun, [tags.begin for tags in self._tags]):
            self._at = "answer"
        return self._at != "start"

    def _opened_by(self, text: str) -> str:
        """The tag that a text begins with and that opens a thought; empty for none."""
        for tags in self._tags:
            if text[: len(tags.begin)].lower() == tags.begin.lower():
                self._end = tags.end
                return tags.begin
        return ""

    def _thought(self, found: list[Part]) -> bool:
        if self._skips:
            begun = self._held.lstrip()
            self._before += self._held[: len(self._held) - len(begun)]
            self._held, self._skips = begun, not begun
        if end := re.search(re.escape(self._end), self._held, re.IGNORECASE):
            thought = self._held[: end.start()].rstrip()
            self._after = self._held[len(thought) : end.end()]
            self._at, self._held = "behind", self._held[end.end() :]
        else:
            thought = self._held[: len(self._held) - _ahead(self._held, self._end)].rstrip()
            self._held = self._held[len(thought) :]
        _add(found, "reasoning_content", thought)
        return self._at != "thought"

    def _behind(self, found: list[Part]) -> bool:
        """White space behind a thought, then the answer or, in a text, another thought or the same end again."""
        begun = self._held.lstrip()
        self._after += self._held[: len(self._held) - len(begun)]
        self._held = begun
        if not self._in_text:
            self._at = "answer" if begun else "behind"
            return bool(begun)
        if begun[: len(self._end)].lower() == self._end.lower():
            self._after += begun[: len(self._end)]
            self._held = begun[len(self._end) :]
            return True
        if _may_become(begun, [self._end, *(tags.begin for tags in self._tags)]):
            return False
        self._told = None
        if opened := self._opened_by(begun):
            _add(found, "reasoning_content", self._after + opened)
            self._at, self._held, self._after = "thought", begun[len(opened) :], ""
        else:
            self._at = "answer"
        return True

    def _answer(self, found: list[Part], *, ended: bool = False) -> bool:
        held, sure = self._held, len(self._held)
        while self._told is not None and (tag := _NEXT.search(held)):
            before, behind = "".join(self._told) + held[: tag.start()], held[tag.end() :]
            shows = ended or bool(behind.strip(" \t"))
            if tag[0].lower() not in _OPENED or (shows and not _ends_thought(before, behind)):
                self._told = None  # it speaks of tags
            elif not shows:
                sure = tag.start()
                break
            else:
                thought = before.rstrip()
                found.append(("was_thought", thought))
                self._after, self._has_thought = before[len(thought) :] + tag[0], True
                self._at, self._held, self._told, self._end = "behind", behind, None, tag[0]
                return True
        if self._told is not None and sure == len(held) and not ended:
            start = max(map(held.rfind, "<[◁"))
            sure = start if start >= 0 and _may_become(held[start:], _LOOKED_FOR) else sure
        self._held = held[sure:]
        if self._told is not None:
            self._told.append(held[:sure])
        _add(found, "content", held[:sure])
        return False


_OPENED = tuple(tags.end.lower() for tags in COMMON[:4])
"""The ends of thoughts that some templates open in the prompt, so that the end alone comes."""
_LOOKED_FOR = (*(tags.begin for tags in COMMON), *_OPENED)
_MAY_BEGIN = compiled_later(r"[<\[◁]")
_NEXT = compiled_later("|".join(map(re.escape, _LOOKED_FOR)), re.IGNORECASE)


def _ends_thought(before: str, behind: str) -> bool:
    """Whether an end without a beginning ends a thought: not where the text speaks of it, in code, in quotes or within
    a sentence."""
    line = before.rpartition("\n")[2]
    if before.count("```") % 2 or line.count("`") % 2:
        return False
    if not line.strip() or not behind.partition("\n")[0].strip():
        return True
    return not (line[-1] in _OPENING and behind[0] in _CLOSING)


_OPENING, _CLOSING = frozenset(" \t\"'`‘“«([<"), frozenset(" \t\"'`’”»)]>.,;:!?")


def _add(found: list[Part], kind: Literal["content", "reasoning_content"], text: str) -> None:
    if text:
        found.append((kind, text))


def _may_become(text: str, tags: Iterable[str]) -> bool:
    """Whether a text may be the beginning of one of some tags, and is none yet."""
    small = text.lower()
    return any(len(small) < len(tag) and tag.lower().startswith(small) for tag in tags)


def _ahead(text: str, tag: str) -> int:
    """How many characters at the end of a text may be the beginning of a tag."""
    return next(
        (count for count in range(min(len(tag) - 1, len(text)), 0, -1) if text[-count:].lower() == tag[:count].lower()),
        0,
    )


# -- what a server leaves at the end of a text ------------------------------------------------------------------------


_NAMED = ("</s>", "<eos>", "<end_of_turn>", "<turn|>", "<end_of_utterance>", "[EOS]")
_MARK = "<[|｜][\\w▁]{1,32}[|｜]>|" + "|".join(map(re.escape, _NAMED))
_BEGUN = "|".join(re.escape(name[:count]) for name in _NAMED for count in range(len(name) - 1, 0, -1))
_MARKS = compiled_later(rf"(?:(?:{_MARK})\s*)+\Z")
_MAY_BE_MARKS = compiled_later(rf"(?:(?:{_MARK})\s*)*(?:<[|｜](?:[\w▁]{{0,32}}[|｜]?)?|{_BEGUN})?\Z")


def end_marks(text: str, *, ended: bool) -> int:
    """How many characters at the end of a text are marks of its end (`<|im_end|>`) that its server did not take out;
    while it has not `ended`: may become such."""
    found = (_MARKS if ended else _MAY_BE_MARKS).search(text, max(0, len(text) - 200))
    return len(found[0]) if found is not None else 0
