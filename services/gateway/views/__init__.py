"""Read models: tables (columns and DDL), rows (writes of a projection), reading (queries)."""
