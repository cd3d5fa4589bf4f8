"""What can be done with a message that does not fit: what the server counted too long is not sent."""

from __future__ import annotations

import pytest

from kvchat.chat.errors import TooLongError
from kvchat.text.messages import too_long_lines
from kvchat.ui.controllers.too_long import choices


@pytest.mark.parametrize("tokens", [4096, 5200, 108_969])
@pytest.mark.parametrize("used", [None, 1200])
def test_what_the_server_counted_too_long_cannot_be_sent_anyway(tokens: int, used: int | None) -> None:
    """It would refuse it: "Send anyway" prefilled nothing and gave an error."""
    counted = TooLongError(tokens, 4096, counted=True)
    assert [key for key, _, _ in choices(counted, used, None)] == ["e"]
    assert f"The prompt has {tokens:,} tokens" in too_long_lines(tokens, 4096, used, is_counted=True)[0]
    estimated = TooLongError(tokens, 4096, counted=False)
    assert [key for key, _, _ in choices(estimated, used, None)] == ["e", "s"]
    assert "about" in too_long_lines(tokens, 4096, used, is_counted=False)[0]
