"""Memory in words, the same in the app and on the command line: whether a conversation has it, why its work waits, why
something that a model found is not noted.
"""

from __future__ import annotations

from collections.abc import Mapping

WHY_OFF: Mapping[str, str] = {
    "": "Memory is on in this conversation.",
    "incognito": "An incognito run remembers nothing.",
    "settings": "Memory is switched off in the settings: memory.enabled = false.",
    "conversation": "Memory is off in this conversation.",
    "demo": "With the demo model nothing is noted by itself; a real model does it.",
    "internet": "This conversation goes to a service on the internet; memory.on_cloud = true allows memory there.",
}
"""Whether a conversation has memory, by why not."""


_JOBS: dict[str, str] = {
    "most": "the most messages that may wait",
    "enough": "enough new messages",
    "left": "the conversation was left",
    "rests": "the conversation rests",
    "asked": "you asked for it",
    "new_memories": "new memories",
    "new_texts": "new texts",
}


def job_reason(why: str) -> str:
    """Why a job waits (`store.jobs.JobReason`); the words of a failure stay as they are."""
    return _JOBS.get(why, why)


_REFUSALS: dict[str, str] = {
    "no_text": "the answer held no text",
    "no_json": "no JSON with a list of facts in it",
    "empty": "empty",
    "control": "control characters",
    "tokens": "template tokens",
    "markup": "markup",
    "secret": "a secret",
    "long": "longer than {} characters",
    "question": "a question",
    "unfinished": "not a whole sentence",
    "unnamed": "does not say who or what",
    "many": "more than {} at once",
    "nothing": "says nothing",
    "unsaid": "not in your own words: {}",
    "scattered": "not said in one place",
    "nowhere": "no message of yours",
    "turned": "turns around what you said",
    "number": "a number that you did not say there: {}",
    "count": "another number than you said for {}",
    "name": "a name that you did not say there: {}",
    "wordless": "there is no word in it",
    "deleted": "you deleted it",
    "address": "has an address in it",
    "order": "tells what to do",
    "identity": "says who you are",
    "pasted": "may be pasted",
    "both": "you said both",
    "of_others": "may be about somebody else",
    "signs": "not quite your signs",
    "not_you": "may not be about you",
    "replaces": "would replace what is noted",
    "of_profile": "it is about who you are",
    "with_address": "it has an address in it",
    "own_line": "what it corrects is your own line",
    "procedure": "a procedure, in the model's words",
    "unwritten": "its page could not be written",
}


def refusal(why: str, what: str = "") -> str:
    """The words for a reason (`memory.entry.Why`) and what it names."""
    return _REFUSALS[why].format(what)
