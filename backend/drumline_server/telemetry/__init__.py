"""What members report: written by `ingest`, read by the run pages."""
