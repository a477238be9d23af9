"""From conversations to the token sequences that a training run reads."""
