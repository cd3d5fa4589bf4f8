"""Images in messages: named in the stored bytes, there in those that go out."""

from __future__ import annotations

import hashlib
import json

from hypothesis import given
from hypothesis import strategies as st

from kvchat.backends.dialects.ollama.messages import messages
from kvchat.prompt.context import FILE, IMAGE, TIME, ContextBlock
from kvchat.prompt.conversation import title_of
from kvchat.prompt.drafts import LABEL, Draft, Span, chips_of, decoded, label_of
from kvchat.prompt.images import count_images, has_images, sent, url_sha256
from kvchat.prompt.message import Message, Role, node, system_message
from kvchat.prompt.request import chat_body, system_in_user
from kvchat.prompt.token_estimate import TokenEstimate, learnt

URL = b"data:image/png;base64,AAAA"
OTHER = b"data:image/png;base64,BBBB"
URLS = {url_sha256(url): url for url in (URL, OTHER)}


def image(url: bytes = URL, name: str = "lamp.png") -> ContextBlock:
    return ContextBlock(IMAGE, name, "640x480", f"/notes/{name}#{url_sha256(url)}")


def asked(text: str, *blocks: ContextBlock) -> bytes:
    return Message(Role.USER, text, blocks).wire()


def test_a_stored_message_names_its_image_and_the_sent_one_has_it() -> None:
    wire = asked("What is this?", image())
    assert URL not in wire and hashlib.sha256(URL).hexdigest().encode() in wire
    (out,) = sent((wire,), URLS.__getitem__)
    assert json.loads(out) == {
        "role": "user",
        "content": [
            {"type": "image_url", "image_url": {"url": URL.decode()}},
            {"type": "text", "text": "What is this?"},
        ],
    }


def test_context_stands_in_the_text_behind_the_images() -> None:
    time = ContextBlock(TIME, "2026-11-21T09:16", "Saturday")
    file = ContextBlock(FILE, "a.md", "Lamp.", "/a.md#1")
    content = json.loads(asked("What?", image(), time, file, image(OTHER)))["content"]
    assert [part["type"] for part in content] == ["image_url", "image_url", "text"]
    assert content[-1]["text"] == '[Saturday]\n<context source="a.md">\nLamp.\n</context>\n\nWhat?'


@given(st.text())
def test_no_text_becomes_an_image(text: str) -> None:
    forged = text + json.dumps(
        {"type": "image_url", "image_url": {"url": f"sha256:{url_sha256(URL)}"}}, separators=(",", ":")
    )
    wire = asked(forged, image(OTHER))
    assert count_images([wire]) == 1 and not has_images([asked(forged)])
    (out,) = sent((wire,), URLS.__getitem__)
    parts = json.loads(out)["content"]
    assert parts[0]["image_url"]["url"] == OTHER.decode()
    assert parts[1]["text"] == json.loads(asked(forged))["content"]


@given(st.lists(st.tuples(st.text(), st.lists(st.sampled_from([URL, OTHER]), max_size=2)), min_size=1, max_size=5))
def test_a_longer_conversation_begins_with_the_shorter_one(turns: list[tuple[str, list[bytes]]]) -> None:
    wires = [system_message("Be brief.").wire()]
    wires += [asked(text, *map(image, urls)) for text, urls in turns]
    for end in range(1, len(wires)):
        shorter = chat_body({}, sent(tuple(wires[:end]), URLS.__getitem__), {})
        longer = chat_body({}, sent(tuple(wires), URLS.__getitem__), {})
        assert longer.startswith(shorter.removesuffix(b"]}"))


def test_another_image_is_another_digest_and_the_same_image_the_same() -> None:
    root = node(None, system_message("Be brief."), 0.0)
    one, again, other = (
        node(root, Message(Role.USER, "What?", (image(url, name),)), 0.0)
        for url, name in ((URL, "a.png"), (URL, "copy of a.png"), (OTHER, "a.png"))
    )
    assert one.digest == again.digest != other.digest


def test_a_system_message_inside_the_first_question_stands_before_its_image() -> None:
    wires = system_in_user((system_message("Be brief.").wire(), asked("What?", image())))
    content = json.loads(wires[0])["content"]
    assert content[0]["text"].startswith("Be brief.") and [part["type"] for part in content] == [
        "text",
        "image_url",
        "text",
    ]


def test_ollama_gets_images_beside_the_text() -> None:
    (out,) = messages(sent((asked("What?", image(), image(OTHER)),), URLS.__getitem__))
    assert json.loads(out) == {"role": "user", "content": "What?", "images": ["AAAA", "BBBB"]}


def test_an_image_is_a_chip_in_a_draft_and_stays_one() -> None:
    chip = label_of(image())
    assert chip == "[image lamp.png 640x480]" and LABEL.fullmatch(chip)
    draft = Draft(f"{chip} What?", (Span(0, len(chip), IMAGE, image()),))
    assert decoded(draft.encoded()) == draft
    assert chips_of(draft.text, [image()]) == {chip: image()}


def test_a_title_is_made_of_words_else_of_the_images_name() -> None:
    assert title_of("[image lamp.png 640x480] What is this?", [image()]) == "What is this?"
    assert title_of("[image lamp.png 640x480]", [image()]) == "lamp.png"


def test_an_estimate_says_nothing_of_images_and_learns_nothing_from_them() -> None:
    estimate = TokenEstimate()
    with_image, without = estimate.of([asked("What?", image())]), estimate.of([asked("What?")])
    assert 0 <= with_image - without <= 12  # the parts' own marks
    assert learnt([asked("What?", image())], 2000) == estimate
