"""A program dies at each point of a save, or its checkpoint rots: it resumes from the last whole one (F30)."""

from pathlib import Path

from chaos.harness import Site
from chaos.programs import write_program
from drumline import Run
from drumline.checkpoints.store import Stage
from drumline.contracts.spec import Retries

STEPS, DEATH = 12, 7
"""Steps of the program, and the one in whose save it dies."""
DYING = '''
    import os
    import signal
    from pathlib import Path

    import numpy as np

    from drumline.checkpoints.store import CheckpointStore


    def die_at(stage: str, step: int):
        """The process is killed when its save of `step` has come to `stage`."""
        write = CheckpointStore.write

        def dying(store, number, write_state):
            if number == step:
                store._on_stage = lambda reached: reached == stage and os.kill(os.getpid(), signal.SIGKILL)
            return write(store, number, write_state)

        CheckpointStore.write = dying


    def rot(root: Path):
        """A byte of the newest checkpoint is another."""
        newest = max(root.glob("f1/step_*"), key=lambda path: int(path.name.removeprefix("step_")))
        file = max((path for path in newest.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)


    def main(run, *, stage: str, death: int, steps: int, checkpoints: str):
        """Steps that depend on all before; dies in its first attempt."""
        state = run.restore({"value": np.int64(1)})
        first = not run.next_step
        if first and stage != "rotten":
            die_at(stage, death)
        value = int(state["value"])
        for step in range(run.next_step, steps):
            value = (value * 31 + step) % 1_000_003
            run.log(step=step, value=float(value))
            run.checkpoint({"value": np.int64(value)}, step=step)
            if first and step == death and stage == "rotten":
                rot(Path(checkpoints) / run.id)
                os.kill(os.getpid(), signal.SIGKILL)
        return {"value": value, "began_at": run.next_step}
'''
EXPECTED_BEGIN: dict[str, tuple[int, ...]] = {
    **{stage: (DEATH,) for stage in (Stage.WRITTEN, Stage.LISTED, Stage.RENAMED)},
    Stage.COMMITTED: (DEATH, DEATH + 1),
    "rotten": (DEATH,),
}
"""At most the step that was being saved is lost. One committed and not registered may be used or not."""


def undisturbed() -> int:
    """What a run left alone returns."""
    value = 1
    for step in range(STEPS):
        value = (value * 31 + step) % 1_000_003
    return value


def test_f30_whenever_a_save_is_cut_off_the_run_goes_on_from_the_last_whole_checkpoint(
    site: Site, tmp_path: Path
) -> None:
    site.add_host("alpha", cpu_devices=len(EXPECTED_BEGIN))
    program = write_program(tmp_path, DYING)
    parameters = {"death": DEATH, "steps": STEPS, "checkpoints": str(site.directory / "checkpoints")}
    runs: dict[str, Run] = {
        stage: site.submit(
            program, stage, parameters={**parameters, "stage": str(stage)}, retries=Retries(infrastructure=1)
        )
        for stage in EXPECTED_BEGIN
    }
    for stage, run in runs.items():
        assert site.finish(run).state == "SUCCEEDED", (stage, run.reason)
        assert run.details.attempts == 2
        assert isinstance(run.result, dict)
        assert run.result["value"] == undisturbed()
        assert run.result["began_at"] in EXPECTED_BEGIN[stage], stage
