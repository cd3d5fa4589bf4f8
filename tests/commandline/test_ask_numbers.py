"""Numbers on the command line that nobody can count with: one sentence, and nothing is sent."""

from __future__ import annotations

import pytest

HUGE = "9" * 400


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        (("-o", f"seed={HUGE}"), "seed must be from -1 to 4294967295"),
        (("-o", f"temperature={HUGE}"), "temperature must be from 0 to 5"),
        (("-o", "temperature=1e999"), "temperature must be from 0 to 5"),
        (("-o", f"top_n_sigma={HUGE}"), "top_n_sigma must not hold nan, inf or a whole number of more than 64 bits"),
        (("-o", "top_n_sigma=1e999"), "top_n_sigma must not hold nan"),
        (("-o", f'grammar={{"a": [{HUGE}]}}'), "grammar must not hold nan"),
        (("--max-tokens", HUGE), "max_tokens must be from 1 to 10000000"),
        (("--max-tokens", "9" * 5000), "max_tokens must be a whole number"),
        (("--temperature", HUGE), "temperature must be from 0 to 5"),
        (("--alternatives", HUGE), "answers cannot be asked for"),
    ],
)
async def test_a_number_that_is_too_large_is_told(run, option, sentence):
    done = await run("ask", "hello", *option)
    assert done.status == 2 and sentence in done.err and "Traceback" not in done.err


@pytest.mark.parametrize("name", ["KVCHAT_TIME_STAMP_MINUTES", "KVCHAT_PARAMETERS_SEED", "KVCHAT_PARAMETERS_TOP_P"])
async def test_in_a_variable_too(run, name):
    done = await run("config", "check", env={name: HUGE})
    assert name in done.out + done.err and "must be from" in done.out + done.err
