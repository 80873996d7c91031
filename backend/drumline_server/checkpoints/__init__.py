"""Checkpoints that members registered: which are kept, and where a run goes on."""
