"""Base models, the versions made of them, and which of these are in use.

* `app`: composition root
* `domain`: the state of `model`, its decisions, and what may be published
* `react`: commands to other streams; `project`: to-do rows
* `effect`: publishes and erases files
"""
