"""Decide what may not be noted, or only after the user's approval, by the text of a fact and the form of its message.

A model reads again what is noted, so nothing that could be more than a plain statement passes unseen. A message that
shows a text, or has the form of one (a mail, a chat, a log, code, an essay, a quotation), is not split into the user's
words and others': nothing in it is noted before the user has seen it.
"""

from __future__ import annotations

import re
import unicodedata

from kvchat.memory.entry import ChangeReason, Kind, Why
from kvchat.memory.learning.phrases import ASKING, FIRST_PERSON, RELATION, REQUEST, WONDERING, meanings
from kvchat.memory.similarity import folded
from kvchat.prompt.context import guarded

# The text of a fact


LONGEST = 160
"""Characters of a fact."""

READ = 4000
"""Characters of a fact that are looked at."""

_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_SPACE = re.compile(r"\s+")
_LABEL = re.compile(
    r"\A(?:[-*•#]+\s+|(?:fact|memory|note)\s*:\s*"
    r"|(?:the |this )?(?:user|person|human)(?:['’]s\s+|\s*:\s*|\s+(?=[a-z]))"
    r"|(?:der|die) (?:nutzer(?:in)?|benutzer(?:in)?)\s+|l['’]utilisateur\s+|(?:el|la) usuari[oa]\s+"
    r"|用户|使用者|ユーザーは?)",
    re.IGNORECASE,
)
_MARKUP = re.compile(r"<[/!?a-zA-Z]|-->|```|~~~|!?\[[^\]]*\]\(|\{\{|\{%|&#?\w+;|\]\]")
_TOKENS = re.compile(
    r"<\s*\|\s*\w|\|\s*>|\[/?INST\]|<<\s*/?SYS|\A\s*#{2,}|\b(?:system|assistant|user)\s*:\s", re.IGNORECASE
)

_NAMED_SECRET = (
    r"pass ?words?|passwd|passphrase|passcode|pwd|pins?|pin code|secret(?: key)?|api[ _-]?keys?|access[ _-]?key"
    r"|access[ _-]?token|private key|auth token|token|seed phrase|cvv|cvc|passwort|kennwort|mot de passe|contrasena"
)
_SECRETS = tuple(
    map(
        re.compile,
        (
            r"\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{12,}|\bgh[pousr]_[A-Za-z0-9]{16,}|\bgithub_pat_\w{16,}|\bglpat-[\w-]{12,}",
            r"\bxox[a-z]-[\w-]{8,}|\bAKIA[0-9A-Z]{12,}|\bAIza[\w-]{20,}|\bhf_[A-Za-z0-9]{16,}|\beyJ[\w-]{8,}\.[\w-]{8,}",
            r"-----BEGIN|\bAGE-SECRET-KEY-|\bssh-(?:rsa|ed25519)\b|\w+://[^\s/@]+:[^\s/@]+@",
            rf"\b(?:{_NAMED_SECRET})\b\s*(?:\w+\s+){{0,4}}?(?:is|was|are|:|=|ist|lautet|est|es)\s*\S",
            r"(?:密码|口令|密碼|パスワード|暗証番号|비밀번호)\s*(?:是|为|為|は|[:：=])\s*\S",
            r"\b\d{3}-\d{2}-\d{4}\b|\b[a-z]{2}\d{2}(?: ?[a-z0-9]{4}){3,7}(?: ?[a-z0-9]{1,3})?\b",
        ),
    )
)
_UNPRINTED = ("Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp")
_OPAQUE = re.compile(r"(?=[A-Za-z0-9+/_=-]*\d)(?=[A-Za-z0-9+/_=-]*[A-Za-z])[A-Za-z0-9+/_=-]{20,}")
_DIGITS = re.compile(r"(?:\d[ -]?){12,18}\d")

_ADDRESS = re.compile(
    r"\w+://|\bwww\.|\b[\w.+-]+@[\w-]+\.\w"
    r"|\b[\w-]{2,}\.(?:com|org|net|io|dev|de|fr|es|cn|jp|uk|ai|app|ru|xyz|info|example)\b",
    re.IGNORECASE,
)
_ORDER = re.compile(
    r"\b(?:you (?:must|should|have to|need to|will|shall|are to)|from now on|system prompt|instructions?|make sure"
    r"|(?:ignore|disregard|override|bypass) (?:all|any|the|previous|every|your)"
    r"|(?:must|should|shall) (?:always|never|be|not)|du (?:musst|sollst)|tu dois|vous devez|debes)\b"
    r"|\A\W*(?:always|never(?! \w+s\b)|immer|niemals|toujours|jamais|siempre|nunca|总是|永远|いつも|常に)"
    "|必须|忽略|一定要|なければならない|無視"
)
_OF_ASSISTANT = re.compile(
    r"\A\W*(?:(?:the |an? |this |your |my )?(?:ai|ai model|ai assistant|assistant|chat ?bot|bot|language model|llm"
    r"|model)(?:['’]s)? (?:is|am|are|was|can|should|must|will|has|does|said|says|named?|likes|called|answers?|cannot"
    r")\b"
    r"|you (?:are|re|can|have|know)\b|you['’]re\b|i (?:can|am able to|will|would be|am an? (?:ai|assistant)) )"
    r"|\bas an ai\b|\bai language model\b|\bi['’]m (?:an ai|here to help|happy to)"
)
_OF_TALK = re.compile(
    r"\b(?:asked|asks|asking|requested|requests|inquir\w+|wants to know|wondered|wonders|greeted|greets|thanked|thanks"
    r"|seeks|seeking|said (?:hello|hi)|(?:this|the) (?:conversation|chat|message|turn|question))\b"
)
_DANGLING = re.compile(
    r"\b(?:an?|the|is|are|am|was|has|have|and|or|but|of|in|on|at|to|for|from|with|by|as|over|than|that|because|my|our"
    r"|their|his|her|its|very|called|named|der|die|das|und|ist|mein|eine?|le|la|les|un|une|et|est|de|du|el|los|una|y|es"
    r"|mi)\W*\Z"
)
_UNNAMED = re.compile(r"\A\W*(?:he|she|it|they|this|that|these|those|there)\b")
_NOTHING = re.compile(
    r"\A\W*(?:none|nothing|n/?a|null|nil|empty|unknown|text"
    r"|no (?:new )?(?:lasting )?(?:facts?|information|memories)\b.*)?\W*\Z"
)

_OF_KIND = {"<likes>": Kind.PREFERENCE, "<learns>": Kind.SKILL, "<speaks>": Kind.SKILL, "<knows>": Kind.SKILL}
_WHO = re.compile(
    r"\b(?:(?:full |first |last |sur)?name(?:['’]s| is|:)|(?:(?:is|am) |\A|['’]m )(?:named|called)|i am [a-z]+\Z"
    r"|liv(?:e|es|ing) (?:in|at|near)|resid\w+ in|based in|moved to|work(?:s|ing)? (?:as|at|for)"
    r"|born (?:in|on)|birthday|years? old|(?:comes?|is|am|['’]m) from|native|nationality|pronouns"
    r"|(?:home ?)?address|phone|married|divorced|heiss[et]+|wohn[et]+|geboren|jahre alt|appelle|habite|vis a"
    r"|nee? (?:en|a)|llam[oa]|viv[oe] en|nacid[oa]|anos)\b"
    "|我叫|名字|住在|出生|岁|名前|住んで|生まれ|歳"
)


def tidied(text: str) -> str:
    """A fact's text without labels, list marks, surplus space and repetitions: `- The user prefers tea` is `Prefers
    tea`. Of one that ran into its limit, the last sentence is left out."""
    text = _SPACE.sub(" ", text[:READ]).strip()
    parts = list(dict.fromkeys(_SENTENCE.split(text)))
    if len(text) >= LONGEST - 1 and len(parts) > 1 and not text.endswith((".", "!", "。")):
        parts.pop()
    text = " ".join(parts)
    for _ in range(2):
        text = _LABEL.sub("", text, count=1).strip()
    text = text.strip('"“”*_ ') if text[:1] in '"“*_' else text
    text = text.removesuffix("…").rstrip(". ") if text.endswith(("...", "…")) else text
    return text[:1].upper() + text[1:]


def objection(text: str) -> ChangeReason | None:
    """Why a fact's text is not noted; None: nothing against it."""
    plain = folded(text)
    for why, is_against in (
        (Why.EMPTY, lambda: _NOTHING.match(plain)),
        (Why.CONTROL, lambda: any(unicodedata.category(char) in _UNPRINTED for char in text)),
        (Why.TOKENS, lambda: template_tokens(text)),
        (Why.MARKUP, lambda: _MARKUP.search(text)),
        (Why.SECRET, lambda: secret(text)),
        (Why.LONG, lambda: len(text) > LONGEST),
        (Why.QUESTION, lambda: text.rstrip(" \"'”’)").endswith(("?", "？", "¿")) or WONDERING.search(plain)),
        (Why.UNFINISHED, lambda: _DANGLING.search(plain)),
        (Why.OF_ASSISTANT, lambda: _OF_ASSISTANT.search(plain)),
        (Why.UNNAMED, lambda: _UNNAMED.search(plain)),
        (Why.OF_TALK, lambda: _OF_TALK.search(plain)),
    ):
        if is_against():
            return ChangeReason(why, str(LONGEST) if why is Why.LONG else "")
    return None


def template_tokens(text: str) -> bool:
    """Whether a text holds what a chat template gives a meaning."""
    return guarded(text) != text or bool(_TOKENS.search(text))


def secret(text: str) -> bool:
    """Whether a text holds a key, a password, or the number of a card or an account."""
    plain = folded(text)
    return (
        any(pattern.search(text) or pattern.search(plain) for pattern in _SECRETS)
        or bool(_OPAQUE.search(text))
        or any(_luhn(found[0]) for found in _DIGITS.finditer(text))
    )


def _luhn(number: str) -> bool:
    digits = [int(char) for char in reversed(number) if char in "0123456789"]
    return (
        len(digits) >= 13
        and sum(digit if i % 2 == 0 else sum(divmod(digit * 2, 10)) for i, digit in enumerate(digits)) % 10 == 0
    )


def caution(text: str, kind: Kind) -> ChangeReason | None:
    """Why a fact's text is shown to the user before it is noted; None: no reason."""
    plain = folded(text)
    if _ADDRESS.search(text):
        return ChangeReason(Why.ADDRESS)
    if _ORDER.search(plain) or (REQUEST.search(plain) and not FIRST_PERSON.search(plain)):
        return ChangeReason(Why.ORDER)
    return ChangeReason(Why.IDENTITY) if kind is Kind.IDENTITY else None


def kind_of(text: str, kind: Kind) -> Kind:
    """The kind that a text has by its words, where they say more than a model did: who the user is, or somebody
    else."""
    plain = folded(text)
    if RELATION.search(plain):
        return Kind.PERSON if kind is Kind.IDENTITY else kind
    if _WHO.search(plain):
        return Kind.IDENTITY
    told = set(meanings(text))
    if kind is Kind.IDENTITY and told & _OF_KIND.keys():
        return _OF_KIND[min(told & _OF_KIND.keys())]
    return kind


# Somebody else's words in a message; patterns are for folded text, whose lines are kept


QUOTATION = re.compile(
    '"[^"\n]{1,2000}"|“[^”\n]{1,2000}”|„[^“”\n]{1,2000}[“”]|«[^»\n]{1,2000}»|»[^«\n]{1,2000}«|‹[^›\n]{1,2000}›'
    "|「[^」]{1,2000}」|『[^』]{1,2000}』|`[^`\n]{1,2000}`|‚[^‘’\n]{1,2000}[‘’]"
    r"|‘(?:[^’\n]|(?<=\w)’(?=\w)){1,500}’(?!\w)|(?<!\w)'(?:[^'\n]|(?<=\w)'(?=\w)){1,500}'(?!\w)"
)
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
    r"|courriel|lettre|texte|paroles|poeme|lettera|correo|carta|texto|poema|letra|mensaje)"
)
_SHOWN = re.compile(
    r"(?:\b(?:this|these|following|below|above|attached|pasted|dies(?:e[rsmn]?)?|folgende[rsmn]?|ce|cet|cette|ces|este"
    rf"|esta|estos|siguiente|suivante?)\b|['’]s\b)(?:\s+[\w'’-]+){{0,3}}?\s+{_TEXT}\b"
    r"|\b(?:this|these|das hier|dies) (?:came |comes |is |was |stammt |kommt )?(?:from|von)\b"
    r"|^\W*(?:found|copied|pasted|forwarded|seen|gefunden|kopiert)\b"
    "|这(?:封|篇|段|首)|この(?:メール|文|歌)",
    re.MULTILINE,
)
"""`this email`, `this student's essay`, `Bob's post`, `this from a friend`, `Found on the web`."""
_NAMED = re.compile(
    r"\b(?:the|an?|my|our|his|her|their|some|der|die|das|den|dem|ein(?:e[nmr]?)?|mein(?:e[nmr]?)?|le|la|un|une|mon|ma|el"
    rf"|una|mi)(?:\s+[\w'’-]+){{0,2}}?\s+{_TEXT}\b"
)
"""`the README`, `my cover letter`."""
_MARKED = re.compile(
    r"\A\W*(?:grade|rate|judge|mark|assess|critique|proofread|roast|evaluate|read|see|here|hier|lies"
    r"|bewerte|prufe?|beurteile|voici|aqui|korrigier\w*|verbesser\w*)\b"
)
"""The beginning of a sentence that hands something over."""
_MAKING = re.compile(r"\b(?:write|draft|compose|create|generate|schreib\w*|verfass\w*|entwirf)\b")
_ANY_TEXT = re.compile(r"(?:an?|some|ein|eine[nmr]?|une?|una)\s")
"""A text that is only to be written is none that the message carries: `Write a letter`."""
_SUBJECT = re.compile(r"\b(?:i|we|ich|wir|je|nous|yo)\b")
_POINTING = re.compile(
    r"\b(?:this|that|these|those|it|he|she|they|who|author|writer|das|dies|es|er|sie|wer|ca|cela|eso|esto)\b"
    r"|\A\W*(?:any |your )?(?:thoughts?|opinions?|feedback|comments?|ok|okay|correct|true|real|meinung(?:en)?"
    r"|gedanken)\W*\Z"
)
"""What a question about the lines around it has: `Is it real?`, `Thoughts?`."""
_HOLLOW = 6
"""Words that such a question has at most."""

_INTRODUCTION = re.compile(r"(?:^|(?<=[.!?]\s))[ \t]*([^.!?\n:]{1,120}):(?=\s|[^\x00-\x7f])", re.MULTILINE)
_OWN_LABEL = re.compile(
    r"\b(?:i|my|we|our|ich|wir|mein\w*|unser\w*|je|mon|ma|mes|nous|notre|nos|yo|mi|mis"
    r"|(?:about|uber|zu) (?:me|myself|us|mich|mir)|facts?|fyi|info|infos|note|context|background|hint|btw|ps|p\.s"
    r"|also|so|remember|merk\w*|important|update|correction|question|situation|problem|goal|short|tl;dr|first|second|third|finally|fakt"
    r"|fakten|hinweis|hintergrund|kontext|ubrigens|nebenbei|kurz|wichtig|frage|korrektur|ausserdem|contexte|contexto"
    r"|pregunta)\b"
)
_TOLD = (
    r"said|says?|saying|wrote|writes?|written|told|tells|asked|asks|posted|posts|replied|replies|answered|texted"
    r"|sent|sends|mailed|emailed|commented|claims?|claimed|goes|quotes?|quoted|sagte?|schrieb\w*|schreibt"
    r"|geschrieben|meinte?|antwortete?|fragte?|erzahlte?|ecrit|dit|dijo|dice|escribio"
)
_OTHER_LABEL = re.compile(
    rf"\b(?:{_TOLD}|from|by|von|got|received|found|read|saw|heard|bekam|bekommen|erhalten|fand|gefunden|las"
    rf"|gelesen|{_TEXT})\b"
)
_TOLD_OF = re.compile(
    rf"(?<!\bi )(?<!\bich )\b(?:{_TOLD})(?: (?:to )?(?:me|us|mir|uns))?(?:\s*[,–—]|\s+-)?\s+"
    r"(?:i|we|my|ich|wir|mein\w*)\b"
    rf"|[,.!?–—]\s*(?:(?!i |we |ich |wir )\w+ (?:{_TOLD})|(?:{_TOLD}) (?!i\b|ich\b)\w+)\W*$",
    re.MULTILINE,
)
"""`Bob said, I hate it`; `I hate it, said Bob`."""

_MACHINE_LINE = re.compile(
    r"^[ \t]*(?:#+[ \t!]?\w|//|/\*|--\s|.*;\s*--\s|\w+ [–—-] [^\n]*\n\s*\w+ [–—-] "
    r"|<!--|<[\w/]+>|\[[^\]\n]{1,40}\]\s|\{|\}|\w+>\s"
    r"|\[?(?:\d{4}-\d\d-\d\d|\d{1,2}[./]\d{1,2}[./]\d{2,4}|\d{1,2}:\d\d)\b[^\n]{0,30}(?:info|warn|error|debug|[:\]–—-]\s)"
    r"|(?:info|warn(?:ing)?|error|debug|trace|fatal)\b\W"
    r"|(?:def|class|function|fn|func|const|let|var|public|private|static)\s+\w+\s*[(={:<]|import\s+\w|from\s+\w+\s+import"
    r"|return\b.{0,60}$|traceback\b|diff --git|@@)"
    r"|^(?: {4}|\t)\S|[{}][ \t]*$|[)\]=\"'][^\n]{0,40};[ \t]*$|\)\s*(?:->.*)?:[ \t]*$|\S[ \t]+(?:#|//|/\*)[ \t]+\w",
    re.MULTILINE,
)
"""Code and its comments, a heading, a line of a log or of a chat."""
_LETTER = re.compile(
    r"^[ \t]*(?:(?:dear|sehr geehrte\w*|liebe[rs]?|chere?|estimad[oa]s?|querid[oa]s?)\b[^.!?\n]{1,50}"
    r"|(?:hi|hello|hey|hallo|moin|bonjour|hola)\s+(?!there|again|zusammen)\w+(?:\s\w+)?\s*[,!]?"
    r"|(?:(?:all the |my )?best(?: regards| wishes)?|(?:(?:kind|best|warm)(?:est)? )?regards|(?:yours )?sincerely"
    r"|yours(?: truly| faithfully)?|cheers|mfg|lg|vg|(?:viele|liebe|beste|schone|herzliche) grusse"
    r"|mit freundlichen grussen|cordialement|saludos)\b\s*,?(?:\s+[\w.]+){0,3}\s*)$",
    re.MULTILINE,
)
"""How a letter begins, or ends."""
_PART = re.compile(r"(?<=[.!?…])\s+|\n+|(?<=[。！？])")


def carries(text: str) -> bool:
    """Whether a message shows a text, or has the form of one, that need not be the user's own."""
    lines = "\n".join(folded(line) for line in text.splitlines())
    return (
        bool(_MACHINE_LINE.search(lines) or _LETTER.search(lines) or _SHOWN.search(lines) or _TOLD_OF.search(lines))
        or _quotes(lines)
        or _introduces(lines)
        or _asks_about_it(lines)
    )


def _quotes(lines: str) -> bool:
    """Whether it quotes somebody who speaks of themselves, or the quotation has no end."""
    return any(FIRST_PERSON.search(found[0]) for found in QUOTATION.finditer(lines)) or bool(
        _OPENED.search(QUOTATION.sub(" ", lines))
    )


def _introduces(lines: str) -> bool:
    """Whether somebody, or a text, speaks of themselves behind a colon: `Bob: I use Perl`. `About me: I row` does not
    count."""
    last = max((found.start() for found in FIRST_PERSON.finditer(lines)), default=-1)
    for label in _INTRODUCTION.finditer(lines):
        if label.end() > last:
            return False
        name = label[1]
        theirs = _OTHER_LABEL.search(name) or RELATION.search(name)
        if theirs or not _OWN_LABEL.search(name):
            return True
    return False


def _asks_about_it(lines: str) -> bool:
    """Whether one of several sentences is about a text that the others may be."""
    sentences = [part.strip() for part in _PART.split(lines.strip()) if part.strip()]
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
