"""Stream `job`: one tenant's quota, holds and jobs."""
