"""Whether a process that wrote can still be writing."""

import os
import subprocess
import sys

import pytest

from kvchat.store.presence.process_id import claim, is_gone, release

OWNER = "from kvchat.store.presence.process_id import claim; print(claim(), flush=True); input()"


def test_an_owner_of_this_process_lives_until_it_is_released() -> None:
    owner = claim()
    assert not is_gone(owner)
    release(owner)
    assert is_gone(owner) and is_gone(None) and is_gone("not a process")


@pytest.mark.process
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells a zombie")
def test_a_process_that_has_ended_is_gone_before_anybody_waits_for_it() -> None:
    other = subprocess.Popen([sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with other:
        assert other.stdin is not None and other.stdout is not None
        owner = other.stdout.readline().strip()
        assert not is_gone(owner)
        other.kill()
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)  # it is a zombie now
        assert is_gone(owner)
