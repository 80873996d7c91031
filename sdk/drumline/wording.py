"""Numbers in sentences."""


def counted(number: int, noun: str) -> str:
    """`1 replica`, `8 replicas`: a regular noun after its number."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def rate_text(per_second: float) -> str:
    """`0.0021`, `12.4`, `8,157`: three digits at least, and no exponent where a person reads the number."""
    return f"{per_second:,.0f}" if 1_000 <= per_second < 1e9 else f"{per_second:.3g}"


def size_text(count: int) -> str:
    """Bytes with a binary unit, such as `128 GiB`."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.0f} TiB"
