"""Many ended runs with 20 fields each, made at once."""

import random
from functools import partial
from typing import Any

from sqlalchemy import insert, select, text
from sqlalchemy.orm import Session

from drumline.contracts.base import new_id
from drumline_server.storage import fields
from drumline_server.storage.models import Run, table_of
from support.core import Core

_PART = 500
_MINUTE_US = 60_000_000


def seed_runs(core: Core, runs: int) -> None:
    """A queued run, and before it one a minute, all ended, with 20 fields each."""
    first = core.queue().id
    mine = select(table_of(Run)).where(Run.id == first)
    with_columns = core.read(lambda session: dict(session.execute(mine).mappings().one()))
    with_columns["created_at"] -= runs * _MINUTE_US
    dice = random.Random(1)
    cache = "PRAGMA cache_size = {}"  # of the one connection that writes: rows go to places all over two indexes
    if core.database.url.startswith("sqlite"):
        core.write(lambda session: session.execute(text(cache.format(-262_144))))
    for start in range(1, runs, _PART):
        places = range(start, min(runs, start + _PART))
        core.write(partial(_seed_part, core=core, like=with_columns, places=places, dice=dice))
    if core.database.url.startswith("sqlite"):
        core.write(lambda session: session.execute(text(cache.format(-2_000))))
    assert core.run(first).id == first


def _seed_part(session: Session, core: Core, like: dict[str, Any], places: range, dice: random.Random) -> None:
    rows, found = [], {}
    for place, number in zip(places, fields.take_numbers(session, len(places)), strict=True):
        at = like["created_at"] + place * _MINUTE_US
        state = dice.choice(("SUCCEEDED", "SUCCEEDED", "SUCCEEDED", "FAILED", "CANCELLED"))
        changes = {"state": state, "job_name": f"digits-{place % 40}", "submitted_by": f"user-{place % 25}"}
        times = {"created_at": at, "started_at": at + 10, "ended_at": at + dice.randrange(10**9)}
        rows.append({**like, "id": new_id("run"), "number": number, **changes, **times, "event_seq": 0})
        found[number] = _fields(dice)
    session.execute(insert(table_of(Run)), rows)
    fields.add_fields(session, core.project_id, found)


def _fields(dice: random.Random) -> dict[str, fields.FieldValue]:
    numbers = {f"params.p{place}": fields.number_value(dice.random()) for place in range(12)}
    figures = {f"{which}.loss": fields.number_value(dice.random()) for which in ("last", "min", "max")}
    words = {
        "params.opt": ("adam", "adagrad", "sgd", "lion"),
        "labels.team": ("blue", "red"),
        "params.init": ("a", "b", "c"),
    }
    texts = {name: fields.text_value(dice.choice(choices)) for name, choices in words.items()}
    return {
        **numbers,
        **figures,
        **texts,
        "result.loss": fields.number_value(dice.random()),
        "params.seed": fields.number_value(dice.randrange(2**60)),
    }
