"""The agent: the main process of a worker. It alone speaks to the server, and it holds the worker's token."""
