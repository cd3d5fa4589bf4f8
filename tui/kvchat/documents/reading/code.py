"""Read source code: sections by definition, under the names of the class and the function.

A line's form and indentation alone show a definition, so broken code is read like any other. Comments and decorators
right in front of a definition belong to it. A function is one piece, whatever is defined in it. The patterns of
languages are tried at single lines of limited length, and none can backtrack far.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct

from kvchat.documents.reading.content import Content, Mark, Outline, Unit, as_title, lines_of, sections

_MODIFIERS = (
    r"(?:(?:export|default|declare|public|private|protected|internal|fileprivate|static|abstract|final|sealed|partial|"
    r"async|unsafe|extern(?:[ \t]+\"\w*\")?|pub(?:\([^()\n]{0,40}\))?|override|open|virtual|inline|constexpr|readonly|"
    r"data|suspend|case|implicit|lazy|inner|companion|mutating|indirect|tailrec|operator|local|const|typedef|"
    r"friend|native|synchronized|strictfp|ref|new|fixed|expect|actual|annotation|value|external|noinline)[ \t]+)*+"
)
_NAME = r"(?P<name>(?!\d)[\w$.:?!-]++)"


def _led_by(words: str) -> re.Pattern[str]:
    """A definition that begins with one of these words, after modifiers."""
    return re.compile(rf"\s*+{_MODIFIERS}(?:{words})\b[*!]?[ \t]*+(?:<[^<>\n]{{0,80}}>[ \t]*+)?{_NAME}")


_HOLDERS = _led_by(
    "class|interface|struct|enum(?:[ \t]+class)?|trait|namespace|module|object|protocol|extension|"
    "record|union|mod|actor|contract|library|service|message|@interface|@implementation"
)
_FUNCTIONS = _led_by(
    "function|func|fun|fn|def|sub|proc|procedure|macro|macro_rules|type|method|rpc|task|"
    "subroutine|typealias|delegate|constructor"
)
_CALL_WORDS = frozenset(
    re.findall(
        r"\w+",
        "if for foreach while switch return else catch do case new throw delete sizeof using typedef assert goto await "
        "yield import from lock print try finally with elif elseif when unless until match loop select defer go super "
        "this static_assert alignas decltype not and or in is as var let",
    )
)
"""Words that precede parentheses, or begin a line with some, and define nothing."""
_NO_HOLDER = re.compile(r"[;*]\s*$")
"""How a line ends that only names a class or is the type of a function."""
_CALLED = re.compile(r"~?[^\W\d][\w$:~]*+")


class Language(Struct, frozen=True):
    """How the definitions of a language are recognised."""

    holders: tuple[re.Pattern[str], ...] = ()
    """What holds definitions that are named too: classes. Each pattern has a group `name`."""
    functions: tuple[re.Pattern[str], ...] = ()
    """What is one piece, whatever is in it."""
    calls: str = ""
    """Where a name with parentheses begins a function: `everywhere`, `inside` a holder, or nowhere."""
    comments: tuple[str, ...] = ("//", "/*", "*")
    block: tuple[str, str] = ("/*", "*/")
    """What begins and ends a comment of several lines. Empty: it has none."""
    attributes: tuple[str, ...] = ("@",)
    """How lines begin that belong to the definition after them."""
    flat: bool = False
    """Whether a definition goes on to the next one, whatever the indentation."""

    def definition(self, line: str, inside: bool) -> tuple[str, bool] | None:
        """The name that a line defines, and whether it is a holder; `inside` of one."""
        if len(line) > 400:
            return None
        if self.calls == "everywhere":
            if line.lstrip().startswith("#"):
                return None
            if "(" in line or ";" in line:
                return (name, False) if (name := _called(line, inside)) else None
        for pattern in self.holders:
            if (found := pattern.match(line)) and not _NO_HOLDER.search(line):
                return _name(found), True
        for pattern in self.functions:
            if found := pattern.match(line):
                return _name(found), False
        return (name, False) if self.calls and inside and "(" in line and (name := _called(line, inside)) else None


def _name(found: re.Match[str]) -> str:
    """What a pattern found: the group `name`, or `short` where there is none; in front of it `of` what it is."""
    parts = found.groupdict("")
    name = (parts["name"] or parts.get("short", "")).strip().rstrip(":.-")
    return f"{parts['of']}.{name}".strip(".") if parts.get("of") else name


def _called(line: str, inside: bool) -> str:
    """The name of a function that begins with its type, or only with its name, as in C and Java."""
    before = line.partition("(")[0]
    words = before.replace("*", " ").replace("&", " ").split()
    if not words or words[0] in _CALL_WORDS or words[-1] in _CALL_WORDS or "=" in before or '"' in before:
        return ""
    end = line.rstrip()[-1]
    if end == ";" or (len(words) == 1 and (end not in "{)," or (line[0].isspace() and not inside))):
        return ""
    return words[-1] if _CALLED.fullmatch(words[-1]) and "." not in before else ""


def _at(pattern: str, flags: int = 0) -> tuple[re.Pattern[str], ...]:
    return (re.compile(pattern, flags),)


def _flat(pattern: str, *comments: str, flags: int = 0) -> Language:
    """A language whose definitions stand at the beginning of a line and go on to the next one."""
    return Language((), _at(pattern, flags), comments=comments, block=("", ""), attributes=(), flat=True)


_ARROW = (
    r"\s*+(?:export[ \t]+)?(?:default[ \t]+)?(?:const|let|var)[ \t]+(?P<name>[\w$]++)[^=\n]{0,120}=[ \t]*+"
    r"(?:async\b[ \t]*+)?(?:function\b|\([^()\n]{0,200}\)[^=\n]{0,80}=>|[\w$]++[ \t]*+=>|\($)"
)
_ASSIGNED = r"(?P<name>(?:module\.)?exports?\.[\w$.]+|[\w$]+\.prototype\.[\w$]+)[ \t]*=[ \t]*(?:async )?function"
_IMPLEMENTED = r"\s*+(?:unsafe[ \t]+)?(?P<name>impl\b[^{\n]{0,100})"
_RECEIVED = r"func[ \t]+(?:\((?:\w+[ \t]+)?\*?(?P<of>\w+)[^()\n]{0,80}\)[ \t]*)?(?P<name>\w+)"
_SHELL_NAME = r"\s*+(?:function[ \t]+(?P<short>[\w:.-]++)|(?P<name>[\w:.-]++)[ \t]*+\(\))"
_CREATED = (
    r"\s*(?:create|alter)\s+(?:or\s+replace\s+)?(?:[a-z]+\s+){0,3}?"
    r"(?:table|view|function|procedure|trigger|index|type|schema|sequence|package|database)\s+"
    r"(?:if\s+not\s+exists\s+)?(?P<name>[\w.\"`\[\]$]+)"
)

_BRACES = Language((_HOLDERS,), (_FUNCTIONS,), attributes=("@", "#[", "["))
_C = Language((_HOLDERS,), (), "everywhere", attributes=("template", "[[", "__attribute__"))
_JAVA = Language((_HOLDERS,), (_FUNCTIONS,), "inside", attributes=("@", "["))
_SCRIPT = Language((_HOLDERS,), (_FUNCTIONS, *_at(_ARROW), *_at(_ASSIGNED)), "inside")
_GO = Language((), (*_at(_RECEIVED), *_at(r"type[ \t]+(?P<name>\w+)")))
_RUST = Language((*_at(_IMPLEMENTED), _HOLDERS), (_FUNCTIONS,), attributes=("#[", "#!["))
PYTHON = Language((_led_by("class"),), (_led_by("def"),), comments=("#",), block=("", ""))
_RUBY = Language((_led_by("class|module"),), (_led_by("def"),), comments=("#",), block=("=begin", "=end"))
_HASH = Language((_HOLDERS,), (_FUNCTIONS,), comments=("#",), block=("", ""))
_ELIXIR = Language(
    (_led_by("defmodule|defprotocol|defimpl"),), (_led_by("defp?|defmacrop?"),), comments=("#",), block=("", "")
)
_SHELL = Language((), _at(_SHELL_NAME), comments=("#",), block=("", ""), attributes=())
_LUA = Language((), (_FUNCTIONS,), comments=("--",), block=("--[[", "]]"), attributes=())
_LISP = Language(
    (),
    _at(r"\(def[\w:*-]*[ \t]+\(?'?(?P<name>[^\s()]++)|\(ns[ \t]+(?P<short>[^\s()]++)"),
    comments=(";",),
    block=("", ""),
    attributes=(),
)
_SQL = _flat(_CREATED, "--", flags=re.IGNORECASE)
_R = Language((), _at(r"(?P<name>[\w.]+)[ \t]*(?:<-|=)[ \t]*function\b"), comments=("#",), block=("", ""))
_HASKELL = _flat(
    r"(?:data|class|instance|type|newtype|module)[ \t]+(?P<name>[^={\n]{1,80})|"
    r"(?P<short>[a-z_][\w']*+)[ \t]*+(?=::)",
    "--",
)
_OCAML = _flat(r"(?:let(?:[ \t]+rec)?|and|module|type|val)[ \t]+(?P<name>[\w']++)")
_PASCAL = _flat(
    r"\s{0,3}(?:[a-z]+[ \t]+){0,3}?(?:procedure|function|subroutine|program|module|package|constructor|sub)"
    r"[ \t]+(?P<name>[\w.]++)",
    "--",
    "!",
    "//",
    flags=re.IGNORECASE,
)
_MAKE = _flat(r"(?P<name>[\w./%$(){}-]++(?:[ \t]+[\w./%-]++)*+)[ \t]*+::?(?!=)", "#")
_CMAKE = _flat(r"\s*+(?:function|macro)[ \t]*\([ \t]*(?P<name>\w++)", "#", flags=re.IGNORECASE)
_HCL = Language((), _at(r"(?P<name>[a-z_]+[ \t]+[^{=\n]{0,100})\{|(?P<short>locals|terraform)\b"), comments=("#", "//"))
_DOCKER = _flat(r"FROM[ \t]+(?P<name>[^\n]{1,100})", "#", flags=re.IGNORECASE)
_TABLES = _flat(r"[ \t]*+\[++(?P<name>[^\]\n]{1,100})\]", "#", ";")
_KEYS = _flat(r"(?P<name>[\w./$-]++|\"[^\"\n]{1,80}\"|'[^'\n]{1,80}')[ \t]*+:(?=\s|$)", "#")
_DIFF = _flat(r"diff --git a/(?P<name>\S{1,200})|Index: (?P<short>\S{1,200})")
_ASSEMBLY = _flat(r"(?P<name>[A-Za-z_][\w$@.]*+):", ";", "#", "//", "@")
_LINES = Language(comments=())

_ENDINGS = {
    PYTHON: "py pyw pyi pyx pxd pxi bzl star sage gyp gypi",
    _C: "c h cc cpp cxx c++ hh hpp hxx h++ inl ipp tcc cu cuh m mm ino glsl hlsl vert frag metal cl",
    _JAVA: "java cs groovy gradle dart d vala",
    _SCRIPT: "js jsx mjs cjs ts tsx mts cts vue svelte astro coffee",
    _GO: "go",
    _RUST: "rs",
    _BRACES: "kt kts swift scala sc php php5 phtml zig proto thrift sol hx as v sv svh graphql gql capnp odin cue",
    _RUBY: "rb rake gemspec ru cr podspec",
    _ELIXIR: "ex exs",
    _HASH: "jl nim nims gd pl pm t ps1 psm1 psd1 tcl fish awk vim raku",
    _SHELL: "sh bash zsh ksh dash bats command ebuild",
    _LUA: "lua",
    _LISP: "el lisp lsp cl clj cljs cljc scm ss rkt fnl",
    _SQL: "sql ddl psql pgsql mysql plsql",
    _R: "r",
    _HASKELL: "hs lhs elm purs idr",
    _OCAML: "ml mli fs fsi fsx",
    _PASCAL: "pas pp dpr adb ads f f90 f95 f03 f08 for bas vb vba",
    _MAKE: "mk mak make",
    _CMAKE: "cmake",
    _HCL: "tf hcl tfvars",
    _TABLES: "toml ini cfg conf desktop service timer socket editorconfig gitconfig",
    _KEYS: "yaml yml",
    _DIFF: "diff patch",
    _ASSEMBLY: "s asm nasm",
    _LINES: "css scss sass less xml xsl xslt xsd svg csv tsv psv jsonl ndjson properties env plist po pot bib srt vtt "
    "ics vcf tmpl j2 erb ejs hbs mustache lock bat cmd nix dhall y yy l ll gv dot puml plantuml mmd rc in ac "
    "am m4 erl hrl sml lean agda coq thy pro prolog reg inf wat",
}
_NAMES = {
    _MAKE: "makefile gnumakefile",
    _CMAKE: "cmakelists.txt",
    _DOCKER: "dockerfile containerfile",
    _RUBY: "rakefile gemfile podfile vagrantfile guardfile",
    PYTHON: "sconstruct sconscript build.bazel",
    _SHELL: "pkgbuild .bashrc .bash_profile .profile .zshrc configure",
    _LINES: ".gitignore .gitattributes .dockerignore .env requirements.txt robots.txt",
    _TABLES: ".gitconfig .editorconfig pipfile",
}
_PROGRAMS = {
    PYTHON: "python pypy",
    _SHELL: "sh bash zsh ksh dash",
    _SCRIPT: "node nodejs deno bun",
    _RUBY: "ruby",
    _HASH: "perl awk gawk tclsh fish julia pwsh",
    _LUA: "lua luajit",
    _R: "rscript",
    _ELIXIR: "elixir",
    _MAKE: "make",
}


def _turned(table: dict[Language, str]) -> dict[str, Language]:
    return {word: language for language, words in table.items() for word in words.split()}


BY_ENDING = _turned(_ENDINGS)
"""Languages by the endings of file names, in lower case, without the dot."""
BY_NAME = _turned(_NAMES)
"""Languages by whole file names, in lower case."""
BY_PROGRAM = _turned(_PROGRAMS)
"""Languages by the programs that run them, without version numbers."""


_GOES_ON = re.compile(
    r"[)\]}{]|(?:end|fi|done|esac|else|elif|elsif|elseif|except|finally|rescue|ensure|catch|begin|"
    r"then)\b[^=(]*$"
)
"""Lines that say nothing about what ended, however little they are indented."""
_LABEL = re.compile(r"[\w \t]{1,40}:\s*$")
_TYPE = re.compile(r"[\w \t*&:<>,]{1,80}")
"""The line in front of a function's name in C that has its type."""
_STRINGS = re.compile(
    r"""\#[^\n]*+
    |\"\"\"(?:[^"\\]++|\\.|"(?!""))*+(?P<end>\"\"\"|\Z)|'''(?:[^'\\]++|\\.|'(?!''))*+(?P<end2>'''|\Z)
    |"(?:[^"\\\n]++|\\.)*+"?|'(?:[^'\\\n]++|\\.)*+'?""",
    re.VERBOSE | re.DOTALL,
)
_JSON_KEY = re.compile(r"([ \t]{1,8})\"([^\"\n]{1,80})\"[ \t]*:")
_VERSION = re.compile(r"[\d.]+$")


def reader_of(name: str) -> Callable[[str], Content] | None:
    """What reads a file of that name, in lower case; None: it says nothing."""
    ending = name.rpartition(".")[2]
    if name in BY_NAME:
        return partial(read_code, BY_NAME[name])
    if ending in ("json", "json5", "jsonc", "webmanifest"):
        return read_json
    return partial(read_code, BY_ENDING[ending]) if ending in BY_ENDING and ending != name else None


def reader_of_program(program: str) -> Callable[[str], Content] | None:
    """What reads a script for that program; None: it is not known."""
    language = BY_PROGRAM.get(_VERSION.sub("", program))
    return partial(read_code, language) if language else None


def read_code(language: Language, text: str) -> Content:
    """The sections of source code."""
    lines = lines_of(text)
    hidden = _in_strings(text, len(lines)) if language is PYTHON else None
    if not language.holders + language.functions:
        marks = []
    else:
        marks = _flat_marks(language, lines) if language.flat else _Reading(language, lines, hidden).marks()
    return Content("", Unit.LINE, sections(lines, marks, code=True))


def read_json(text: str) -> Content:
    """The sections of JSON that is laid out in lines: its outermost keys."""
    lines, marks = lines_of(text), list[Mark]()
    indent = ""
    for at, line in enumerate(lines):
        if (found := _JSON_KEY.match(line)) and found[1] == (indent := indent or found[1]):
            marks.append(Mark(at, (as_title(found[2]),)))
    return Content("", Unit.LINE, sections(lines, marks, code=True))


def _flat_marks(language: Language, lines: Sequence[str]) -> list[Mark]:
    """The definitions of a language in which each goes on to the next one."""
    marks, pending = list[Mark](), -1
    for at, line in enumerate(lines):
        if found := language.definition(line, False):
            marks.append(Mark(at if pending < 0 else pending, (as_title(found[0]),)))
            pending = -1
        elif not line.lstrip().startswith(language.comments):
            pending = -1
        elif pending < 0:
            pending = at
    return marks


def _in_strings(text: str, count: int) -> bytearray:
    """For each line, whether it begins inside of a string, as Python knows them."""
    hidden = bytearray(count)
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

    def __init__(self, language: Language, lines: Sequence[str], hidden: bytearray | None) -> None:
        self._language = language
        self._lines = lines
        self._hidden = hidden
        self._outline = Outline()
        self._marks: list[Mark] = []
        self._body: int | None = None  # the indentation of the function that is being read
        self._braced = False  # whether its last brace has come
        self._pending: int | None = None  # where comments and decorators begin that may belong to what follows
        self._pending_indent = 0
        self._decorated: int | None = None  # the indentation of a decorator that waits for its definition
        self._header = True  # no code has come yet
        self._comment_end = ""

    def marks(self) -> list[Mark]:
        """Where the definitions begin."""
        for at, line in enumerate(self._lines):
            if self._hidden is not None and self._hidden[at]:
                continue
            bare = line.strip()
            if not bare:
                if self._header and self._decorated is None:
                    self._pending = None
                continue
            indent = len(line) - len(line.lstrip())
            if self._body is not None and indent > self._body and not self._comment_end:
                self._pending = None
            elif not self._in_comment(at, bare, indent):
                self._take(at, line, bare, indent)
        return self._marks

    def _in_comment(self, at: int, bare: str, indent: int) -> bool:
        """Whether the line is a comment, or a decorator, of what may follow."""
        begin, end = self._language.block
        if self._comment_end:
            if self._comment_end in bare:
                self._comment_end = ""
            return True
        if begin and bare.startswith(begin):
            if end not in bare[len(begin) :]:
                self._comment_end = end
        elif not self._language.comments or not bare.startswith(self._language.comments):
            return False
        if self._pending is None or indent < self._pending_indent:
            self._pending, self._pending_indent = at, indent
        return True

    def _take(self, at: int, line: str, bare: str, indent: int) -> None:
        """A line of code outside of functions, or one that may end a function."""
        if self._decorated is not None and (indent > self._decorated or bare[0] in ")]}"):
            return
        start = at if self._pending is None or indent < self._pending_indent else self._pending
        if bare.startswith(self._language.attributes):
            self._ended(start, indent)
            self._pending, self._pending_indent, self._decorated, self._header = start, indent, indent, False
            return
        inside = self._outline.is_inside(indent)
        found = self._language.definition(line, inside)
        if found is None and self._goes_on(bare):
            self._braced = self._braced or bare[0] == "}"
            self._pending = None
            return
        self._pending, self._decorated, self._header = None, None, False
        if found is None:
            self._ended(start, indent)
            if self._language.calls == "everywhere" and _TYPE.fullmatch(bare):
                self._pending, self._pending_indent = start, indent
            return
        name, holds = found
        self._marks.append(Mark(start, self._outline.opened(indent, name)))
        self._body, self._braced = None if holds else indent, False

    def _goes_on(self, bare: str) -> bool:
        """Whether a line belongs to what is open, though it is not indented."""
        if not self._outline.titles:
            return False
        if _GOES_ON.match(bare[:200]):
            return True
        in_body = self._body is not None and not self._braced
        return self._language.calls == "everywhere" and bool(_LABEL.match(bare) or (bare[0] == "#" and in_body))

    def _ended(self, at: int, indent: int) -> None:
        """End what is open and not less indented."""
        if self._outline.closed(indent):
            self._marks.append(Mark(at, self._outline.titles))
            self._body = None
