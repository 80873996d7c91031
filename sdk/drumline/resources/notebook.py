"""A run as the last expression of a notebook cell: text, and HTML that needs no script and no network to be seen."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from html import escape

from drumline.contracts import api
from drumline.contracts.states import RunState
from drumline.wording import plural, rate_text

MAX_CELLS = 256
"""Larger placements are drawn as a count for each host."""
_CELL, _GAP = 14, 2
_CHART_WIDTH, _CHART_HEIGHT = 240, 40
_SYMBOLS = {RunState.SUCCEEDED: "\u2713", RunState.FAILED: "\u2717", RunState.CANCELLED: "\u25a0"}
_LEAST_SHARE = 1e-6
"""Differences below this share of the values are rounding, and drawn as none."""
_Point = tuple[float, float, float, float]
"""x, least, greatest and mean."""
_RUNNING = "\u25b6"
_ODD = "\u26a0"
"""A result with NaN is no success to tick off."""


def as_text(details: api.Run, url: str) -> str:
    """Three lines: what and how it is, how far, where to look."""
    progress = details.progress
    steps = f"step {progress.step}" if progress.step is not None else "no step yet"
    total = f" of {progress.total_steps}" if progress.total_steps else ""
    rate = f", {rate_text(progress.steps_per_s)} steps/s" if progress.steps_per_s is not None else ""
    odd = ", ".join(f"{name} is {value}" for name, value in details.not_finite.items())
    first = f"{details.id}  {details.job} v{details.version}  {details.state}{f'  ({odd})' if odd else ''}"
    return f"{first}\n{plural(details.replicas, 'replica')}, {details.strategy}; {steps}{total}{rate}\n{url}"


def as_html(details: api.Run, url: str, placement: api.Placement | None, metrics: api.Metrics | None) -> str:
    """The same with a placement strip and the curve of the first metric, where they could be had."""
    heading, middle, _ = as_text(details, url).split("\n")
    symbol = _ODD if details.not_finite else _SYMBOLS.get(details.state, _RUNNING)
    parts = [f"<div><strong>{symbol} {escape(heading)}</strong></div>", f"<div>{escape(middle)}</div>"]
    if placement is not None and placement.devices:
        parts.append(_placement(placement))
    if metrics is not None and metrics.series and metrics.series[0].points.x:
        parts.append(_curve(metrics.series[0], metrics.gaps))
    parts.append(f'<div><a href="{escape(url)}">{escape(url)}</a></div>')
    return f'<div style="font-family:monospace;line-height:1.6">{"".join(parts)}</div>'


def _placement(placement: api.Placement) -> str:
    """A row of squares for each host, one for each device, with the replica's number on it."""
    by_host: dict[str, list[api.PlacedDevice]] = defaultdict(list)
    for device in placement.devices:
        by_host[device.host_name].append(device)
    if len(placement.devices) > MAX_CELLS:
        return "".join(
            f"<div>{escape(host)}: {plural(len(devices), 'device')}</div>" for host, devices in by_host.items()
        )
    return "".join(f"<div>{_strip(devices)} {escape(host)}</div>" for host, devices in by_host.items())


def _strip(devices: list[api.PlacedDevice]) -> str:
    cells = "".join(_cell(position, device) for position, device in enumerate(devices))
    width = len(devices) * (_CELL + _GAP)
    return (
        f'<svg width="{width}" height="{_CELL}" role="img" aria-label="{plural(len(devices), "device")}">{cells}</svg>'
    )


def _cell(position: int, device: api.PlacedDevice) -> str:
    left = position * (_CELL + _GAP)
    label = "p" if device.replica is None else str(device.replica)
    title = (
        f"replica {device.replica} on {device.platform}:{device.index}" if device.replica is not None else "parameters"
    )
    return (
        f'<g><title>{escape(title)}</title><rect x="{left + 0.5}" y="0.5" width="{_CELL - 1}" height="{_CELL - 1}" '
        f'fill="none" stroke="currentColor"/><text x="{left + _CELL / 2}" y="{_CELL - 4}" font-size="8" '
        f'text-anchor="middle" fill="currentColor">{label}</text></g>'
    )


def _curve(series: api.MetricSeries, gaps: Sequence[api.MetricGap]) -> str:
    """The mean as a line within the band of least and greatest."""
    points, stretches = series.points, _stretches(series, gaps)
    rows = [row for stretch in stretches for row in stretch]
    if not rows:
        return ""
    bottom, top = min(row[1] for row in rows), max(row[2] for row in rows)
    first, last = rows[0][0], rows[-1][0]
    varies = top / 2 - bottom / 2 > _LEAST_SHARE * max(abs(bottom), abs(top)) / 2

    def at(x: float, y: float) -> str:
        across = (x - first) / (last - first) if last > first else 0.5
        up = (y / 2 - bottom / 2) / (top / 2 - bottom / 2) if varies else 0.5
        return f"{across * _CHART_WIDTH:.1f},{(1 - up) * _CHART_HEIGHT:.1f}"

    drawn = "".join(_stretch(stretch, at) for stretch in stretches)
    return (
        f'<div><svg width="{_CHART_WIDTH}" height="{_CHART_HEIGHT}" role="img" aria-label="{escape(series.name)}">'
        f"{drawn}</svg> {escape(series.name)} {points.last[-1]:.4g}</div>"
    )


def _stretches(series: api.MetricSeries, gaps: Sequence[api.MetricGap]) -> list[list[_Point]]:
    """Places with a number, apart where one has none or where values were lost: nothing is drawn across."""
    points, stretches = series.points, list[list[_Point]]([[]])
    lost = [gap.end for gap in gaps if gap.end is not None]
    for x, low, high, mean in zip(points.x, points.min, points.max, points.mean, strict=True):
        if low is None or high is None or mean is None:
            stretches.append([])
            continue
        if stretches[-1] and any(stretches[-1][-1][0] < before <= x for before in lost):
            stretches.append([])
        stretches[-1].append((x, low, high, mean))
    return [stretch for stretch in stretches if stretch]


def _stretch(rows: Sequence[_Point], at: Callable[[float, float], str]) -> str:
    band = " ".join([*(at(x, high) for x, _, high, _ in rows), *(at(x, low) for x, low, _, _ in reversed(rows))])
    # A line of one place would not be seen; from there to there, with round ends, it is a dot.
    line = " ".join(at(x, mean) for x, _, _, mean in (rows if len(rows) > 1 else [*rows, *rows]))
    return (
        f'<polygon points="{band}" fill="currentColor" opacity="0.15"/>'
        f'<polyline points="{line}" fill="none" stroke="currentColor" stroke-linecap="round"/>'
    )
