"""Programs as they are stored: by content, listed per project."""
