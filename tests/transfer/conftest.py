"""The sample conversations as fixtures."""

from __future__ import annotations

import pytest
from transfer_samples import branched_conversation, hostile_conversation

from kvchat.transfer.formats import Source


@pytest.fixture
def branched() -> Source:
    return branched_conversation()


@pytest.fixture
def hostile() -> Source:
    return hostile_conversation()
