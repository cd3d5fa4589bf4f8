"""Markdown: a conversation to read, to keep in a folder of notes, and to edit.

The file is safe to print in a terminal and to open in any viewer. Nothing in it makes a viewer fetch
something, and no message can swallow the one after it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

from kvchat.latex import FORMULA
from kvchat.prompt.context import ContextBlock
from kvchat.prompt.images import sha256_of
from kvchat.prompt.message import Role
from kvchat.prompt.tags import in_words, own
from kvchat.sanitize import clean, one_line
from kvchat.text.cache import figures_words, share_words
from kvchat.text.format import date_and_time
from kvchat.transfer import outline as shape
from kvchat.transfer.formats import Format, Source, Sources
from kvchat.transfer.references import defines, shared_labels, with_own_labels

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token


# -- foreign Markdown made harmless: transform little, then check with a parser ---------------------------------------


_BACKTICKS = re.compile("`+")
_FENCE_RUNS = re.compile(r"`{3,}")
_SPECIAL = re.compile(r"[\\`*\[\]<>&|~]|(?<![^\W_])_|_(?![^\W_])|(?<!\S)#")
# A code span of one line, a formula, or an image; the code span comes first, so an image in it is code already.
_SPAN_OR_IMAGE = re.compile(
    rf"(?P<formula>{FORMULA})"
    r"|(?<!`)(?P<ticks>`+)(?!`)[^\n]{0,999}?(?<!`)(?P=ticks)(?!`)"
    r"|(?P<image>!\[[^\]\n]{0,999}\](?:\([^)\n]{0,999}\)|\[[^\]\n]{0,999}\])?)"
    r"|(?P<tag><(?=[A-Za-z/!?])(?!https?://[^\s<>]{1,999}>))"  # an address in brackets is none
    r"|(?P<other>!(?=\[))"
)
_LIVE = re.compile(r"<(?=[A-Za-z/!?][^>]*>)|!(?=\[)")
_SUSPECT = re.compile(r"<|!\[|`{3}|~{3}")
_LONGEST = 200_000
_MOST_BRACKETS = 3_000  # the parser looks for the partner of each
_END = "kvchat-end-of-message"


def is_heavy(text: str) -> bool:
    """Whether `text` is rather data than prose: parsing it as Markdown would take long and give nothing."""
    return len(text) > _LONGEST or text.count("[") > _MOST_BRACKETS


def escaped(line: str) -> str:
    """One line of plain text as Markdown that shows just that text."""
    return _SPECIAL.sub(lambda m: "\\" + m[0], line)


def quoted(text: str) -> str:
    """`text` as a block quote."""
    return "\n".join(f"> {line}".rstrip() for line in text.split("\n"))


def fenced(text: str, language: str = "") -> str:
    """`text` as a code block whose fence is longer than any inside."""
    longest = max((len(run) for run in _FENCE_RUNS.findall(text)), default=2)
    fence = "`" * (longest + 1)
    body = text.strip("\n")
    return f"{fence}{language}\n{body}\n{fence}"


def code_span(text: str) -> str:
    """`text`, one line, as a code span."""
    longest = max((len(run) for run in _BACKTICKS.findall(text)), default=0)
    ticks = "`" * (longest + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"


def safe_markdown(text: str) -> str:
    """Clean Markdown `text` with images as code and HTML as text, closed at its end; code blocks stay as they are."""
    if not _SUSPECT.search(text):
        return text
    if is_heavy(text):
        return fenced(text, "text")
    lines = text.split("\n")
    for begin, end in _prose(lines):
        changed = _SPAN_OR_IMAGE.sub(_defused, "\n".join(lines[begin:end]))
        lines[begin:end] = changed.split("\n")
    result = _closed("\n".join(lines))
    return result if _harmless(result) else fenced(text, "markdown")


def _defused(match: re.Match[str]) -> str:
    if match["formula"]:  # in LaTeX `<` is one sign, but a viewer may know none
        return _LIVE.sub(r"\\\g<0>", match[0])
    if match["image"]:
        return code_span(match[0])
    return "\\" + match[0] if match["tag"] or match["other"] else match[0]


def _prose(lines: list[str]) -> list[tuple[int, int]]:
    """The line ranges outside code blocks."""
    code = [
        token.map for token in _parser().parse("\n".join(lines)) if token.type in ("fence", "code_block") and token.map
    ]
    ranges, begin = [], 0
    for first, last in code:
        ranges.append((begin, first))
        begin = last
    return [(a, b) for a, b in [*ranges, (begin, len(lines))] if a < b]


def _closed(text: str) -> str:
    """`text` with its last fence closed, if an answer that was cut left it open."""
    if _ends(text):
        return text
    for mark in ("`", "~"):
        longest = max((len(run) for run in re.findall(f"{mark}{{3,}}", text)), default=3)
        for length in range(3, min(longest, 40) + 1):
            if _ends(closed := f"{text}\n{mark * length}"):
                return closed
    return text


def _ends(text: str) -> bool:
    """Whether what follows `text` after an empty line is a paragraph of its own."""
    tokens = _parser().parse(f"{text}\n\n{_END}\n")
    return len(tokens) >= 3 and tokens[-3].level == 0 and tokens[-2].type == "inline" and tokens[-2].content == _END


def _harmless(text: str) -> bool:
    return _ends(text) and not any(_live(token) for token in _parser().parse(text))


def _live(token: Token) -> bool:
    """Whether a viewer could fetch or run the content of `token`."""
    return token.type in ("image", "html_block", "html_inline") or any(_live(t) for t in token.children or ())


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    parser.validateLink = lambda url: True  # type: ignore[method-assign]
    return parser


# -- the file ---------------------------------------------------------------------------------------------------------


def pieces(sources: Sources, all_branches: bool) -> Iterator[str]:
    """The conversations one after the other; with `all_branches` the branches not in use stand behind the one in use.

    One conversation alone starts with YAML front matter. Documents leave out what says that kvchat wrote it.
    """
    written, labels = "", _Labels(len(sources) > 1)
    for source in sources:
        if written:
            yield f"{written}\n\n---\n\n"
        else:
            yield _front_matter(source) + "\n" if len(sources) == 1 else "<!-- exporter: kvchat -->\n\n"
        written = "\n\n".join(_conversation(source, all_branches, labels))
    yield written.rstrip("\n") + "\n"


def with_comment(source: Source, comment: str) -> Iterator[str]:
    """One conversation, as `pieces` writes it, with a comment of one line at the top of its front matter."""
    yield _front_matter(source, comment) + "\n"
    yield "\n\n".join(_conversation(source, False, _Labels())).rstrip("\n") + "\n"


class _Labels:
    """The definitions of links and footnotes in a file: they are of the whole file, and each message has its own."""

    def __init__(self, several: bool = False) -> None:
        """`several`: there are several conversations, and each definition is taken for one that others have too."""
        self._several = several
        self._shared: Collection[str] = ()
        self._number = 0

    def begin(self, branches: Sequence[shape.OutlineBranch]) -> None:
        """What follows are the messages of these branches."""
        if not self._several:
            nodes = [entry.node for branch in branches for entry in branch.entries]
            self._shared = shared_labels(text for node in nodes for text in (node.text, node.message.reasoning))

    def apart(self, text: str) -> str:
        """A message's Markdown, with labels of its own."""
        if not defines(text) or is_heavy(text):
            return text
        self._number += 1
        prose = _prose(text.split("\n"))
        return with_own_labels(
            text, self._number, lambda label: self._several or label in self._shared, _parser(), prose
        )


def _front_matter(source: Source, comment: str = "") -> str:
    conversation = source.conversation
    lines = {
        "title": shape.title(conversation),
        "created": date_and_time(conversation.created),
        "updated": date_and_time(conversation.updated),
        "model": shape.models(source),
        "parameters": ", ".join(shape.parameter_words(conversation)),
        "exporter": "kvchat",
    }
    if names := own(conversation.tags):
        found = "".join(f"  - {_yaml(name)}\n" for name in names)
        tags = f"tags:\n{found}"
    else:
        tags = ""
    begin = f"---\n# {comment}\n" if comment else "---\n"
    return begin + "".join(f"{key}: {_yaml(value)}\n" for key, value in lines.items() if value) + tags + "---\n"


def _yaml(value: str) -> str:
    """A YAML string (a JSON string is one), harmless too in a viewer that takes front matter for Markdown."""
    return json.dumps(value, ensure_ascii=False).replace("![", "\\u0021[").replace("<", "\\u003c")


def _conversation(source: Source, all_branches: bool, labels: _Labels) -> Iterator[str]:
    yield f"# {escaped(shape.title(source.conversation))}"
    facts = [
        shape.times(source),
        shape.models(source),
        in_words(source.conversation.tags),
        *share_words(shape.branch_totals(source)),
    ]
    yield escaped(" · ".join(fact for fact in facts if fact))
    branches = [*shape.outline(source, all_branches)]
    labels.begin(branches)
    for branch in branches:
        if branch.title:
            yield f"---\n\n## {escaped(branch.title)}"
        if not any(entry.node.role is not Role.SYSTEM for entry in branch.entries) and not branch.title:
            yield "*There are no messages yet.*"
        for entry in branch.entries:
            yield from _entry(entry, source, "###" if branch.title else "##", labels)
    for name, url in source.images.items():
        yield f"[{_reference(name)}]: {url.decode()}"


def _entry(entry: shape.OutlineMessage, source: Source, level: str, labels: _Labels) -> Iterator[str]:
    node = entry.node
    yield f"{level} {escaped(shape.author(node))}"
    if node.role is Role.SYSTEM:
        yield from map(_block, node.message.blocks)
        yield quoted(labels.apart(safe_markdown(clean(node.text))))
        return
    facts = [shape.time_of(entry, source), shape.version_mark(entry), *figures_words(node.figures)]
    yield f"*{escaped(' · '.join(fact for fact in facts if fact))}*"
    for block in node.message.blocks:
        yield _image_of(block, source) or _block(block)
    if reasoning := clean(node.message.reasoning).strip("\n"):
        yield quoted(f"**Reasoning**\n\n{labels.apart(safe_markdown(reasoning))}")
    if text := clean(node.text).strip("\n"):
        yield labels.apart(safe_markdown(text))
    if sentence := shape.state_sentence(node):
        yield f"*{escaped(sentence)}*"


def _block(block: ContextBlock) -> str:
    heading = f"**{escaped(shape.block_title(block))}**"
    if block.kind in shape.LINES:
        return quoted(heading.strip("*"))
    return quoted(f"{heading}\n\n{fenced(clean(block.text), 'text')}")


def _image_of(block: ContextBlock, source: Source) -> str:
    """An image, whose octets stand at the end; empty: the block is none, or its image is gone."""
    name = sha256_of(block)
    alt = escaped(f"{shape.source_name(block.source)} {one_line(block.text)}")
    return f"![{alt}][{_reference(name)}]" if name in source.images else ""


def _reference(sha256: str) -> str:
    """What an image is called in the text: no message can know, and so define, another one of this name."""
    return f"image-{sha256[:16]}"


FORMAT = Format("Markdown", "Markdown, to read and to edit; it cannot be imported again", pieces)
