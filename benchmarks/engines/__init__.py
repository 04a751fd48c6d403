"""The contenders of benchmarks.gpu and benchmarks.cpu, a module each.

NAME and METRIC: those of its row if it cannot run. ``covers(case)``: whether it can run such a case.
``contenders(case)``: the contenders, ready to run; raises Skipped. Only this function imports large libraries.
"""
