"""Puts the server together and runs it."""
