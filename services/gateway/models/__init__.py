"""Base models and fine-tuned versions."""
