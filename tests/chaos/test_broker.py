"""Redis fails, forgets, fills up and is filled by others (F07 to F10). It carries hints: nothing depends on it."""

import base64
import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import redis

from chaos.conftest import WHOLE, Measure
from chaos.harness import PATIENCE_S, Site, seconds_until
from chaos.programs import Witness
from chaos.test_hosts import run_some_steps
from drumline import Run
from drumline.contracts.api import Attempt
from drumline.contracts.base import new_id
from drumline.contracts.heartbeats import queue_name
from drumline_server.storage.notifications import Publisher
from support.hosts import ExtraHost
from support.processes import name_of, wait_until

BY_HEARTBEAT_S = 10.0
"""A heartbeat every 5 s brings what nobody was notified of."""
RUNS = 4
ALARM = "no broker: "
CHILD_ENDED = "the Celery child ended with exit code"
pytestmark = WHOLE


def test_f07_runs_start_while_redis_is_gone_after_it_came_back_empty_and_while_it_is_flushed(
    whole: tuple[Site, ExtraHost], quick: Path, measured: Measure
) -> None:
    site, _ = whole
    site.broker.stop()
    runs = [site.submit(quick, f"gone-{number}") for number in range(RUNS)]
    measured("started without Redis", _latest_start_s(site, runs), site.within(BY_HEARTBEAT_S))
    site.broker.start()
    runs = [site.submit(quick, f"back-{number}") for number in range(RUNS)]
    measured("started by an empty Redis", _latest_start_s(site, runs), site.within(BY_HEARTBEAT_S))
    runs = []
    with _redis(site) as client:
        for number in range(RUNS):
            runs.append(site.submit(quick, f"flushed-{number}"))
            client.flushall()
    measured("started under FLUSHALL", _latest_start_s(site, runs), site.within(BY_HEARTBEAT_S))


def test_f08_submissions_are_taken_and_runs_start_while_redis_is_out_of_memory(
    whole: tuple[Site, ExtraHost], quick: Path, measured: Measure
) -> None:
    site, _ = whole
    alarms = site.server.said.count(ALARM)
    with _redis(site) as client:
        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("maxmemory", 1)
        runs = [site.submit(quick, f"full-{number}") for number in range(RUNS)]
        alarm_s = seconds_until(lambda: site.server.said.count(ALARM) > alarms, "the server says so")
        measured("started with a full Redis", _latest_start_s(site, runs), site.within(BY_HEARTBEAT_S))
        measured("the server says so", alarm_s, site.within(10))
        assert site.broker.notifications(site.fleet()[0].id) == 0
        client.config_set("maxmemory", 0)
        run = site.submit(quick, "room-again")
        site.finish(run)


def test_f09_doubled_reordered_and_replayed_notifications_run_nothing_twice(
    whole: tuple[Site, ExtraHost], stepping: Path, witness: Witness, chance: random.Random
) -> None:
    site, host = whole
    queue = queue_name(site.fleet()[0].id)
    with _redis(site) as client:
        celery = _celery_of(host)
        celery.suspend()
        wait_until(lambda: not _someone_waits(client), timeout_s=PATIENCE_S, what="nobody takes what comes")
        run = site.submit(stepping, replicas=2, parameters=witness.parameters)
        wait_until(lambda: client.llen(queue) > 0, timeout_s=PATIENCE_S, what="its host was notified")
        sent = client.lrange(queue, 0, -1)
        assert isinstance(sent, list)
        copies = [_renamed(copy, chance) for copy in sent for _ in range(20)] + sent
        chance.shuffle(copies)
        client.lpush(queue, *copies)
        celery.resume()
        run_some_steps(witness, chance)
        client.lpush(queue, *copies)
        wait_until(lambda: client.llen(queue) == 0, timeout_s=PATIENCE_S, what="the copies were read")
        witness.enough.touch()
        assert site.finish(run).state == "SUCCEEDED"
        client.lpush(queue, *copies)
        wait_until(lambda: client.llen(queue) == 0, timeout_s=PATIENCE_S, what="the old copies were read")

    assert len(witness.executions()) == run.details.attempts == 1
    claims = [event for event in run.events() if event.kind == "member" and event.body["state"] == "CLAIMED"]
    assert len(claims) == 1


def test_f10_malformed_and_forged_notifications_cost_one_start_of_the_celery_child(
    *,
    whole: tuple[Site, ExtraHost],
    quick: Path,
    stepping: Path,
    witness: Witness,
    chance: random.Random,
    measured: Measure,
) -> None:
    site, host = whole
    ended = host.said.count(CHILD_ENDED)
    kept = site.submit(stepping, "kept", parameters=witness.parameters)
    run_some_steps(witness, chance)
    (attempt,) = kept.attempts
    celery = _celery_of(host)
    alpha = site.fleet()[0].id
    queue = queue_name(alpha)
    with _redis(site) as client:
        genuine = _genuine(site, client)
        client.lpush(queue, *_malformed(genuine), *_fuzzed(genuine, chance), *_forged(genuine, attempt))
        started = _latest_start_s(site, [site.submit(quick, "after")])
        wait_until(lambda: not celery.is_running(), timeout_s=PATIENCE_S, what="the poison ended the child")
        wait_until(lambda: client.llen(queue) == 0, timeout_s=PATIENCE_S, what="its successor emptied the queue")
        successor = _celery_of(host)
        wait_until(lambda: _someone_waits(client), timeout_s=PATIENCE_S, what="it listens")
        client.lpush(queue, *_forged(genuine, attempt))
        site.finish(site.submit(quick, "notified"))
        wait_until(lambda: client.llen(queue) == 0, timeout_s=PATIENCE_S, what="what was forged was read")
        assert _celery_of(host) == successor, "it took what it could decode"
    assert host.said.count(CHILD_ENDED) == ended + 1
    witness.enough.touch()

    assert site.finish(kept).state == "SUCCEEDED"
    assert len(witness.executions()) == kept.details.attempts == 1
    measured("a run started after it", started, site.within(5 + 1))


def _latest_start_s(site: Site, runs: list[Run]) -> float:
    """Seconds from the placement to the claim, of the run that waited longest."""
    waits = []
    for run in runs:
        assert site.finish(run).state == "SUCCEEDED", run.reason
        (attempt,) = run.attempts
        claimed_at = next(event.at for event in run.events() if event.body.get("state") == "CLAIMED")
        waits.append((claimed_at - attempt.created_at).total_seconds())
    return max(waits)


@contextmanager
def _redis(site: Site) -> Iterator[redis.Redis]:
    with redis.Redis(unix_socket_path=str(site.broker.socket)) as client:
        yield client


def _celery_of(host: ExtraHost) -> psutil.Process:
    found: list[psutil.Process] = []

    def look() -> bool:
        found[:] = [process for process in host.processes() if name_of(process) == "drumline-celery"]
        return bool(found)

    wait_until(look, timeout_s=PATIENCE_S, what="the Celery child is there")
    return found[0]


def _someone_waits(client: redis.Redis) -> bool:
    """Whether a Celery child waits for the next message."""
    clients = client.info("clients")
    assert isinstance(clients, dict)
    return bool(clients["blocked_clients"])


def _renamed(message: Any, chance: random.Random) -> bytes:
    """The same under another delivery tag and task id, as a publisher that repeats itself makes it."""
    copy = json.loads(message)
    copy["properties"]["delivery_tag"] = f"{chance.getrandbits(128):032x}"
    copy["headers"]["id"] = copy["properties"]["correlation_id"] = f"{chance.getrandbits(128):032x}"
    return json.dumps(copy).encode()


def _genuine(site: Site, client: redis.Redis) -> bytes:
    """A message as the server makes it, for a host that does not exist."""
    nobody = new_id("hst")
    publisher = Publisher(site.broker.url)
    publisher.notify(nobody)
    publisher.close()
    message = client.lpop(queue_name(nobody))
    assert isinstance(message, bytes)
    return message


def _malformed(genuine: bytes) -> Iterator[bytes]:
    """What no publisher of ours sends."""
    yield from (b"", b"\x00", b"\xff\xfe", b"not json", b"null", b"[]", b"7", b"{}", b'{"body": 1}', b"[" * 5_000)
    message = json.loads(genuine)
    for part in message:
        yield json.dumps({name: value for name, value in message.items() if name != part}).encode()
    for part in message["properties"]:
        properties = {name: value for name, value in message["properties"].items() if name != part}
        yield json.dumps({**message, "properties": properties}).encode()
    changes: list[dict[str, Any]] = [
        {"content-type": "application/x-python-serialize"},
        {"content-type": "application/x-yaml"},
        {"content-encoding": "no such code"},
        {"body": "not base64!"},
        {"body": base64.b64encode(b"{").decode()},
        {"body": base64.b64encode(b"[[], {}]").decode()},
        {"headers": {**message["headers"], "task": "os.system"}},
        {"headers": {**message["headers"], "eta": "never"}},
        {"headers": {**message["headers"], "expires": "yesterday"}},
        {"headers": None},
        {"properties": None},
    ]
    yield from (json.dumps({**message, **change}).encode() for change in changes)


def _fuzzed(genuine: bytes, chance: random.Random) -> Iterator[bytes]:
    """A genuine message with some bytes changed."""
    for _ in range(50):
        mutant = bytearray(genuine)
        for _ in range(chance.randint(1, 5)):
            mutant[chance.randrange(len(mutant))] = chance.randrange(256)
        yield bytes(mutant)


def _forged(genuine: bytes, attempt: Attempt) -> Iterator[bytes]:
    """Notifications that would have the agent do something to a live member, if it used anything of them."""
    message = json.loads(genuine)
    member = attempt.members[0].id
    for fence in (attempt.fence, attempt.fence + 1):
        order = {"attempt": attempt.id, "member": member, "fence": fence, "assigned": [member], "fenced": [member]}
        body = json.dumps([[order], order, {}]).encode()
        yield json.dumps({**message, "body": base64.b64encode(body).decode()}).encode()
