"""Programming languages: what a line looks like that begins a definition, by the endings of file names.

The rule: a pattern is tried at single lines of limited length, and none can backtrack far.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_MODIFIERS = (
    r"(?:(?:export|default|declare|public|private|protected|internal|fileprivate|static|abstract|final|sealed|partial|"
    r"async|unsafe|extern(?:[ \t]+\"\w*\")?|pub(?:\([^()\n]{0,40}\))?|override|open|virtual|inline|constexpr|readonly|"
    r"data|suspend|case|implicit|lazy|inner|companion|mutating|indirect|tailrec|operator|local|const|typedef|"
    r"friend|native|synchronized|strictfp|ref|new|fixed|expect|actual|annotation|value|external|noinline)[ \t]+)*+")
_NAME = r"(?P<name>(?!\d)[\w$.:?!-]++)"


def _led_by(words: str) -> re.Pattern[str]:
    """A definition that begins with one of these words, after modifiers."""
    return re.compile(rf"\s*+{_MODIFIERS}(?:{words})\b[*!]?[ \t]*+(?:<[^<>\n]{{0,80}}>[ \t]*+)?{_NAME}")


_HOLDERS = _led_by("class|interface|struct|enum(?:[ \t]+class)?|trait|namespace|module|object|protocol|extension|"
                   "record|union|mod|actor|contract|library|service|message|@interface|@implementation")
_FUNCTIONS = _led_by("function|func|fun|fn|def|sub|proc|procedure|macro|macro_rules|type|method|rpc|task|"
                     "subroutine|typealias|delegate|constructor")
_CALL_WORDS = frozenset(re.findall(
    r"\w+",
    "if for foreach while switch return else catch do case new throw delete sizeof using typedef assert goto await "
    "yield import from lock print try finally with elif elseif when unless until match loop select defer go super "
    "this static_assert alignas decltype not and or in is as var let"))
"""What stands in front of parentheses, or begins a line with some, and defines nothing."""
_NO_HOLDER = re.compile(r"[;*]\s*$")
"""How a line ends that only names a class or is the type of a function."""
_CALLED = re.compile(r"~?[^\W\d][\w$:~]*+")


@dataclass(frozen=True, slots=True)
class Language:
    """How the definitions of a language are told."""

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


_ARROW = (r"\s*+(?:export[ \t]+)?(?:default[ \t]+)?(?:const|let|var)[ \t]+(?P<name>[\w$]++)[^=\n]{0,120}=[ \t]*+"
          r"(?:async\b[ \t]*+)?(?:function\b|\([^()\n]{0,200}\)[^=\n]{0,80}=>|[\w$]++[ \t]*+=>|\($)")
_ASSIGNED = r"(?P<name>(?:module\.)?exports?\.[\w$.]+|[\w$]+\.prototype\.[\w$]+)[ \t]*=[ \t]*(?:async )?function"
_IMPLEMENTED = r"\s*+(?:unsafe[ \t]+)?(?P<name>impl\b[^{\n]{0,100})"
_RECEIVED = r"func[ \t]+(?:\((?:\w+[ \t]+)?\*?(?P<of>\w+)[^()\n]{0,80}\)[ \t]*)?(?P<name>\w+)"
_SHELL_NAME = r"\s*+(?:function[ \t]+(?P<short>[\w:.-]++)|(?P<name>[\w:.-]++)[ \t]*+\(\))"
_CREATED = (r"\s*(?:create|alter)\s+(?:or\s+replace\s+)?(?:[a-z]+\s+){0,3}?"
            r"(?:table|view|function|procedure|trigger|index|type|schema|sequence|package|database)\s+"
            r"(?:if\s+not\s+exists\s+)?(?P<name>[\w.\"`\[\]$]+)")

_BRACES = Language((_HOLDERS,), (_FUNCTIONS,), attributes=("@", "#[", "["))
_C = Language((_HOLDERS,), (), "everywhere", attributes=("template", "[[", "__attribute__"))
_JAVA = Language((_HOLDERS,), (_FUNCTIONS,), "inside", attributes=("@", "["))
_SCRIPT = Language((_HOLDERS,), (_FUNCTIONS, *_at(_ARROW), *_at(_ASSIGNED)), "inside")
_GO = Language((), (*_at(_RECEIVED), *_at(r"type[ \t]+(?P<name>\w+)")))
_RUST = Language((*_at(_IMPLEMENTED), _HOLDERS), (_FUNCTIONS,), attributes=("#[", "#!["))
PYTHON = Language((_led_by("class"),), (_led_by("def"),), comments=("#",), block=("", ""))
_RUBY = Language((_led_by("class|module"),), (_led_by("def"),), comments=("#",), block=("=begin", "=end"))
_HASH = Language((_HOLDERS,), (_FUNCTIONS,), comments=("#",), block=("", ""))
_ELIXIR = Language((_led_by("defmodule|defprotocol|defimpl"),), (_led_by("defp?|defmacrop?"),), comments=("#",),
                   block=("", ""))
_SHELL = Language((), _at(_SHELL_NAME), comments=("#",), block=("", ""), attributes=())
_LUA = Language((), (_FUNCTIONS,), comments=("--",), block=("--[[", "]]"), attributes=())
_LISP = Language((), _at(r"\(def[\w:*-]*[ \t]+\(?'?(?P<name>[^\s()]++)|\(ns[ \t]+(?P<short>[^\s()]++)"),
                 comments=(";",), block=("", ""), attributes=())
_SQL = _flat(_CREATED, "--", flags=re.IGNORECASE)
_R = Language((), _at(r"(?P<name>[\w.]+)[ \t]*(?:<-|=)[ \t]*function\b"), comments=("#",), block=("", ""))
_HASKELL = _flat(r"(?:data|class|instance|type|newtype|module)[ \t]+(?P<name>[^={\n]{1,80})|"
                 r"(?P<short>[a-z_][\w']*+)[ \t]*+(?=::)", "--")
_OCAML = _flat(r"(?:let(?:[ \t]+rec)?|and|module|type|val)[ \t]+(?P<name>[\w']++)")
_PASCAL = _flat(r"\s{0,3}(?:[a-z]+[ \t]+){0,3}?(?:procedure|function|subroutine|program|module|package|constructor|sub)"
                r"[ \t]+(?P<name>[\w.]++)", "--", "!", "//", flags=re.IGNORECASE)
_MAKE = _flat(r"(?P<name>[\w./%$(){}-]++(?:[ \t]+[\w./%-]++)*+)[ \t]*+::?(?!=)", "#")
_CMAKE = _flat(r"\s*+(?:function|macro)[ \t]*\([ \t]*(?P<name>\w++)", "#", flags=re.IGNORECASE)
_HCL = Language((), _at(r"(?P<name>[a-z_]+[ \t]+[^{=\n]{0,100})\{|(?P<short>locals|terraform)\b"),
                comments=("#", "//"))
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
