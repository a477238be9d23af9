"""The node agent: starts training and scoring processes under leases of the pool."""
