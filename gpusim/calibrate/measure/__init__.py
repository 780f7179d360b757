"""Microbenchmarks of one machine: its GPU, host memory and disk, as rows (`gpusim.calibrate.rows`).

Needs Python, numpy and, for the GPU, cuda-bindings, NVRTC and nvidia-ml-py; nothing else, so that the folder can travel alone
(`bundle`).  The driver API is called directly; kernels are compiled when they are used.
"""
