/** What is imported after this runs in the next task. */
import { nextTask } from "@/lib/next-task";

await nextTask();
