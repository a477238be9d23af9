"""The floor that the services stand on, and the roof that people hold."""
