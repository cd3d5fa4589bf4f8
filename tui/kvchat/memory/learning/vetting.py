"""Decide what may not be noted, or only after the user's approval, by the text of a fact alone.

A model reads again what is noted, so control characters, template tokens, markup and secrets are refused; an address,
what reads like an order, and who the user is wait for a yes.
"""

from __future__ import annotations

import re
import unicodedata

from kvchat.memory.entry import ChangeReason, Kind, Why
from kvchat.memory.learning.phrases import RELATION, meanings
from kvchat.memory.similarity import folded
from kvchat.prompt.context import guarded

# The text of a fact


LONGEST_FACT = 160
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
    if len(text) >= LONGEST_FACT - 1 and len(parts) > 1 and not text.endswith((".", "!", "。")):
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
        (Why.LONG, lambda: len(text) > LONGEST_FACT),
        (Why.QUESTION, lambda: text.rstrip(" \"'”’)").endswith(("?", "？", "¿"))),
        (Why.UNFINISHED, lambda: _DANGLING.search(plain)),
        (Why.UNNAMED, lambda: _UNNAMED.search(plain)),
    ):
        if is_against():
            return ChangeReason(why, str(LONGEST_FACT) if why is Why.LONG else "")
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
    if _ORDER.search(plain):
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
    meant = set(meanings(text))
    if kind is Kind.IDENTITY and meant & _OF_KIND.keys():
        return _OF_KIND[min(meant & _OF_KIND.keys())]
    return kind
