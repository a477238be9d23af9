"""Judges an adapter: is it at least as good as its base model?"""
