"""Plan -> OpenCL C, and the data that an executor needs to run it."""
