"""Shows where the time of runs went: of one run, and of many by owner, host or project, with its cost."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import Row, func, select
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.base import from_micros
from drumline.contracts.spent import GROUPS, SENTENCES, Spent
from drumline_server.base.callers import decode_cursor, encode_cursor
from drumline_server.base.settings import Settings
from drumline_server.lifecycle.transitions import Amount, Place, read_account
from drumline_server.storage.models import Host, LedgerEntry, Project
from drumline_server.storage.runs import hosts_by_id, require_run

By = Literal["owner", "host", "project"]
_US = 1_000_000
_HOUR_US = 3_600 * _US
_ORDER = {name: place for place, name in enumerate(Spent)}


@dataclass(frozen=True, slots=True)
class Rates:
    """What an hour of a device costs, by kind."""

    by_kind: Mapping[str, float]
    currency: str

    @classmethod
    def of(cls, settings: Settings) -> "Rates":
        """As the operator set them."""
        return cls(settings.device_rates, settings.currency)

    def cost(self, spent: Iterable[tuple[str, int]]) -> float | None:
        """Of device-microseconds by kind; None where one has no rate."""
        total = 0.0
        for kind, device_us in spent:
            rate = self.by_kind.get(kind)
            if device_us and rate is None:
                return None
            total += device_us / _HOUR_US * (rate or 0.0)
        return total if self.by_kind else None


@dataclass(frozen=True, slots=True)
class Period:
    """Runs that ended from `start` on and before `end`; `by` what they are summed up."""

    by: By
    start: int
    end: int


_Spent = Mapping[tuple[Place, Spent], Amount]


def get_ledger(session: Session, project_id: str, run_id: str, rates: Rates, *, now: int) -> api.Ledger:
    """Of one run, live or ended. Raises NotFoundError."""
    run = require_run(session, project_id, run_id)
    account = read_account(session, run, now=now)
    amounts = account.amounts
    hosts = hosts_by_id(session, [place.host_id for place, _ in amounts if place.host_id])
    places = []
    for place in sorted({place for place, _ in amounts}, key=lambda place: (place.host_id, place.kind)):
        here = {key: amount for key, amount in amounts.items() if key[0] == place}
        host = hosts.get(place.host_id)
        places.append(
            api.LedgerPlace(
                host=place.host_id or None,
                host_name=host.name if host else None,
                device_kind=place.kind or None,
                **_totals(here, rates),
                lines=_lines(here, rates),
            )
        )
    return api.Ledger(
        run=run.id,
        began_at=from_micros(run.created_at),
        until=from_micros(account.until),
        **_totals(amounts, rates),
        currency=rates.currency,
        lines=_lines(amounts, rates),
        places=tuple(places),
    )


def list_sums(
    session: Session, project_id: str, period: Period, rates: Rates, *, cursor: str | None, limit: int
) -> api.Page[api.LedgerSum]:
    """Of the runs that ended in a period, by key."""
    key = {"owner": LedgerEntry.owner, "host": LedgerEntry.host_id, "project": LedgerEntry.project_id}[period.by]
    ended = (
        LedgerEntry.project_id == project_id,
        LedgerEntry.ended_at >= period.start,
        LedgerEntry.ended_at < period.end,
    )
    counts = select(key, func.count(LedgerEntry.run_id.distinct())).where(*ended)
    if cursor is not None:
        (after,) = decode_cursor(cursor, str)
        counts = counts.where(key > after)
    runs = session.execute(counts.group_by(key).order_by(key).limit(limit + 1)).all()
    shown = {row[0]: row[1] for row in runs[:limit]}
    columns = (key, LedgerEntry.device_kind, LedgerEntry.name)
    sums = func.sum(LedgerEntry.wall_us), func.sum(LedgerEntry.device_us)
    found: dict[str, dict[tuple[Place, Spent], Amount]] = defaultdict(dict)
    for row in session.execute(select(*columns, *sums).where(*ended, key.in_(shown)).group_by(*columns)):
        _note(found[row[0]], row)
    labels = _labels(session, period.by, shown)
    items = tuple(
        api.LedgerSum(
            key=each,
            label=labels.get(each, each),
            runs=count,
            **_totals(found[each], rates),
            currency=rates.currency,
            lines=_lines(found[each], rates),
        )
        for each, count in shown.items()
    )
    return api.Page(items=items, next=encode_cursor(items[-1].key) if len(runs) > limit else None)


def _note(amounts: dict[tuple[Place, Spent], Amount], row: Row[str, str, str, int, int]) -> None:
    _, kind, name, wall_us, device_us = row
    amounts[Place("", kind), Spent(name)] = Amount(float(wall_us), int(device_us))


def _labels(session: Session, by: By, keys: Iterable[str]) -> dict[str, str]:
    """What people call them."""
    if by == "owner":
        return {}
    if by == "project":
        return {
            each: name for each, name in session.execute(select(Project.id, Project.name).where(Project.id.in_(keys)))
        }
    names = {each: name for each, name in session.execute(select(Host.id, Host.name).where(Host.id.in_(keys)))}
    return {"": "without a host", **names}


def _totals(amounts: _Spent, rates: Rates) -> dict[str, float | None]:
    return {
        "wall_s": sum(amount.wall_us for amount in amounts.values()) / _US,
        "device_s": sum(amount.device_us for amount in amounts.values()) / _US,
        "cost": rates.cost((place.kind, amount.device_us) for (place, _), amount in amounts.items()),
    }


def _lines(amounts: _Spent, rates: Rates) -> tuple[api.LedgerLine, ...]:
    by_name: dict[Spent, dict[tuple[Place, Spent], Amount]] = defaultdict(dict)
    for (place, name), amount in amounts.items():
        by_name[name][place, name] = amount
    return tuple(
        api.LedgerLine(name=name, group=GROUPS[name], sentence=SENTENCES[name], **_totals(by_name[name], rates))
        for name in sorted(by_name, key=_ORDER.__getitem__)
    )
