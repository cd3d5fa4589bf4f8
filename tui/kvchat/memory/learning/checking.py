"""What may not be noted at all, and what only after the person's yes: by the text alone.

The rule: what is noted is read by a model again. So nothing that could be more than a plain statement passes unseen.
"""

from __future__ import annotations

import re
import unicodedata

from kvchat.memory.entry import Kind
from kvchat.memory.learning.phrases import FIRST_PERSON, RELATION, REQUEST, WONDERING
from kvchat.memory.learning.said import meanings
from kvchat.memory.words import folded
from kvchat.prompt.context import guarded

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
    r"|用户|使用者|ユーザーは?)", re.IGNORECASE)
_MARKUP = re.compile(r"<[/!?a-zA-Z]|-->|```|~~~|!?\[[^\]]*\]\(|\{\{|\{%|&#?\w+;|\]\]")
_TOKENS = re.compile(
    r"<\s*\|\s*\w|\|\s*>|\[/?INST\]|<<\s*/?SYS|\A\s*#{2,}|\b(?:system|assistant|user)\s*:\s", re.IGNORECASE)

_NAMED_SECRET = (
    r"pass ?words?|passwd|passphrase|passcode|pwd|pins?|pin code|secret(?: key)?|api[ _-]?keys?|access[ _-]?key"
    r"|access[ _-]?token|private key|auth token|token|seed phrase|cvv|cvc|passwort|kennwort|mot de passe|contrasena")
_SECRETS = tuple(map(re.compile, (
    r"\b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{12,}|\bgh[pousr]_[A-Za-z0-9]{16,}|\bgithub_pat_\w{16,}|\bglpat-[\w-]{12,}",
    r"\bxox[a-z]-[\w-]{8,}|\bAKIA[0-9A-Z]{12,}|\bAIza[\w-]{20,}|\bhf_[A-Za-z0-9]{16,}|\beyJ[\w-]{8,}\.[\w-]{8,}",
    r"-----BEGIN|\bAGE-SECRET-KEY-|\bssh-(?:rsa|ed25519)\b|\w+://[^\s/@]+:[^\s/@]+@",
    rf"\b(?:{_NAMED_SECRET})\b\s*(?:\w+\s+){{0,4}}?(?:is|was|are|:|=|ist|lautet|est|es)\s*\S",
    r"(?:密码|口令|密碼|パスワード|暗証番号|비밀번호)\s*(?:是|为|為|は|[:：=])\s*\S",
    r"\b\d{3}-\d{2}-\d{4}\b|\b[a-z]{2}\d{2}(?: ?[a-z0-9]{4}){3,7}(?: ?[a-z0-9]{1,3})?\b")))
_OPAQUE = re.compile(r"(?=[A-Za-z0-9+/_=-]*\d)(?=[A-Za-z0-9+/_=-]*[A-Za-z])[A-Za-z0-9+/_=-]{20,}")
_DIGITS = re.compile(r"(?:\d[ -]?){12,18}\d")

_ADDRESS = re.compile(
    r"\w+://|\bwww\.|\b[\w.+-]+@[\w-]+\.\w"
    r"|\b[\w-]{2,}\.(?:com|org|net|io|dev|de|fr|es|cn|jp|uk|ai|app|ru|xyz|info|example)\b", re.IGNORECASE)
_ORDER = re.compile(
    r"\b(?:you (?:must|should|have to|need to|will|shall|are to)|from now on|system prompt|instructions?|make sure"
    r"|(?:ignore|disregard|override|bypass) (?:all|any|the|previous|every|your)"
    r"|(?:must|should|shall) (?:always|never|be|not)|du (?:musst|sollst)|tu dois|vous devez|debes)\b"
    r"|\A\W*(?:always|never(?! \w+s\b)|immer|niemals|toujours|jamais|siempre|nunca|总是|永远|いつも|常に)"
    "|必须|忽略|一定要|なければならない|無視")
_OF_ASSISTANT = re.compile(
    r"\A\W*(?:(?:the |an? |this |your |my )?(?:ai|ai model|ai assistant|assistant|chat ?bot|bot|language model|llm"
    r"|model)(?:['’]s)? (?:is|am|are|was|can|should|must|will|has|does|said|says|named?|likes|called|answers?|cannot"
    r")\b"
    r"|you (?:are|re|can|have|know)\b|you['’]re\b|i (?:can|am able to|will|would be|am an? (?:ai|assistant)) )"
    r"|\bas an ai\b|\bai language model\b|\bi['’]m (?:an ai|here to help|happy to)")
_OF_TALK = re.compile(
    r"\b(?:asked|asks|asking|requested|requests|inquir\w+|wants to know|wondered|wonders|greeted|greets|thanked|thanks"
    r"|seeks|seeking|said (?:hello|hi)|(?:this|the) (?:conversation|chat|message|turn|question))\b")
_DANGLING = re.compile(
    r"\b(?:an?|the|is|are|am|was|has|have|and|or|but|of|in|on|at|to|for|from|with|by|as|over|than|that|because|my|our"
    r"|their|his|her|its|very|called|named|der|die|das|und|ist|mein|eine?|le|la|les|un|une|et|est|de|du|el|los|una|y|es"
    r"|mi)\W*\Z")
_UNNAMED = re.compile(r"\A\W*(?:he|she|it|they|this|that|these|those|there)\b")
_NOTHING = re.compile(
    r"\A\W*(?:none|nothing|n/?a|null|nil|empty|unknown|text"
    r"|no (?:new )?(?:lasting )?(?:facts?|information|memories)\b.*)?\W*\Z")

_OF_KIND = {"<likes>": Kind.PREFERENCE, "<learns>": Kind.SKILL, "<speaks>": Kind.SKILL, "<knows>": Kind.SKILL}
_WHO = re.compile(
    r"\b(?:(?:full |first |last |sur)?name(?:['’]s| is|:)|(?:(?:is|am) |\A|['’]m )(?:named|called)|i am [a-z]+\Z"
    r"|liv(?:e|es|ing) (?:in|at|near)|resid\w+ in|based in|moved to|work(?:s|ing)? (?:as|at|for)"
    r"|born (?:in|on)|birthday|years? old|(?:comes?|is|am|['’]m) from|native|nationality|pronouns"
    r"|(?:home ?)?address|phone|married|divorced|heiss[et]+|wohn[et]+|geboren|jahre alt|appelle|habite|vis a"
    r"|nee? (?:en|a)|llam[oa]|viv[oe] en|nacid[oa]|anos)\b"
    "|我叫|名字|住在|出生|岁|名前|住んで|生まれ|歳")


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
    text = text.strip("\"“”*_ ") if text[:1] in "\"“*_" else text
    text = text.removesuffix("…").rstrip(". ") if text.endswith(("...", "…")) else text
    return text[:1].upper() + text[1:]


def objection(text: str) -> str:
    """Why a fact's text is not noted; empty: nothing against it."""
    plain = folded(text)
    if _NOTHING.match(plain):
        return "empty"
    if any(unicodedata.category(char) in ("Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp") for char in text):
        return "control characters"
    if guarded(text) != text or _TOKENS.search(text):
        return "template tokens"
    if _MARKUP.search(text):
        return "markup"
    if secret(text):
        return "a secret"
    if len(text) > LONGEST:
        return f"longer than {LONGEST} characters"
    if text.rstrip(" \"'”’)").endswith(("?", "？", "¿")) or WONDERING.search(plain):
        return "a question"
    if _DANGLING.search(plain):
        return "not a whole sentence"
    if _OF_ASSISTANT.search(plain):
        return "about the assistant"
    if _UNNAMED.search(plain):
        return "does not say who or what"
    if _OF_TALK.search(plain):
        return "about the conversation"
    return ""


def secret(text: str) -> bool:
    """Whether a text holds a key, a password, or the number of a card or an account."""
    plain = folded(text)
    return (any(pattern.search(text) or pattern.search(plain) for pattern in _SECRETS) or bool(_OPAQUE.search(text))
            or any(_luhn(found[0]) for found in _DIGITS.finditer(text)))


def _luhn(number: str) -> bool:
    digits = [int(char) for char in reversed(number) if char in "0123456789"]
    return len(digits) >= 13 and sum(
        digit if i % 2 == 0 else sum(divmod(digit * 2, 10)) for i, digit in enumerate(digits)) % 10 == 0


def caution(text: str, kind: Kind) -> str:
    """Why a fact's text is shown to the person before it is noted; empty: no reason."""
    plain = folded(text)
    if _ADDRESS.search(text):
        return "has an address in it"
    if _ORDER.search(plain) or (REQUEST.search(plain) and not FIRST_PERSON.search(plain)):
        return "tells what to do"
    return "says who you are" if kind is Kind.IDENTITY else ""


def kind_of(text: str, kind: Kind) -> Kind:
    """The kind that a text has by its words, where they tell more than a model did: who the person is, or somebody
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
