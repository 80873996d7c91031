"""Which runs start where and when: placement, the loops, and which server runs them."""
