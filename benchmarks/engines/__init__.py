"""The contenders of benchmarks.gpu, a module each.

NAME and METRIC: what its rows are called if it cannot run. ``covers(case)``: whether it is one for a case at all.
``contenders(case)``: what is to be measured, ready to run; raises Skipped. Nothing large is imported before that.
"""
