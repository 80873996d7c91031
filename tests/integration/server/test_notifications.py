"""Hosts are notified of what was committed, outside of every request, by a broker that may hang or be away."""

import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy.orm import Session

from drumline_server.app.application import create_app
from drumline_server.app.local import read_admin_token
from drumline_server.base.errors import BrokerUnavailableError
from drumline_server.base.settings import Settings, SystemClock
from drumline_server.storage.notifications import Notifier, Publisher, notified_hosts, notify
from support.broker import Broker
from support.core import Core
from support.processes import wait_until


@pytest.fixture
def heard(core: Core) -> Iterator[list[str]]:
    """The hosts that commits notify."""
    hosts: list[str] = []
    unsubscribe = core.database.commit_news.subscribe(lambda topics: hosts.extend(notified_hosts(topics)))
    yield hosts
    unsubscribe()


@pytest.fixture
def notifier(core: Core, broker: Broker) -> Iterator[Notifier]:
    notifier = Notifier(Publisher(broker.url), core.database.commit_news)
    yield notifier
    notifier.close()


def told(core: Core, host: str) -> None:
    """A commit with news for the host."""
    core.write(lambda session: notify(session, host))


def plural(notifier: Notifier, outcome: str, number: int) -> Callable[[], bool]:
    return lambda: notifier.counts()[outcome] >= number


def test_placement_and_cancel_notify_the_host(core: Core, heard: list[str]) -> None:
    worker = core.add_worker()
    run = core.submit()
    assert heard == []
    core.schedule()
    assert heard == [worker.host_id]
    worker.take().start()
    core.cancel(run.id)
    assert heard == [worker.host_id] * 2


def test_write_that_fails_notifies_nobody(core: Core, heard: list[str]) -> None:
    def fail(session: Session) -> None:
        notify(session, "hst_x")
        raise KeyError

    with pytest.raises(KeyError):
        core.write(fail)
    assert heard == []


def test_commit_puts_a_notification_into_the_queue_of_the_host(core: Core, notifier: Notifier, broker: Broker) -> None:
    broker.start()
    told(core, "hst_a")
    wait_until(lambda: broker.notifications("hst_a") == 1, timeout_s=20, what="the notification arrived")
    wait_until(plural(notifier, "sent", 1), timeout_s=20, what="it is counted")
    assert notifier.counts() == {"sent": 1, "failed": 0, "dropped": 0}


def test_notifier_goes_on_when_the_broker_is_back(
    core: Core, notifier: Notifier, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(3):
        told(core, f"hst_{number}")
        wait_until(plural(notifier, "failed", number + 1), timeout_s=20, what="no broker took it")
    assert caplog.text.count("no broker: ") == 1, "an outage is told once"
    broker.start()
    told(core, "hst_a")
    wait_until(lambda: broker.notifications("hst_a") == 1, timeout_s=20, what="the notification arrived")


def test_publication_to_a_broker_that_hangs_takes_a_second_at_most(broker: Broker) -> None:
    broker.start()
    publisher = Publisher(broker.url)
    publisher.notify("hst_a")
    broker.hang()
    try:
        took_s = []
        for _ in range(3):
            began = time.monotonic()
            with pytest.raises(BrokerUnavailableError):
                publisher.notify("hst_a")
            took_s.append(time.monotonic() - began)
        assert min(took_s) < 1.2, "the machine may hold up one of them, but not all"
    finally:
        broker.go_on()
    publisher.notify("hst_a")
    publisher.close()


def test_commits_are_as_quick_while_the_broker_hangs(core: Core, notifier: Notifier, broker: Broker) -> None:
    def median_s() -> float:
        took = []
        for number in range(40):
            began = time.perf_counter()
            told(core, f"hst_{number}")
            took.append(time.perf_counter() - began)
        return statistics.median(took)

    broker.start()
    told(core, "hst_a")
    wait_until(plural(notifier, "sent", 1), timeout_s=20, what="the broker answers")
    before_s = median_s()
    broker.hang()
    try:
        hanging_s = median_s()
        wait_until(plural(notifier, "failed", 1), timeout_s=20, what="the broker hangs")
    finally:
        broker.go_on()
    assert hanging_s < max(3 * before_s, 0.1), "a publication that hangs takes half a second"


def test_counts_are_among_the_metrics(tmp_path: Path, broker: Broker) -> None:
    broker.start()
    settings = Settings.model_validate({"data_dir": tmp_path / "data", "broker_url": broker.url, "loops": False})
    with TestClient(create_app(settings, clock=SystemClock()), base_url="http://localhost") as client:
        token = read_admin_token(settings.data_dir)
        text = client.get("/metrics", headers={"authorization": f"Bearer {token}"}).text
    assert "# TYPE drumline_notifications_total counter" in text
    assert 'drumline_notifications_total{outcome="dropped"} 0.0' in text
