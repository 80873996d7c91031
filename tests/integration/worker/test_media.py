"""What a program logs beside numbers is read back through server and SDK as it was logged."""

import json
import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from click.testing import CliRunner

from drumline import Client, Run
from drumline.cli.recorded import media
from drumline.contracts.reasons import EndReason
from drumline_server.telemetry.logs import list_gaps
from support.worker_process import WorkerProcess
from support.worker_server import WorkerServer

PROGRAM = """
import jax, jax.numpy as jnp, numpy as np
from drumline import Histogram, Image, MediaError, Table, Text

def main(run):
    scale = jax.jit(lambda array: array * 2.0, donate_argnums=0)
    weights = jnp.arange(1000.0)
    for step in range(3):
        run.log(step=step, loss=weights[step], weights=Histogram(weights))
        weights = scale(weights)  # the array that was logged is gone by now
    pixels = (np.arange(7 * 5 * 3) % 251).astype(np.uint8).reshape(7, 5, 3)
    run.log(step=3, sample=Image(pixels), mask=Image(jnp.eye(4)), note=Text("<b>bold</b>\\u202e"))
    pixels[:] = 0
    run.log(step=3, confusion=Table(["label", "share"], [["cat", 0.1], ["dog", float("nan")], [None, 7]]))
    run.log(step=3, odd=Histogram(np.array([np.nan, np.inf, -np.inf, 1.0])), noise=Image(noise()))
    run.summary(best=jnp.float32(0.5), which="third")
    run.summary["best"] = float("nan")
    run.summary["best"] = 0.75
    run.summary["seed"] = np.int64(2**60 + 1)
    refused = []
    for log in (
        lambda: run.log(step=4, gone=used(weights)),
        lambda: run.log(step=4, loss=1.0, noise=Image(np.asarray(noise()))),
    ):
        try:
            log()
        except ValueError as error:
            refused.append(f"{type(error).__name__}: {error}")
    return refused

def used(array):
    total = array.sum()
    total.delete()
    return total

def noise():
    return jnp.asarray(np.random.default_rng(1).integers(0, 256, (1000, 1000), dtype=np.uint8))
"""


def test_every_kind_is_read_back_as_it_was_logged_and_what_is_not_kept_is_told(
    server: WorkerServer, worker: WorkerProcess, tmp_path: Path
) -> None:
    member = server.assign(PROGRAM)
    assert server.wait_drained(member).reason == EndReason.COMPLETED
    with Client(server.url, server.admin_token) as client:
        _compare(client.get(member.run))
        _compare_saved(client.get(member.run), server, tmp_path)
    project = server.core.project_id
    (gap,) = server.core.read(lambda session: list_gaps(session, project, member.run, None, cursor=None, limit=9)).items
    assert (gap.what, gap.count) == ("media", 1)
    assert gap.detail.startswith("image 'noise' of step 3: run.log got 'noise', an image of 1001")


def _compare(run: Run) -> None:
    logged = run.media()
    assert [(one.name, one.kind, one.values, one.first_step, one.last_step) for one in logged] == [
        ("confusion", "table", 1, 3, 3),
        ("mask", "image", 1, 3, 3),
        ("note", "text", 1, 3, 3),
        ("odd", "histogram", 1, 3, 3),
        ("sample", "image", 1, 3, 3),
        ("weights", "histogram", 3, 0, 2),
    ]
    for value in logged.values("weights"):
        expected = np.histogram(np.arange(1000.0) * 2.0**value.step, bins=64)[0]
        assert (list(value.histogram.counts), value.histogram.max) == (list(expected), 999.0 * 2.0**value.step)
    assert logged.histograms("weights", most=2).steps == (0, 2)
    odd = logged.at("odd").histogram
    assert (odd.counts, odd.count, odd.nan_count, odd.inf_count) == ((1,), 4, 1, 2)
    assert logged.at("note").text == "<b>bold</b>\u202e"
    pixels = (np.arange(7 * 5 * 3) % 251).astype(np.uint8).reshape(7, 5, 3)
    assert np.array_equal(read_png(logged.at("sample").png, 3), pixels)
    assert np.array_equal(read_png(logged.at("mask", step=9).png, 1)[..., 0], np.eye(4) * 255)
    table = logged.at("confusion", step=0)
    (cat, dog, none) = table.rows
    assert (table.columns, cat, none) == (("label", "share"), ["cat", 0.1], [None, 7])
    assert dog[0] == "dog"
    assert isinstance(dog[1], float)
    assert math.isnan(dog[1])
    assert math.isnan(table.to_pandas()["share"][1])

    assert run.summary == {"best": 0.75, "which": "third", "seed": 2**60 + 1}
    gone, noise = _list(run.result)
    assert gone == "ValueError: run.log got 'gone', an array that was donated or deleted; log it before, or log a copy"
    assert noise.startswith("MediaError: run.log got 'noise', an image of 1001")


def _compare_saved(run: Run, server: WorkerServer, directory: Path) -> None:
    asked = [run.id, "--url", server.url]
    environment = {"DRUMLINE_TOKEN": server.admin_token}
    done = CliRunner().invoke(media, [*asked, "--save", str(directory)], env=environment)
    assert (done.exit_code, "saved 8 files" in done.stderr) == (0, True), done.output
    assert [line.split() for line in done.stdout.splitlines()][1] == ["confusion", "table", "1", "3", "3"]
    saved = {path.name: path.read_bytes() for path in directory.iterdir()}
    assert saved["sample-00000003-1.png"] == run.media().at("sample").png
    assert saved["confusion-00000003-1.csv"].decode() == "label,share\r\ncat,0.1\r\ndog,nan\r\n,7\r\n"
    assert saved["note-00000003-1.txt"].decode() == "<b>bold</b>\u202e"
    assert [json.loads(saved[f"weights-0000000{step}-1.json"])["max"] for step in range(3)] == [999.0, 1998.0, 3996.0]
    none = CliRunner().invoke(media, [*asked, "--name", "x"], env=environment)
    assert (none.exit_code, none.stdout) == (0, "")
    assert "the run logged nothing beside numbers under 'x'; run.log takes drumline.Image" in none.stderr


def _list(result: Any) -> list[str]:  # Any: JSON
    assert isinstance(result, list)
    return result


def read_png(png: bytes, channels: int) -> "np.ndarray[Any, np.dtype[np.uint8]]":
    """The pixels of a PNG of ours: one chunk, each row as its difference to the one above."""
    width, height = int.from_bytes(png[16:20]), int.from_bytes(png[20:24])
    length = int.from_bytes(png[33:37])
    rows = np.frombuffer(zlib.decompress(png[41 : 41 + length]), np.uint8).reshape(height, 1 + width * channels)
    assert (rows[:, 0] == 2).all()
    return np.cumsum(rows[:, 1:], axis=0, dtype=np.uint8).reshape(height, width, channels)
