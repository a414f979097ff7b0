// The AVX-512 kernels over SIMDe.
#include "../../kernels/kernels_avx512.cpp"
