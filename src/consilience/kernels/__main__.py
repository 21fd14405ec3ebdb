"""`python -m consilience.kernels` compiles every kernel ahead, for containers and machines without a writable cache.

Kernels know nothing of those who call them, so the small jobs that call them all are told in the command line's layer.
"""

import runpy

runpy.run_module("consilience.cli.ahead", run_name="__main__")
