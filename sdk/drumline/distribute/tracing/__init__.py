"""A step as a program: how it is traced, and what its code may call."""
