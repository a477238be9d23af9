"""The process that trains or scores, as its caller sees it. Imports no tensor library.

* `spec`: what a training or scoring process is given, and the failures it may end with
* `scores`: the results file of a scoring process
"""
