"""Every figure of the README, each with its command."""
