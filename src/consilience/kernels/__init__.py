"""Every compiled loop. Kernels see flat arrays only; what an index array means is said in `tables.py`."""
