"""Split a text into the words that the index knows, and pick those of a question that say what it is about.

Any text is a valid query, and words that are in every sentence never decide what is found.

Scripts without spaces between words are cut into pairs of neighbouring characters, in the texts and in the queries.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from functools import cache

from msgspec import Struct

from kvchat.prompt.wire import whole_characters
from kvchat.store.fulltext.index import as_before, indexed
from kvchat.store.fulltext.query import folded

TOKENIZE = "tokenize = 'porter unicode61 remove_diacritics 2'"
"""How a full-text table takes a prepared text apart."""
MOST_WORDS = 32
"""Words of a query that are looked for, at most: the first and the last ones of a long text."""
LONGEST_END = 4000
"""Characters that are read of each end of a long query."""

_TOKEN = re.compile(r"[^\W_]+")
_CONTRACTED = re.compile(r"\b\w+n['’]t\b|['’](?:s|ll|ve|re|d|m)\b", re.IGNORECASE)
_HIRAGANA = re.compile("[\u3040-\u309f]{2}")
"""Two of them are an ending or a particle more often than a word."""

# Words of one language that carry meaning in another (German "war", French "son") are left out.
_STOP = frozenset(
    re.findall(
        r"\w+",
        """
a about after again all also am an and any are as at be because been before being but by can could did do does doing
done down for from get give go going gone got had has have having he her here hers him his how i if in into is it its
just know let like make may me might mine more most much must my need no nor not now of off on once one only or other
our ours out over own per please quite rather really said same say see shall she should since so some something such
tell than thank thanks that the their theirs them then there these they thing things this those though through to too
under until up upon us use used user using very via want wants was way we well were what when where whether which while
who whom whose why will with would yet you your yours yes hi hello hey ok okay
aber als am auch auf aus bei bist bitte da das dass dein deine dem den denn der des dich die dir doch du durch ein
eine einem einen einer eines er es für gibt haben habe hast hier ich ihm ihn ihr ihre im ist ja kann kein keine können
mein meine meinem meinen meiner mich mir mit nach nicht noch nur oder ob ohne schon sehr sein seine sich sie sind
sowie über um und uns unser vom von vor wann warum was weil welche welcher welches wenn wer werden wie wieder wir wird
wo zu zum zur
au aux avec ce ces cette ceux comme de dont du elle elles en est et eux il ils je la le les leur leurs lui ma mais mes
moi mon même ne nos notre nous on ont où par pas peut plus pour pourquoi qu quand que quel quelle quelles quels qui
quoi sa sans ses si sont suis sur ta te tes toi ton tu un une vos votre vous été être
al algo como con cuál cuando cuándo de del donde dónde el ella ellas ellos eres es esa ese eso esta este esto está
están estoy fue ha han las le les lo los más mi mis muy nos o para pero por porque qué que quien quién se ser si sí
sobre soy su sus también te tengo tiene tu tus un una uno unos y ya yo
alla anche che chi ci ciò da dalla degli dei del della delle di e ed gli ho il io la le loro lui ma mi mia mio ne nei
nel nella nelle non per perché più quale quali quando quanto quella quello questa questo se sei sono su sua sul sulla
suo ti tra tua tuo tutti tutto un una uno vi
ao aos com das do ela ele eles em entre essa esse eu foi isso isto já lhe mais mas mesmo meu minha muito na nas nem no
nos não nós o os ou pela pelo por qual quem se sem seu sua são só também tem tenho teu uma você vocês à
aan bij dat de deze dit een en er geen haar heb hebben heeft het hij hoe ik jij jou jouw kan maar meer mij mijn naar
niet nog of om ook op te tot uit veel voor waar wat wij worden zal ze zich zijn
什么 怎么 如何 哪里 哪个 为什 可以 我的 你的 他的 是的 一个 这个 那个 我们 你们 他们 因为 所以 但是
""",
    )
)


@cache
def _stop() -> frozenset[str]:
    return frozenset(map(folded, _STOP))


@cache
def _marks() -> re.Pattern[str]:
    """Signs over, under and next to letters: the accents, and the vowels of the Indian scripts. The full-text index
    ends a word at most of them."""
    marks = (
        chr(code)
        for code in range(0x300, min(0x10000, sys.maxunicode))
        if unicodedata.category(chr(code)).startswith("M")
    )
    return re.compile(f"[{''.join(marks)}]+")


PREPARED = 2
"""Raised when `prepared` changes; what an index has of before is then brought up to date (`content.renew`)."""


def prepared(text: str) -> str:
    """`text` as it goes into the index: words apart, in one normal form."""
    return indexed(_normal(text))


def prepared_before(text: str) -> str:
    """`prepared` as it was before PREPARED."""
    return as_before(_normal(text))


def _normal(text: str) -> str:
    return text if text.isascii() else _marks().sub("", unicodedata.normalize("NFKC", whole_characters(text)))


class IndexWord(Struct, frozen=True):
    """A word to look for."""

    text: str
    begins: bool = False
    """Whether longer words that begin so fit too: a single Chinese character is found at the front of a pair."""

    @property
    def match(self) -> str:
        """As an FTS5 expression."""
        return f'"{self.text}" *' if self.begins else f'"{self.text}"'

    @property
    def stem(self) -> str:
        return stem(self.text)


def content_words(query: str) -> tuple[IndexWord, ...]:
    """The distinct words of a query that carry meaning, in its order; none where it has none."""
    if len(query) > 2 * LONGEST_END:
        query = f"{query[:LONGEST_END]} {query[-LONGEST_END:]}"
    found: dict[str, IndexWord] = {}
    before = ""
    for token in _TOKEN.findall(prepared(_CONTRACTED.sub(" ", query))):
        is_unspaced = not token.isascii() and indexed(token) != token
        ends_a_run = is_unspaced and len(token) == 1 and len(before) == 2 and before[1] == token
        before = token
        if not ends_a_run and folded(token) not in _stop():
            found.setdefault(stem(token), IndexWord(token, is_unspaced and len(token) == 1))
    words = [word for word in found.values() if not _HIRAGANA.fullmatch(word.text)] or list(found.values())
    half = MOST_WORDS // 2
    return tuple(words if len(words) <= MOST_WORDS else words[:half] + words[-half:])


def stem(word: str) -> str:
    """The word folded and without an English ending, roughly: `prefers`, `preferred` and `prefer` are one."""
    word = folded(word)
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word.removesuffix(ending)
            break
    return word[:-1] if len(word) > 4 and word[-1] == word[-2] and word[-1] not in "aeiou" else word.removesuffix("e")


def readable(text: str) -> str:
    """A text for `stems`: it contains every stem of the original."""
    return folded(prepared(text))


def stems(readable: str) -> list[str]:
    """The stems of all words of a text that `readable` gave, for where there is no full-text index."""
    return [stem(token) for token in _TOKEN.findall(readable)]
