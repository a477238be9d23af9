"""Statistics of the gate: pure functions of counts and scores.

* `paired`: exact McNemar test, bound of a drop, the smallest drop that the items can show
* `looks`: how much error each of several planned looks may spend
* `holm`: p-values of several tests, adjusted
* `resampling`: bootstrap interval of a paired difference, by groups of items
* `pairwise`: pairs that a judge saw in both orders; Wilson bounds, the exact sign test
* `decision`: block, pass or inconclusive for several comparisons together
"""
