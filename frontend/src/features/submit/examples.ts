import digits from "../../../../examples/digits.py?raw";
import oneStep from "../../../../examples/one_step.py?raw";

interface Example {
  filename: string;
  title: string;
  source: string;
}

/** The repository's example programs, as they are. */
export const EXAMPLES: readonly Example[] = [
  { filename: "digits.py", title: "Handwritten digits, trained in step", source: digits },
  { filename: "one_step.py", title: "One step, one reduction", source: oneStep },
];
