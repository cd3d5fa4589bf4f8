"""The cache in words, the same on every screen and on the command line.

What is not known is left out or said to be unknown, never shown as 0.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvchat.figures.accounting import NOISE, Totals, TurnFigures, totals
from kvchat.figures.cause import Cause
from kvchat.reports.warmth import Heat, Warmth
from kvchat.sanitize import one_line
from kvchat.text.findings import behind_colon, cause_name, remedy_sentence
from kvchat.text.format import UNKNOWN, about, age, count, counted, duration, percent, short_count, speed
from kvchat.text.stats import answers_words, requests_name, unknown_words

if TYPE_CHECKING:
    from kvchat.cache import Plan, Price, Shape
    from kvchat.figures.accounting import SideTotals, WarmupTotals
    from kvchat.figures.speed import SpeedFit
    from kvchat.reports.cache_report import CacheReport, HeldState, Ledger, TurnReport

HEAT_GLYPHS: dict[Heat, str] = {Heat.WARM: "●", Heat.PARKED: "◐", Heat.COLD: "○", Heat.UNKNOWN: "·"}
HEAT_NAMES: dict[Heat, str] = {
    Heat.WARM: "warm",
    Heat.PARKED: "partly warm",
    Heat.COLD: "cold",
    Heat.UNKNOWN: "unknown",
}
HEAT_WORDS: dict[Heat, str] = {
    Heat.WARM: "warm: still in the server's cache, answers start at once",
    Heat.PARKED: "partly warm: some of it has to be prefilled",
    Heat.COLD: "cold: all of it has to be prefilled",
    Heat.UNKNOWN: "unknown: not sent lately, or the server does not tell",
}
_REWINDS: dict[str, str] = {
    "anywhere": "reuses any prefix",
    "window": "reuses up to a checkpoint (sliding window)",
    "nowhere": "reuses up to a checkpoint (recurrent layers)",
}
TOTAL_HEADS = ("cached tokens", "wasted tokens", "reuse", "time saved")
"""Over a conversation's sums, in their order."""
WASTED_BY = "wasted by"
REUSE_UNKNOWN = "Reuse of this message: unknown."
UNREPORTED = "not reported by this server"
FAR = 4096
"""The second position, in tokens, at which the speed is given where a prompt came so far; the first is 0."""


def shown_heat(warmth: Warmth) -> Heat:
    """How warm it is for the user: what the server only has to bring back is warm, for next to nothing is prefilled."""
    back = warmth.heat is Heat.PARKED and warmth.to_prefill is not None and warmth.to_prefill <= NOISE
    return Heat.WARM if back else warmth.heat


def to_read(warmth: Warmth) -> int | None:
    """Tokens that opening a conversation would prefill; None for a warm one and when not known."""
    return warmth.to_prefill if shown_heat(warmth) in (Heat.PARKED, Heat.COLD) else None


def prefill_number(warmth: Warmth) -> str:
    """`to_read` in at most four cells: `412`, `8.1k`, with a ~ in front of an estimate; empty when there is nothing to
    tell."""
    tokens = to_read(warmth)
    return "" if tokens is None else f"{roughly_known(warmth)}{short_count(tokens)}"


def roughly_known(found: Warmth | Price) -> str:
    """A ~ in front of a number of tokens that is an estimate."""
    return "" if found.exact else "~"


def to_prefill(amount: str) -> str:
    """`412 to prefill`, of an amount in words."""
    return f"{amount} to prefill"


def opening_words(warmth: Warmth) -> str:
    """`412 to prefill`; empty where nothing is, or nothing is known."""
    number = prefill_number(warmth)
    return to_prefill(number) if number else ""


def warmth_words(warmth: Warmth, now: float) -> str:
    """`warm · 3,843 tokens in the cache, used 4 min ago`, `cold · 8,120 tokens to prefill`; `now` is seconds since the
    epoch."""
    parts = [HEAT_NAMES[shown_heat(warmth)]]
    if (tokens := to_read(warmth)) is not None:
        parts.append(to_prefill(f"{roughly_known(warmth)}{counted(tokens, 'token')}"))
    if warmth.held:
        used = f", used {age(now - warmth.since)} ago" if warmth.since is not None else ""
        held = counted(warmth.held, "token") if tokens is None else count(warmth.held)
        parts.append(f"{held} in the cache{used}")
    return " · ".join(parts)


def held_words(state: HeldState, now: float, title: str) -> str:
    """What a slot or the server's memory holds: `weather · 2,101 tokens, used 4 min ago`. `title` is the owner's, fit
    to show."""
    used = f", used {age(now - state.since)} ago" if state.since is not None else ""
    return f"{title or 'of another client'} · {counted(state.tokens, 'token')}{used}"


def seconds_of(tokens: int, turn: TurnFigures) -> float | None:
    """Seconds that `tokens` of a turn took to prefill, at the turn's own speed; None where that is not known."""
    return tokens / turn.prefill_speed if turn.prefill_speed else None


def count_of(turn: TurnFigures, tokens: int | None) -> str:
    """Tokens of a turn that hang on how many were cached."""
    return count(tokens) if tokens is None else roughly(turn) + count(tokens)


def roughly(turn: TurnFigures | None) -> str:
    """A ~ in front of figures that are estimates."""
    return "~" if turn is not None and turn.estimated else ""


def prediction(figures: TurnFigures | None, about: str = "") -> str:
    """`predicted 3,764 cached tokens, server says 3,764`; empty without a prediction. `about`: a ~ in front of an
    estimate."""
    if figures is None or figures.predicted_cached is None:
        return ""
    said = UNREPORTED if figures.cached_tokens is None else f"server says {count(figures.cached_tokens)}"
    about = "~" if figures.predicted_roughly else about
    return f"predicted {about}{counted(figures.predicted_cached, 'cached token')}, {said}"


def accuracy(report: CacheReport) -> str:
    """How often the predictions were exact, `exact in 41 of 43 requests` (before this kvchat made one: those of the
    conversation's turns), and what an untested build has shown."""
    made, exact = report.predictions, report.exact_predictions
    if not made:
        turns = [turn.figures for turn in report.turns if turn.figures is not None]
        turns = [turn for turn in turns if turn.predicted_cached is not None and turn.cached_tokens is not None]
        turns = [turn for turn in turns if not turn.predicted_roughly]
        made, exact = len(turns), sum(turn.predicted_cached == turn.cached_tokens for turn in turns)
    words = f"exact in {count(exact)} of {counted(made, 'request')}"
    if report.shown is not None:
        from kvchat.cache import Trust  # no simulator before the first frame

        right, enough, kinds = report.shown
        words += f"; a build not tested yet: {right} of {enough} in a row, {kinds} of {Trust.KINDS} kinds of act"
    return words if made else "nothing predicted yet"


def why(turn: TurnReport) -> tuple[str, str]:
    """The cause of a turn's wasted tokens, and what helps; both empty when nothing was wasted. Raw."""
    figures, finding = turn.figures, turn.finding
    if figures is None or not figures.notable_waste:
        return "", ""
    if finding is not None:
        said = behind_colon(finding.evidence, finding.tokens) or cause_name(finding.cause)
        return said, remedy_sentence(finding.remedy)
    return reason_words(figures) or "cause unknown", remedy_sentence(figures.remedy)


def reason_words(figures: TurnFigures) -> str:
    """What was seen of a turn's wasted tokens, worded to follow a colon; empty where nothing was. Raw."""
    if figures.evidence:
        return behind_colon(figures.evidence, figures.notable_waste)
    return cause_name(figures.cause) if figures.cause else ""


def cause_is_unknown(turn: TurnFigures) -> bool:
    """Whether nothing tells more of a turn's wasted tokens."""
    return turn.cause == Cause.UNKNOWN or (turn.cause is None and turn.evidence is None)


def again(turn: TurnReport) -> str:
    """`1,387 tokens prefilled again (4.0 s): another client took the slot.`"""
    figures = turn.figures or TurnFigures()
    seconds = seconds_of(figures.notable_waste, figures)
    took = f" ({duration(seconds)})" if seconds is not None else ""
    return f"{counted(figures.notable_waste, 'token')} prefilled again{took}: {one_line(why(turn)[0])}."


def verdict(turn: TurnReport) -> str:
    """A turn in one sentence that follows a colon: what was read again, and why."""
    figures = turn.figures
    if figures is None:
        return "no figures on this branch yet."
    if figures.wasted_tokens is None:
        return (
            f"waste {UNREPORTED}."
            if figures.cached_tokens is None
            else ("waste unknown: the previous turn was stopped.")
        )
    if figures.estimated and not figures.notable_waste:
        return "nothing wasted, judged by the time it took; this server does not count."
    if figures.first_read:
        shared = (figures.cached_tokens or 0) > NOISE
        return (
            "the first turn: what it shares with other prompts was cached."
            if shared
            else ("the first turn: nothing to reuse yet.")
        )
    if figures.notable_waste:
        return again(turn)
    if figures.wasted_tokens:
        return f"{counted(figures.wasted_tokens, 'token')} re-evaluated (normal for llama.cpp)."
    return "nothing wasted."


def wasted_words(turn: TurnFigures) -> str:
    """`1,387 wasted (4.0 s): another client took the slot.`"""
    tokens, why = f"{roughly(turn)}{turn.notable_waste:,}", one_line(reason_words(turn))
    seconds = seconds_of(turn.notable_waste, turn)
    cost = f" ({duration(seconds)})" if seconds is not None else ""
    return f"{tokens} wasted{cost}: {why}." if why else f"{tokens} tokens wasted{cost}, cause unknown."


def shown_tokens(turn: TurnFigures) -> tuple[int | None, int | None, int | None]:
    """Cached, new and wasted tokens of a turn, as every screen and command tells them: what is not worth a word counts
    as new. None: not known."""
    if turn.evaluated_tokens is None or turn.new_tokens is None:
        return turn.cached_tokens, None, None
    wasted = turn.notable_waste
    return turn.cached_tokens, turn.evaluated_tokens - wasted, wasted


def token_parts(turn: TurnFigures) -> list[tuple[str, str]]:
    """The tokens of a reported prompt by what became of them: `3,764` `cached`, `48` `new`, `0` `wasted`."""
    cached, new, wasted = shown_tokens(turn)
    parts = [(count(cached), "cached")]
    if new is None:
        return [*parts, (count(turn.evaluated_tokens or 0), "prefilled")]
    return [*parts, (count(new), "new"), (count(wasted), "wasted")]


def turn_name(turns: Sequence[TurnReport], index: int) -> str:
    """`turn 2`, of a request; `turn 2, request 1 of 3` of one that took steps."""
    number, requests = turn_of(turns, index)
    at = index - requests.start + 1
    return f"turn {number}" + (f", request {at} of {len(requests)}" if len(requests) > 1 else "")


def turn_sum(turns: Sequence[TurnReport], index: int) -> str:
    """`turn 2 in 3 requests: 1,204 cached · 115 new · 22 wasted`; empty for a turn that took one."""
    number, requests = turn_of(turns, index)
    if len(requests) == 1:
        return ""
    name = f"turn {number} in {counted(len(requests), 'request')}"
    figures = [turns[at].figures or TurnFigures() for at in requests]
    found = totals(figures)
    if found.unknown:
        return f"{name}: reuse unknown"
    new, about = found.evaluated_tokens - found.wasted_tokens, "~" if any(one.estimated for one in figures) else ""
    return (
        f"{name}: {about}{count(found.cached_tokens)} cached · {count(new)} new · {count(found.wasted_tokens)} wasted"
    )


def turn_of(turns: Sequence[TurnReport], index: int) -> tuple[int, range]:
    """The number of a request's turn, from 1, and the indices of the turn's requests."""
    begins = [at for at, turn in enumerate(turns) if at == 0 or not turn.goes_on]
    number = bisect(begins, index)
    end = begins[number] if number < len(begins) else len(turns)
    return number, range(begins[number - 1], end)


def figures_words(turn: TurnFigures | None) -> list[str]:
    """What a turn cost, in a few words each; what is not known is left out."""
    if turn is None:
        return []
    words = []
    if turn.predicted_tokens is not None:
        words.append(counted(turn.predicted_tokens, "token"))
    if turn.decode_speed is not None:
        words.append(speed(turn.decode_speed))
    if turn.ttft_ms is not None:
        words.append(f"TTFT {duration(turn.ttft_ms / 1000)}")
    if turn.cached_tokens is None:
        return words if turn.prompt_tokens is None else [*words, counted(turn.prompt_tokens, "prompt token")]
    words.append(f"{'about ' if turn.estimated else ''}{count(turn.cached_tokens)} cached")
    if (new := shown_tokens(turn)[1]) is not None:
        words.append(f"{count(new)} new")
    if turn.notable_waste:
        words.append(f"{count(turn.notable_waste)} wasted")
    return words


def figures_sentence(turn: TurnFigures) -> str:
    """A turn for one who listens: `Cached 1,204 of 1,240 prompt tokens; 0.3 s to the first token.`, and why tokens were
    wasted, where some were. Empty where nothing is known."""
    about = "about " if turn.estimated else ""
    parts = []
    if turn.cached_tokens is not None and turn.prompt_tokens is not None:
        parts.append(f"cached {about}{count(turn.cached_tokens)} of {counted(turn.prompt_tokens, 'prompt token')}")
    elif turn.prompt_tokens is not None:
        parts.append(f"{counted(turn.prompt_tokens, 'prompt token')}, cached {UNREPORTED}")
    if turn.ttft_ms is not None:
        parts.append(f"{duration(turn.ttft_ms / 1000)} to the first token")
    if ahead := ahead_words(turn):
        parts.append(ahead)
    if wasted := turn.notable_waste:
        why = one_line(reason_words(turn)) or "the cause is unknown"
        parts.append(f"{about}{counted(wasted, 'token')} wasted: {why}")
    words = "; ".join(parts)
    return f"{words[0].upper()}{words[1:]}." if words else ""


def ahead_words(turn: TurnFigures) -> str:
    """`3,766 prefilled while you typed`; empty: none worth a word."""
    ahead = turn.ahead_tokens or 0
    return f"{count(ahead)} prefilled while you typed" if ahead > NOISE else ""


def answer_words(turn: TurnFigures) -> list[str]:
    """The figures next to an answer, most important first: `98 % cached`, `TTFT 0.14 s`, `58 tok/s`, what the warm-up
    prefilled, `31 tokens`; of a turn with wasted tokens these and their cause come first."""
    words = []
    if turn.notable_waste:
        cause = f": {cause_name(turn.cause)}" if turn.cause else ""
        words.append(f"{roughly(turn)}{count(turn.notable_waste)} wasted{cause}")
    if turn.hit_ratio is not None:
        share = round(turn.hit_ratio * 100)
        words.append(f"{roughly(turn)}{min(share, 99) if turn.evaluated_tokens else share} % cached")
    if turn.ttft_ms is not None:
        words.append(f"TTFT {duration(turn.ttft_ms / 1000)}")
    if turn.decode_speed is not None:
        words.append(speed(turn.decode_speed))
    if ahead := ahead_words(turn):
        words.append(ahead)
    if turn.predicted_tokens is not None:
        words.append(counted(turn.predicted_tokens, "token"))
    return words


def totals_words(ledger: Ledger) -> str:
    """`reuse 93 % · hit ratio 80 % · 41,204 cached · 0 wasted · 2 min saved`."""
    totals = ledger.totals
    if not totals.turns:
        return "no answers yet"
    if totals.are_unknown:
        return f"{answers_words(totals)}, {UNREPORTED}"
    unknown = f" · {unknown_words(totals)} unknown" if totals.unknown else ""
    return (
        f"reuse {percent(totals.reuse)} · hit ratio {percent(totals.hit_ratio)} · "
        f"{count(totals.cached_tokens)} cached · {count(totals.wasted_tokens)} wasted · "
        f"{duration(totals.seconds_saved)} saved{unknown}"
    )


def share_words(totals: Totals) -> list[str]:
    """The cache's share in a conversation; empty if no server reported it."""
    if totals.reuse is None:
        return []
    words = [f"reuse {percent(totals.reuse)}", f"{counted(totals.cached_tokens, 'token')} not prefilled again"]
    return [*words, f"{duration(totals.seconds_saved)} saved"] if totals.seconds_saved else words


def speed_words(speed: SpeedFit | None) -> str:
    """`350 tok/s at the start, 290 tok/s after 4k tokens (average of 12 requests)`: no request need have been just as
    fast."""
    if speed is None or speed.alpha <= 0:
        return "not measured yet"
    words = f"{speed.speed(0):,.0f} tok/s at the start"
    if speed.reach >= FAR:
        words += f", {speed.speed(FAR):,.0f} tok/s after {FAR // 1024}k tokens"
    return f"{words} (average of {counted(speed.samples, 'request')})"


def average_speed(speed: SpeedFit | None) -> str:
    """`350 tok/s on average`, where there is little room."""
    return "not measured yet" if speed is None or speed.alpha <= 0 else f"{speed.speed(0):,.0f} tok/s on average"


_WAYS = {"as_is": "send as is", "pin": "pin to a slot", "detour": "detour", "restore": "restore a snapshot"}


def plan_words(plan: Plan | None) -> str:
    """The chosen way and the others with their tokens: `send as is (81 tokens; detour 113)`."""
    if plan is None:
        return "no request yet"
    others = "; ".join(f"{_WAYS[option.way]} {option.tokens:,}" for option in plan.options if option != plan.chosen)
    return f"{_WAYS[plan.chosen.way]} ({plan.chosen.tokens:,} tokens" + (f"; {others})" if others else ")")


_SENT: dict[str, str] = {
    "pin": "went to a slot of its own",
    "detour": "had its state brought back from the host cache first",
    "restore": "had its state brought back from the disk first",
}


def sent_words(plan: Plan | None) -> str:
    """What was done so that the last request found its state, for who only wants to know that; empty: nothing."""
    return _SENT.get(plan.chosen.way, "") if plan is not None else ""


def misses(ledger: Ledger) -> str:
    """The causes of wasted tokens, the most expensive first: `server restarted: 1 answer, 1,387 tokens`; `nothing`
    only where that is known."""
    found = sorted(ledger.misses.items(), key=lambda item: -item[1][1])
    if not found:
        return "unknown" if ledger.totals.are_unknown else "nothing known" if ledger.totals.unknown else "nothing"
    what = requests_name(ledger.totals)
    return "; ".join(
        f"{cause_name(cause)}: {counted(turns, what)}, {counted(tokens, 'token')}" for cause, (turns, tokens) in found
    )


def warm_up_words(totals: WarmupTotals) -> str:
    """What was spent on warm-up: `3 requests, 1,204 tokens, 3.1 s`."""
    if not totals.requests:
        return "nothing"
    return f"{counted(totals.requests, 'request')}, {counted(totals.tokens, 'token')}, {duration(totals.seconds)}"


def side_request_words(totals: SideTotals) -> str:
    """What side requests cost: `2 requests, 61 tokens prefilled, 140 written, 3.1 s`."""
    if not totals.count:
        return "nothing"
    return f"{_requests_words(totals)}, {count(totals.predicted)} written, {duration(totals.seconds)}"


def _requests_words(totals: SideTotals) -> str:
    return f"{counted(totals.count, 'request')}, {counted(totals.evaluated, 'token')} prefilled"


def side_work_words(week: SideTotals) -> str:
    """What side work cost, where it is switched: `Side work in 7 days: 2 requests, 61 tokens prefilled, 3.1 s`."""
    return (
        f"Side work in 7 days: {_requests_words(week)}, {duration(week.seconds)}"
        if week.count
        else "No side work in 7 days"
    )


def cost_words(tokens: int | None, seconds: tuple[float, float] | None) -> str:
    """`8,120 tokens, ~35 s`, as far as it is known."""
    words = f"{UNKNOWN} tokens" if tokens is None else counted(tokens, "token")
    return f"{words}, {about(seconds)}" if seconds is not None else words


def cache_rules(shape: Shape, known_ids: int | None) -> str:
    """What is known of a server's cache: `2 slots; a host cache for what leaves a slot; reuses any prefix`.
    `known_ids`: how many token ids of a branch's prompts are known, where these go as such."""
    parts = [counted(shape.slots, "slot") + (", one cache for all" if shape.unified else "")]
    parts.append("no host cache" if shape.ram_bytes == 0 else "a host cache for what leaves a slot")
    parts.append(_REWINDS["anywhere" if shape.whole_window else shape.rewind])
    if known_ids is not None:
        parts.append(f"prompts go as token ids, {known_ids:,} of this branch are known")
    return "; ".join(parts)
