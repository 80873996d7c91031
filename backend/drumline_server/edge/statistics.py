"""Counts of requests, hand-kept, in the text form that Prometheus reads."""

from collections import Counter
from collections.abc import Mapping

_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Statistics:
    """What this process answered since it started."""

    def __init__(self) -> None:
        self._answers: Counter[str] = Counter()
        self._buckets = [0] * len(_BUCKETS_S)
        self._seconds = 0.0

    def answered(self, status: int, seconds: float) -> None:
        """Counts one answer; `status` 0 is a request that ended without one."""
        self._answers[f"{status // 100}xx" if status else "none"] += 1
        self._seconds += seconds
        for at, bound in enumerate(_BUCKETS_S):
            if seconds <= bound:
                self._buckets[at] += 1

    def text(self, gauges: Mapping[str, float]) -> str:
        """The Prometheus text of the counts and of `gauges`, whose names may carry labels; `_total` marks a counter."""
        lines = ["# TYPE drumline_http_requests_total counter"]
        lines += [f'drumline_http_requests_total{{status="{key}"}} {n}' for key, n in sorted(self._answers.items())]
        lines.append("# TYPE drumline_http_request_seconds histogram")
        lines += [
            f'drumline_http_request_seconds_bucket{{le="{bound}"}} {n}'
            for bound, n in zip(_BUCKETS_S, self._buckets, strict=True)
        ]
        total = sum(self._answers.values())
        lines.append(f'drumline_http_request_seconds_bucket{{le="+Inf"}} {total}')
        lines.append(f"drumline_http_request_seconds_sum {self._seconds:.6f}")
        lines.append(f"drumline_http_request_seconds_count {total}")
        typed: set[str] = set()
        for name, value in gauges.items():
            family = name.partition("{")[0]
            if family not in typed:
                typed.add(family)
                lines.append(f"# TYPE {family} {'counter' if family.endswith('_total') else 'gauge'}")
            lines.append(f"{name} {value}")
        return "\n".join(lines) + "\n"
