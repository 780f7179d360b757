"""Settings of PyTorch's allocator: import this file before the first tensor is on the GPU."""

import os

ALLOCATOR = ""

os.environ["PYTORCH_CUDA_ALLOC_CONF"] = ALLOCATOR
