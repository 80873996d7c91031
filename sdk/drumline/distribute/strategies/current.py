"""The strategy that is current, as programs ask for it and set it."""

from __future__ import annotations

from typing import cast

from drumline.distribute.contexts import context
from drumline.distribute.strategies.strategy import Strategy


def get_strategy() -> Strategy:
    """The current strategy; outside every scope the default one (one replica)."""
    return cast(Strategy, context.current_strategy())


def set_strategy(strategy: Strategy | None) -> None:
    """Makes ``strategy`` current for the whole process; None undoes it. ContextError inside a scope."""
    context.set_global(strategy)


def experimental_set_strategy(strategy: Strategy | None) -> None:
    """As :func:`set_strategy`."""
    set_strategy(strategy)
