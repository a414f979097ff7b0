// The AVX-VNNI kernels over SIMDe, through the AVX512VL twin of their instruction.
#include "../../kernels/kernels_avxvnni.cpp"
