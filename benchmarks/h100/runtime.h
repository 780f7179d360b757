// Ends the process with file and line where a call of the CUDA runtime fails.
#pragma once
#include <cuda_runtime.h>
#include <unistd.h>

#include <cstdio>
#define CK(x)                                                                          \
    do {                                                                               \
        cudaError_t e_ = (x);                                                          \
        if (e_ != cudaSuccess) {                                                       \
            fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(e_)); \
            _exit(3);                                                                  \
        }                                                                              \
    } while (0)
