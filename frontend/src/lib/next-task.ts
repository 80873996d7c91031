/** Continues in a task of its own: a task that is short keeps no press waiting. */
export function nextTask(): Promise<void> {
  return new Promise((next) => setTimeout(next));
}
