"""Source code: definitions with what belongs to them, in any language and however broken."""

from __future__ import annotations

import argparse
import ast
import pathlib
import time
import typing
from collections.abc import Iterable, Iterator
from json import decoder
from pathlib import Path
from types import ModuleType

import pytest
from code_samples import SAMPLES
from text_kit import outline, read, titles

from corpus import corpus
from kvchat.documents.reading.code import read_code
from kvchat.documents.reading.content import Section

PYTHON = '''#!/usr/bin/env python
# Licence.

"""Module.

def no():
"""
import os

@decorated(
    by=1,
)
# Why.
async def one(
    a,
) -> int:
    """Docs.

class No:
"""
    def inner(): pass
    return 1

# Of the class.
class Two(object):
    """Docs of two."""

    x = "def no():"

    class Inner:
        def deep(self): pass

    @property
    def three(self):
        return 1

    y = 2

if os:
    def four(): pass
else:
    def five(): pass
'''


def section(name: str, text: str, title: str) -> Section:
    return next(one for one in read(name, text).sections if " > ".join(one.titles) == title)


def test_python_is_divided_by_classes_and_functions() -> None:
    assert titles("a.py", PYTHON) == [
        "",
        "one",
        "Two",
        "Two > Inner",
        "Two > Inner > deep",
        "Two > three",
        "Two",
        "",
        "four",
        "five",
    ]
    assert all(one.code for one in read("a.py", PYTHON).sections)


def test_decorators_comments_and_docstrings_stay_with_their_definition() -> None:
    one, two = section("a.py", PYTHON, "one").text, section("a.py", PYTHON, "Two").text
    assert one.startswith("@decorated(") and '"""Docs.' in one and one.rstrip().endswith("return 1")
    assert two.startswith("# Of the class.") and "Docs of two." in two
    assert section("a.py", PYTHON, "Two > three").text.startswith("    @property")


def test_the_head_of_a_module_comes_first() -> None:
    assert section("a.py", PYTHON, "").text == PYTHON.partition("@decorated")[0]


def test_the_head_of_a_module_is_not_taken_for_the_comment_of_a_function() -> None:
    assert titles("a.py", "# Licence.\n\n# Of f.\ndef f(): pass\n") == ["", "f"]


@pytest.mark.parametrize(
    "broken",
    [
        "def broken(\n",
        "x = '''never closed\n",
        "class (:\n",
        "    unexpected\n",
        "\tdef tabbed():\n",
        "x = 'open\n",
        ")\n}\n",
    ],
    ids=repr,
)
def test_broken_code_is_divided_too(broken: str) -> None:
    assert titles("a.py", f"{broken}\ndef after():\n    pass\n")[-1] == "after"


def test_python_in_strings_is_no_code() -> None:
    text = 'A = """\ndef no():\n"""\nB = "\\\ndef no():"\nC = r"\\" # """\ndef yes(): pass\n'
    assert titles("a.py", text) == ["", "yes"]


def defined(body: Iterable[ast.AST]) -> Iterator[tuple[str, ...]]:
    """What Python's own parser finds: classes, what is defined in them, and functions."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (node.name,)
        elif isinstance(node, ast.ClassDef):
            yield (node.name,)
            yield from ((node.name, *names) for names in defined(node.body))
        elif isinstance(node, ast.If | ast.Try | ast.With | ast.ExceptHandler):
            yield from defined(ast.iter_child_nodes(node))


@pytest.mark.parametrize("module", [argparse, ast, decoder, pathlib, typing], ids=lambda module: module.__name__)
def test_every_definition_of_real_modules_is_found(module: ModuleType) -> None:
    source = Path(module.__file__ or "").read_text()
    found = {one.titles for one in read("a.py", source).sections if one.titles}
    assert found == set(defined(ast.parse(source).body))


@corpus("name", SAMPLES)
def test_each_language_is_divided_by_its_definitions(name: str) -> None:
    expected, text = SAMPLES[name]
    assert titles(name, text) == expected


@corpus(
    ("name", "title", "beginning"),
    [
        ("a.c", "add", "/* Adds. */"),
        ("a.cpp", "Vec", "template"),
        ("a.cpp", "Vec > size", "// Size."),
        ("a.java", "Foo", "/** Docs"),
        ("a.java", "Foo > get", "@Override"),
        ("a.go", "Server.Start", "// Start"),
        ("a.rs", "Thing", "/// Docs"),
        ("a.rb", "A > B > hello?", "# Says"),
        ("a.sh", "build", "# Builds"),
        ("a.toml", "a.b", "# Of a"),
        ("Makefile", "clean", "# Cleans"),
    ],
)
def test_comments_and_attributes_belong_to_what_follows(name: str, title: str, beginning: str) -> None:
    assert section(name, SAMPLES[name][1], title).text.lstrip().startswith(beginning)


def test_a_comment_inside_of_a_function_hides_nothing_after_it() -> None:
    text = "struct A {\n    int f() {\n    }\n\n    /*\n     * int no() {\n     */\n    int g() {\n    }\n};\n"
    assert titles("a.cpp", text) == ["A", "A > f", "A > g"]


def test_preprocessor_lines_define_nothing() -> None:
    assert titles("a.c", "#if defined(X)\n#define f(x) g(x)\n#endif\n") == [""]


@pytest.mark.parametrize(
    "text",
    [
        "#!/usr/bin/env anything\nsay x\n  y\n",
        "#!/opt/own -q\nsay x\n  y\n",
        "#!/usr/bin/python3\ndef say():\n  y\n",
    ],
)
def test_a_script_is_code_whatever_runs_it(text: str) -> None:
    said = read("script", text).sections[-1]
    assert said.titles[0].startswith("say") and said.code


@pytest.mark.parametrize(
    "text",
    [
        "setup(\n    name=1,\n)\n",
        "setup(\n    main(\n        1\n    )\n)\n",
        "x = setup(\n    1\n)\n",
        "if x:\n    setup()\n",
        "TABLE = {\n    'a': [\n        1,\n    ],\n}\n",
        "for x in (1,\n          2):\n    pass\n",
    ],
    ids=repr,
)
def test_a_call_a_value_or_a_branch_defines_nothing(text: str) -> None:
    assert titles("a.py", text) == [""]


@pytest.mark.parametrize("name", ["a.c", "a.js", "a.sh", "a.awk"])
def test_braces_hold_lines_that_are_not_indented(name: str) -> None:
    assert titles(name, "run(a) {\nout:\nmore\n  deeper\n}\nend_of_it\n") == ["run", ""]


def test_code_has_no_title_of_its_own() -> None:
    assert read("a.py", PYTHON).title == ""


def test_lines_are_those_of_the_file() -> None:
    lines = PYTHON.split("\n")
    for title, first, last in outline(read("a.py", PYTHON)):
        if title:
            assert any(title.rpartition(" > ")[2] in line for line in lines[first - 1 : last]) or title == "Two"


def seconds(text: str) -> float:
    took = []
    for _ in range(3):
        began = time.thread_time()
        read_code(text)
        took.append(time.thread_time() - began)
    return max(min(took), 0.001)


HARD = (
    "a(\n",
    "a b(,\n",
    "x:\n\n",
    "export a = (",
    "'''",
    "/*\n",
    "=cut\n",
    "@a\n b\n",
    "((",
    "\n",
    "a" * 390 + "\n",
    "{\n",
)


@corpus("repeated", HARD)
def test_code_made_to_be_hard_is_read_in_one_pass(repeated: str) -> None:
    small, large = (repeated * (size // len(repeated)) for size in (20_000, 200_000))
    assert any(seconds(large) < 40 * seconds(small) for _ in range(5))
