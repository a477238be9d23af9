"""Sign in with an API key or a one-time code; sign out.

page: the form, one-time codes, the session that begins.
"""
