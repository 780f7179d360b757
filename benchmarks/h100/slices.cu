// slices MODE NPROC SECONDS BLOCKS_PER_SM THREADS: each process runs one persistent kernel; block 0's first thread notes gaps
// of the GPU's global timer above 10 us.  Output: proc,gap_begin_ns,gap_ns.
#include <cuda_runtime.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "runtime.h"

__device__ inline unsigned long long gt() {
    unsigned long long t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}
__global__ void gaps(unsigned long long until_rel, unsigned long long* out, int cap, int* n, float* sink) {
    extern __shared__ float sh[];
    unsigned long long begin = gt(), last = begin, end = begin + until_rel;
    int k = 0;
    float v = threadIdx.x;
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        while (true) {
            unsigned long long now = gt();
            if (now - last > 10000) {
                if (k < cap) {
                    out[2 * k] = last;
                    out[2 * k + 1] = now - last;
                }
                k++;
            }
            last = now;
            if (now > end) break;
        }
        *n = k;
        out[2 * cap] = begin;
        out[2 * cap + 1] = last;
    } else {
        while (gt() < end) {
            for (int i = 0; i < 200; i++) v = v * 1.0001f + 1.f;
        }
    }
    if (v == 12345.f) sink[0] = v + sh[0];
}
// kernels of a fixed number of multiply-adds, back to back, each noting begin and end
__global__ void work(long iters, unsigned long long* out, int k, float* sink) {
    unsigned long long b = gt();
    float v = threadIdx.x;
    for (long i = 0; i < iters; i++) v = v * 1.0001f + 1.f;
    if (v == 12345.f) sink[0] = v;
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        out[2 * k] = b;
        out[2 * k + 1] = gt();
    }
}
struct Shared {
    std::atomic<int> ready;
    std::atomic<int> go;
};
static void barrier(Shared* s, int n) {
    s->ready++;
    while (s->ready.load() < n) usleep(50);
}
int main(int c, char** v) {
    std::string mode = v[1];
    int n = atoi(v[2]);
    double sec = atof(v[3]);
    int bps = atoi(v[4]);
    int thr = atoi(v[5]);
    double mem = c > 6 ? atof(v[6]) : 0;
    Shared* s = (Shared*)mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    new (s) Shared{};
    s->ready = 0;
    s->go = 0;
    for (int p = 0; p < n; p++)
        if (!fork()) {
            cudaDeviceProp d;
            CK(cudaGetDeviceProperties(&d, 0));
            float* sink;
            CK(cudaMalloc(&sink, 4));
            void* ballast = 0;
            if (mem > 0) CK(cudaMalloc(&ballast, (size_t)(mem * (1 << 30))));
            int cap = 200000;
            unsigned long long* out;
            int* num;
            CK(cudaMalloc(&out, (2 * cap + 2) * 8));
            CK(cudaMalloc(&num, 4));
            CK(cudaMemset(num, 0, 4));
            std::vector<unsigned long long> h(2 * cap + 2);
            if (mode == "gaps") {
                gaps<<<1, 32>>>(1000000, out, cap, num, sink);
                CK(cudaDeviceSynchronize());
                barrier(s, n);
                gaps<<<bps == 0 ? 1 : bps * d.multiProcessorCount, thr>>>((unsigned long long)(sec * 1e9), out, cap, num, sink);
                CK(cudaDeviceSynchronize());
                int k;
                CK(cudaMemcpy(&k, num, 4, cudaMemcpyDeviceToHost));
                CK(cudaMemcpy(h.data(), out, h.size() * 8, cudaMemcpyDeviceToHost));
                std::string o;
                char line[96];
                snprintf(line, 96, "%d,begin,%llu\n%d,end,%llu\n", p, h[2 * cap], p, h[2 * cap + 1]);
                o += line;
                for (int i = 0; i < k && i < cap; i++) {
                    snprintf(line, 96, "%d,%llu,%llu\n", p, h[2 * i], h[2 * i + 1]);
                    o += line;
                }
                while (s->go.load() != p) usleep(100);
                fwrite(o.data(), 1, o.size(), stdout);
                fflush(stdout);
                s->go++;
            } else {  // work: kernels of about 1 ms (first argument after), for `sec` seconds by a count; burst: process 0
                      // sleeps between short kernels
                int grid = bps == 0 ? 1 : bps * d.multiProcessorCount;
                long it = 1000;
                cudaEvent_t a, b;
                CK(cudaEventCreate(&a));
                CK(cudaEventCreate(&b));
                double target = (mode == "burst" && p == 0) ? 0.1 : 1.0;
                float ms = 0;
                if (p == 0) {  // calibrate one after another to be alone
                    for (int r = 0; r < 6; r++) {
                        CK(cudaEventRecord(a));
                        work<<<grid, thr>>>(it, out, 0, sink);
                        CK(cudaEventRecord(b));
                        CK(cudaDeviceSynchronize());
                        CK(cudaEventElapsedTime(&ms, a, b));
                        it = (long)(it * target / ms) + 1;
                    }
                    ((volatile long*)s)[8] = it;
                    ((volatile double*)s)[9] = target;
                    s->go = 1;
                } else {
                    while (s->go.load() < 1) usleep(50);
                    it = ((volatile long*)s)[8];
                    if (mode == "burst") it = it * 10;
                }
                barrier(s, n);
                int count = (int)(sec * 1000 / (mode == "burst" ? 1 : n));
                if (mode == "burst" && p == 0) count = (int)(sec * 1000 / 1.1);
                if (count > cap) count = cap;
                for (int k = 0; k < count; k++) {
                    work<<<grid, thr>>>(it, out, k, sink);
                    if (mode == "burst" && p == 0) {
                        CK(cudaDeviceSynchronize());
                        usleep(1000);
                    }
                }
                CK(cudaDeviceSynchronize());
                CK(cudaMemcpy(h.data(), out, h.size() * 8, cudaMemcpyDeviceToHost));
                std::string o;
                char line[96];
                for (int i = 0; i < count; i++) {
                    snprintf(line, 96, "%d,%llu,%llu\n", p, h[2 * i], h[2 * i + 1] - h[2 * i]);
                    o += line;
                }
                while (s->go.load() != p + 1) usleep(100);
                fwrite(o.data(), 1, o.size(), stdout);
                fflush(stdout);
                s->go++;
            }
            _exit(0);
        }
    int bad = 0, st;
    while (wait(&st) > 0) bad |= st;
    return bad ? 1 : 0;
}
