"""Sessions, whose loop runs at the client (the Tinker SDK).

page: the list, and a session with what was asked of it; end it.
"""
