"""The Celery child: listens on this host's queue and wakes the agent. It holds neither token nor device."""
