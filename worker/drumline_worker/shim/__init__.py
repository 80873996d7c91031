"""The shim: one small process per member that outlives the agent, keeps the spool and ends the program for sure."""
