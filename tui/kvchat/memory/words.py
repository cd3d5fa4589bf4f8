"""Words of a text as memories are compared: folded, without those that say nothing.

The rule: comparing is pure and needs no model, so that it costs nothing and can be trusted.
"""

from __future__ import annotations

import re
import unicodedata

_MARKS = "\u0483-\u0487\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0dff"
"""Vowel signs and the like, inside words of scripts in which they are no letters."""
_NUMBER = r"\d+(?:[.,]\d+)*"
_WORD = re.compile(rf"{_NUMBER}|[^\W\d_][\w{_MARKS}]*(?:['’][^\W\d_]+|(?<=\d)\.\d+)*(?:\+\+|#)?"
                   "|[\u2600-\u27bf\U0001f000-\U0001faff]")
_THOUSANDS = re.compile(r"(?<=\d)[.,](?=\d{3}(?!\d))")
_CJK = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005\u3040-\u30fa\u30fc-\u30ff\u3400-\u9fff\uac00-\ud7af"
                  "\uf900-\ufaff\U00020000-\U0003ffff]+")
"""Scripts that put no spaces between words, and Korean, whose words change at their ends."""
_ELISION = re.compile(r"(?:qu|lorsqu|jusqu|puisqu|[cdjlmnst])['’](?=\w{2})")
_CONTRACTION = re.compile(r"(?:n['’]t|['’](?:s|m|re|ve|ll|d))\Z")

_COUNTED = {word: str(number) for number, words in {
    2: "two zwei deux dos", 3: "three drei trois tres", 4: "four vier quatre cuatro", 5: "five funf cinq cinco",
    6: "six sechs seis", 7: "seven sieben sept siete", 8: "eight acht huit ocho", 9: "nine neun nueve",
    10: "ten zehn dix diez", 11: "eleven elf onze", 12: "twelve zwolf douze doce", 20: "twenty zwanzig vingt veinte",
}.items() for word in words.split()}
"""Numbers written out are digits."""

_STOP = frozenset(re.findall(r"\S+", """
a about after again all also am an and any are as at be because been before being but by can could did do does doing
done down for from get give go going gon got had has have having he her here him his how i if in into is it its just
know let like make me more most my need no not now of off on one only or other our out over own please really said same
say see she should so some such tell than thank thanks that the their them then there these they thing things this those
through to too up us use used user using very want wants was way we well were what when where which while who why will
with would you your yes hi hello ok okay
der das und ist ich nicht eine einen einem einer mein meine meinen meiner auf fur von sich auch aber oder wie zum zur
les une est dans avec que qui mon mes pour sur pas
los las una que por para con mis
"""))


def folded(text: str) -> str:
    """Lower case, without accents, in one normal form."""
    plain = unicodedata.normalize("NFKD", text.casefold()).casefold()
    return unicodedata.normalize("NFC", "".join(char for char in plain if not "\u0300" <= char <= "\u036f"))


def words(text: str) -> list[str]:
    """All words in their order, folded: numbers as digits, contractions taken apart, scripts without spaces as pairs
    of characters."""
    text, found, at = folded(text), [], 0
    for run in _CJK.finditer(text):
        found += _spaced(text[at:run.start()])
        found += [run[0][i:i + 2] for i in range(max(1, len(run[0]) - 1))]
        at = run.end()
    return found + _spaced(text[at:])


def _spaced(text: str) -> list[str]:
    found = []
    for word in _WORD.findall(_THOUSANDS.sub("", text)):
        if word[0].isdigit():
            found.append(word.replace(",", "."))
        else:
            word = _CONTRACTION.sub("", _ELISION.sub("", word))
            found.append(_COUNTED.get(word, word))
    return [word for word in found if word]


def as_digits(word: str) -> str:
    """A number that is written out, in digits; any other word as it is."""
    return _COUNTED.get(folded(word), word)


def normalised(text: str) -> str:
    """The form in which two texts that say the same in the same words are equal: folded, words only. A text without
    any words is taken as it is."""
    text = _THOUSANDS.sub("", folded(text))
    return " ".join(_WORD.findall(text) or text.split())


def stem(word: str) -> str:
    """The word without an English ending, roughly: `prefers`, `preferred` and `prefer` are one."""
    if len(word) > 4 and word.endswith(("ies", "ied")):
        return word[:-3] + "y"
    for ending in ("'s", "’s", "ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word.removesuffix(ending)
            break
    if len(word) > 4 and word[-1] == word[-2] and word[-1] not in "aeiou":
        return word[:-1]
    return word.removesuffix("e") if len(word) > 3 else word


def content_sequence(text: str) -> tuple[str, ...]:
    """The stems of the words that carry meaning, in their order."""
    return tuple(stem(word) for word in words(text) if word not in _STOP)


def content_words(text: str) -> frozenset[str]:
    """The stems of the words that carry meaning. Scripts without spaces give pairs of characters."""
    return frozenset(content_sequence(text))


def numbers(text: str) -> frozenset[str]:
    """The numbers in a text, those written out too, as digits; and words with a digit in them: `v3.11`, `mp3`."""
    return frozenset(word for word in words(text) if any(char.isdigit() for char in word))


def covered(part: str, whole: str) -> float:
    """The share of the content words of `part` that stand in `whole` too, from 0 to 1; 0 when `part` has none."""
    found = content_words(part)
    return len(found & content_words(whole)) / len(found) if found else 0.0


def likeness(one: str, other: str) -> float:
    """How much two texts have in common, from 0 to 1: shared content words over all of them; 1 when both have none."""
    a, b = content_words(one), content_words(other)
    return len(a & b) / len(a | b) if a | b else 1.0
