"""Everything that talks to OpenCL; the only package that imports pyopencl."""
