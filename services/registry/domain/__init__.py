"""Base models, adapter versions, and the stages they hold."""
