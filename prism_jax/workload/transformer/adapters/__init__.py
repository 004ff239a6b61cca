"""Low-rank adapters beside frozen matrices: widths, kernels, communication, saved tensors."""
