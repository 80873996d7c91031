/** The lines of a text that comes in pieces, each when its end is there. */
export async function* linesOf(pieces: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const reader = pieces.getReader();
  const decoder = new TextDecoder();
  let open = "";
  try {
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
      const parts = (open + decoder.decode(piece.value, { stream: true })).split("\n");
      open = parts.pop() ?? "";
      yield* parts;
    }
    if (open !== "") yield open;
  } finally {
    // Who stops reading lines wants no more pieces either.
    await reader.cancel().catch(() => undefined);
  }
}
