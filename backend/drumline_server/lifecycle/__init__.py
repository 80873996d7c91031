"""How a run lives: each change of a run, an attempt, a member or a device, and who may ask for it."""
