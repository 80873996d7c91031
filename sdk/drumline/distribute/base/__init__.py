"""What everything else of the engine stands on: enums, device names, JAX's trace state."""
