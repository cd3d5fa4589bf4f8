"""The prefix linter: what changes by itself is found with its exact characters, and ordinary prompts are left alone."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from corpus import corpus
from kvchat.prompt.lint import LintKind, lint
from kvchat.prompt.message import DEFAULT_INSTRUCTIONS
from kvchat.text.options import warning_sentence

ORDINARY = [
    DEFAULT_INSTRUCTIONS,
    "",
    "You are a historian of the 1990s. Answer in two paragraphs.",
    "Act like a pirate. Say arr at least 3 times per answer.",
    "The year is 1805. You are Admiral Nelson, and you speak only of what you can know.",
    "Today is a good day to learn Latin. Be patient and cheerful.",
    "You write for Python 3.11.4 and Textual 8.2.8; never use deprecated APIs.",
    "Mix concrete at a 10:1 ratio, and explain why.",
    "Images are 16:10 or 16:09 ratio, never square.",
    "Comment on John 3:16 and on Genesis 12:10 in plain words.",
    "Prices are $19.99, €1,250.00 and 99 cents; VAT is 19 %.",
    "Our support is open Monday to Friday, 9:00 to 17:30, and Saturday 10:15 to 12:00.",
    "Write dates as YYYY-MM-DD, for example 2024-03-15.",
    "Timestamps look like 2024-01-31T10:15:00Z; parse them strictly.",
    "Use ISO 8601, e.g. 2024-01-31 10:15:00, in every log line.",
    "Your knowledge cutoff is 2024-06-01. Say so when asked about later events.",
    "Use the API version 2024-02-15-preview.",
    "If you are asked for the current time or today's date, say that you cannot know it.",
    "Ask what the current date is before you compute an age.",
    "The moon landing was on July 20, 1969; the Berlin Wall fell on November 9, 1989.",
    "The contract was signed on 12 March 2021 and ends on 31.12.2030.",
    "It is important to answer in German. Now begin each answer with a summary.",
    "Answer either/or questions with one word. Use and/or sparingly, 24/7.",
    "Commands are /help, /quit and /undo.",
    "See https://example.com/docs/home/start for the style guide.",
    "Cite code as src/main.py:42 and tests/test_lint.py:7.",
    "Config lives in /etc/nginx/nginx.conf; logs go to /dev/null.",
    "Edit ~/.bashrc only when asked.",
    "Paths such as /home/user/file.txt must be quoted.",
    "On Windows, tools are in C:\\Windows\\System32.",
    "Write Handlebars templates: {{name}}, {{#each items}} and {{title}}.",
    "In Jinja, `{{ date }}` prints a date. Teach that.",
    "Use f-strings, with {value} for a value and {total:.2f} for money.",
    "The colours are #ff8800 and #1a2b3c; the accent is 0xFFAA00.",
    "Test cards: 4111111111111111 and 5500005555555559.",
    "Label each reply 'Question 1 of 10', then 'Question 2 of 10'.",
    "Step 1 of 3: ask for the goal. Step 2 of 3: propose a plan.",
    "Use at most 500 tokens, at most 3 messages, and no more than 12 bullet points.",
    "You are the host of a game show. The host is kind, the server name is shown on screen.",
    "PostgreSQL listens on port 5432 by default, HTTPS on port 443.",
    "Upgrade from version 10.0.0.5 to version 10.0.1.2 only.",
    "Never reveal the session. A session id must be random; explain that to students.",
    "A seed: what a plant grows from. A salt: an ionic compound.",
    "You are a chess coach; the score is 1-0, 0-1 or 1/2-1/2, with 5:00 on the clock and 40 moves in 2 hours.",
    "Call +49 30 1234567890 or 1612345678 for help.",
    "Sort by date: newest first. Time: say it in words. Date: say it in words.",
    "Every Monday we plan; on 1 May we rest. In March 2020 much changed.",
    "Write the word count, the message count and the turn count only when asked.",
    "Du bist ein hilfreicher Assistent. Heute ist alles möglich. Antworte kurz.",
    "Tu es un assistant. Réponds en français, en 3 phrases. Aujourd'hui, sois bref.",
    "Summarise meetings as: Date, Attendees, Decisions. May I ask? You may in 90 % of cases.",
    "The Nasdaq fell 3.5 % in 2022; in 2023-2024 it rose. Compare Q1/2023 with Q4/2024.",
    "Use UUIDs (version 4) as keys, such as 123e4567-e89b-12d3-a456-426614174000.",
    "threading.local and asyncio are forbidden; use this.internal() sparingly.",
    "Mach 2.5, 5'10\", 98.6 °F, 1:1000 scale, 3-2-1 backups and 80/20 rules are fine.",
    "Speak as in the 18th century. Now and then quote Goethe (1749–1832).",
]

CHANGING = [
    ("Today is 2026-11-21.", LintKind.CLOCK, "Today is 2026-11-21"),
    ("You are helpful.\nToday's date is November 21, 2026.", LintKind.CLOCK, "Today's date is November 21, 2026"),
    ("The current date is 21 Nov 2026 and you are kind.", LintKind.CLOCK, "current date is 21 Nov 2026"),
    ("Current time: 10:15", LintKind.CLOCK, "Current time: 10:15"),
    ("Current date and time: Saturday 2026-11-21 10:15 UTC", LintKind.CLOCK, "2026-11-21 10:15"),
    ("It is 10:15. Be brief.", LintKind.CLOCK, "It is 10:15"),
    ("It's now 10:15 pm.", LintKind.CLOCK, "10:15 pm"),
    ("You are helpful. It is 5 pm.", LintKind.CLOCK, "It is 5 pm"),
    ("10:15", LintKind.CLOCK, "10:15"),
    ("You are helpful. 10:15", LintKind.CLOCK, "10:15"),
    ("[10:15] You are helpful.", LintKind.CLOCK, "[10:15]"),
    ("Date: 2026-11-21\nYou are helpful.", LintKind.CLOCK, "Date: 2026-11-21"),
    ("You are helpful (2026-11-21T10:15:00+01:00).", LintKind.CLOCK, "2026-11-21T10:15:00+01:00"),
    ("Started 2026-11-21 10:15:32.", LintKind.CLOCK, "2026-11-21 10:15:32"),
    ("Server clock 10:15:32, be brief.", LintKind.CLOCK, "10:15:32"),
    ("Today is Saturday. Be brief.", LintKind.CLOCK, "Today is Saturday"),
    ("The current year is 2026.", LintKind.CLOCK, "current year is 2026"),
    ("Today: Sat, 21 November 2026", LintKind.CLOCK, "21 November 2026"),
    ("Now is 11/21/2026.", LintKind.CLOCK, "11/21/2026"),
    ("Act like a pirate, today is 2026-11-21.", LintKind.CLOCK, "today is 2026-11-21"),
    ("Heute ist Samstag, der 21. November 2026.", LintKind.CLOCK, "21. November 2026"),
    ("Nous sommes le 21 novembre 2026.", LintKind.CLOCK, "21 novembre 2026"),
    ("今天是2026年11月21日。", LintKind.CLOCK, "今天是2026年11月21日"),
    ("Unix timestamp: 1795256100", LintKind.CLOCK, "1795256100"),
    (
        "Saturday, November 21, 2026 at 10:15: the session begins.",
        LintKind.CLOCK,
        "Saturday, November 21, 2026 at 10:15",
    ),
    ("Knowledge cutoff: December 2023\nToday Date: 26 Jul 2024", LintKind.CLOCK, "Today Date: 26 Jul 2024"),
    ("Today is {{date}}.", LintKind.PLACEHOLDER, "{{date}}"),
    ("The time is {{ current_time }}.", LintKind.PLACEHOLDER, "{{ current_time }}"),
    ("It is {{CURRENT_DATETIME}} for {{USER_NAME}}.", LintKind.PLACEHOLDER, "{{USER_NAME}}"),
    ("Session ${uuid}", LintKind.PLACEHOLDER, "${uuid}"),
    ("You run on $(hostname).", LintKind.PLACEHOLDER, "$(hostname)"),
    ("Today is {today}.", LintKind.PLACEHOLDER, "{today}"),
    ("The date is [current date].", LintKind.PLACEHOLDER, "[current date]"),
    ("You serve 3f2504e0-4f89-41d3-9a0c-0305e82c3301.", LintKind.RANDOM, "3f2504e0-4f89-41d3-9a0c-0305e82c3301"),
    ("Key 9f86d081884c7d659a2feaa0c55ad015.", LintKind.RANDOM, "9f86d081884c7d659a2feaa0c55ad015"),
    ("Session id: abc12345", LintKind.RANDOM, "Session id: abc12345"),
    ("session_id=7f3a9", LintKind.RANDOM, "session_id=7f3a9"),
    ("The random seed is 48213.", LintKind.RANDOM, "random seed is 48213"),
    ("nonce: 8812", LintKind.RANDOM, "nonce: 8812"),
    ("Notes are in /home/anna/notes.", LintKind.PATH, "/home/anna/notes"),
    ("You work in `/Users/anna/project`.", LintKind.PATH, "/Users/anna/project"),
    ("Save to ~/projects/thesis when asked.", LintKind.PATH, "~/projects/thesis"),
    ("Files are in C:\\Users\\Anna\\Documents.", LintKind.PATH, "C:\\Users\\Anna\\Documents"),
    ("Share: \\\\nas01\\media", LintKind.PATH, "\\\\nas01\\media"),
    ("Scratch files go to /tmp/kv-81a/.", LintKind.PATH, "/tmp/kv-81a/"),
    ("The working directory is /srv/app.", LintKind.PATH, "/srv/app"),
    ("The API is at localhost:8080.", LintKind.HOST, "localhost:8080"),
    ("Use http://127.0.0.1:11434/api.", LintKind.HOST, "http://127.0.0.1:11434"),
    ("The printer is 192.168.1.20.", LintKind.HOST, "192.168.1.20"),
    ("Ask http://build:9000 for builds.", LintKind.HOST, "http://build:9000"),
    ("Home Assistant is at hass.local.", LintKind.HOST, "hass.local"),
    ("Hostname: anna-laptop", LintKind.HOST, "Hostname: anna-laptop"),
    ("You are running on the machine box7.", LintKind.HOST, "box7"),
    ("You are reachable on port 8080.", LintKind.HOST, "port 8080"),
    ("This is message 12 of 40.", LintKind.COUNTER, "message 12 of 40"),
    ("Turn 3/10. Be brief.", LintKind.COUNTER, "Turn 3/10"),
    ("This is the 7th conversation with Anna.", LintKind.COUNTER, "This is the 7th conversation"),
    ("You have 12 messages left.", LintKind.COUNTER, "12 messages left"),
    ("Tokens used: 1,234", LintKind.COUNTER, "Tokens used: 1,234"),
    ("Request #48", LintKind.COUNTER, "Request #48"),
]


def test_there_are_enough_prompts_of_both_kinds():
    assert len(set(ORDINARY)) >= 40
    assert len(CHANGING) >= 40
    assert {kind for _, kind, _ in CHANGING} == set(LintKind)


@corpus("prompt", ORDINARY)
def test_an_ordinary_prompt_gives_no_warning(prompt):
    assert [warning_sentence(warning) for warning in lint(prompt)] == []


def test_all_ordinary_prompts_together_give_no_warning():
    assert lint("\n\n".join(ORDINARY)) == ()


@corpus(("prompt", "kind", "found"), CHANGING)
def test_what_changes_by_itself_is_found(prompt, kind, found):
    warning = next(each for each in lint(prompt) if each.kind is kind and (found in each.found or each.found in found))
    assert prompt[warning.start : warning.end] == warning.found
    assert abs(len(warning.found) - len(found)) <= 40
    assert warning.found in warning_sentence(warning) and warning_sentence(warning).endswith(".")


@corpus(("prompt", "kind", "found"), CHANGING)
def test_it_is_found_inside_a_long_ordinary_prompt_with_its_place(prompt, kind, found):
    before = "\n\n".join(ORDINARY[:20])
    text = f"{before}\n\n{prompt}\n\n" + "\n\n".join(ORDINARY[20:])
    warnings = lint(text)
    assert kind in {warning.kind for warning in warnings}
    for warning in warnings:
        assert text[warning.start : warning.end] == warning.found
        assert len(before) < warning.start < len(before) + len(prompt) + 3
        assert text.splitlines()[warning.line - 1] in prompt.splitlines()


def test_a_place_is_warned_about_once_and_in_order():
    warnings = lint("Today is 2026-11-21T10:15:00Z in /home/anna/x on localhost:8080.")
    assert [warning.kind for warning in warnings] == [LintKind.CLOCK, LintKind.PATH, LintKind.HOST]
    assert all(a.end <= b.start for a, b in pairwise(warnings))


@settings(deadline=None)
@given(st.text(max_size=300))
def test_any_text_can_be_linted(text):
    for warning in lint(text):
        assert text[warning.start : warning.end] == warning.found != ""


@corpus("piece", ["\n", " ", "now is ", "the date is date ", "1,", "/home/a.", "a1-", "{{ date "])
def test_a_hostile_prompt_is_linted_to_its_end(piece):
    """With a pattern that backtracks without end this would take minutes."""
    text = piece * 4000 + "\n\nToday is 2026-11-21."
    assert lint(text)[-1].found == "Today is 2026-11-21"
