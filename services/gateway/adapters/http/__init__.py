"""The API over HTTP: one module for each noun."""
