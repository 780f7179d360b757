// Ends the process with file and line where a call of the driver fails, and the child that it has, if any; a clock in seconds.
#pragma once
#include <cuda.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
static pid_t child = 0;
static double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
#define CK(x)                                                                           \
    do {                                                                                \
        CUresult e_ = (x);                                                              \
        if (e_ != CUDA_SUCCESS) {                                                       \
            const char* m = 0;                                                          \
            cuGetErrorString(e_, &m);                                                   \
            fprintf(stderr, "%s:%d %d %s\n", __FILE__, __LINE__, (int)e_, m ? m : "?"); \
            if (child > 0) kill(child, 9);                                              \
            exit(3);                                                                    \
        }                                                                               \
    } while (0)
