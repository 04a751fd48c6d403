"""OpenCL C for drivers whose compilers lack some of its functions, or have them wrong."""

from __future__ import annotations

# fma adds a product's rounding error, which products of halves of the digits tell. sin and cos are those of multiples
# of pi, which every libclc has; two floats hold 1 / pi, so that a large number keeps its place in the circle.
MISSING_FUNCTIONS = """
#define DEFINE_FMA(n) \\
  float##n __attribute__((overloadable)) fma_of_halves(float##n x, float##n y, float##n z) { \\
    const float##n product = x * y; \\
    const float##n x0 = as_float##n(as_int##n(x) & ~0xfff), y0 = as_float##n(as_int##n(y) & ~0xfff); \\
    const float##n x1 = x - x0, y1 = y - y0; \\
    return product + z + (x0 * y0 - product + x0 * y1 + x1 * y0 + x1 * y1); \\
  }
DEFINE_FMA()
DEFINE_FMA(4)
DEFINE_FMA(16)
#define fma fma_of_halves
#define DEFINE_CIRCULAR(name, n) \\
  float##n __attribute__((overloadable)) name##_of_radians(float##n x) { \\
    const float##n halves = x * 0.31830987f; \\
    const float##n rest = fma(x, (float##n)(0.31830987f), -halves) + x * 1.2841276e-8f; \\
    return name##pi(halves - 2.0f * rint(0.5f * halves) + rest); \\
  }
DEFINE_CIRCULAR(sin, 4)
DEFINE_CIRCULAR(sin, 16)
DEFINE_CIRCULAR(cos, 4)
DEFINE_CIRCULAR(cos, 16)
#define sin sin_of_radians
#define cos cos_of_radians
"""

# Sixteen halves at any multiple of 8 bytes, as four times four.
UNALIGNED_HALVES = """
float16 load_unaligned_halves(__global const half *p) {
  return (float16)(vloada_half4(0, p), vloada_half4(1, p), vloada_half4(2, p), vloada_half4(3, p));
}
void store_unaligned_halves(float16 v, __global half *p) {
  vstorea_half4(v.s0123, 0, p);
  vstorea_half4(v.s4567, 1, p);
  vstorea_half4(v.s89ab, 2, p);
  vstorea_half4(v.scdef, 3, p);
}
#undef vload_half16
#undef vstore_half16
#define vload_half16(offset, p) load_unaligned_halves((p) + 16 * (offset))
#define vstore_half16(v, offset, p) store_unaligned_halves((v), (p) + 16 * (offset))
"""
