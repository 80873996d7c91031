"""The runner: the process in which the program runs. Here and in the launcher, nowhere else, is jax."""
