"""Fixtures of the backends' tests."""

from __future__ import annotations

import pytest
from backend_kit import Heard


@pytest.fixture
def heard() -> Heard:
    return Heard()
