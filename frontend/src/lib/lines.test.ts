import { describe, expect, it } from "vitest";
import { linesOf } from "./lines";

async function lines(...pieces: number[][]): Promise<string[]> {
  const stream = new ReadableStream<Uint8Array>({
    start(controller) {
      for (const piece of pieces) controller.enqueue(new Uint8Array(piece));
      controller.close();
    },
  });
  const found: string[] = [];
  for await (const line of linesOf(stream)) found.push(line);
  return found;
}

describe("linesOf", () => {
  it("gives lines whole, wherever pieces and characters are cut", async () => {
    const bytes = [...new TextEncoder().encode("one\nzwölf 🚀\n\nend")];

    expect(await lines(...bytes.map((byte) => [byte]))).toEqual(["one", "zwölf 🚀", "", "end"]);
    expect(await lines(bytes)).toEqual(["one", "zwölf 🚀", "", "end"]);
  });
});
