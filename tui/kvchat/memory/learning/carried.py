"""Whether a message carries somebody else's words: a mail, a chat, a post, a log, code, an essay, a quotation.

The rule: a message that shows a text, or has the form of one, is not taken apart into what is the person's and what is
not; nothing in it is noted before the person has seen it. Patterns are for folded text, whose lines are kept.
"""

from __future__ import annotations

import re

from kvchat.memory.learning.phrases import ASKING, FIRST_PERSON, RELATION, REQUEST
from kvchat.memory.words import folded

OTHERS = "may be somebody else's words"
"""Why nothing in such a message is noted unasked."""

QUOTATION = re.compile(
    "\"[^\"\n]{1,2000}\"|“[^”\n]{1,2000}”|„[^“”\n]{1,2000}[“”]|«[^»\n]{1,2000}»|»[^«\n]{1,2000}«|‹[^›\n]{1,2000}›"
    "|「[^」]{1,2000}」|『[^』]{1,2000}』|`[^`\n]{1,2000}`|‚[^‘’\n]{1,2000}[‘’]"
    r"|‘(?:[^’\n]|(?<=\w)’(?=\w)){1,500}’(?!\w)|(?<!\w)'(?:[^'\n]|(?<=\w)'(?=\w)){1,500}'(?!\w)")
"""Words between quotation marks of any kind; an apostrophe is none."""
_OPENED = re.compile(r"(?<!\w)[\"“„«‹「『`‚‘]|(?<![\w,.!?])'(?=(?:i|we|my|ich|wir|mein)\b)")
"""A quotation that has no end in its line."""

_TEXT = (
    r"(?:(?:e-?)?mails?|letters?|messages?|sms|texts?|essays?|(?:\w+ ?)?posts?|tweets?|threads?|comments?|articles?"
    r"|story|stories|poems?|lyrics?|songs?|verses?|quot(?:e|ation)s?|speech|transcripts?|chats?|conversations?"
    r"|dialog(?:ue)?s?|logs?|logfile|readme(?:\.md)?|documents?|docs?|files?|reports?|reviews?|paragraphs?|passages?"
    r"|excerpts?|snippets?|code|scripts?|outputs?|tracebacks?|cv|resume|bios?|biography|abstract|drafts?|diary|journal"
    r"|interviews?|advert(?:isement)?s?|testimonials?|repl(?:y|ies)|sentences?|statements?"
    r"|\w*(?:nachricht|brief|beitrag|aufsatz|liedtext|text|gedicht|artikel|protokoll|bericht|rezension|bewerbung"
    r"|anschreiben|verlauf|absatz|zitat|kommentar|ausgabe|geschichte|rede|hausarbeit|tagebuch|satz|mail|entwurf)(?:e[ns]?|en|s)?"
    r"|courriel|lettre|texte|paroles|poeme|lettera|correo|carta|texto|poema|letra|mensaje)")
_SHOWN = re.compile(
    r"(?:\b(?:this|these|following|below|above|attached|pasted|dies(?:e[rsmn]?)?|folgende[rsmn]?|ce|cet|cette|ces|este"
    rf"|esta|estos|siguiente|suivante?)\b|['’]s\b)(?:\s+[\w'’-]+){{0,3}}?\s+{_TEXT}\b"
    r"|\b(?:this|these|das hier|dies) (?:came |comes |is |was |stammt |kommt )?(?:from|von)\b"
    r"|^\W*(?:found|copied|pasted|forwarded|seen|gefunden|kopiert)\b"
    "|这(?:封|篇|段|首)|この(?:メール|文|歌)", re.MULTILINE)
"""`this email`, `this student's essay`, `Bob's post`, `this from a friend`, `Found on the web`."""
_NAMED = re.compile(
    r"\b(?:the|an?|my|our|his|her|their|some|der|die|das|den|dem|ein(?:e[nmr]?)?|mein(?:e[nmr]?)?|le|la|un|une|mon|ma|el"
    rf"|una|mi)(?:\s+[\w'’-]+){{0,2}}?\s+{_TEXT}\b")
"""`the README`, `my cover letter`."""
_MARKED = re.compile(r"\A\W*(?:grade|rate|judge|mark|assess|critique|proofread|roast|evaluate|read|see|here|hier|lies"
                     r"|bewerte|prufe?|beurteile|voici|aqui|korrigier\w*|verbesser\w*)\b")
"""The beginning of a sentence that hands something over."""
_MAKING = re.compile(r"\b(?:write|draft|compose|create|generate|schreib\w*|verfass\w*|entwirf)\b")
_ANY_TEXT = re.compile(r"(?:an?|some|ein|eine[nmr]?|une?|una)\s")
"""A text that is only to be written is none that the message carries: `Write a letter`."""
_SUBJECT = re.compile(r"\b(?:i|we|ich|wir|je|nous|yo)\b")
_POINTING = re.compile(
    r"\b(?:this|that|these|those|it|he|she|they|who|author|writer|das|dies|es|er|sie|wer|ca|cela|eso|esto)\b"
    r"|\A\W*(?:any |your )?(?:thoughts?|opinions?|feedback|comments?|ok|okay|correct|true|real|meinung(?:en)?"
    r"|gedanken)\W*\Z")
"""What a question about the lines around it has: `Is it real?`, `Thoughts?`."""
_HOLLOW = 6
"""Words that such a question has at most."""

_LABEL = re.compile(r"(?:^|(?<=[.!?]\s))[ \t]*([^.!?\n:]{1,120}):(?=\s|[^\x00-\x7f])", re.MULTILINE)
_OWN_LABEL = re.compile(
    r"\b(?:i|my|we|our|ich|wir|mein\w*|unser\w*|je|mon|ma|mes|nous|notre|nos|yo|mi|mis"
    r"|(?:about|uber|zu) (?:me|myself|us|mich|mir)|facts?|fyi|info|infos|note|context|background|hint|btw|ps|p\.s"
    r"|also|so|remember|merk\w*|important|update|correction|question|situation|problem|goal|short|tl;dr|first|second|third|finally|fakt"
    r"|fakten|hinweis|hintergrund|kontext|ubrigens|nebenbei|kurz|wichtig|frage|korrektur|ausserdem|contexte|contexto"
    r"|pregunta)\b")
_TOLD = (r"said|says?|saying|wrote|writes?|written|told|tells|asked|asks|posted|posts|replied|replies|answered|texted"
         r"|sent|sends|mailed|emailed|commented|claims?|claimed|goes|quotes?|quoted|sagte?|schrieb\w*|schreibt"
         r"|geschrieben|meinte?|antwortete?|fragte?|erzahlte?|ecrit|dit|dijo|dice|escribio")
_OTHER_LABEL = re.compile(
    rf"\b(?:{_TOLD}|from|by|von|got|received|found|read|saw|heard|bekam|bekommen|erhalten|fand|gefunden|las"
    rf"|gelesen|{_TEXT})\b")
_TOLD_OF = re.compile(
    rf"(?<!\bi )(?<!\bich )\b(?:{_TOLD})(?: (?:to )?(?:me|us|mir|uns))?(?:\s*[,–—]|\s+-)?\s+"
    r"(?:i|we|my|ich|wir|mein\w*)\b"
    rf"|[,.!?–—]\s*(?:(?!i |we |ich |wir )\w+ (?:{_TOLD})|(?:{_TOLD}) (?!i\b|ich\b)\w+)\W*$", re.MULTILINE)
"""`Bob said, I hate it`; `I hate it, said Bob`."""

_MACHINE_LINE = re.compile(
    r"^[ \t]*(?:#+[ \t!]?\w|//|/\*|--\s|.*;\s*--\s|\w+ [–—-] [^\n]*\n\s*\w+ [–—-] "
    r"|<!--|<[\w/]+>|\[[^\]\n]{1,40}\]\s|\{|\}|\w+>\s"
    r"|\[?(?:\d{4}-\d\d-\d\d|\d{1,2}[./]\d{1,2}[./]\d{2,4}|\d{1,2}:\d\d)\b[^\n]{0,30}(?:info|warn|error|debug|[:\]–—-]\s)"
    r"|(?:info|warn(?:ing)?|error|debug|trace|fatal)\b\W"
    r"|(?:def|class|function|fn|func|const|let|var|public|private|static)\s+\w+\s*[(={:<]|import\s+\w|from\s+\w+\s+import"
    r"|return\b.{0,60}$|traceback\b|diff --git|@@)"
    r"|^(?: {4}|\t)\S|[{}][ \t]*$|[)\]=\"'][^\n]{0,40};[ \t]*$|\)\s*(?:->.*)?:[ \t]*$|\S[ \t]+(?:#|//|/\*)[ \t]+\w",
    re.MULTILINE)
"""Code and its comments, a heading, a line of a log or of a chat."""
_LETTER = re.compile(
    r"^[ \t]*(?:(?:dear|sehr geehrte\w*|liebe[rs]?|chere?|estimad[oa]s?|querid[oa]s?)\b[^.!?\n]{1,50}"
    r"|(?:hi|hello|hey|hallo|moin|bonjour|hola)\s+(?!there|again|zusammen)\w+(?:\s\w+)?\s*[,!]?"
    r"|(?:(?:all the |my )?best(?: regards| wishes)?|(?:(?:kind|best|warm)(?:est)? )?regards|(?:yours )?sincerely"
    r"|yours(?: truly| faithfully)?|cheers|mfg|lg|vg|(?:viele|liebe|beste|schone|herzliche) grusse"
    r"|mit freundlichen grussen|cordialement|saludos)\b\s*,?(?:\s+[\w.]+){0,3}\s*)$", re.MULTILINE)
"""How a letter begins, or ends."""
_SENTENCE = re.compile(r"(?<=[.!?…])\s+|\n+|(?<=[。！？])")


def carries(text: str) -> bool:
    """Whether a message shows a text, or has the form of one, that need not be the person's own."""
    lines = "\n".join(folded(line) for line in text.splitlines())
    return bool(_MACHINE_LINE.search(lines) or _LETTER.search(lines) or _SHOWN.search(lines)
                or _TOLD_OF.search(lines)) or _quotes(lines) or _introduces(lines) or _asks_about_it(lines)


def _quotes(lines: str) -> bool:
    """Whether it quotes somebody who speaks of themselves, or the quotation has no end."""
    return (any(FIRST_PERSON.search(found[0]) for found in QUOTATION.finditer(lines))
            or bool(_OPENED.search(QUOTATION.sub(" ", lines))))


def _introduces(lines: str) -> bool:
    """Whether somebody, or a text, speaks of themselves behind a colon: `Bob: I use Perl`. `About me: I row` does not
    count."""
    last = max((found.start() for found in FIRST_PERSON.finditer(lines)), default=-1)
    for label in _LABEL.finditer(lines):
        if label.end() > last:
            return False
        name = label[1]
        theirs = _OTHER_LABEL.search(name) or RELATION.search(name)
        if theirs or not _OWN_LABEL.search(name):
            return True
    return False


def _asks_about_it(lines: str) -> bool:
    """Whether one of several sentences is about a text that the others may be."""
    sentences = [part.strip() for part in _SENTENCE.split(lines.strip()) if part.strip()]
    several_lines = "\n" in lines.strip()
    return len(sentences) > 1 and any(_about_a_text(sentence, several_lines) for sentence in sentences)


def _about_a_text(sentence: str, several_lines: bool) -> bool:
    asks = sentence.endswith(("?", "？")) or bool(ASKING.search(sentence))
    own = bool(_SUBJECT.search(sentence))
    making = bool(_MAKING.search(sentence))
    if any(not (making and _ANY_TEXT.match(named[0])) for named in _NAMED.finditer(sentence)):
        handed = asks or bool(REQUEST.search(sentence) or _MARKED.search(sentence))
        unfinished = several_lines and not sentence.endswith((".", "!", "…"))
        return (handed and not own) or unfinished
    hollow = not FIRST_PERSON.search(sentence) and len(sentence.split()) <= _HOLLOW
    return several_lines and asks and hollow and bool(_POINTING.search(sentence))
