"""The parts of PyTorch's CUDA caching allocator; `policies/place/pytorch.py` puts them together.

    rules.py       PYTORCH_CUDA_ALLOC_CONF and the release, read without numba; codes of the `command` verb
    layout.py      the table: which word is what
    rounding.py    what a request becomes, and how large its segment is
    pools.py       free blocks in order; which pool serves a request
    blocks.py      splitting, merging, completing a free
    segments.py    cudaMalloc segments: taken and released
    expandable.py  expandable segments: found, mapped, unmapped
    cache.py       memory goes back to the device: all of it, just enough, by age
    growth.py      what happens when no free block serves a request, up to out of memory
    streams.py     blocks used on other streams, and the events they wait for
    private.py     private pools
    settings.py    settings that change while it runs
    counting.py    torch.cuda.memory_stats
    events.py      what a memory snapshot records, while a listener is set

Source: c10/cuda/CUDACachingAllocator.cpp and c10/core/AllocatorConfig.cpp, PyTorch 2.11 to 2.15: the rules, not the code.
"""
