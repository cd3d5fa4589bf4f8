"""`kvchat list`, `search` and `stats` look into the store and load nothing else: they answer at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from kvchat.prompt.conversation import Conversation
from kvchat.prompt.message import Message, Role, new_id, node, system_message
from kvchat.store import Store
from whole_rows import add_nodes

HEAVY = ("asyncio", "httpx", "textual", "kvchat.chat", "kvchat.backends", "statistics")


@pytest.fixture
def talked(environment: dict[str, str]) -> str:
    """The id of the only conversation of the store."""
    store = Store.open(Path(environment["KVCHAT_DATA_DIR"]))
    root = node(None, system_message(""), 5.0)
    record = store.create(Conversation(new_id(), root.id, 5.0, 5.0, "the lamp"), root)
    question = node(store.tree(record.id)[record.head or ""], Message(Role.USER, "Who trims the wick?"), 6.0)
    add_nodes(store, replace(record, head=question.id, turns=1), [question])
    store.close()
    return record.id


@pytest.mark.process
@pytest.mark.parametrize("arguments", [("list",), ("list", "--json"), ("search", "wick"), ("stats",)])
def test_looking_something_up_loads_neither_the_service_nor_a_server(environment, talked, arguments) -> None:
    code = (
        "import sys; from kvchat.cli import main; status = main(sys.argv[2:]); "
        "print(*[name for name in sys.argv[1].split() if name in sys.modules], file=sys.stderr); sys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, " ".join(HEAVY), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and (talked[:8] in done.stdout or arguments == ("stats",))
    assert done.stderr.strip() == ""


@pytest.mark.process
def test_a_search_without_a_hit_says_so(environment, talked) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kvchat.cli", "search", "anchor"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "Nothing found.\n")
