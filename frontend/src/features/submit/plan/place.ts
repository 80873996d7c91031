/** `3`, or `3 (call 7)` where the program's steps are not its calls of `strategy.run`. */
export function placeText({ first_step, first_call }: Place): string {
  const differs = first_call != null && first_call !== first_step;
  return differs ? `${first_step} (call ${first_call})` : `${first_step}`;
}

interface Place {
  first_step: number;
  first_call?: number | null;
}
