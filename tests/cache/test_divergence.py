"""The first differing characters and the message they lie in."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kvchat.cache.causes.divergence import Difference, common_length, divergence, parting, wire_divergence
from kvchat.cache.causes.evidence import Evidence, LastRead, Sent
from kvchat.figures.accounting import TurnFigures
from kvchat.prompt.wire import canonical


def wires(*contents):
    roles = ["system", *["user", "assistant"] * len(contents)]
    return tuple(canonical({"role": role, "content": text}) for role, text in zip(roles, contents, strict=False))


def rendered(*contents):
    return "".join(f"<|im_start|>\n{text.strip()}<|im_end|>\n" for text in contents)


BEFORE = ("Be kind.", "It is 10:15. Hello", "Hi!", "ok")
NOW = ("Be kind.", "It is 10:31. Hello", "Hi!", "ok", "Good.", "ok")


def test_the_difference_is_quoted_from_the_beginning_of_its_word():
    found = divergence(rendered(*BEFORE), rendered(*NOW), wires(*NOW), 600)
    assert found.message == 1
    assert found.held.startswith("10:15. Hello")
    assert found.sent.startswith("10:31. Hello")
    assert 0 < found.token < 600


def test_a_prompt_that_only_goes_on_parts_nowhere():
    assert divergence(rendered(*BEFORE), rendered(*BEFORE, "more"), wires(*BEFORE, "more")) is None
    assert wire_divergence(wires(*BEFORE), wires(*BEFORE, "more")) is None


def test_equal_contents_are_told_apart_by_their_order():
    found = divergence(rendered(*NOW, "yes"), rendered(*NOW[:-1], "ok!", "yes"), wires(*NOW[:-1], "ok!", "yes"))
    assert found.message == 5


def test_content_that_the_template_trims_is_found():
    assert divergence(rendered("a b c", "x"), rendered("a b d", "x"), wires("  a b d\n", "x")).message == 0


def test_a_difference_behind_the_last_message_lies_in_none():
    old, new = rendered("a") + "<think>", rendered("a") + "<answer>"
    assert divergence(old, new, wires("a")).message is None


def test_a_system_message_that_was_moved_does_not_hide_the_others():
    old, new = "[INST] Be kind.\n\nHello[/INST]", "[INST] Hello[/INST]Hi!</s>[INST] Be kind.\n\nWhy?[/INST]"
    assert divergence(old, new, wires("Be kind.", "Hello", "Hi!", "Why?")).message == 1


def test_wires_alone_give_the_message_and_its_characters():
    found = wire_divergence(wires(*BEFORE), wires(*NOW), 600)
    assert (found.message, found.held[:5], found.sent[:5]) == (1, "10:15", "10:31")
    assert 0 < found.token < 600


def test_another_field_of_a_message_is_quoted_as_json():
    old = (canonical({"role": "assistant", "content": "Hi", "reasoning": "Hm"}),)
    assert wire_divergence(old, wires("Hi"))
    assert wire_divergence(old, (canonical({"role": "assistant", "content": "Hi"}),)).held


@given(st.text("ab", max_size=30), st.text("ab", max_size=30))
def test_the_common_length_is_the_longest_common_prefix(a, b):
    length = common_length(a, b)
    assert a[:length] == b[:length]
    assert length == min(len(a), len(b)) or a[length] != b[length]


QUESTION = (*BEFORE[:3], "Tell me")
HALF, WHOLE = "Once upon", "Once upon a time."


def open_ended(*contents):
    """A prompt that ends inside its last message."""
    return rendered(*contents).removesuffix("<|im_end|>\n")


def continued(**more):
    """What is left of a turn that went on with a cut answer, and of the next one, whose prompt has it whole."""
    before = LastRead(
        Sent(wires=wires(*QUESTION), rendered=open_ended(*QUESTION, HALF)),
        40,
        5,
        reply=WHOLE,
        begun=len(HALF) + 64,
        **more,
    )
    now = Sent(wires=wires(*QUESTION, WHOLE, "And?"), rendered=rendered(*QUESTION, WHOLE, "And?"))
    return Evidence(TurnFigures(60, 12, 5, 15), now, before)


def test_a_continued_answer_is_no_difference_in_the_next_prompt():
    assert parting(continued(same_tokens=True)).what is Difference.NOTHING
    assert parting(continued(same_tokens=False)).what is Difference.REPLY
    assert parting(continued(same_tokens=True, reasoning="")).where is None


def test_a_cut_answer_that_is_sent_to_go_on_is_no_difference():
    before = LastRead(
        Sent(wires=wires(*QUESTION), rendered=open_ended(*QUESTION, "")), 35, 5, reply=HALF, same_tokens=True
    )
    now = Sent(wires=wires(*QUESTION, HALF), rendered=open_ended(*QUESTION, HALF))
    assert parting(Evidence(TurnFigures(40, 12, 5, 0), now, before)).what is Difference.NOTHING
    other = replace(now, wires=wires(*QUESTION, "Twice upon"), rendered=open_ended(*QUESTION, "Twice upon"))
    assert parting(Evidence(TurnFigures(40, 12, 5, 0), other, before)).what is Difference.ANSWER
