"""Hosts, which run as long as their process: of partitions, reactions, projections and effects."""
