"""The service that validates files and prepares datasets. See README.md."""
