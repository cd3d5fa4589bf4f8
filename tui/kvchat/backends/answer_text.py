"""The text of an answer: what of it is new, what of it is a thought, and what is only the mark of its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from kvchat.backends.dialect import Emit, ReasoningDelta, StreamEvent, TextDelta, WasThought
from kvchat.backends.http.payload import is_object, name_at
from kvchat.prompt.thoughts import Part, Thoughts, end_marks

REFUSAL = "refusal"
ECHO = 8
"""Characters from which on an answer that begins with the cut one is taken to repeat it."""


def parts_of(value: object) -> Iterator[tuple[Literal["content", "reasoning", "refusal"], str]]:
    """The texts in a content: itself, or those of its parts; of a kind of part that is not known, none."""
    if isinstance(value, str):
        yield "content", value
    elif isinstance(value, list):
        for part in value:
            yield from parts_of(part)
    elif is_object(value):
        kind = name_at(value, "type").lower()
        inner = next((found for name in _PART_FIELDS if (found := value.get(name))), None)
        for within, text in parts_of(inner):
            if "think" in kind or "reason" in kind or "thought" in kind or within == "reasoning":
                yield "reasoning", text
            elif kind == REFUSAL:
                yield "refusal", text
            elif not kind or "text" in kind:
                yield within, text


_PART_FIELDS = ("text", "thinking", "reasoning", "content", "value", "parts", "summary", REFUSAL)


class FieldText:
    """What came in one field of an answer: in pieces, or as a whole message that may say again what came before."""

    def __init__(self) -> None:
        self._came: list[str] = []
        self._in_deltas = False
        self._grows = False
        """Whether each message holds those before it."""
        self.echo = ""
        """What the first piece may repeat: the cut answer that it goes on with."""

    def begin(self, text: str) -> None:
        self._came = [text]
        self.echo = text

    def new(self, text: str, *, whole: bool, last: bool) -> str:
        """What of `text` did not come before. `whole`: it is of a message, no delta; `last`: the answer's last."""
        if text and self.echo and not whole:
            if len(self.echo) >= ECHO:  # what is shorter may be what the model says next
                text = text.removeprefix(self.echo)
            self.echo = ""
        if not self._came:
            pass
        elif whole:
            before = "".join(self._came)
            if text.startswith(before) and (len(text) > len(before) or last or self._in_deltas or self._grows):
                self._grows = True
                text = text[len(before) :]
            elif self._in_deltas or (self._grows and before.strip() == text.strip()):
                text = ""
        elif last and len(self._came) > 1 and text == "".join(self._came):
            text = ""
        if text:
            self._came.append(text)
            self._in_deltas = self._in_deltas or not whole
        return text


class AnswerText:
    """Tells the text of one answer: its content without thoughts and end marks, and its thoughts."""

    def __init__(self, emit: Emit, thoughts: Thoughts) -> None:
        self._emit = emit
        self._thoughts = thoughts
        self._frame = ""
        self._texts: list[str] = []
        """The content, without thoughts and end marks."""
        self._held = ""
        """What may be a mark at its end."""
        self.has_reasoning = False

    @property
    def has_words(self) -> bool:
        return any(text.strip() for text in self._texts)

    def content(self, text: str) -> None:
        """Take what came as content; thoughts may be in it."""
        if self._thoughts.passes(text):
            self._tell(text)
        else:
            self._say(self._thoughts.take(text))

    def reasoning(self, text: str, field: str) -> None:
        self.has_reasoning = True
        self._emit(ReasoningDelta(text, field))

    def resume(self, content: str) -> None:
        """Go on behind a content that the user has seen."""
        emit, self._emit = self._emit, _ignored
        self.content(content)
        self._texts.append(self._held)
        self._held = ""
        self._say(self._thoughts.ended())
        self._emit = emit

    def end(self, *, is_cut: bool) -> None:
        """Tell what was held back. `is_cut`: the answer did not come to its end, so that no mark of it is one."""
        self._say(self._thoughts.ended())
        text, self._held = self._held, ""
        if not text:
            return
        at = len(text) - end_marks(text, ended=True)
        if at < len(text):
            before = "".join(self._texts)
            if is_cut or before.count("```") % 2 or "<s>" in before:
                at = len(text)  # it is spoken of
        self._emit_text(text[:at])

    def _say(self, parts: Sequence[Part]) -> None:
        """Tell parts of the content, and what they say of the frame around a thought in it."""
        for kind, text in parts:
            match kind:
                case "content":
                    self._tell(text)
                case "reasoning_content":
                    if text:
                        self.reasoning(text, self._thoughts.frame)
                case "was_thought":
                    self._texts, self._held, self.has_reasoning = [], "", True
                    self._emit(WasThought(text, self._thoughts.frame))
        if self._thoughts.frame != self._frame:
            self._frame = self._thoughts.frame
            self._emit(ReasoningDelta("", self._frame))

    def _tell(self, text: str) -> None:
        """Tell content, but for what may be a mark of its end."""
        text = self._held + text
        at = len(text)
        if "<" in text or "[" in text:
            at -= end_marks(text, ended=False)
        self._held = text[at:]
        self._emit_text(text[:at])

    def _emit_text(self, text: str) -> None:
        if text:
            self._texts.append(text)
            self._emit(TextDelta(text))


def _ignored(_: StreamEvent) -> None:
    """Drop an event that the user has already seen."""
