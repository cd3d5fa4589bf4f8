"""Read source code: sections by definition, under the names of the class and the function; one rule for all languages.

A line that is led by a word such as `class` or `def`, or has deeper lines below it, begins a section, with the comments
and decorators right in front of it; what is indented deeper, or is in its braces, belongs to it. A class or a module is
divided by what is in it, all else is one piece. So broken code and unknown languages are read like any other. Patterns
are tried at single lines of limited length, and none can backtrack far.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from functools import partial

from kvchat.documents.reading.content import Content, Mark, Outline, Unit, as_title, lines_of, sections

_MODIFIERS = (
    r"(?:(?:export|default|declare|public|private|protected|internal|fileprivate|static|abstract|final|sealed|partial|"
    r"async|unsafe|extern(?:[ \t]+\"\w*\")?|pub(?:\([^()\n]{0,40}\))?|override|open|virtual|inline|constexpr|readonly|"
    r"data|suspend|case|implicit|lazy|inner|companion|mutating|indirect|tailrec|operator|local|const|typedef|"
    r"friend|native|synchronized|strictfp|ref|new|fixed|expect|actual|annotation|value|external|noinline|recursive|"
    r"pure|elemental|(?i:create|alter|or|replace|temp|temporary|unique|materialized))[ \t]++)*+"
)
_LED = re.compile(
    rf"\s*+{_MODIFIERS}(?:(?P<holds>class|interface|struct|enum(?:[ \t]+class)?|trait|namespace|module|"
    r"protocol|defmodule|defprotocol|defimpl|object|extension|record|union|mod|actor|contract|library|service|message|"
    r"@interface|@implementation)|"
    r"function|func|fun|fn|defp?|defmacrop?|sub|proc|macro|macro_rules|type|newtype|method|rpc|task|typealias|delegate|"
    r"constructor|instance|(?i:subroutine|procedure|function|table|view|trigger|index|schema|sequence))\b[*!]?"
    r"(?:[ \t]*+<[^<>\n]{0,80}>)?[ \t]++(?i:if[ \t]+not[ \t]+exists[ \t]+)?"
    r"(?:\((?:\w+[ \t]+)?\*?(?P<of>\w+)[^()\n]{0,80}\)[ \t]*)?"  # the receiver of a method, in Go
    r"(?P<name>[^\W\d][\w$.:?!-]*+|[$@~:\"`\[][\w$.:?!\"`\]-]++)"
)
"""What is led by a word that says so: a class, which is divided by the definitions in it, or what is one piece."""
_GIVEN = re.compile(
    r"([a-z_][\w']*+)[ \t]*+::(?=\s)"  # a type, in Haskell
    r"|\s*+\(def[\w:*-]*[ \t]+\(?'?([^\s()]++)"  # a list, in Lisp
    r"|\s*+(?i:function|macro)[ \t]*\([ \t]*(\w++)(?!.*\{)"  # a command, in CMake
    r"|\s*+(?P<declared>(?:export|default|const|let|var|local)[ \t]+)*+([\w$.]++)(?::[^=\n]{0,120})?"
    r"[ \t]*+(?:=|<-)[ \t]*+(?:async\b[ \t]*+)?(?:function\b|\([^()\n]{0,200}\)[^=\n]{0,80}=>|[\w$]++[ \t]*+=>"
    r"|(?(declared)\($|(?!)))"
)
"""One piece that is given a name in another way, the last group."""
_IMPLEMENTED = re.compile(r"\s*+(?:unsafe[ \t]+)?(?P<name>impl\b[^{\n]{0,100})")
_FORWARD = re.compile(r"[;*]\s*$")
"""How a line ends that only names a class or is the type of a function."""
_DEFINES_NOTHING = re.compile(
    r"(?:if\w*|for|foreach|while|switch|return|else|catch|do|case|new|throw|delete|sizeof|using|assert|goto|await|yield|"
    r"import|from|lock|print|try|finally|with|elif|elsif|elseif|when|unless|until|match|loop|select|defer|go|super|this|"
    r"static_assert|alignas|decltype|not|and|or|in|is|as|except|begin|then|end|rescue|ensure|echo|where|let|var|const|"
    r"raise|del|global|extern(?=[ \t]*\")|typedef|eval|use|set|unset|export|local)\b",
    re.IGNORECASE,
)
"""How a line begins that may have deeper lines below it, and defines nothing."""
_WORDS = re.compile(r"[\w.#&*$@%\"'][\w .#$@%&*+:~,>\"'/\[\]-]{0,100}(?<!\*/)")
"""The words that a line with no parentheses is known by."""
_CALLED = re.compile(r"~?[^\W\d][\w$:~-]*+")
"""The name of a function, in front of its parentheses."""
_WORDS_END = re.compile(r"[=({]|:(?=\s|$)|\s(?:do|begin|where|is|as)$")
"""Where the words end that a line is known by."""
_OPENED = re.compile(r"\)[^;)=]{0,80}\{")
"""A body in the line of its function."""
_COMMENT = re.compile(r"#(?!!?\[)|//|/?\*|--|;|%|!")
_BLOCKS = {"/*": "*/", "--[[": "]]", "=": "=cut", "=begin": "=end", "<!--": "-->"}
"""What begins and ends a comment of several lines."""
_BLOCK = re.compile(r"/\*|--\[\[|=begin\b|=(?=[a-z])|<!--")
_ATTRIBUTE = re.compile(r"@|#?!?\[|template\b|__attribute__")
"""How a line begins that belongs to the definition after it."""
_GOES_ON = re.compile(
    r"[)\]}{]|\$\$|(?:end|fi|done|esac|else|elif|elsif|elseif|except|finally|rescue|ensure|catch|begin|"
    r"then)\b[^=(]*$|(?:public|private|protected)\b[\w ]*:$"
)
"""Lines that say nothing about what ended, however little they are indented."""
_TYPE = re.compile(r"[\w \t*&:<>,]{1,80}")
"""The line in front of a function's name in C that has its type."""
_STRINGS = re.compile(
    r"""\#[^\n]*+
    |\"\"\"(?:[^"\\]++|\\.|"(?!""))*+(?P<end>\"\"\"|\Z)|'''(?:[^'\\]++|\\.|'(?!''))*+(?P<end2>'''|\Z)
    |"(?:[^"\\\n]++|\\.)*+"?|'(?:[^'\\\n]++|\\.)*+'?""",
    re.VERBOSE | re.DOTALL,
)
_LONGEST = 400
"""Characters of a line that may define something."""
_HEAD = 12
"""Lines that the brackets of one may go over."""
_TABLE = re.compile(r"[ \t]*+\[++([^\]\n]{1,100})\]")
_PATCHED = re.compile(r"(?:diff --git a/|Index: )(\S{1,200})")
_STAGE = re.compile(r"FROM[ \t]+([^\n]{1,100})", re.IGNORECASE)

HEADINGS = {
    **dict.fromkeys(("toml", "ini", "cfg", "conf", "desktop", "service", "timer", "socket"), _TABLE),
    **dict.fromkeys(("editorconfig", "gitconfig", "pipfile"), _TABLE),
    **dict.fromkeys(("diff", "patch"), _PATCHED),
    **dict.fromkeys(("dockerfile", "containerfile"), _STAGE),
}
"""How sections begin in files whose names end so, in lower case: nothing is indented in them."""
ENDINGS = frozenset(
    re.findall(
        r"\S+",
        """
py pyw pyi pyx pxd pxi bzl star sage gyp gypi c h cc cpp cxx c++ hh hpp hxx h++ inl ipp tcc cu cuh m mm ino glsl hlsl
vert frag metal cl java cs groovy gradle dart d vala js jsx mjs cjs ts tsx mts cts vue svelte astro coffee go rs kt
kts swift scala sc php php5 phtml zig proto thrift sol hx as v sv svh graphql gql capnp odin cue rb rake gemspec ru cr
podspec ex exs jl nim nims gd pl pm t ps1 psm1 psd1 tcl fish awk vim raku sh bash zsh ksh dash bats command ebuild lua
el lisp lsp clj cljs cljc scm ss rkt fnl sql ddl psql pgsql mysql plsql r hs lhs elm purs idr ml mli fs fsi fsx pas pp
dpr adb ads f f90 f95 f03 f08 for bas vb vba mk mak make cmake tf hcl tfvars yaml yml s asm nasm css scss sass less
xml xsl xslt xsd svg csv tsv psv json json5 jsonc webmanifest jsonl ndjson properties env plist po pot bib srt vtt ics
vcf tmpl j2 erb ejs hbs mustache lock bat cmd nix dhall y yy l ll gv dot puml plantuml mmd rc in ac am m4 erl hrl sml
lean agda coq thy pro prolog reg inf wat
""",
    )
)
"""Of the names of files with code, and with data in lines, in lower case."""
NAMES = frozenset(
    re.findall(
        r"\S+",
        """
makefile gnumakefile cmakelists.txt rakefile gemfile podfile vagrantfile guardfile sconstruct sconscript build.bazel
pkgbuild .bashrc .bash_profile .profile .zshrc configure .gitignore .gitattributes .dockerignore .env requirements.txt
robots.txt
""",
    )
)
"""Names of such files, in lower case."""


def reader_of(name: str) -> Callable[[str], Content] | None:
    """What reads a file of that name, in lower case; None: it says nothing."""
    stem, _, ending = name.rpartition(".")
    if heading := HEADINGS.get(ending):
        return partial(read_headed, heading)
    return read_code if name in NAMES or (stem and ending in ENDINGS) else None


def read_code(text: str) -> Content:
    """The sections of source code."""
    lines = lines_of(text)
    return Content("", Unit.LINE, sections(lines, _Reading(lines, _in_strings(text, len(lines))).marks(), code=True))


def read_headed(heading: re.Pattern[str], text: str) -> Content:
    """The sections of lines that begin with those that match: comments right in front belong to what follows."""
    lines, marks, pending = lines_of(text), list[Mark](), -1
    for at, line in enumerate(lines):
        if found := heading.match(line):
            marks.append(Mark(at if pending < 0 else pending, (as_title(found[1]),)))
        if found or not _COMMENT.match(line):
            pending = -1
        elif pending < 0:
            pending = at
    return Content("", Unit.LINE, sections(lines, marks, code=True))


def _in_strings(text: str, count: int) -> bytearray:
    """For each line, whether it begins inside of a string with three quotes, as Python and others know them."""
    hidden = bytearray(count)
    if '"""' not in text and "'''" not in text:
        return hidden
    line = position = 0
    for found in _STRINGS.finditer(text):
        begin, end = found.span()
        if found[0].count("\n") == 0 or found[0][0] == "#":
            continue
        if end == len(text) and not (found["end"] or found["end2"]) and found[0][:3] in ('"""', "'''"):
            break  # never closed: this is broken code, and what follows is taken as it looks
        line += text.count("\n", position, begin)
        inside = text.count("\n", begin, end)
        hidden[line + 1 : line + 1 + inside] = b"\1" * inside
        line, position = line + inside, end
    return hidden[:count]


class _Reading:
    """Going through source code by indentation."""

    def __init__(self, lines: Sequence[str], hidden: bytearray) -> None:
        self._lines = lines
        self._hidden = hidden
        self._outline = Outline()
        self._marks: list[Mark] = []
        self._body: int | None = None  # the indentation of the piece that is being read
        self._braced = False  # whether its braces are open
        self._pending: int | None = None  # where comments and decorators begin that may belong to what follows
        self._pending_indent = 0
        self._decorated: int | None = None  # the indentation of a decorator that waits for its definition
        self._other = sys.maxsize  # the indentation of what is open and defines nothing
        self._typed = -1, 0  # the line after one that has only words, and where that begins with its comments
        self._within = -1  # the last line of those that may be inside of parentheses
        self._header = True  # no code has come yet
        self._comment_end = ""

    def marks(self) -> list[Mark]:
        """Where the definitions begin."""
        for at, line in enumerate(self._lines):
            if self._hidden[at]:
                continue
            bare = line.lstrip()
            if not bare:
                if self._header and self._decorated is None:
                    self._pending = None
                continue
            indent = len(line) - len(bare)
            if self._body is not None and indent > self._body and not self._comment_end:
                self._pending = None
            elif not self._in_comment(at, bare, indent):
                self._take(at, line, bare.rstrip(), indent)
        return self._marks

    def _in_comment(self, at: int, bare: str, indent: int) -> bool:
        """Whether the line is a comment of what may follow."""
        if self._comment_end:
            if self._comment_end in bare:
                self._comment_end = ""
            return True
        if bare[0] not in "#/*-;%!=<":
            return False
        if block := _BLOCK.match(bare):
            end = _BLOCKS[block[0]]
            if end not in bare[len(block[0]) :]:
                self._comment_end = end
        elif not _COMMENT.match(bare):
            return False
        if self._pending is None or indent < self._pending_indent:
            self._pending, self._pending_indent = at, indent
        return True

    def _take(self, at: int, line: str, bare: str, indent: int) -> None:
        """A line of code outside of pieces, or one that may end a piece."""
        if self._decorated is not None and (indent > self._decorated or bare[0] in ")]}"):
            return
        start = at if self._pending is None or indent < self._pending_indent else self._pending
        found = self._defined(line) if len(line) <= _LONGEST else None
        if found is None:
            if self._braced and bare[0] != "}":
                self._pending = None  # a label, or what a preprocessor reads
                return
            if bare[0] in "@[#t_" and _ATTRIBUTE.match(bare) and bare[-1] != "{":
                self._ended(start, indent)
                self._pending, self._pending_indent, self._decorated, self._header = start, indent, indent, False
                return
            if (last := self._outline.last) and (_GOES_ON.match(bare[:200]) or bare.startswith(f"{last} ")):
                self._braced = self._body is not None and (bare[-1] == "{" or (self._braced and bare[0] != "}"))
                self._pending = None
                return
            if len(line) <= _LONGEST and (name := self._known_by(at, line, bare, indent)):
                found = name, False
                start = self._typed[1] if self._typed[0] == at and "(" in line else start
        self._pending, self._decorated, self._header = None, None, False
        if found is None:
            self._ended(start, indent)
            self._other = indent if bare not in ("{", "[", "(") else sys.maxsize
            self._typed = (at + 1, start) if _TYPE.fullmatch(bare) else (-1, 0)
            return
        self._other = sys.maxsize
        name, holds = found
        self._marks.append(Mark(start, self._outline.open(indent, name)))
        self._body = None if holds else indent
        self._braced = not holds and bare[-1] == "{"

    def _defined(self, line: str) -> tuple[str, bool] | None:
        """The name that a line defines by itself, and whether more is defined in it."""
        if found := _LED.match(line):
            holds = bool(found["holds"])
            if not (holds and _FORWARD.search(line)):
                name = found["name"].rstrip(":.-").strip('"`[]')
                return f"{found['of']}.{name}" if found["of"] else name, holds
        elif found := _IMPLEMENTED.match(line):
            return found["name"].strip(), True
        if found := _GIVEN.match(line):
            return found[found.lastindex or 0], False
        return None

    def _known_by(self, at: int, line: str, bare: str, indent: int) -> str:
        """What a line that has deeper lines below it is known by: the name in front of its parentheses, else its first
        words; empty: it has none, or defines nothing."""
        if at <= self._within or not (body := self._body_of(at, line, indent)) or _DEFINES_NOTHING.match(bare):
            return ""
        end = _WORDS_END.search(bare)
        words = (bare[: end.start()] if end else bare).split()
        if not words or _GOES_ON.match(bare) or (end and end[0] == "=" != bare[-1]):
            return ""
        called = words[-1].lstrip("*&") if end and end[0] == "(" else ""
        if called and _CALLED.fullmatch(called) and not _DEFINES_NOTHING.match(called):
            return called if body == "there" or len(words) > 1 or self._typed[0] == at else ""
        name = " ".join(words).rstrip(":")
        if indent > self._other or body != "there" or not _WORDS.fullmatch(name):
            return ""
        return name.strip("\"'") if name[0] in "\"'" else name

    def _body_of(self, at: int, line: str, indent: int) -> str:
        """Whether deeper lines, or braces, follow a line once its parentheses are closed: they are `there`, or only
        `declared`, as for a function with its arguments in several lines; or empty."""
        lines, first = self._lines, at
        depth = line.count("(") - line.count(")") if "(" in line else 0
        while depth > 0 and at + 1 < min(first + _HEAD, len(lines)):
            at += 1
            depth += lines[at].count("(") - lines[at].count(")")
        self._within = at if depth > 0 else first
        end = lines[at].rstrip()[-1:]
        if depth > 0 or end in ",;\\|&":
            return "declared" if at > first else ""
        if end == "{" or ("{" in lines[at] and _OPENED.search(lines[at])):
            return "there"
        for after in range(at + 1, len(lines)):
            if bare := lines[after].lstrip():
                return "there" if bare[0] == "{" or len(lines[after]) - len(bare) > indent else ""
        return ""

    def _ended(self, at: int, indent: int) -> None:
        """End what is open and not less indented."""
        if self._outline.close(indent):
            self._marks.append(Mark(at, self._outline.titles))
            self._body, self._braced = None, False
