"""Which builds of llama.cpp are known to have the rules that the simulator plays."""

from __future__ import annotations

import pytest

from kvchat.cache.llamacpp.cache_config import is_tested


def test_the_build_that_is_installed_here_is_one_that_the_tests_have_seen() -> None:
    """Whoever takes another build looks whether the simulator's rules hold there, and says so in `TESTED`."""
    xllamacpp = pytest.importorskip("xllamacpp")
    assert is_tested(f"b{xllamacpp.__version__.rpartition('.')[2]}-abc")


@pytest.mark.parametrize(
    ("build", "tested"), [("b8929-1a", False), ("b11600", False), ("b0-unknown", True), ("", True)]
)
def test_other_builds_are_not_taken_for_it(build: str, tested: bool) -> None:
    assert is_tested(build) is tested
