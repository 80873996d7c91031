"""Numbers in sentences."""


def counted(number: int, noun: str) -> str:
    """`1 replica`, `8 replicas`: a regular noun after its number."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
