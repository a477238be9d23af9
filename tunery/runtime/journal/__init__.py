"""The event core: which records of a journal are accepted, and the state that follows from them."""
