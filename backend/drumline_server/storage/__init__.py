"""The database and the files beside it: tables, transactions, look-ups, what an act writes beside itself."""
