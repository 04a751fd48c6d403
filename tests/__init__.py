"""The tests. They start hundreds of Python processes, which share the bytecode of the modules that they import.

Where PYTHONDONTWRITEBYTECODE is set, as in many containers, each process would compile all of them, for 0.7 seconds.
"""

import atexit
import os
import shutil
import sys
import tempfile

if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
    sys.dont_write_bytecode = False
    sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = tempfile.mkdtemp(prefix="tflgpu-bytecode-")
    atexit.register(shutil.rmtree, sys.pycache_prefix, ignore_errors=True)
