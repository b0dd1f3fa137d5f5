"""Ensembles of decision trees, fitted in the background to the retained events.

Start with `gbdt`. `learners.algorithms._trees` holds the arrays of trees, and what scores, explains and checks them.
"""
