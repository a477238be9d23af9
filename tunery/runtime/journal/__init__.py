"""The event core: acceptance, the single writer of a partition, reactions, verification."""
