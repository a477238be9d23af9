"""Judges an adapter: is it at least as good as its base model?

* `app`: composition root
* `project`: evaluations that wait for a verdict
* `effect`: reads the scores, sends the verdict
* `domain`: the verdict itself
"""
