"""A cancel at any moment leads to exactly one end, and its devices are free (F32)."""

import random
import time
from pathlib import Path

from chaos.harness import Site
from chaos.programs import PACING, write_program
from drumline.contracts.spec import Limits
from support.processes import wait_until

RUNS = 14
GRACE_S = 2.0
FREE_S = 5.0 + GRACE_S


def test_f32_a_cancel_at_any_moment_leads_to_one_end(site: Site, chance: random.Random, tmp_path: Path) -> None:
    """Before the claim, during the start, at the end, twice, and while the host is cut off."""
    line = site.proxy()
    host = site.add_host("alpha", cpu_devices=4, through=line)
    program = write_program(tmp_path, PACING)
    limits = Limits(grace_s=GRACE_S)
    cut_at = chance.randrange(RUNS - 3)
    asked = []
    for number in range(RUNS):
        run = site.submit(program, str(number), parameters={"steps": 10}, limits=limits)
        if number == cut_at:
            line.hold()
        if number == cut_at + 3:
            line.mend()
        time.sleep(chance.choice((0, chance.uniform(0, 3))))  # the cancel comes at any time
        for _ in range(chance.choice((1, 1, 2))):
            run.cancel()
        asked.append(run)

    for run in asked:
        site.finish(run)
        assert run.state in ("CANCELLED", "SUCCEEDED")
        assert sum(event.kind == "state" and bool(event.body.get("terminal")) for event in run.events()) == 1
    wait_until(lambda: site.fleet()[0].free_devices == 4, timeout_s=FREE_S, what="its devices are free")
    assert host.runners() == []
