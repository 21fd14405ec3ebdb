"""Every compiled loop. Kernels see flat arrays only; what an index array means is said in `tables.py`."""

import os

# Waiting threads sleep instead of spinning. On a machine with other work, spinning threads take the cores from the ones they
# wait for: small kernels were measured to run ten times slower. Read by OpenMP when the first kernel runs.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
