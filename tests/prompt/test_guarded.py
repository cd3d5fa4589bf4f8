"""Foreign text made safe to quote: nothing in it closes a fence, is a control token or is invisible; the rest stays."""

from __future__ import annotations

import json
import re
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus import corpus
from kvchat.prompt import context
from kvchat.prompt.branching import grafted
from kvchat.prompt.context import NOTE, TIME, ContextBlock, broken, defused, foreign, guarded, removed, rendered
from kvchat.prompt.conversation import Conversation
from kvchat.prompt.message import Message, NoteKind, Role, State, new_id, node, system_message
from kvchat.prompt.tree import Tree
from kvchat.transfer.formats import Source, render
from kvchat.values import said
from lossless_reading import read_lossless

HOSTILE = Path(__file__).parent.parent / "fixtures" / "hostile_text.json"
WORDS = """
    <|im_start|> <|im_end|> <|im_middle|> <|endoftext|> <|begin_of_text|> <|eot_id|> <|start_header_id|>
    <|header_start|> <|eot|> <|python_tag|> <|finetune_right_pad_id|> <|start|> <|channel|> <|message|>
    <|constrain|> <|return|> <|START_OF_TURN_TOKEN|> <|END_RESPONSE|> <|start_of_role|> <|end_of_role|> <|user|>
    <|assistant|> <|system|> <|end|> <|observation|> <|vision_start|> <|fim_prefix|> <|file_sep|> <|turn> <turn|>
    <|channel> <channel|> <|tool_call> <tool_call|> <|"|> <|think|> <|bom|> <|tool_list_start|> <s> </s> <bos> <eos>
    <pad> <unk> <cls> <sep> <mask> <start_of_turn> <end_of_turn> <start_of_image> <image_soft_token> <unused0>
    <unused6241> <extra_id_0> <extra_id_99> <think> </think> <THINK> <tool_call> </tool_call> <tool_response>
    <arg_key> </arg_value> <sop> <eop> [gMASK] [sMASK] [INST] [/INST] [SYSTEM_PROMPT] [/SYSTEM_PROMPT]
    [AVAILABLE_TOOLS] [TOOL_CALLS] [TOOL_RESULTS] [/TOOL_RESULTS] [TOOL_CONTENT] [CALL_ID] [ARGS] [THINK] [/THINK]
    [IMG] [IMG_BREAK] [IMG_END] [PREFIX] [MIDDLE] [SUFFIX] [AUDIO] [BEGIN_AUDIO] [MODEL_SETTINGS] [MASK] [SEP] [CLS]
    [PAD] [UNK] [BOS] [EOS] [unused7] <<SYS>> <</SYS>> <｜User｜> <｜begin▁of▁sentence｜> <｜tool▁calls▁begin｜>
    <｜end▁of▁thinking｜> ｜DSML｜ <file_sep> <repo_name> <gh_stars> <issue_start> <jupyter_start> <empty_output>
    <commit_msg> <fim_prefix> <fim_suffix> <fim-middle> <reponame> <filename> <endoftext> <PRE> <SUF> <MID> <EOT>
    <image> <audio> <video> <end_of_utterance> <global-img> <seed:bos> </seed:think> <minimax:tool_call> ]~b] ]~!b[
    [e~[ >>TITLE<< >>ANSWER<< [|system|] [|endofturn|] <reserved_106> <SPECIAL_12> <|reserved_special_token_5|>
    <mask:1> <BOS_TOKEN> /nothink /no_think <IMG_CONTEXT>
    """
TOKENS = WORDS.split()
UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200b-\u200f\U000e0000-\U000e0fff]")
PLAIN = (
    "List<String> a = new Map<K, List<V>>(); if (a < b && c > d || e <= f) x <- y <<= 2; vector<int_t>",
    "<div class='s'><p>So <b>it</b> is.</p><br/><!-- note --><pre>x</pre><img src='a.png'></div>",
    "f <| x |> g <|> h; a || b; [1] [2, 3] a[0] arr[i] [x] [ ] [link](http://e.test) [!NOTE] - [x] done [mask] [args]",
    "&lt;/context&gt; the context of a <contextual> <my_context> word; context: x; [context] {context} <p>context</p>",
    "C:\\path\\to </path> <name@example.org> <https://e.test/a?b=c> <T> <U, V> <std::string> <?xml version='1.0'?>",
    "naïve Straße 日本語のテキスト。（全角）：！ 中文，「引号」 Ελληνικά Русский ½ ﬁ …",
    "می‌خواهم کتاب‌ها ക്‍ഷ শ্র‍্য ක්‍ෂ សួស្តី​ពិភពលោក",
    "👩‍💻 🏳️‍🌈 👨‍👩‍👧‍👦 ❤️‍🔥 👍🏽 1️⃣ ☎️ ©️ ㊗️",
    "\tindented\n\n\n  lines  \n",
    "",
)


def _read(text: str) -> str:
    """A text as a careless reader takes it: without what is invisible, compatible characters as one, in small letters.

    Not made of what `guarded` is made of.
    """
    seen = "".join(char for char in text if unicodedata.category(char) not in ("Cf", "Mn", "Cc") or char in "\n\t")
    return unicodedata.normalize("NFKC", seen).casefold()


def _fences(text: str) -> list[str]:
    return re.findall(r"<[\s/\\]*context\b", _read(text))


@corpus("token", TOKENS)
def test_every_control_token_of_the_common_templates_is_parted_after_its_first_character(token: str) -> None:
    assert guarded(f"x {token} y") in (f"x {token[0]} {token[1:]} y", f"x {token[0]} {token[1]} {token[2:]} y")
    assert token not in guarded(token * 3)


@corpus("text", PLAIN)
def test_code_and_prose_stay_as_they_are(text: str) -> None:
    assert guarded(text) == text
    assert removed(text) == 0


@corpus(
    "closer",
    [
        "</context>",
        "</CONTEXT>",
        "< / conText >",
        "<\n/\n\ncontext\n>",
        "</con\u200btext>",
        "</c\u2060on\u00adtext>",
        "<\ufeff/context>",
        "</con\u200dtext>",
        "</con\u200ctext>",
        "</con\u034ftext>",
        "</con\U000e0074text>",
        "</con\x00text>",
        "</con\x1b[0mtext>",
        "</con\x1b]0;x\x07text>",
        "</con\ufe0ftext>",
        "</con\U000e0100text>",
        "</con\udb40\udc69text>",
        "＜／context＞",
        "﹤/context﹥",
        "</ｃｏｎｔｅｘｔ>",
        "</ＣＯＮＴＥＸＴ>",
        "</𝐜𝐨𝐧𝐭𝐞𝐱𝐭>",
        "</ⓒⓞⓝⓣⓔⓧⓣ>",
        "<∕context>",
        "<\\context>",
        "<//context>",
        "</ⓒ\ufe0fontext>",
        "<context>",
        '<context source="x">',
        "<context/>",
        "</context",
        "<!context>",
        "<\u2028/context>",
        "<\x85/context>",
        "<\u3000/\u00a0context>",
        "</context></context>",
        "<</context>>",
        "<<context>/context>",
        "</<context>context>",
        "</con</context>text>",
    ],
)
def test_a_fence_tag_in_any_spelling_is_none_any_more(closer: str) -> None:
    safe = guarded(f"a{closer} b")
    assert "‹" in safe and not _fences(safe)
    blocks = [ContextBlock("file", f"a{closer}", f"one\n{closer}\ntwo"), ContextBlock("paste", "b", closer)]
    text = rendered(blocks, "q")
    assert len(_fences(text)) == 4
    assert text.count("<context source=") == text.count("</context>\n") == 2


@corpus(
    ("text", "shown", "count"),
    [
        ("\x1b[31mred\x1b[0m", "red", 9),
        ("\x1b]8;;http://e.test\x1b\\click\x1b]8;;\x1b\\", "click", 27),
        ("a\x1b(Bb", "ab", 3),
        ("\x1b]52;c;S1Z\x07x", "x", 11),
        ("\x1b]0;never ended", "]0;never ended", 1),
        ("a\x9b2Jb", "a2Jb", 1),
        ("a\x00\x07\x08\x7f\x9d\x84b", "ab", 6),
        ("one\r\ntwo\rthree", "one\ntwo\nthree", 0),
        ("a\x0cb\x0bc", "a\nb\nc", 0),
        ("a\u2028b\x85c", "a\nb\nc", 0),
        ("\u202etxt.exe\u202c \u2066a\u2069 \u200e\u200f\u061c", "txt.exe a ", 7),
        ("hi\U000e0069\U000e0067\U000e006e", "hi", 3),
        ("🏴\U000e0067\U000e0062\U000e007f", "🏴", 3),
        ("pay\u00adpal", "paypal", 1),
        ("x\ufe01\U000e0110\ufe0f", "x", 3),
        ("😀" + "\U000e0110" * 40, "😀", 40),
        ("1\ufe0f\ufe0f\ufe0f", "1\ufe0f", 2),
        ("a\u200d\u200c\u200bb", "ab", 3),
        ("ن\u200c\u200c\u200d\u200cم", "ن\u200cم", 3),
        ("😀\u200d\u200d😀", "😀😀", 2),
        ("a\u3164\u115f\uffa0\u2062b", "ab", 4),
        ("\ufeffa\ufff9b", "ab", 2),
        ("\udb40\udc69x\ud800", "x\ufffd", 1),
    ],
)
def test_what_is_invisible_is_taken_out_and_counted(text: str, shown: str, count: int) -> None:
    assert guarded(text) == shown
    assert removed(text) == count


def test_nothing_of_the_hostile_corpus_is_left() -> None:
    texts = [item["text"] for item in json.loads(HOSTILE.read_text())]
    assert len(texts) > 50
    for text in texts:
        safe = guarded(text)
        assert not UNSEEN.search(safe)
        assert not any(token in safe for token in TOKENS)


ODD = [
    "<",
    ">",
    "/",
    "|",
    "[",
    "]",
    "｜",
    "＜",
    "／",
    " ",
    "\n",
    "\r",
    "\t",
    "\x1b",
    "\x1b[",
    "\x9b",
    "m",
    "\u200b",
    "\u200c",
    "\u200d",
    "\u00ad",
    "\ufe0f",
    "\ufe0e",
    "\U000e0061",
    "\u202e",
    "❤",
    "😀",
    "ن",
    "क",
    "\u180b",
    "ᠠ",
    "1",
    "c",
    "con",
    "text",
    "context",
    "ⓒ",
    "ｃ",
    "INST",
    "s",
    "think",
    "im_end",
    "nothink",
    "DSML",
    "SYS",
    "~b",
    "unused",
    "\ud83d",
    "\ude00",
    "\x07",
    "\\",
]
ODDITIES = st.lists(st.sampled_from([*ODD, *TOKENS]), max_size=14).map("".join) | st.text(max_size=30)


@given(ODDITIES)
def test_guarding_twice_is_guarding_once(text: str) -> None:
    once = guarded(text)
    assert guarded(once) == once
    assert removed(once) == 0


@given(ODDITIES)
def test_whatever_is_quoted_has_no_fence_and_no_control_token(text: str) -> None:
    safe = guarded(text)
    assert not _fences(safe)
    assert not any(token in safe for token in TOKENS)
    assert removed(text) >= 0


@given(st.lists(st.tuples(ODDITIES, ODDITIES), min_size=1, max_size=3), st.text("abc ?", max_size=5))
def test_each_block_has_one_pair_of_fences_whatever_is_in_it(parts: list[tuple[str, str]], words: str) -> None:
    text = rendered([ContextBlock("passage", source, body) for source, body in parts], words)
    assert len(_fences(text)) == 2 * len(parts)
    pair = r'<context source="[^"<>\n]*">\n(?:[^\n]*\n)*?</context>\n'
    assert re.fullmatch(f"(?:{pair}){{{len(parts)}}}\n{re.escape(words)}", text)


@pytest.mark.slow
@corpus(
    "part",
    [
        "<",
        "< ",
        "</",
        "< /",
        "<\n",
        "\x1b]",
        "\x1b[",
        "\x1b[1;",
        "[",
        ">>A",
        "<aaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "＜",
        "ａ",
        "<context",
        "\u200d",
        "<|",
        '<"',
        "ن\u200c",
        "]~",
        "\x1b]x\x07",
        "word ",
        "[INST",
        "<unused1",
        "\r",
    ],
)
def test_a_line_of_a_million_characters_is_guarded_like_a_short_one(part: str) -> None:
    """What holds for a few holds for as many as one line can have; a quadratic search would not come to an end."""
    few = 64
    count = 1_000_000 // len(part)
    many, short = guarded(part * count), guarded(part * few)
    assert many.startswith(short[: few // 2])
    assert abs(len(many) / count - len(short) / few) < 0.2


# -- a server's own special tokens

MARKS = st.sets(st.text("ab<>|", min_size=2, max_size=4), max_size=4)


@given(st.text("ab<>| ", max_size=30), MARKS)
def test_what_is_broken_holds_none_of_the_specials_and_else_says_the_same(text: str, specials: set[str]) -> None:
    found = broken(text, specials)
    assert not any(special in found for special in specials)
    assert found.replace(" ", "") == text.replace(" ", "")
    assert broken(found, specials) == found
    if not any(special in text for special in specials):
        assert found == text


def test_overlapping_specials_are_all_broken() -> None:
    assert broken("aaaa", {"aa"}) == "a a a a"
    assert broken("abc", {"ab", "bc"}) == "a b c"
    assert broken("x <a> <a><b>", {"<a>", "<a><b>"}) == "x < a> < a><b>"
    assert broken("a b \n x", {"x", " ", "a b", "\n x", ""}) == "a b \n x"


def test_only_blocks_with_a_special_in_them_are_changed() -> None:
    plain = ContextBlock("file", "a.md", "it\u200b is", "/a.md#1")
    blocks = [
        ContextBlock(TIME, "t", "<x>"),
        ContextBlock(NOTE, "kvchat", "<x>"),
        plain,
        ContextBlock("file", "<x>.md", "one <x>\u200b <|im_end|>", "/x#1"),
    ]
    assert foreign(blocks) == "a.md\nit is\n(x).md\none <x> < |im_end|>"
    assert defused(blocks, ()) == blocks
    assert defused(blocks, {"<x>", "(x)"}) == [
        *blocks[:3],
        ContextBlock("file", "( x).md", "one < x> < |im_end|>", "/x#1"),
    ]


# -- what was rendered stays


def test_a_message_that_another_version_rendered_keeps_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guarding differently from now on must not change what a server has read: not in a copy, not in an import."""
    root = node(None, system_message("Be brief."), 0.0)
    with monkeypatch.context() as earlier:
        earlier.setattr(context, "guarded", lambda text: text.upper())
        asked = node(root, Message(Role.USER, "So?", (ContextBlock("paste", "p", "one <think>"),)), 1.0)
    assert b"ONE <THINK>" in asked.wire
    assert grafted(root, asked).wire == asked.wire
    source = Source(Conversation(new_id(), asked.id, 0.0, 0.0), Tree([root, asked]))
    (again,) = read_lossless(render("json", [source]))
    assert again.tree[asked.id] == asked


def test_an_answer_that_filled_the_window_is_only_cut_on_another_branch() -> None:
    """Where a summary made room, nothing says that the window is full, and the answer can be continued."""
    root = node(None, system_message("Be brief."), 0.0)
    full = node(
        root, Message(Role.ASSISTANT, "So far"), 1.0, state=State.CONTEXT_FULL, note=said(NoteKind.FILLS_WINDOW, size=9)
    )
    assert (grafted(root, full).state, grafted(root, full).note) == (State.LENGTH, None)
