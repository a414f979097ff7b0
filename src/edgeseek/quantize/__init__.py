"""Pure numerics of weights: schemes, packing, plain rounding, error measure.

Knows nothing of models or files: byte arrays and float arrays in, byte arrays out.
"""
