"""Up to six jobs side by side.

page: curves over each other, settings that differ, gate and cost.
"""
