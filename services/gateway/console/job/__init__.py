"""One job.

page      its panels
curve     its steps as points
timeline  its attempts on an axis of time
stream    points and panels, as they change
"""
