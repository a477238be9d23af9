"""A model that moved here beside the old one: answers of both to the same questions.

models  how their scores compare
page    all of that as one HTML file
"""
