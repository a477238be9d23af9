"""Events → rows. Pure; the API does not import them."""
