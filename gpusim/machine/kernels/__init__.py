"""How long kernels take: what a kernel does (`shapes`), a physical form (`physics`), a correction from measured kernels."""
