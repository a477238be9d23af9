"""What runs as long as its process: owners of partitions, reactions, projections and effects."""
