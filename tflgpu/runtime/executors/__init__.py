"""Executors run an executable on a device. Each one is three choices.

=================== ============================= ==================================== ====================
executor            program                       scheduler of tiles                   wait of the caller
=================== ============================= ==================================== ====================
launch_executor     one kernel for each launch    the device's, by a grid              block
persistent_executor one kernel, or a few, for all round robin, barriers between levels block
claiming_executor   one kernel for all            work stealing                        block, spin, or resident
=================== ============================= ==================================== ====================

``executor`` has what all of them share: memory, bindings, states and runs in flight. ``resident`` has the waits of the
claiming executor.
"""
