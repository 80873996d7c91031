"""Where the current code runs, and what a step's trace knows."""
