"""Markdown: a conversation to read, to keep in a folder of notes, and to edit.

The rule: the file is safe to print in a terminal and to open in any viewer. Nothing in it makes a viewer fetch
something, and no message can swallow the one after it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from kvchat.prompt.context import ContextBlock
from kvchat.prompt.message import Role
from kvchat.sanitize import clean
from kvchat.text.format import date_and_time
from kvchat.transfer import outline as shape
from kvchat.transfer.markdown_text import escaped, fenced, quoted, safe_markdown
from kvchat.transfer.source import Source, Sources


def pieces(sources: Sources, *, all_branches: bool = False) -> Iterator[str]:
    """The conversations one after the other; with `all_branches` the branches not in use stand behind the one in use.

    One conversation alone starts with YAML front matter.
    """
    written = ""
    for source in sources:
        if written:
            yield f"{written}\n\n---\n\n"
        elif len(sources) == 1:
            yield _front_matter(source) + "\n"
        written = "\n\n".join(_conversation(source, all_branches))
    yield written.rstrip("\n") + "\n"


def _front_matter(source: Source) -> str:
    conversation = source.conversation
    lines = {
        "title": shape.title(conversation),
        "created": date_and_time(conversation.created),
        "updated": date_and_time(conversation.updated),
        "model": shape.models(source),
        "parameters": ", ".join(shape.parameter_words(conversation)),
    }
    return "---\n" + "".join(f"{key}: {_yaml(value)}\n" for key, value in lines.items() if value) + "---\n"


def _yaml(value: str) -> str:
    """A YAML string (a JSON string is one), harmless too in a viewer that takes front matter for Markdown."""
    return json.dumps(value, ensure_ascii=False).replace("![", "\\u0021[").replace("<", "\\u003c")


def _conversation(source: Source, all_branches: bool) -> Iterator[str]:
    yield f"# {escaped(shape.title(source.conversation))}"
    facts = [shape.times(source), shape.models(source), *shape.totals_words(shape.branch_totals(source))]
    yield escaped(" · ".join(fact for fact in facts if fact))
    for branch in shape.outline(source, all_branches):
        if branch.title:
            yield f"---\n\n## {escaped(branch.title)}"
        if not any(entry.node.role is not Role.SYSTEM for entry in branch.entries) and not branch.title:
            yield "*There are no messages yet.*"
        for entry in branch.entries:
            yield from _entry(entry, source, "###" if branch.title else "##")


def _entry(entry: shape.Entry, source: Source, level: str) -> Iterator[str]:
    node = entry.node
    yield f"{level} {escaped(shape.author(node))}"
    if node.role is Role.SYSTEM:
        yield quoted(safe_markdown(clean(node.text)))
        return
    facts = [shape.time_of(entry, source), shape.version_mark(entry), *shape.figures_words(node.figures)]
    yield f"*{escaped(' · '.join(fact for fact in facts if fact))}*"
    for block in node.message.blocks:
        yield _block(block)
    if reasoning := clean(node.message.reasoning).strip("\n"):
        yield quoted(f"**Reasoning**\n\n{safe_markdown(reasoning)}")
    if text := clean(node.text).strip("\n"):
        yield safe_markdown(text)
    if sentence := shape.state_sentence(node):
        yield f"*{escaped(sentence)}*"


def _block(block: ContextBlock) -> str:
    heading = f"**{escaped(shape.block_title(block))}**"
    if block.kind in shape.LINES:
        return quoted(heading.strip("*"))
    return quoted(f"{heading}\n\n{fenced(clean(block.text), 'text')}")
