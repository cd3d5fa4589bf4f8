"""`kvchat ask` and a model that a server on this machine passes on to the internet: not without a yes to that."""

from __future__ import annotations

from contextlib import closing

import pytest

from kvchat.store import Store
from standins.ollama import OllamaStandIn, StandInModel

AWAY = "https://ollama.com:443"
SECRET = "My diary says"
CLOUD, NEAR = StandInModel("big:120b-cloud", remote_host=AWAY), StandInModel("toy:1b")


def sent(server: OllamaStandIn) -> bool:
    return any(SECRET.encode() in visit.body for visit in server.visits)


@pytest.mark.parametrize(
    ("models", "options"),
    [
        ((CLOUD,), ()),
        ((CLOUD, NEAR), ("-m", "big:120b-cloud")),
        ((NEAR, CLOUD), ("-m", "big:120b-cloud")),
        ((NEAR,), ("-m", "huge:1t-cloud")),
        ((), ("-m", "huge:cloud")),
    ],
    ids=["the only one", "named", "named beside a near one", "not listed", "nothing listed"],
)
async def test_nothing_is_sent_and_it_is_said_how_to_agree(run, models, options) -> None:
    async with OllamaStandIn(*models) as server:
        done = await run("--base-url", server.url, *options, "ask", "--no-stdin", SECRET)
        assert done.status == 1 and not done.out and not sent(server)
        assert AWAY in done.err and "Nothing was sent" in done.err and "in the app" in done.err


async def test_a_model_that_runs_here_goes_before_it(run) -> None:
    async with OllamaStandIn(CLOUD, NEAR) as server:
        done = await run("--base-url", server.url, "ask", "--no-stdin", SECRET)
        assert done.status == 0 and sent(server)
        assert {visit.json["model"] for visit in server.visits if visit.path == "/api/chat"} == {"toy:1b"}


async def test_a_conversation_does_not_go_on_there_by_itself(run) -> None:
    async with OllamaStandIn(NEAR, CLOUD) as server:
        assert (await run("--base-url", server.url, "ask", "--no-stdin", "Hello")).status == 0
        done = await run("--base-url", server.url, "-m", "big:120b-cloud", "ask", "--no-stdin", "-c", SECRET)
        assert done.status == 1 and not sent(server)


async def test_who_agreed_is_not_asked_at_the_second_question(run, own_folders) -> None:
    async with OllamaStandIn(CLOUD) as server:
        assert (await run("--base-url", server.url, "ask", "--no-stdin", "Hello")).status == 1
        with closing(Store.open(own_folders / "data")) as store:
            store.set_setting(f"allowed cloud {AWAY}", "yes")
        assert (await run("--base-url", server.url, "ask", "--no-stdin", "Hello")).status == 0
        assert (await run("--base-url", server.url, "ask", "--no-stdin", "-c", SECRET)).status == 0
        assert sent(server)
