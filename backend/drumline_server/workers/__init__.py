"""What agents call: registration, heartbeats, claims, telemetry, ends."""
