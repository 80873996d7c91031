"""How the values of all replicas become one: inside a step and outside, dense arrays and rows of them."""
