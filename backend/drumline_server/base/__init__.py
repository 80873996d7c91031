"""What everything stands on: settings, the clock, errors, pages, credentials. Knows nothing of the layers above."""
