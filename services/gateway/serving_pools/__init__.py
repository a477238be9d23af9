"""Replicas of serving pools on nodes: `/v1/serving_pools`, and who is asked."""
