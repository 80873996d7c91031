"""Only a genuine, fresh doorbell for this host becomes a ring."""

import time

import pytest
from pydantic import ValidationError

from drumline.contracts.doorbell import Doorbell, DoorbellError, ProbeDoorbell, derive_key, ring, ring_for_probe
from drumline.contracts.ids import new_id
from drumline_worker.celery_child.tasks import open_envelope
from drumline_worker.host.doorbell import CeleryConfig

HOST, ATTEMPT, MEMBER = new_id("hst"), new_id("att"), new_id("mem")
KEY = derive_key(b"secret", HOST, "k1")
CONFIG = CeleryConfig.model_validate(
    {"broker_url": "redis://nowhere", "queue": "q", "host": HOST, "kid": "k1", "key": KEY.hex(), "socket": "/nowhere"}
)


def _ring(key: bytes = KEY, kid: str = "k1", host: str = HOST) -> Doorbell:
    return ring(key, kid=kid, attempt=ATTEMPT, member=MEMBER, fence=3, host=host)


def test_a_genuine_doorbell_names_member_and_fence() -> None:
    opened = open_envelope(_ring().model_dump(mode="json"), CONFIG)
    assert (opened.member, opened.fence) == (MEMBER, 3)


def test_a_genuine_doorbell_of_a_probe_names_no_member() -> None:
    bell = ring_for_probe(KEY, kid="k1", plan=new_id("pln"), host=HOST)
    assert open_envelope(bell.model_dump(mode="json"), CONFIG).member is None


def test_an_expired_doorbell_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    envelope = _ring().model_dump(mode="json")
    later = time.time() + 601
    monkeypatch.setattr(time, "time", lambda: later)
    with pytest.raises(DoorbellError, match="expired"):
        open_envelope(envelope, CONFIG)


@pytest.mark.parametrize(
    "doorbell",
    [
        _ring(key=b"another key, of another host or none"),
        _ring(kid="k2"),
        _ring(host=new_id("hst")),
        _ring().model_copy(update={"fence": 4}),
        _ring().model_copy(update={"member": new_id("mem")}),
        _ring().model_copy(update={"exp": 2**40}),
        ring_for_probe(b"another key", kid="k1", plan=new_id("pln"), host=HOST),
    ],
    ids=["key", "kid", "host", "fence", "member", "expiry", "probe"],
)
def test_a_forged_doorbell_is_refused(doorbell: Doorbell | ProbeDoorbell) -> None:
    with pytest.raises(DoorbellError):
        open_envelope(doorbell.model_dump(mode="json"), CONFIG)


@pytest.mark.parametrize("envelope", [None, 3, "x", [], {}, {"v": 2}, {"v": 1, "member": "../../etc"}])
def test_what_is_no_doorbell_is_refused(envelope: object) -> None:
    with pytest.raises(ValidationError):
        open_envelope(envelope, CONFIG)
