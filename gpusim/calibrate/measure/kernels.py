"""The kernels, as CUDA C++ without any header, and their compilation by NVRTC.

Loads and stores that count are volatile PTX: the compiler must neither drop nor merge them, and `.cg` passes the first-level
cache by, so that what is measured is the second level or the memory.
"""

from __future__ import annotations

import re
from typing import Any

from gpusim.calibrate.measure.cuda import Cuda, CudaError

SOURCE = r"""
typedef unsigned long long u64;
typedef unsigned int u32;

#define EACH(i, n) for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < (n); i += (u64)gridDim.x * blockDim.x)

__device__ __forceinline__ float4 load(const float4 *p) {
    float4 v;
    asm volatile("ld.global.cg.v4.f32 {%0,%1,%2,%3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p));
    return v;
}
__device__ __forceinline__ void store(float4 *p, float4 v) {
    asm volatile("st.global.cg.v4.f32 [%0], {%1,%2,%3,%4};" :: "l"(p), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory");
}
__device__ __forceinline__ u64 now_ns() { u64 t; asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t) :: "memory"); return t; }
__device__ __forceinline__ u64 now_cycles() { u64 t; asm volatile("mov.u64 %0, %%clock64;" : "=l"(t) :: "memory"); return t; }

extern "C" {

__global__ void null_kernel() {}

// Holds its stream until the host sets the flag, but never longer than `limit` ns.
__global__ void spin(volatile int *flag, u64 limit) {
    u64 begin = now_ns();
    while (!*flag && now_ns() - begin < limit) {}
}

__global__ void fill(u32 *p, u64 n, u32 seed) { EACH(i, n) p[i] = (u32)i * 2654435761u + seed; }

__global__ void count_wrong(const u32 *p, u64 n, u32 seed, u64 *wrong) {
    u64 bad = 0;
    EACH(i, n) bad += p[i] != (u32)i * 2654435761u + seed;
    if (bad) atomicAdd(wrong, bad);
}

// n counts float4; `rounds` repeats the pass, so that small footprints are not lost in the launch.  Each thread has four loads
// under way, which fast memories need.
#define PASSES(one, four) \
    u64 step = (u64)gridDim.x * blockDim.x; \
    for (int r = 0; r < rounds; r++) { \
        u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; \
        for (; i + 3 * step < n; i += 4 * step) { four } \
        for (; i < n; i += step) { one } \
    }
#define LOAD4(v, p) \
    float4 v##0 = load(p + i), v##1 = load(p + i + step), v##2 = load(p + i + 2 * step), v##3 = load(p + i + 3 * step);
#define STORE4(p, f) \
    store(p + i, f(0)); store(p + i + step, f(1)); store(p + i + 2 * step, f(2)); store(p + i + 3 * step, f(3));
#define SUM(v) (v.x + v.y + v.z + v.w)
__global__ void stream_read(const float4 *a, u64 n, int rounds, float *sink) {
    float sum = 0;
    PASSES(float4 v = load(a + i); sum += SUM(v);, LOAD4(v, a) sum += SUM(v0) + SUM(v1) + SUM(v2) + SUM(v3);)
    if (sum == 1.2345e30f) *sink = sum;
}
__global__ void stream_write(float4 *a, u64 n, int rounds, float value) {
    #define VALUE(j) make_float4(value, value, value, value)
    PASSES(store(a + i, VALUE(0));, STORE4(a, VALUE))
}
__global__ void stream_copy(float4 *b, const float4 *a, u64 n, int rounds) {
    #define LOADED(j) v##j
    PASSES(store(b + i, load(a + i));, LOAD4(v, a) STORE4(b, LOADED))
}
__global__ void stream_triad(float4 *c, const float4 *a, const float4 *b, u64 n, int rounds, float k) {
    #define TRIAD(j) make_float4(x##j.x + k * y##j.x, x##j.y + k * y##j.y, x##j.z + k * y##j.z, x##j.w + k * y##j.w)
    PASSES(float4 x0 = load(a + i); float4 y0 = load(b + i); store(c + i, TRIAD(0));, LOAD4(x, a) LOAD4(y, b) STORE4(c, TRIAD))
}
// What frameworks fuse: bias, activation, residual; 2 reads and 1 write.
__global__ void elementwise(float4 *y, const float4 *x, u64 n, float bias) {
    EACH(i, n) {
        float4 v = load(x + i), w = load(y + i);
        v.x = w.x + fmaxf(v.x + bias, 0.f); v.y = w.y + fmaxf(v.y + bias, 0.f);
        v.z = w.z + fmaxf(v.z + bias, 0.f); v.w = w.w + fmaxf(v.w + bias, 0.f);
        store(y + i, v);
    }
}

// Follows a chain of pointers; out: end, cycles, ns.
__global__ void chase(const u64 *p, u64 steps, u64 *out) {
    u64 ns = now_ns(), cycles = now_cycles();
    for (u64 i = 0; i < steps; i++) asm volatile("ld.global.ca.u64 %0, [%0];" : "+l"(p) :: "memory");
    out[1] = now_cycles() - cycles; out[2] = now_ns() - ns; out[0] = (u64)p;
}
// The same where no cache may answer: pinned host memory, a peer.
__global__ void chase_far(const u64 *p, u64 steps, u64 *out) {
    u64 ns = now_ns(), cycles = now_cycles();
    for (u64 i = 0; i < steps; i++) asm volatile("ld.volatile.global.u64 %0, [%0];" : "+l"(p) :: "memory");
    out[1] = now_cycles() - cycles; out[2] = now_ns() - ns; out[0] = (u64)p;
}

// Neighbouring threads touch neighbouring items of the given width.
#define TOUCH(bytes, T, put, get) \
    __global__ void touch_read_##bytes(const volatile T *p, u64 n, u32 *sink) { \
        u32 sum = 0; EACH(i, n) { get; } if (sum == 0x12345677u) *sink = sum; } \
    __global__ void touch_write_##bytes(volatile T *p, u64 n, u32 value) { EACH(i, n) { put; } }
TOUCH(1, unsigned char, p[i] = (unsigned char)value, sum += p[i])
TOUCH(4, u32, p[i] = value, sum += p[i])
TOUCH(8, u64, p[i] = value, sum += (u32)p[i])
__global__ void touch_read_16(const float4 *p, u64 n, u32 *sink) {
    float sum = 0; EACH(i, n) { float4 v = load(p + i); sum += v.x + v.y + v.z + v.w; } if (sum == 1.2345e30f) *sink = 1; }
__global__ void touch_write_16(float4 *p, u64 n, u32 value) {
    float v = __uint_as_float(value); EACH(i, n) store(p + i, make_float4(v, v, v, v)); }

// `fmas` of fp32 on each float of a float4 that is read once: 8 * fmas flop on 16 bytes.
__global__ void fma_sweep(const float4 *a, u64 n, int fmas, float k, float *sink) {
    float4 s = make_float4(0, 0, 0, 0);
    EACH(i, n) {
        float4 v = load(a + i);
        #pragma unroll 8
        for (int j = 0; j < fmas; j++) {
            v.x = fmaf(v.x, k, 0.5f); v.y = fmaf(v.y, k, 0.5f); v.z = fmaf(v.z, k, 0.5f); v.w = fmaf(v.w, k, 0.5f);
        }
        s.x += v.x; s.y += v.y; s.z += v.z; s.w += v.w;
    }
    if (s.x + s.y + s.z + s.w == 1.2345e30f) *sink = 1;
}

// C = A B in fp32, square, n a multiple of 128; 256 threads compute 128 x 128, each 8 x 8.
__global__ void __launch_bounds__(256) gemm_fp32(const float *A, const float *B, float *C, int n) {
    __shared__ __align__(16) float a[8][128], b[8][128];
    int t = threadIdx.x, row = blockIdx.y * 128, col = blockIdx.x * 128, tr = t / 16 * 8, tc = t % 16 * 8;
    float sum[8][8] = {};
    for (int k0 = 0; k0 < n; k0 += 8) {
        float4 v = *(const float4 *)(A + (u64)(row + t / 2) * n + k0 + t % 2 * 4);
        a[t % 2 * 4][t / 2] = v.x; a[t % 2 * 4 + 1][t / 2] = v.y; a[t % 2 * 4 + 2][t / 2] = v.z; a[t % 2 * 4 + 3][t / 2] = v.w;
        *(float4 *)&b[t / 32][t % 32 * 4] = *(const float4 *)(B + (u64)(k0 + t / 32) * n + col + t % 32 * 4);
        __syncthreads();
        #pragma unroll
        for (int k = 0; k < 8; k++) {
            float x[8], y[8];
            #pragma unroll
            for (int i = 0; i < 8; i++) { x[i] = a[k][tr + i]; y[i] = b[k][tc + i]; }
            #pragma unroll
            for (int i = 0; i < 8; i++)
                #pragma unroll
                for (int j = 0; j < 8; j++) sum[i][j] += x[i] * y[j];
        }
        __syncthreads();
    }
    for (int i = 0; i < 8; i++) for (int j = 0; j < 8; j++) C[(u64)(row + tr + i) * n + col + tc + j] = sum[i][j];
}
}
"""

KERNELS = tuple(re.findall(r"__global__ void (?:__launch_bounds__\(\d+\) )?(\w+)\(", SOURCE)) + tuple(
    f"touch_{verb}_{width}" for verb in ("read", "write") for width in (1, 4, 8)
)
"""Their names; TOUCH makes the last ones."""


def compile_for(cuda: Cuda, capability: int) -> bytes:
    """The machine code for a compute capability (90 for 9.0), or PTX of the nearest older one that NVRTC knows."""
    known = [int(k) for k in cuda.nvrtcGetSupportedArchs()]
    exact = capability in known
    older = [k for k in known if k <= capability]
    if not older:
        raise CudaError(f"NVRTC compiles for no GPU as old as compute capability {capability / 10}", hint="use older packages")
    target = f"sm_{capability}" if exact else f"compute_{max(older)}"
    program = cuda.nvrtcCreateProgram(SOURCE.encode(), b"measure.cu", 0, [], [])
    options = [f"--gpu-architecture={target}".encode()]
    try:
        cuda.nvrtcCompileProgram(program, len(options), options)
    except CudaError as error:
        raise CudaError(f"{error.message}: {_log(cuda, program)}") from None
    kind = "CUBIN" if exact else "PTX"
    image = bytearray(getattr(cuda, f"nvrtcGet{kind}Size")(program))
    buffer = b" " * len(image)
    getattr(cuda, f"nvrtcGet{kind}")(program, buffer)
    return buffer


def _log(cuda: Cuda, program: Any) -> str:
    text = b" " * cuda.nvrtcGetProgramLogSize(program)
    cuda.nvrtcGetProgramLog(program, text)
    lines = text.decode(errors="replace").strip("\0 \n").splitlines()
    return lines[0] if lines else "no log"
