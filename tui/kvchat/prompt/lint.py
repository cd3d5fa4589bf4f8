"""The prefix linter: warns about text in a system prompt that changes by itself, and so costs the cache: clocks,
placeholders, random values, paths, hosts and counters.

An ordinary prompt gives no warning, so a pattern needs a reason to believe that the text is about now or
about this machine; every warning names the exact characters. `kvchat.text.options` has the words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum

from msgspec import Struct


class LintKind(StrEnum):
    """What kind of text changes by itself."""

    CLOCK = "clock"
    PLACEHOLDER = "placeholder"
    RANDOM = "random"
    PATH = "path"
    HOST = "host"
    COUNTER = "counter"


_MONTH = (
    r"(?:jan(?:uary|uar|vier)?|feb(?:ruary|ruar)?|f[ée]v(?:rier)?|mar(?:ch|s|zo)?|märz|apr(?:il)?|abril|avril"
    r"|may|mai|mayo|june?|juni|juin|junio|july?|juli|juillet|julio|aug(?:ust)?|août|agosto|sept?(?:ember)?"
    r"|o[ck]t(?:ober)?|octobre|octubre|nov(?:ember|embre)?|de[cz](?:ember)?|d[ée]cembre)\.?"
)
_WEEKDAY = (
    r"(?:(?:mon|tues|wednes|thurs|fri|satur|sun)day|mon|tue|wed|thu|fri|sat|sun"
    r"|montag|dienstag|mittwoch|donnerstag|freitag|samstag|sonntag"
    r"|lundi|mardi|mercredi|jeudi|vendredi|samedi|dimanche)\b\.?"
)
_YEAR = r"20\d\d"
_DAY = r"(?:0?[1-9]|[12]\d|3[01])"
_ISO_DAY = rf"{_YEAR}[-/.](?:0?[1-9]|1[0-2])[-/.]{_DAY}"
_TIME = (
    r"(?:[01]?\d|2[0-3])[:h][0-5]\d(?::[0-5]\d(?:[.,]\d+)?)?(?!\d|:\d)(?:\s?[ap]\.?m\b\.?)?"
    r"(?!\s*(?:ratio|aspect|odds))"
)
_ZONE = r"(?:\s?(?:Z\b|UTC|GMT|[+-]\d\d:?\d\d))*"
_DATE = (
    rf"(?:{_ISO_DAY}(?!\d)|{_DAY}[./-](?:0?[1-9]|1[0-2])[./-](?:20)?\d\d(?!\d)"
    rf"|(?:0?[1-9]|1[0-2])/{_DAY}/(?:20)?\d\d(?!\d)"
    rf"|{_MONTH}\s+{_DAY}(?:st|nd|rd|th)?\b(?:,?\s+{_YEAR}\b|(?!,?\s*\d))"
    rf"|{_DAY}(?:st|nd|rd|th)?\.?\s+(?:of\s+|de\s+)?{_MONTH}(?:,?\s+(?:de\s+)?{_YEAR}\b|(?!\s*\d))"
    rf"|{_MONTH}\s+{_YEAR}\b|{_YEAR}年\d{{1,2}}月\d{{1,2}}[日号])"
)
_CALLED = r"date\s*(?:and|&|/)\s*time|datetime|timestamp|date|time|day|weekday|year|month|moment|hour"
_BEGIN = r"(?:^|(?<=[.!?;(\[|•*\-\n])[ \t]{0,8})"
_NOW = (
    r"(?:\b(?:today|tonight|now|it)(?:['’]s|\s+is)(?:\s+(?:now|currently|date|day)){0,2}"
    r"|\btoday['’]s\s+(?:date|day)(?:\s+is)?|\btoday\b|\bright\s+now\b"
    rf"|\b(?:current|present|local|system|actual)\s+(?:local\s+|system\s+)?(?:{_CALLED})(?:\s+is)?"
    rf"|\bthe\s+(?:{_CALLED})\s+is(?:\s+now)?|{_BEGIN}(?:{_CALLED})\b(?=\s*[:=]|\s+is\b)(?:\s+is)?"
    r"|\bas\s+of\s+(?:now|today)|\bthis\s+(?:year|month)\s+is"
    r"|\bheute\s+ist|\b(?:aktuelle[sr]?|jetzige[sr]?)\s+(?:datum|uhrzeit|zeit|tag)(?:\s+ist)?|\bes\s+ist\s+jetzt"
    r"|\bnous\s+sommes\s+le|\baujourd['’]hui|\b(?:date|heure)\s+actuelle|\bhoy\s+es|\b(?:fecha|hora)\s+actual"
    r"|\boggi\s+è|今天是|现在是|今日は)"
)
_SMALL = rf"(?:\s|[:=,(\[\"'“*_—–-]|\b(?:the|on|at|now|is|and|date|time|der|den|le|el)\b|{_WEEKDAY}){{0,14}}"
_NAME = (
    r"(?:(?:current|today|todays|local|system|utc|iso)?[ _.-]?"
    r"(?:date|time|datetime|timestamp|day|weekday|month|year)(?:[ _-]?(?:time|string|utc|iso|local|now))?"
    r"|now|today|clock|uuid\d?|guid|nonce|random(?:[ _-]\w+)?|rand"
    r"|(?:session|request|conversation|chat|trace)[ _-]?id|(?:host|user|machine|computer)[ _-]?name|host|cwd|pwd"
    r"|working[ _-]?dir(?:ectory)?|home(?:[ _-]?dir)?|(?:message|turn)[ _-]?(?:count|number|index)|counter"
    r"|(?:user|current)[ _-]location)"
)

_LAN = r"[a-z0-9][\w-]{0,62}\.(?:local|lan|internal|localdomain|home\.arpa|intranet|corp)\b"
_REST = r"(?:[^\s`'\"<>|,;:()\[\].!?]|[.!?](?=\w))+/?"
"""The rest of a path: up to a blank, a quote or the end of the sentence."""

_PATTERNS: tuple[tuple[LintKind, bool, str], ...] = (
    # Kind, whether it says itself that it is about now or here, the pattern. `found` is the part to show.
    (LintKind.CLOCK, True, rf"(?P<found>{_NOW}{_SMALL}(?:{_DATE}(?:(?:T|{_SMALL}){_TIME}{_ZONE})?|{_TIME}))"),
    (
        LintKind.CLOCK,
        True,
        r"(?P<found>\b(?:today|it|now)(?:['’]s|\s+is)\s+(?:now\s+)?"
        r"\d{1,2}\s?(?:[ap]\.?m\b|o['’]clock))",
    ),
    (LintKind.CLOCK, True, rf"(?P<found>\btoday(?:['’]s(?:\s+day)?)?\s+is\s+(?:a\s+)?{_WEEKDAY})"),
    (LintKind.CLOCK, True, rf"(?P<found>\b(?:current|this)\s+year(?:\s+is|\s*[:=])\s*{_YEAR}\b)"),
    (LintKind.CLOCK, True, rf"(?P<found>\b(?:current|today['’]s|local|system)\s+(?:{_CALLED})\s*[:=])"),
    (LintKind.CLOCK, False, rf"(?P<found>\b{_ISO_DAY}(?:[T ]|,\s*|\s+at\s+){_TIME}{_ZONE})"),
    (LintKind.CLOCK, False, rf"(?P<found>\b{_WEEKDAY},?\s+{_DATE},?\s+(?:at\s+)?{_TIME})"),
    (LintKind.CLOCK, False, r"(?P<found>(?<![\d:.])(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?![\d:]))"),
    (LintKind.CLOCK, False, rf"(?:^|(?<=[.!?]\s))[ \t]*(?P<found>[\[(]?{_TIME}[\])]?)(?=[ \t]*(?:$|[.!?]|\]))"),
    (LintKind.CLOCK, False, rf"^[ \t]*(?P<found>\[{_TIME}\])"),
    (
        LintKind.CLOCK,
        True,
        r"\b(?:timestamp|epoch|unix(?:\s+time)?|now|ts)\b\W{0,4}(?:is\W+)?"
        r"(?P<found>1[6-9]\d{8}(?:\d{3})?)\b",
    ),
    (
        LintKind.PLACEHOLDER,
        False,
        rf"(?P<found>\{{\{{\s*{_NAME}\s*(?:\(\s*\))?\s*\}}\}}|\$?\{{\s*{_NAME}\s*\}}"
        rf"|\{{%\s*{_NAME}\s*%\}}|%{_NAME}%"
        r"|\$\(\s*(?:date|hostname|pwd|whoami|uuidgen)\b[^)\n]{0,40}\)"
        rf"|[<\[](?:current|today['’]?s?|insert)[ _-]{_NAME}[>\]])",
    ),
    (LintKind.PLACEHOLDER, False, r"(?P<found>\bstrftime_now\s*\([^)\n]*\))"),
    (LintKind.RANDOM, False, r"(?P<found>\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b)"),
    (LintKind.RANDOM, False, r"(?P<found>(?<![\w#])(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])(?:0x)?[0-9a-f]{16,}\b)"),
    (
        LintKind.RANDOM,
        True,
        r"(?P<found>\b(?:session|request|conversation|chat|trace|run|correlation|thread|instance)"
        r"(?:[ _-]?(?:id|token|key|number)|\s*#)\s*(?:is|[:=#])?\s*[\"'`]?(?=[\w-]*\d)[\w-]{4,})",
    ),
    (
        LintKind.RANDOM,
        True,
        r"(?P<found>\b(?:nonce|salt|random\s+(?:seed|number|value|string|token)|seed)\s*(?:is|[:=])\s*"
        r"[\"'`]?(?=[\w-]*\d)[\w-]{3,})",
    ),
    (
        LintKind.PATH,
        False,
        rf"(?P<found>(?<![\w/.:])"
        rf"/(?:home|Users|Volumes|media|mnt|private|root|tmp|var/tmp|var/folders)/{_REST})",
    ),
    (LintKind.PATH, False, rf"(?P<found>(?<![\w~])~/(?=\w){_REST})"),
    (
        LintKind.PATH,
        False,
        r"(?P<found>(?<!\w)[A-Za-z]:[\\/](?!/)(?!Windows\b|Program Files)"
        r"[\w$-]+(?:[\\/.][\w$-]+)*)",
    ),
    (LintKind.PATH, False, r"(?P<found>(?<![\\\w])\\\\[\w.-]+\\[\w.$-]+(?:\\[\w.$-]+)*)"),
    (
        LintKind.PATH,
        True,
        r"\b(?:working|current|home|project|root)\s+(?:directory|folder|root|dir)(?:\s+is)?\s*[:=]?\s*"
        r"[\"'`]?(?P<found>(?:/[\w.-]+)+/?|\$(?:PWD|HOME)\b|%USERPROFILE%)",
    ),
    (LintKind.HOST, False, r"(?P<found>\b(?:localhost|(?:\d{1,3}\.){3}\d{1,3}):\d{2,5}\b|\[::1\]:\d{2,5}\b)"),
    (
        LintKind.HOST,
        False,
        r"(?P<found>(?<![\w.])(?<!version )(?<!v)"
        r"(?:10\.\d{1,3}|192\.168|172\.(?:1[6-9]|2\d|3[01])|127\.0)\.\d{1,3}\.\d{1,3}\b(?![./]\d))",
    ),
    (LintKind.HOST, False, r"(?P<found>\bhttps?://[^\s/:]+:\d{2,5}\b)"),
    (LintKind.HOST, False, rf"(?P<found>(?<![\w.]){_LAN}:\d{{2,5}}\b)"),
    (
        LintKind.HOST,
        False,
        rf"(?:\b(?:at|on|host|server|machine|called|reach|ssh|via)\s+|//|@)"
        rf"(?P<found>{_LAN}(?!\w|\.\w|\())",
    ),
    (
        LintKind.HOST,
        True,
        r"(?P<found>\b(?:host\s?name|(?:host|machine|computer|server)\s+name)\s*(?:is|[:=])\s*"
        r"[\"'`]?(?=[\w.-]*[\d-])[\w-]+(?:\.[\w-]+)*)",
    ),
    (
        LintKind.HOST,
        True,
        r"(?P<found>\b(?:running|runs|hosted)\s+on\s+(?:(?:the\s+)?(?:host|machine|computer|server)\s+)"
        r"[\"'`]?(?=[\w.-]*[\d-])[\w-]+(?:\.[\w-]+)*)",
    ),
    (
        LintKind.HOST,
        True,
        r"\b(?:you|this\s+server|the\s+(?:api|backend|model|server))\b[^.\n]{0,40}?\b"
        r"(?P<found>port\s+\d{4,5})\b(?!\s+by\s+default)",
    ),
    (
        LintKind.COUNTER,
        True,
        r"(?P<found>\b(?:message|turn|request|prompt|session|conversation|chat)\s+"
        r"(?:number\s+|no\.?\s*|#\s*)?\d+\s*(?:of|/|out\s+of)\s*\d+\b)",
    ),
    (
        LintKind.COUNTER,
        True,
        r"(?P<found>\bthis\s+is\s+(?:the\s+|your\s+|our\s+)?"
        r"(?:\d+(?:st|nd|rd|th)\s+(?:message|turn|request|conversation|session)"
        r"|(?:message|turn|request|conversation|session)\s+(?:number\s+|no\.?\s*|#\s*)?\d+)\b"
        r"(?:\s*(?:of|/|out\s+of)\s*\d+)?)",
    ),
    (
        LintKind.COUNTER,
        True,
        r"(?P<found>\b(?:message|turn|request|token)s?\s+"
        r"(?:count|number|so\s+far|left|remaining|used)\s*(?:is|[:=])\s*\d[\d,]*)",
    ),
    (
        LintKind.COUNTER,
        True,
        r"(?P<found>\b(?<!at most )(?<!than )\d[\d,]{0,12}\s+(?:tokens|messages|turns|requests)\s+"
        r"(?:are\s+)?(?:left|remaining|remain|so\s+far)\b)",
    ),
    (LintKind.COUNTER, True, r"(?P<found>\b(?:message|turn|request)\s*#\s*\d+\b)"),
)

_COMPILED = tuple((kind, sure, re.compile(pattern, re.IGNORECASE | re.MULTILINE)) for kind, sure, pattern in _PATTERNS)
_CLAUSE = re.compile(r"[;!?\n]|(?<!e\.g)(?<!i\.e)\.\s+")
_EXAMPLE = re.compile(
    r"\be\.?g\b|\bfor (?:example|instance)\b|\bexamples?\b|\bsuch as\b|\bformat(?:s|ted)?\b"
    r"|\blooks? like\b|\bin the form\b|\bplaceholders?\b|\bz\.\s?B\.|\bpar exemple\b"
    r"|\bnever (?:write|say)\b",
    re.IGNORECASE,
)
_LIKE = re.compile(
    r"\b(?:e\.?g\b\.?,?|example\b:?,?|instance\b,?|such as\b|like\b|form\b|than\b|as\b|saying\b"
    r"|(?:write|say)s?\b:?)\s*(?:[\"'“‘`(\[]\s*)*(?:\w+[ :]+){0,1}$",
    re.IGNORECASE,
)


def matches(text: str) -> Iterator[tuple[LintKind, int, int]]:
    """Kind, start and end of everything in `text` that looks as if it changes, examples left out; may overlap."""
    code = [match.span() for match in re.finditer(r"```.*?```|`[^`\n]*`", text, re.DOTALL)]
    for kind, sure, pattern in _COMPILED:
        for match in pattern.finditer(text):
            start, end = match.span("found")
            start += len(text[start:end]) - len(text[start:end].lstrip())
            quoted = kind in (LintKind.CLOCK, LintKind.PLACEHOLDER) and any(a <= start and end <= b for a, b in code)
            if not quoted and not _is_example(text[max(0, match.start() - 100) : start], sure):
                yield kind, start, end


def _is_example(before: str, sure: bool) -> bool:
    """Whether the words before a match call it an example. A `sure` one must be named as one directly before it."""
    clause = _CLAUSE.split(before)[-1]
    return bool(_LIKE.search(clause) or (not sure and _EXAMPLE.search(clause)))


__all__ = ["LintKind", "PrefixWarning", "lint"]


class PrefixWarning(Struct, frozen=True):
    """Something in the prompt that changes by itself."""

    kind: LintKind
    found: str
    """The exact characters."""
    start: int
    """Where they begin, in characters from the start of the text."""
    line: int
    """The line they are in; 1 is the first."""

    @property
    def end(self) -> int:
        return self.start + len(self.found)


def lint(instructions: str) -> tuple[PrefixWarning, ...]:
    """The warnings about a system prompt, in the order of the text; one for each place."""
    found: list[PrefixWarning] = []
    reached, line, counted = 0, 1, 0
    for start, end, kind in sorted(
        ((start, end, kind) for kind, start, end in matches(instructions)), key=lambda each: (each[0], -each[1])
    ):
        if start < reached:
            continue
        reached = end
        line, counted = line + instructions.count("\n", counted, start), start
        found.append(PrefixWarning(kind, instructions[start:end], start, line))
    return tuple(found)
