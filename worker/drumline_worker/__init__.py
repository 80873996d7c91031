"""The Drumline worker: one per device host. It claims members of runs and keeps their processes honest."""
