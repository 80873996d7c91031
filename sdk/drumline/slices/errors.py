"""What is wrong with a slice, or with what is to lie on it."""


class SliceError(ValueError):
    """A slice that does not exist, or blocks that do not fit one; the message names the value and the fix."""
