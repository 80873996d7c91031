"""Hosts that wait to be notified: each once, the oldest first, and no more than there is room for."""

import threading

from drumline_server.storage.notifications import WaitingHosts


def test_a_host_waits_once_however_often_it_has_news() -> None:
    waiting = WaitingHosts()
    for host in ("a", "b", "a", "a"):
        waiting.put(host)
    assert [waiting.take(), waiting.take()] == ["a", "b"]
    waiting.put("a")
    assert waiting.take() == "a"


def test_of_too_many_the_oldest_is_dropped_and_counted() -> None:
    waiting = WaitingHosts(most=3)
    for number in range(5):
        waiting.put(f"host {number}")
    assert waiting.dropped == 2
    assert [waiting.take() for _ in range(3)] == ["host 2", "host 3", "host 4"]


def test_whoever_waits_is_let_go_at_the_end() -> None:
    waiting = WaitingHosts()
    taken: list[str | None] = []
    taker = threading.Thread(target=lambda: taken.append(waiting.take()))
    taker.start()
    waiting.close()
    taker.join(10)
    assert taken == [None]
    waiting.put("late")
    assert waiting.take() is None
