"""The way out of an OpenAI account: read it into a folder, and plan how to train again.

account     the account, through the official SDK
others      accounts of Azure OpenAI and Together AI, with the same names
folder      what was read, in files that a killed run leaves whole
reading     reads the one into the other, and goes on where it ended
kept        evals and stored completions as rows
plan        a base model, settings and rows for each job, as recipes
questions   what the old model and the new one are asked
teacher     answers of the old models, within a budget
judging     what a judge says of both models' answers
rows        rows that can be trained on, apart from those that cannot
program     reading and planning as a program, for a server
stand_in    an account to try this with, on this machine
"""
