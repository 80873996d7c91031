"""The launcher: has everything imported that a program needs, and forks a shim for each member."""
