"""All bookkeeping of checkpoints: where they lie, when they are whole, which are kept, where a program resumes.

`store` knows the disk, `gang_store` how several processes write one checkpoint, `managers` what a run keeps and resumes
from (one per kind of run) and what `run.checkpoint` and `run.restore` do. What is kept is the rule of
`contracts.retention`; how the state itself is written is the engine's (`distribute`).
"""
