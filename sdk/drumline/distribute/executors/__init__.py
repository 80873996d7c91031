"""How a traced step runs on the devices."""
