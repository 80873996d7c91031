import { describe, expect, it } from "vitest";
import { array, reduction } from "../testing";
import { withElements } from "./elements";
import { replayOf } from "./replay";

const kept = (dtype: string, size: number) => array(null, { shape: [size], dtype });
const bytes = (words: Uint16Array | Uint32Array | Float32Array | BigInt64Array) =>
  words.buffer as ArrayBuffer;

describe("withElements", () => {
  it("gives every array its elements, the inputs' first, so that the result is replayed", () => {
    const [one, other] = [0.1, 0.2].map((value) => new Float32Array(2000).fill(value));
    const total = (one as Float32Array).map((value, at) => value + (other?.[at] ?? 0));
    const large = reduction({
      inputs: [kept("float32", 2000), kept("float32", 2000)],
      output: kept("float32", 2000),
    });
    const all = new Float32Array([...(one ?? []), ...(other ?? []), ...total]);

    const whole = withElements(large, bytes(all));

    expect(whole && replayOf(whole)?.outcome).toBe("bit for bit");
    expect(whole?.output.values?.[1999]).toBe(total[1999]);
  });

  it.each([
    ["bfloat16", bytes(new Uint16Array([0x3f80, 0xff80, 0x8000, 0x7fc1])), [1, -Infinity, -0, Number.NaN]],
    ["float16", bytes(new Uint16Array([0x3c00, 0xfc00, 0x8000, 0x0001])), [1, -Infinity, -0, 2 ** -24]],
    ["int64", bytes(new BigInt64Array([-1n, 2n ** 40n])), [-1, 2 ** 40]],
  ])("reads %s", (dtype, raw, values) => {
    const whole = withElements(reduction({ inputs: [], output: kept(dtype, values.length) }), raw);

    expect(whole?.output.values).toEqual(values);
  });

  it("reads neither complex numbers nor beyond what came", () => {
    expect(withElements(reduction({ output: kept("complex64", 1) }), new ArrayBuffer(8))).toBeNull();
    expect(withElements(reduction({ output: kept("float32", 3) }), new ArrayBuffer(8))).toBeNull();
  });
});
