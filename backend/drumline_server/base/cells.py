"""Texts in a table that a spreadsheet will open."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet takes for the beginning of a formula."""


def inert_cell(text: str) -> str:
    """The text, with an apostrophe before it where a spreadsheet would compute with it."""
    return f"'{text}" if text.startswith(_FORMULA) else text
