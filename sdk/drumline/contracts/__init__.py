"""Everything that crosses a process border: specs, states, events, errors, and where hosts are notified."""
