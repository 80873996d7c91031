import type { Reduction } from "@/api/schema";
import { type Tensor, tensorOf } from "./arithmetic";

/** A snippet that works the result out again from the recorded values; says so where they were not kept. */
export function numpySnippet(reduction: Reduction): string {
  const inputs = reduction.inputs.map(tensorOf);
  const title = `# ${oneLine(reduction.name)}, step ${reduction.step}: ${reduction.op.toUpperCase()} over ${reduction.replicas} replicas, axis=${axisText(reduction)}`;
  if (inputs.some((input) => input === null)) {
    const kept = reduction.whole_bytes == null ? "The values were not kept" : "Download the values";
    return `${title}\n# ${kept}: of arrays of more than 1024 elements only statistics are shown.\n`;
  }
  const arrays = inputs.map(
    (input, i) => `    ${arrayText(input as Tensor, reduction.inputs[i]?.dtype ?? "float64")},`,
  );
  return [
    title,
    "import numpy as np",
    "",
    "replicas = [",
    ...arrays,
    "]",
    ...(reduction.axis === null || reduction.axis === undefined
      ? acrossReplicas(reduction)
      : alongAxis(reduction)),
    "print(result)",
    "",
  ].join("\n");
}

function acrossReplicas(reduction: Reduction): string[] {
  const total = "sum(values.astype(np.float64) for values in replicas)";
  return [reduction.op === "sum" ? `result = ${total}` : `result = ${total} / len(replicas)`];
}

function alongAxis(reduction: Reduction): string[] {
  const axis = axisText(reduction);
  const total = `total = sum(values.astype(np.float64).sum(axis=${axis}) for values in replicas)`;
  if (reduction.op === "sum") return [total, "result = total"];
  const axes = typeof reduction.axis === "number" ? [reduction.axis] : [...(reduction.axis ?? [])];
  const size = axes.map((k) => `values.shape[${k}]`).join(" * ");
  return [
    total,
    `count = sum(${size} for values in replicas)  # elements, not replicas`,
    "result = total / count",
  ];
}

function axisText(reduction: Reduction): string {
  const { axis } = reduction;
  if (axis === null || axis === undefined) return "None";
  if (typeof axis === "number") return String(axis);
  return axis.length === 1 ? `(${axis[0]},)` : `(${axis.join(", ")})`;
}

/** Types that NumPy lacks are written as the next wider one, which holds every one of their values. */
const NUMPY_TYPE: Record<string, string> = { bfloat16: "float32", bool: "bool_" };

function arrayText(tensor: Tensor, dtype: string): string {
  const type = NUMPY_TYPE[dtype] ?? dtype;
  const values = tensor.values.map((value) => numberText(value, type)).join(", ");
  if (tensor.shape.length === 0) return `np.array(${values}, dtype=np.${type})`;
  const shape = tensor.shape.length === 1 ? "" : `.reshape(${tensor.shape.join(", ")})`;
  return `np.array([${values}], dtype=np.${type})${shape}`;
}

function numberText(value: number, type: string): string {
  if (type === "bool_") return value ? "True" : "False";
  if (Number.isNaN(value)) return "np.nan";
  if (!Number.isFinite(value)) return value > 0 ? "np.inf" : "-np.inf";
  return String(value);
}

/** Names come from programs: a line break in one must not end the comment that holds it. */
function oneLine(text: string): string {
  return text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, " ");
}
