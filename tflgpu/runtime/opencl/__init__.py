"""OpenCL itself: devices, contexts, drivers and programs."""
