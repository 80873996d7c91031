import type { MetricSeries } from "@/api/schema";

export function metricSeries(some: Partial<MetricSeries> = {}): MetricSeries {
  return {
    name: "loss",
    unit: "",
    n: 2,
    last_step: 1,
    bucket_width: 0,
    points: {
      x: [0, 1],
      min: [2, 1],
      max: [2, 1],
      mean: [2, 1],
      last: [2, 1],
      count: [1, 1],
      not_finite: [0, 0],
    },
    ...some,
  };
}
