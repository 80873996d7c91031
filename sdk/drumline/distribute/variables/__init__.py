"""State that lives across steps: what is held where, and what a write means."""
