"""The first page, in one answer."""
