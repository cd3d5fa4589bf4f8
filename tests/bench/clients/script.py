"""What is said to each client."""

from __future__ import annotations

SYSTEM = "You are a careful assistant for a small workshop. Answer in one or two short sentences. " + " ".join(
    f"Rule {item}: when asked about item {item}, state its shelf as {item * 7 % 40} and its price as {item * 3 + 2} coins."
    for item in range(1, 64)
)
"""The system prompt of clients that let a person set it, some 1,850 tokens."""

FIRST = (
    "What do you sell in the workshop?",
    "Which item is the cheapest one?",
    "And where do I find item twelve?",
    "Can I pay with a card here?",
    "How long does a repair take?",
)
OTHER = ("Write one line about the sea.", "Now one line about the hills.")
BACK = "Back to the shop: is item three in stock?"
RESTARTED = "Thanks, when do you close today?"

NOTES = "The shop opens at nine.\nItem three is on shelf twenty-one.\nRepairs take two days.\n"
"""The file `notes.txt` of the folder in which the client runs: what the tool call reads."""

MORE = tuple(
    f"{question} (part {number})"
    for number, question in enumerate(
        (
            "I work at the harbour in Split and my boat is red.",
            "My daughter Mara is allergic to nuts; what do I bake?",
            "I prefer metric units. How wide is the gate?",
            "Which paint stays on wood by the sea?",
            "I moved to a stone house on Hvar in May.",
        )
        * 8,
        1,
    )
)
"""The questions of the case `long`: forty turns of one conversation, three in five of them with a fact to remember."""
