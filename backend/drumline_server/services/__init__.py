"""What a caller asks for, in plain functions of a database session."""
