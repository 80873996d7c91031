"""Runs are filtered, sorted, paged, counted and grouped by what they have: parameters, labels, results, metrics."""

import math
import random
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from sqlalchemy import text as sql
from sqlalchemy.orm import Session

from drumline.contracts import api
from drumline.contracts.reasons import EndReason
from drumline_server.base.callers import encode_cursor
from drumline_server.base.errors import FilterError, InvalidRequestError
from drumline_server.services.run_lists import RunList
from drumline_server.services.run_matching import find_names
from drumline_server.storage.fields import (
    MOST_METRICS,
    MOST_PARAMETERS,
    SPREAD_AFTER_US,
    note_metrics,
    spread_due,
)
from drumline_server.storage.history import lock_run
from drumline_server.storage.notifications import run_list
from support.attempts import again
from support.core import Core
from support.run_lists import count, found, mark, page_of, query, spread_fields, values, with_parameters

pytestmark = pytest.mark.both_databases


ODD: tuple[Any, ...] = (
    0.5,
    -1,
    math.inf,
    3,
    "adam",
    -math.inf,
    True,
    "Zoo",
    2**53 + 1,
    2**53,
    math.nan,
    None,
    "0.5",
    0.25,
)


def test_a_sort_has_numbers_then_nan_then_texts_then_what_is_not_there(core: Core) -> None:
    runs = with_parameters(core, *({"x": value} for value in ODD))
    by_value = dict(zip(map(str, ODD), runs, strict=True))
    numbers = [by_value[str(each)] for each in (-math.inf, -1, 0.25, 0.5, 3, 2**53, 2**53 + 1, math.inf)]
    # The text 0.5 has the name of the number in `by_value`, as the later one.
    numbers[3] = runs[0]
    texts = [runs[12], by_value["Zoo"], by_value["adam"], by_value["True"]]
    rest = [by_value["nan"]]

    assert found(core, sort="params.x") == [*numbers, *rest, *texts, by_value["None"]]
    assert found(core, sort="-params.x") == [*reversed(numbers), *rest, *reversed(texts), by_value["None"]]


@pytest.mark.parametrize(
    "sort", ["params.x", "-params.x", "params.y", "-params.y", "job", "-job", "-created", "duration"]
)
@pytest.mark.parametrize("limit", [1, 4])
def test_pages_in_any_order_give_each_run_once(core: Core, sort: str, limit: int) -> None:
    with_parameters(core, *({"x": value, "y": place % 3} for place, value in enumerate(ODD)))
    whole = found(core, sort=sort)

    assert len(set(whole)) == len(whole) == len(ODD)
    assert found(core, sort=sort, limit=limit) == whole
    assert found(core, sort=sort, offset=5, limit=limit) == whole[5:]
    assert found(core, "params.y != 1", sort, limit=limit) == [
        run for run in whole if run in found(core, "params.y != 1")
    ]


Holds = Callable[[dict[str, Any]], bool]


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


_LEAVES: Sequence[tuple[str, Holds]] = [
    ("params.a > 0.5", lambda run: _number(run.get("a")) and run["a"] > 0.5),
    ("params.a <= 0.25", lambda run: _number(run.get("a")) and run["a"] <= 0.25),
    ("params.b = adam", lambda run: run.get("b") == "adam"),
    ("params.b != adam", lambda run: "b" in run and run["b"] != "adam"),
    ("params.b ~ DA", lambda run: isinstance(run.get("b"), str) and "da" in run["b"].lower()),
    ("params.b in (sgd, 3)", lambda run: run.get("b") in ("sgd", 3)),
    ("params.a in (0.1, 0.7, x)", lambda run: run.get("a") in (0.1, 0.7, "x")),
    ("params.b < adam", lambda run: isinstance(run.get("b"), str) and run["b"] < "adam"),
    ("params.a", lambda run: "a" in run),
    ("replicas >= 2", lambda run: run["replicas"] >= 2),
    ("replicas in (1, 1.5, 8)", lambda run: run["replicas"] in (1, 8)),
    ("labels.team = 'blue'", lambda run: run.get("team") == "blue"),
    ("not state = failed", lambda run: True),
    ("duration > 1d", lambda run: False),
]


def _random_filter(dice: random.Random, depth: int) -> tuple[str, Holds]:
    if depth == 0 or dice.random() < 0.2:
        return dice.choice(_LEAVES)
    first, second = _random_filter(dice, depth - 1), _random_filter(dice, depth - 1)
    kind = dice.choice(("and", "or", "not"))
    if kind == "not":
        return f"not ({first[0]})", lambda run: not first[1](run)
    if kind == "and":
        return f"({first[0]}) and ({second[0]})", lambda run: first[1](run) and second[1](run)
    return f"({first[0]}) or ({second[0]})", lambda run: first[1](run) or second[1](run)


def test_a_whole_number_before_others_rounds_none_of_them(core: Core) -> None:
    runs = {replicas: core.queue(resources={"replicas": replicas}).id for replicas in (1, 2, 8)}

    assert found(core, "replicas in (1, 1.5)") == [runs[1]]
    assert found(core, "replicas in (7.5, 8)") == [runs[8]]


@pytest.mark.parametrize("sort", ["job", "duration", "version", "params.a", "created"])
def test_a_cursor_that_no_page_ended_with_is_refused(core: Core, sort: str) -> None:
    with_parameters(core, {"a": 1}, {"a": "x"})
    taken = 0
    for phase in (0, 1, 2, 3, 9, 2**70):
        for number in ("0x0p0", "inf", "nan", "0x1p80", "-0x1p63", "x"):
            for text, run in (("", 0), ("YQ==", 2**70), ("AA==", 1), ("YQ==", 1), ("", -1)):
                for now in (0, core.clock.now(), -(2**63), 2**80):
                    cursor = encode_cursor(zlib.crc32(sort.encode()), now, phase, number, text, run)
                    with suppress(InvalidRequestError):
                        core.read(partial(page_of, query(core, sort=sort), cursor, 0, 5))
                        taken += 1
    assert 0 < taken < 6 * 6 * 5 * 4


def test_any_filter_matches_what_a_plain_look_at_each_run_does(core: Core) -> None:
    dice = random.Random(7)
    runs: dict[str, dict[str, Any]] = {}
    for _ in range(40):
        has = {
            name: dice.choice(choices)
            for name, choices in (("a", (0.1, 0.25, 0.7, math.nan, "x")), ("b", ("adam", "Adagrad", "sgd", 3)))
            if dice.random() < 0.8
        }
        replicas, team = dice.choice((1, 2, 8)), dice.choice(("blue", "red"))
        run = core.queue(parameters=has, resources={"replicas": replicas}, labels={"team": team})
        runs[run.id] = {**has, "replicas": replicas, "team": team}
    for _ in range(120):
        where, holds = _random_filter(dice, 4)
        wanted = [run for run, has in runs.items() if holds(has)]

        assert found(core, where) == wanted, where
        assert count(core, where) == len(wanted), where


def test_whole_numbers_beyond_floats_are_told_apart(core: Core) -> None:
    runs = with_parameters(core, *({"seed": 2**53 + place} for place in range(4)), {"seed": 2**63 + 1})

    assert found(core, f"params.seed = {2**53 + 1}") == [runs[1]]
    assert found(core, f"params.seed > {2**53 + 1}") == runs[2:]
    assert values(core, runs[4], "params.seed") == {"params.seed": 2**63 + 1}


def test_metrics_are_fields_by_last_least_and_greatest(core: Core) -> None:
    worker = core.add_worker()
    run = core.submit(retries={"infrastructure": 9})
    core.schedule()
    member = worker.take().start()

    def log(*numbers: float, first_step: int = 0) -> None:
        names = ("loss",) * len(numbers)
        steps = tuple(range(first_step, first_step + len(numbers)))
        member.send(member.event("metrics", names=names, steps=steps, times=steps, values=numbers))

    log(3.0, math.nan, 1.0)
    log(2.0, -math.inf, 5.0, first_step=3)
    assert count(core, "not created < 2020-01-01") == 1
    spread_fields(core)

    assert values(core, run.id, "loss", "min.loss", "max.loss") == {
        "loss": 5.0,
        "min.loss": "-Infinity",
        "max.loss": 5.0,
    }
    assert found(core, "loss = 5 and min.loss < -1e300 and last.loss") == [run.id]
    member = again(core, worker, run.id, member)
    log(7.0)  # step 0 of the next attempt is newer than step 5 of the one before
    spread_fields(core)
    assert values(core, run.id, "loss", "max.loss") == {"loss": 7.0, "max.loss": 7.0}


def test_metrics_become_fields_while_a_batch_of_their_run_is_stored(core: Core) -> None:
    """The batch holds its run and then writes the figures; the loop holds these, and its rows refer to the run."""
    worker = core.add_worker()
    submitted = core.submit()
    core.schedule()
    member = worker.take().start()
    member.send(member.event("metrics", names=("loss",), steps=(0,), times=(0,), values=(1.0,)))
    due = core.clock.now() + SPREAD_AFTER_US

    def spread(session: Session) -> None:
        if is_postgresql:
            session.execute(sql("SET LOCAL lock_timeout = '5s'"))
        spread_due(session, now=due)

    def store(session: Session) -> None:
        run = lock_run(session, submitted.id)
        assert run is not None
        if is_postgresql:
            core.write(spread)
        note_metrics(session, run, {"loss": ([1], [2.0])}, fence=member.claimed.fence, now=core.clock.now())

    is_postgresql = core.database.url.startswith("postgresql")
    if not is_postgresql:  # which has one writer
        core.write(spread)
    core.write(store)

    assert found(core, "loss = 1") == [submitted.id]
    spread_fields(core)
    assert found(core, "loss = 2") == [submitted.id]


@pytest.mark.parametrize("cut", [1, 3, 6, 9])
def test_a_metric_in_lists_is_of_its_greatest_step_however_its_values_are_sent(core: Core, cut: int) -> None:
    worker = core.add_worker()
    run = core.submit()
    core.schedule()
    member = worker.take().start()
    # As MLflow's latest metric: the greatest step, of values at the same step the later one.
    logged = [
        (1, 10.0),
        (1, 11.0),
        (0, 5.0),
        (7, math.nan),
        (8, math.inf),
        (2**40, 3.0),
        (2**40, 4.0),
        (9, 6.0),
        (3, -1.0),
    ]
    for part in (logged[:cut], logged[cut:]):
        if part:
            steps, numbers = zip(*part, strict=True)
            member.send(member.event("metrics", names=("odd",) * len(part), steps=steps, times=steps, values=numbers))
    spread_fields(core)
    assert values(core, run.id, "odd", "min.odd", "max.odd") == {"odd": 4.0, "min.odd": -1.0, "max.odd": "Infinity"}


def test_lists_hear_of_a_metric_that_becomes_a_field_after_its_run_has_ended(core: Core) -> None:
    worker = core.add_worker()
    run = core.submit()
    core.schedule()
    member = worker.take().start()
    member.send(member.event("metrics", names=("loss",), steps=(0,), times=(0,), values=(1.0,)))
    member.end(EndReason.COMPLETED)
    heard: list[str] = []
    unsubscribe = core.database.commit_news.subscribe(heard.extend)
    spread_fields(core)
    unsubscribe()
    assert heard == [run_list(run.id)]
    assert found(core, "loss = 1") == [run.id]


def test_a_result_is_fields_once_the_program_returned(core: Core) -> None:
    worker = core.add_worker()
    run = core.submit()
    core.schedule()
    member = worker.take().start()
    member.send(
        member.event(
            "result", value={"loss": 0.25, "test": {"acc": "NaN"}, "name": "x"}, not_finite={"test.acc": "NaN"}
        )
    )

    shown = values(core, run.id, "result.loss", "result.test.acc", "result.name")
    assert shown == {"result.loss": 0.25, "result.test.acc": "NaN", "result.name": "x"}
    assert found(core, "result.test.acc = nan") == [run.id]


def test_a_run_keeps_so_many_names_as_fields_and_no_more(core: Core) -> None:
    worker = core.add_worker()
    with_parameters(core, {f"p{place}": {"a": place, "b": place} for place in range(MOST_PARAMETERS)})
    core.schedule()
    member = worker.take().start()
    names = tuple(f"m{place}" for place in range(MOST_METRICS + 20))
    column = tuple(range(len(names)))
    member.send(member.event("metrics", names=names, steps=column, times=column, values=tuple(map(float, column))))
    spread_fields(core)

    def names_of(part: str) -> int:
        return len(core.read(lambda session: find_names(session, core.project_id, part, 1000)).items)

    assert (names_of("params."), names_of("last."), names_of("min.")) == (MOST_PARAMETERS, MOST_METRICS, MOST_METRICS)


@pytest.mark.parametrize(
    ("where", "at", "nearest"),
    [
        ("parms.learning_rate > 0.1", 0, ["params.learning_rate"]),
        ("job = a and learning_rate > 0.1", 12, ["params.learning_rate"]),
        ("stat = FAILED", 0, ["state"]),
        ("created > yesterday", 10, []),
        ("replicas > many", 11, []),
        ("starred = 7", 0, []),
        ("state = FUNKY", 8, []),
        ("job = a or not state in (FAILED, runing)", 33, ["RUNNING"]),
        ("reason = PROGRAM_EROR", 9, ["PROGRAM_ERROR"]),
        ("strategy != 'miror'", 12, ["mirrored"]),
        ("platform = gpus", 11, ["gpu"]),
    ],
)
def test_what_no_run_has_is_named_with_the_nearest_that_one_has(
    core: Core, where: str, at: int, nearest: list[str]
) -> None:
    core.queue(parameters={"learning_rate": 0.5})
    with pytest.raises(FilterError) as refused:
        found(core, where)

    assert refused.value.context["at"] == at
    assert refused.value.context["nearest"][:1] == nearest


def test_groups_count_the_runs_that_match(core: Core) -> None:
    with_parameters(core, {"opt": "adam"}, {"opt": "adam"}, {"opt": "sgd"}, {"opt": 3}, {}, {"other": 1})

    def groups(by: str, where: str = "") -> dict[Any, tuple[int, str]]:
        answer: api.RunGroups = core.read(lambda session: RunList(session, query(core, where)).groups(by, 10))
        for group in answer.items:  # each says the filter that leaves only it
            assert count(core, f"({group.where})" + (f" and ({where})" if where else "")) == group.runs
        return {group.value: (group.runs, group.where) for group in answer.items}

    assert {value: runs for value, (runs, _) in groups("params.opt").items()} == {"adam": 2, None: 2, "sgd": 1, 3: 1}
    assert groups("params.opt", "params.opt != sgd")["adam"] == (2, 'params.opt = "adam"')
    assert groups("job")["digits"][0] == 6


def test_archived_runs_are_out_of_sight_unless_asked(core: Core) -> None:
    first, second = core.queue().id, core.queue().id
    mark(core, first, archived=True, starred=True)

    assert found(core) == found(core, "job = digits") == [second]
    assert found(core, "archived") == [first]
    assert [run.id for run in core.runs().items] == [second]
    assert count(core, "") == 1
    assert count(core, "starred and archived = true") == 1
