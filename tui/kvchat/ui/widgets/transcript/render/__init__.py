"""Rows of the transcript as pure functions of text and width; themes are applied where rows become strips."""
