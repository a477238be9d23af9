"""Effects of the agent."""
