"""Plan -> OpenCL C, and the data by which an executor runs it."""
