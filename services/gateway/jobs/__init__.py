"""Fine-tuning jobs: submitting them, reading them, following them."""
