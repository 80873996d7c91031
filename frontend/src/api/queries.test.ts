import { expect, it } from "vitest";
import { exactText } from "@/lib/wire-numbers";
import { runOf } from "./queries";

const TEXT = `{"id":"run_a","last_event":12345678901234567890,"note":"of 1152921504606846976, \\"-9007199254740993\\"",
"result":{"n":1152921504606846976,"m":[-9007199254740993,9007199254740991,1.5,1e300,"1152921504606846977"]},
"summary":{"big":18446744073709551615,"loss":0.25}}`;

const answered = (data: string) => runOf(Promise.resolve({ data, response: new Response() }));

it("keeps the whole numbers that a program returned, beyond those of a float", async () => {
  const run = await answered(TEXT);

  expect(exactText(run.result)).toBe(
    '{"n":1152921504606846976,"m":[-9007199254740993,9007199254740991,1.5,1e+300,"1152921504606846977"]}',
  );
  expect(String(run.summary?.big)).toBe("18446744073709551615");
  expect(run.summary?.loss).toBe(0.25);
});

it("leaves every other field of a run as it is read elsewhere", async () => {
  const run = await answered(TEXT);

  expect(typeof run.last_event).toBe("number");
  expect(run.note).toBe('of 1152921504606846976, "-9007199254740993"');
  expect(await answered('{"result":2,"summary":{"a":1}}')).toEqual({ result: 2, summary: { a: 1 } });
});
