"""Attention over what is remembered: backends that return log-sum-exp, and the recall a model talks to."""
