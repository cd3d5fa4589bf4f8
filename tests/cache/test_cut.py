"""A prompt cut or shifted in silence raises an alarm; what templates do to reasoning does not."""

from hypothesis import given
from hypothesis import strategies as st

from corpus import corpus
from kvchat.cache.causes.cut import dropped_text
from kvchat.figures.accounting import TurnFigures
from kvchat.text.findings import dropped_text_notice


def turn(prompt, predicted=100, size=4096):
    return TurnFigures(prompt, None, predicted, context_size=size)


@corpus(
    ("case", "previous", "now", "reasoning", "alarm"),
    [
        ("grown", turn(3000), turn(3150), 0, False),
        ("exactly the sum", turn(3000), turn(3100), 0, False),
        ("a reply written with fewer tokens", turn(3000, 400), turn(3330), 0, False),
        ("halved", turn(3900), turn(2048), 0, True),
        ("cut to the window, larger than the prompt before", turn(3000, 900), turn(3400), 0, True),
        ("the oldest message dropped", turn(3900, 100), turn(3700), 0, True),
        ("all reasoning of the reply dropped", turn(1000, 800), turn(1060), 800, False),
        ("earlier reasoning dropped too, after an option was changed", turn(2000, 800), turn(900), 2000, False),
        ("cut, though reasoning was dropped as well", turn(3900, 100), turn(2048), 80, True),
        ("reasoning that the server does not show", turn(1000, 800), turn(1060), None, False),
        ("hidden reasoning, and smaller than the prompt before", turn(3900, 800), turn(2048), None, True),
        ("a few tokens of a template's edge", turn(1000, 0), turn(996), 0, False),
        ("the turn before is not known", TurnFigures(), turn(40), 0, False),
        ("a first turn", None, turn(40), 0, False),
        ("not reported", turn(3000), TurnFigures(), 0, False),
        ("how long the reply was is not known", turn(3000, None), turn(3020), 0, False),
        ("more than the window holds", turn(4000, 50), turn(4080, 300), 0, True),
        ("more than the window holds, on a first turn", None, turn(4000, 300), None, True),
        ("exactly full", turn(3000), turn(3996, 100), 0, False),
        ("a window of unknown size", turn(3000, 100, None), turn(9000, 100, None), 0, False),
    ],
)
def test_an_alarm_is_raised_for_what_the_server_dropped_and_for_nothing_else(case, previous, now, reasoning, alarm):
    found = dropped_text(previous, now, reasoning)
    assert (found is not None) is alarm, case
    if found is not None:
        notice = dropped_text_notice(found)
        assert notice.startswith("The server dropped old text of this conversation")
        assert "/compact" in notice


@given(
    prompt=st.integers(0, 10**5),
    reply=st.integers(0, 10**4),
    new=st.integers(4, 10**4),
    dropped=st.floats(0, 1),
    shrunk=st.floats(0, 0.25),
)
def test_a_branch_that_only_grew_never_raises_it(prompt, reply, new, dropped, shrunk):
    reasoning = int(reply * dropped)
    text = round((reply - reasoning) * (1 - shrunk))
    now = TurnFigures(prompt + text + new, 0, 10)
    before = TurnFigures(prompt, 0, reply)
    assert dropped_text(before, now, reasoning) is None
    assert dropped_text(before, now, None) is None
