"""What a release leaves behind, recorded to be held against every later version: `make record-release`."""
