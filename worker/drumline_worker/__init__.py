"""The Drumline worker: one per device host. It claims members of runs and keeps their processes honest.

A package for each process: `agent`, `celery_child`, `launcher`, `shim`, `runner`; what they share is in `host`.
"""
