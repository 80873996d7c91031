"""What a Client gives: objects that know their server."""
