"""The inventory: hosts and their devices."""
