import { nonEmpty, oneOf, optional } from "@/lib/search-params";

export const DEVICE_FILTERS = ["free", "held", "unhealthy"] as const;

/** The Devices page's view state in the URL. */
export function devicesSearch(search: Record<string, unknown>) {
  return optional({
    show: oneOf(search.show, DEVICE_FILTERS),
    platform: oneOf(search.platform, ["cpu", "gpu", "tpu"]),
    /** `device:dev_...` or `host:hst_...` */
    sel: nonEmpty(search.sel),
  });
}
