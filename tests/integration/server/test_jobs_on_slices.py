"""Jobs of the strategy tpu: which devices they take."""

from typing import Any

import pytest

from drumline.contracts.problems import ProblemCode
from drumline.contracts.states import RunState
from drumline_server.base.errors import DrumlineError
from support.core import Core

pytestmark = pytest.mark.both_databases


def test_a_job_of_the_strategy_tpu_that_takes_any_platform_takes_no_other_than_tpu_devices(core: Core) -> None:
    core.add_worker("alpha", platform="gpu")
    on_slices: dict[str, Any] = {"job": {"strategy": {"kind": "tpu"}}, "resources": {"replicas": 2}}

    with pytest.raises(DrumlineError) as caught:
        core.judge(**on_slices)
    error = caught.value
    assert error.code is ProblemCode.TOO_MANY_REPLICAS
    assert "no host with tpu devices is registered: the hosts have 8 gpu devices" in error.detail
    assert "the strategy tpu takes tpu devices unless a platform is named" in error.detail
    assert error.hint.startswith("Ask for platform gpu, or set wait_for_devices")

    waiting = core.submit(**on_slices, wait_for_devices=True)
    core.schedule()
    seen = core.run(waiting.id)
    assert (seen.state, seen.why and seen.why.rule) == (RunState.QUEUED, "no_such_platform")
    assert seen.why is not None
    assert "or any" not in seen.why.remedy

    beta = core.add_worker("beta", platform="tpu")
    core.schedule()
    (notice,) = beta.beat().assigned
    assert {device.platform for device in beta.claim(notice).devices} == {"tpu"}
