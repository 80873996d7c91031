"""The `drumline` command: one file per thing it does; server and worker commands join by entry point."""
