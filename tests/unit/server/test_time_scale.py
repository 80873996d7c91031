"""One validated factor scales every time of the protocol, for the server and, by its answer, for its workers."""

from pathlib import Path

import click
import pytest
from pydantic import ValidationError

from drumline.contracts.heartbeats import CLAIM_S, HEARTBEAT_S, SUSPECT_S, TAKEOVER_S, LeaseTimes, ServerTimes
from drumline.contracts.worker_api import Registered
from drumline_server import cli
from drumline_server.base.settings import Settings
from drumline_server.lifecycle.registration import worker_terms


@pytest.mark.parametrize("scale", [0.1, 0.2, 1.0, 10.0])
def test_the_factor_scales_what_is_set_and_what_is_not(scale: float, tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, time_scale=scale, takeover_s=45)

    assert settings.times == ServerTimes(
        scale=scale,
        heartbeat_s=scale * HEARTBEAT_S,
        suspect_s=scale * SUSPECT_S,
        takeover_s=scale * 45,
        claim_s=scale * CLAIM_S,
    )


def test_without_a_factor_times_are_those_of_production(tmp_path: Path) -> None:
    times = Settings(data_dir=tmp_path).times
    assert (times.scale, times.heartbeat_s, times.takeover_s) == (1.0, HEARTBEAT_S, TAKEOVER_S)


@pytest.mark.parametrize("scale", [0.1, 0.2, 1.0, 10.0])
def test_at_every_factor_a_program_is_dead_before_another_begins_and_warned_before_that(scale: float) -> None:
    lease = LeaseTimes(scale * TAKEOVER_S, scale)

    assert 0 < 3 * scale * HEARTBEAT_S < lease.term_s < lease.kill_s < lease.takeover_s
    assert lease.gang_dump_s > scale * HEARTBEAT_S, "the others hear of a hang by heartbeat"


def test_a_worker_is_told_the_factor_with_the_times_in_force(tmp_path: Path) -> None:
    terms = worker_terms(Settings(data_dir=tmp_path, time_scale=0.2))
    assert (terms.time_scale, terms.heartbeat_s, terms.takeover_s) == (0.2, 1.0, 24.0)


@pytest.mark.parametrize("wrong", ["0.05", "11", "nan", "-1", "fast"])
def test_a_factor_out_of_bounds_is_refused_by_name(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRUMLINE_TIME_SCALE", wrong)
    with pytest.raises(click.ClickException, match=r"^DRUMLINE_TIME_SCALE: Input should be "):
        cli._settings()


def test_a_worker_takes_no_factor_out_of_bounds_from_a_server() -> None:
    fields = Registered.model_fields["time_scale"]
    assert fields.default == 1.0
    with pytest.raises(ValidationError, match="time_scale"):
        Registered.model_validate({"time_scale": 0.01})
