"""Values of several replicas, and the devices that hold them."""
