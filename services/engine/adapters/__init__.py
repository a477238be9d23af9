"""Engines behind one port, and the files of models in the forms that they read."""
