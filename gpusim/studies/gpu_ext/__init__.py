"""gpu_ext (arXiv 2512.12615): unified memory of an RTX 5090 under the driver and under policies loaded into it.

    gpu_ext_published.csv  what the authors measured: eunomia-bpf/gpu_ext @3f4cc2d (MIT)
    kernels.py             the programs, from their sources
    policies.py            the authors' policies, as users' policies of pages
    study.py               each published row beside ours
"""
