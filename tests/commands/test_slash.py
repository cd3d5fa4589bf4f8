"""What a text that begins with a slash means."""

from __future__ import annotations

from corpus import corpus
from kvchat.commands.slash import Parsed, parse


@corpus(
    ("text", "meant"),
    [
        ("/home/me/a.gguf", ("model", "/home/me/a.gguf")),
        ("~/my models/a.GGUF ", ("model", "~/my models/a.GGUF")),
        ("'/home/me/my model.gguf'", ("model", "/home/me/my model.gguf")),
        ("/a.gguf", ("model", "/a.gguf")),
        ("file:///m/a%20b.gguf", ("model", "/m/a b.gguf")),
        ("/model /home/me/a.gguf", ("model", "/home/me/a.gguf")),
        ("/attach ~/a.gguf", ("attach", "~/a.gguf")),
        ("what is /home/me/a.gguf", (None, "what is /home/me/a.gguf")),
        ("~/notes.md", (None, "~/notes.md")),
        ("//a.gguf", (None, "/a.gguf")),
    ],
)
def test_the_path_of_a_model_alone_chooses_it(text: str, meant: tuple[str | None, str]) -> None:
    assert parse(text) == Parsed(*meant)
