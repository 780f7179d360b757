// Unified memory on a GPU at hand, never more of it than is free: what front end and driver do, kernel by kernel.
//
//   nvcc -O3 -std=c++17 -arch=native uvm_device.cu -o uvm_device -ldl
//   ./uvm_device time            ns of each kernel, by CUDA events: rows without counts
//   ./uvm_device trace FOLDER    counts of each kernel, and FOLDER/rows_{faults,batches,moves}.csv: each report, batch, copy
//
// Events come from the driver's own queue (/dev/nvidia-uvm-tools, the interface that profilers use; UVM_TOOLS_* in
// kernel-open/nvidia-uvm/uvm_ioctl.h), counters beside them from CUPTI, where CUPTI_LIB or the loader finds it.  Tracing slows
// kernels down: times are those of `time`.  Measured with it: tests/data/uvm_measurements.csv, rows h100_*.
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <dirent.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>
#include <functional>
using std::string;
#define CK(x)                                                                 \
    do {                                                                      \
        cudaError_t e_ = (x);                                                 \
        if (e_ != cudaSuccess) {                                              \
            printf("error,%s,%s,%d\n", cudaGetErrorString(e_), #x, __LINE__); \
            fflush(stdout);                                                   \
            exit(1);                                                          \
        }                                                                     \
    } while (0)
#if CUDART_VERSION >= 13000
typedef cudaMemLocation Loc;
static Loc HOST{cudaMemLocationTypeHost, 0}, DEV{cudaMemLocationTypeDevice, 0};
static cudaError_t prefetch(void* p, size_t n, Loc l) { return cudaMemPrefetchAsync(p, n, l, 0, 0); }
#else
typedef int Loc;
static Loc HOST = cudaCpuDeviceId, DEV = 0;
static cudaError_t prefetch(void* p, size_t n, Loc l) { return cudaMemPrefetchAsync(p, n, l, 0); }
#endif
static double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
static bool tracing = false;
static string outdir = ".";
static FILE *faults_csv, *moves_csv, *batches_csv;
static double t_start;

// ---------------------------------------------------------------- the driver's event queue
static const uint32_t QN = 1u << 19;
static unsigned char* queue_;
static volatile uint32_t* ctl;
static int tools = -1, uvmfd = -1;
struct Init {
    uint64_t buf, size, ctl;
    uint8_t uuid[16];
    uint32_t all, fd;
    uint32_t status, pad;
};
struct Enable {
    uint64_t flags;
    uint32_t status, pad;
};
static void open_queue() {
    tools = open("/dev/nvidia-uvm-tools", O_RDWR);
    if (tools < 0) {
        perror("note,nvidia-uvm-tools");
        return;
    }
    posix_memalign((void**)&queue_, 4096, (size_t)QN * 64);
    memset(queue_, 0, (size_t)QN * 64);
    void* c;
    posix_memalign(&c, 4096, 4096);
    memset(c, 0, 4096);
    ctl = (volatile uint32_t*)c;
    DIR* d = opendir("/proc/self/fd");
    dirent* e;
    bool ok = false;
    while ((e = readdir(d)) && !ok) {
        char path[300], to[300];
        snprintf(path, sizeof path, "/proc/self/fd/%s", e->d_name);
        ssize_t n = readlink(path, to, 299);
        if (n < 0) continue;
        to[n] = 0;
        if (strcmp(to, "/dev/nvidia-uvm")) continue;
        Init p{};
        p.buf = (uint64_t)queue_;
        p.size = QN;
        p.ctl = (uint64_t)c;
        p.all = 1;
        p.fd = atoi(e->d_name);
        int r = ioctl(tools, 56, &p);
        printf("note,tracker on fd %d: ioctl %d status %u\n", p.fd, r, p.status);
        if (r == 0 && p.status == 0) {
            ok = true;
            uvmfd = p.fd;
        }
    }
    closedir(d);
    if (!ok) {
        close(tools);
        tools = -1;
        return;
    }
    Enable en{};
    for (int t : {1, 2, 3, 4, 5, 7, 8, 10, 11, 12, 13, 14}) en.flags |= 1ull << t;
    int r = ioctl(tools, 58, &en);
    printf("note,enable events: ioctl %d status %u\n", r, en.status);
    if (r || en.status) {
        close(tools);
        tools = -1;
    }
}
static void flush_queue() {
    uint32_t st[2] = {0, 0};
    if (uvmfd >= 0) ioctl(uvmfd, 67, st);
}
static void drain() {
    if (tools >= 0) {
        flush_queue();
        uint32_t p = ctl[3];
        ctl[0] = p;
        ctl[1] = p;
    }
}

// ---------------------------------------------------------------- CUPTI, by hand (record of
// CUpti_ActivityUnifiedMemoryCounter2/3)
struct UmRec {
    uint32_t kind, counter;
    uint64_t value, start, end, address;
    uint32_t src, dst, stream, process, flags, pad;
};
struct UmCfg {
    uint32_t scope, kind, device, enable;
};
static int (*p_flush)(uint32_t);
static int (*p_next)(uint8_t*, size_t, void**);
static uint64_t cu_rec[16], cu_sum[16];
static bool cupti = false;
extern "C" void bufreq(uint8_t** b, size_t* s, size_t* m) {
    *s = 8 << 20;
    *b = (uint8_t*)aligned_alloc(64, *s);
    *m = 0;
}
extern "C" void bufdone(void*, uint32_t, uint8_t* b, size_t, size_t valid) {
    void* r = nullptr;
    while (valid && p_next(b, valid, &r) == 0) {
        UmRec* u = (UmRec*)r;
        if (u->kind == 25 && u->counter < 16) {
            cu_rec[u->counter]++;
            cu_sum[u->counter] += u->value;
        }
    }
    free(b);
}
static void open_cupti() {
    void* h = nullptr;
    const char* env = getenv("CUPTI_LIB");
    for (const char* n :
         {env ? env : "", "libcupti.so", "libcupti.so.13", "libcupti.so.12", "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so"})
        if (*n && (h = dlopen(n, RTLD_NOW | RTLD_GLOBAL))) {
            printf("note,cupti %s\n", n);
            break;
        }
    if (!h) {
        printf("note,no libcupti: %s\n", dlerror());
        return;
    }
    auto conf = (int (*)(UmCfg*, uint32_t))dlsym(h, "cuptiActivityConfigureUnifiedMemoryCounter");
    auto enab = (int (*)(uint32_t))dlsym(h, "cuptiActivityEnable");
    auto reg = (int (*)(void*, void*))dlsym(h, "cuptiActivityRegisterCallbacks");
    p_flush = (int (*)(uint32_t))dlsym(h, "cuptiActivityFlushAll");
    p_next = (int (*)(uint8_t*, size_t, void**))dlsym(h, "cuptiActivityGetNextRecord");
    if (!conf || !enab || !reg || !p_flush || !p_next) {
        printf("note,cupti lacks functions\n");
        return;
    }
    UmCfg c[4];
    uint32_t kinds[4] = {1, 2, 3, 4};
    for (int i = 0; i < 4; i++) c[i] = {1, kinds[i], 0, 1};
    int a = reg((void*)bufreq, (void*)bufdone), b = conf(c, 4), d = enab(25);
    printf("note,cupti register %d configure %d enable %d\n", a, b, d);
    cupti = !a && !b && !d;
}

// ---------------------------------------------------------------- arrays and one measured launch
struct A {
    char* p;
    size_t n;
};
static std::vector<A> live;
static A managed(size_t n, int host_fill = 1) {
    A a;
    a.n = n;
    CK(cudaMallocManaged(&a.p, n));
    if (host_fill) memset(a.p, 1, n);
    live.push_back(a);
    return a;
}
static void release() {
    CK(cudaDeviceSynchronize());
    for (auto& a : live) CK(cudaFree(a.p));
    live.clear();
}
static int array_of(uint64_t va, uint64_t* off) {
    for (size_t i = 0; i < live.size(); i++)
        if (va >= (uint64_t)live[i].p && va < (uint64_t)live[i].p + live[i].n) {
            *off = va - (uint64_t)live[i].p;
            return (int)i;
        }
    *off = va;
    return -1;
}
static cudaEvent_t e0, e1;
static size_t dumped = 0;
static void measure(const string& kernel, int repeat, size_t bytes, size_t threads, size_t dump,
                    const std::function<void()>& go, bool wall = false) {
    CK(cudaDeviceSynchronize());
    if (tracing) {
        drain();
        if (cupti) {
            p_flush(1);
            memset(cu_rec, 0, sizeof cu_rec);
            memset(cu_sum, 0, sizeof cu_sum);
        }
    }
    double w0 = now();
    if (!wall) CK(cudaEventRecord(e0));
    go();
    if (!wall) CK(cudaEventRecord(e1));
    CK(cudaDeviceSynchronize());
    double w1 = now();
    float ms = 0;
    if (!wall) CK(cudaEventElapsedTime(&ms, e0, e1));
    else ms = (float)((w1 - w0) * 1e3);
    CK(cudaGetLastError());
    printf("%s,%s,%d,%zu,%zu,%.0f", tracing ? "trace" : "time", kernel.c_str(), repeat, bytes, threads, ms * 1e6);
    if (tracing) {
        if (cupti) p_flush(1);
        uint64_t reports = 0, replays = 0, cpuf = 0, n_move[2][8] = {}, b_move[2][8] = {}, other[64] = {}, dropped = 0;
        std::set<uint32_t> batches;
        std::set<uint64_t> pages, blocks;
        std::set<std::pair<uint32_t, uint64_t>> bp, bb;
        std::set<std::pair<uint32_t, uint32_t>> clients;
        struct B {
            uint64_t t0 = 0, t1 = 0, n = 0, moved = 0, moves = 0;
            std::set<uint64_t> pages, blocks;
        };
        std::map<uint32_t, B> per;
        uint32_t last = 0;
        uint64_t writes = 0, pde = 0;
        size_t lines = 0;
        if (tools >= 0) {
            flush_queue();
            for (int t = 0; t < 64; t++) dropped += ((volatile uint64_t*)(ctl + 4))[t];
            for (uint32_t i = ctl[0]; i != ctl[3]; i = (i + 1) & (QN - 1)) {
                unsigned char* e = queue_ + (size_t)i * 64;
                uint64_t addr;
                memcpy(&addr, e + 8, 8);
                if (e[0] == 3) {
                    uint16_t gpc, cl;
                    uint64_t ts, tg;
                    uint32_t b;
                    memcpy(&gpc, e + 4, 2);
                    memcpy(&cl, e + 6, 2);
                    memcpy(&ts, e + 16, 8);
                    memcpy(&tg, e + 24, 8);
                    memcpy(&b, e + 32, 4);
                    reports++;
                    writes += e[2] != 1;
                    pde += e[1] == 1;
                    batches.insert(b);
                    pages.insert(addr >> 12);
                    blocks.insert(addr >> 21);
                    bp.insert({b, addr >> 12});
                    bb.insert({b, addr >> 21});
                    clients.insert({gpc, cl});
                    B& x = per[b];
                    if (!x.t0 || ts < x.t0) x.t0 = ts;
                    x.n++;
                    x.pages.insert(addr >> 12);
                    x.blocks.insert(addr >> 21);
                    last = b;
                    if (faults_csv && lines++ < dump && dumped < 13000000) {
                        uint64_t off;
                        int a = array_of(addr, &off);
                        dumped += fprintf(faults_csv, "%s,%d,%u,%d,%lu,%d,%d,%u,%u,%lu,%lu\n", kernel.c_str(), repeat, b, a,
                                          off >> 12, e[2], e[1], gpc, cl, ts, tg);
                    }
                } else if (e[0] == 4) {
                    uint32_t b;
                    uint64_t ts;
                    memcpy(&b, e + 4, 4);
                    memcpy(&ts, e + 8, 8);
                    replays++;
                    if (per.count(b)) per[b].t1 = ts;
                } else if (e[0] == 2) {
                    uint64_t n, t[2], g[2];
                    memcpy(&n, e + 16, 8);
                    memcpy(t, e + 24, 16);
                    memcpy(g, e + 48, 16);
                    int out = e[2] != 0;
                    n_move[out][e[1] & 7]++;
                    b_move[out][e[1] & 7] += n;
                    per[last].moved += n;
                    per[last].moves++;
                    if (dump && moves_csv && ftell(moves_csv) < 6000000) {
                        uint64_t off;
                        int a = array_of(addr, &off);
                        fprintf(moves_csv, "%s,%d,%d,%d,%lu,%lu,%d,%lu,%lu,%lu,%lu\n", kernel.c_str(), repeat, out, a,
                                off >> 12, n, e[1], t[0], t[1], g[0], g[1]);
                    }
                } else if (e[0] == 1) cpuf++;
                else other[e[0] & 63]++;
            }
            if (dump && batches_csv && ftell(batches_csv) < 6000000)
                for (auto& kv : per) {
                    B& x = kv.second;
                    if (x.t0)
                        fprintf(batches_csv, "%s,%d,%u,%lu,%zu,%zu,%lu,%lu,%lu,%ld\n", kernel.c_str(), repeat, kv.first, x.n,
                                x.pages.size(), x.blocks.size(), x.moves, x.moved, x.t0, x.t1 ? (long)(x.t1 - x.t0) : -1l);
                }
        }
        printf(",%zu,%lu,%lu,%lu,%zu,%zu,%zu,%zu,%zu,%lu", batches.size(), reports, writes, pde, pages.size(), bp.size(),
               bb.size(), blocks.size(), clients.size(), replays);
        printf(",%lu,%lu,%lu,%lu,%lu,%lu,%lu,%lu", n_move[0][2], b_move[0][2], n_move[0][3], b_move[0][3], n_move[0][1],
               b_move[0][1], n_move[1][2] + n_move[1][3] + n_move[1][1], b_move[1][2] + b_move[1][3] + b_move[1][1]);
        printf(",%lu,%lu,%lu,%lu,%lu,%lu", cpuf, other[13], other[8], other[7], other[10] + other[11], dropped);
        printf(",%lu,%lu,%lu,%lu,%lu,%lu", cu_rec[4], cu_sum[4], cu_rec[1], cu_sum[1], cu_rec[2], cu_rec[3]);
    }
    printf("\n");
    fflush(stdout);
}

// ---------------------------------------------------------------- kernels (each as its published program has it)
__global__ void empty() {}
__global__ void touch(const char* p, int* out) {
    if (*(volatile const char*)p == 77) *out = 1;
}
__global__ void store1(char* p) { *(volatile char*)p = 3; }
__global__ void triad(float* a, const float* b, const float* c, size_t n) {
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] = b[i] + 3.0f * c[i];
}
__global__ void triad_stride(float* a, const float* b, const float* c, size_t n) {
    size_t s = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += s) a[i] = b[i] + 3.0f * c[i];
}
__global__ void stencil(float* in, float* out, int N) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, i = y * N + x;
    if (x >= 1 && x < N - 1 && y >= 1 && y < N - 1) out[i] = (in[i] + in[i - 1] + in[i + 1] + in[i - N] + in[i + N]) * 0.2f;
}
__global__ void few_read(int* d, uint64_t n, int* r) {
    unsigned g = blockIdx.x * blockDim.x + threadIdx.x, s = blockDim.x * gridDim.x;
    int c = 0;
    for (uint64_t i = g; i < n; i += s) c += d[i];
    atomicAdd(r, c);
}
__global__ void few_write(int* d, uint64_t n) {
    unsigned g = blockIdx.x * blockDim.x + threadIdx.x, s = blockDim.x * gridDim.x;
    for (uint64_t i = g; i < n; i += s) d[i] = i;
}
__global__ void gemv(int nj, int nk, const float* a, const float* b, float* c) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j < nj) {
        float s = 0;
        for (int k = 0; k < nk; k++) { s += a[k] * b[(size_t)k * nj + j]; }
        c[j] = s;
    }
}
__global__ void chunk(const float* in, float* out, size_t N, size_t ce, size_t stride) {
    size_t t = blockIdx.x * blockDim.x + threadIdx.x, a = t * ce, b = min(a + ce, N);
    for (size_t i = a; i < b; i += stride) out[i] = in[i] * 1.5f + 2.0f;
}
__global__ void chunk_read(const float* in, float* out, size_t N, size_t ce, size_t stride) {
    size_t t = blockIdx.x * blockDim.x + threadIdx.x, a = t * ce, b = min(a + ce, N);
    float s = 0;
    for (size_t i = a; i < b; i += stride) s += in[i];
    if (s == 12345.0f) out[0] = s;
}
__global__ void chunk_write(float* out, size_t N, size_t ce, size_t stride) {
    size_t t = blockIdx.x * blockDim.x + threadIdx.x, a = t * ce, b = min(a + ce, N);
    for (size_t i = a; i < b; i += stride) out[i] = i;
}
struct Node {
    unsigned next;
    float data, pad;
};
__global__ void init_nodes(Node* v, size_t per, int chunks) {
    size_t s = (size_t)gridDim.x * blockDim.x, all = (size_t)chunks * per;
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < all; i += s) {
        unsigned r = 1664525u * (unsigned)i + 1013904223u;
        v[i].next = (unsigned)(i / per * per + r % per);
        v[i].data = 1;
        v[i].pad = 0;
    }
}
__global__ void chase(const Node* v, float* out, size_t per, int steps) {
    size_t t = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned cur = (unsigned)(t * per);
    float s = 0;
#pragma unroll 4
    for (int k = 0; k < steps; k++) {
        s += v[cur].data;
        cur = v[cur].next;
    }
    out[t] = s;
}
__global__ void sparse(float* d, const unsigned* perm, size_t blocks,
                       int K) {  // a thread a block of 2 MiB, K pages of it, load then store
    size_t t = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= blocks * K) return;
    size_t b = perm[t / K], page = (unsigned)(t % K) * (512 / K);
    size_t i = b * 524288 + page * 1024;
    d[i] = d[i] + 1.0f;
}
__global__ void pages(const char* p, size_t n, size_t step, int* out) {
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && p[i * step] == 77) *out = 1;
}
__global__ void warp_pages(const char* p, size_t step, int per_warp_lane, int* out) {  // one page a warp, or one a lane
    size_t w = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) / (per_warp_lane ? 1 : 32);
    if ((per_warp_lane || threadIdx.x % 32 == 0) && p[w * step] == 77) *out = 1;
}
__global__ void same_page(const char* p, int* out) {
    if (threadIdx.x == 0 && *p == 77) *out = 1;
}
__global__ void same_page_then_own(const char* p, size_t step, int* out) {
    if (threadIdx.x == 0) {
        if (p[0] == 77) *out = 1;
        if (p[(1 + blockIdx.x) * step] == 77) *out = 2;
    }
}
__global__ void pinned_read(const int* d, size_t n, int* r) {
    size_t s = (size_t)gridDim.x * blockDim.x;
    int c = 0;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += s) c += d[i];
    if (c == 12345) *r = c;
}
__global__ void pinned_write(int* d, size_t n) {
    size_t s = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += s) d[i] = (int)i;
}

int main(int argc, char** argv) {
    tracing = argc > 1 && !strcmp(argv[1], "trace");
    if (argc > 2) outdir = argv[2];
    t_start = now();
    int count = 0;
    CK(cudaGetDeviceCount(&count));
    if (tracing) open_cupti();
    CK(cudaSetDevice(0));
    CK(cudaFree(0));
    cudaDeviceProp pr;
    CK(cudaGetDeviceProperties(&pr, 0));
    size_t fr, to;
    CK(cudaMemGetInfo(&fr, &to));
    int drv;
    cudaDriverGetVersion(&drv);
    printf("note,%s SMs %d L2 %d free %zu total %zu cuda %d\n", pr.name, pr.multiProcessorCount, pr.l2CacheSize, fr, to, drv);
    if (fr < (8ull << 30)) {
        printf("error,less than 8 GiB are free\n");
        return 1;
    }
    int SM = pr.multiProcessorCount;
    int* out;
    CK(cudaMalloc(&out, 4096));
    CK(cudaMemset(out, 0, 4096));
    CK(cudaEventCreate(&e0));
    CK(cudaEventCreate(&e1));
    {
        A a = managed(4 << 20);
        touch<<<1, 1>>>(a.p, out);
        CK(cudaDeviceSynchronize());
    }  // the process' first fault
    if (tracing) {
        if (!cupti) open_cupti();
        open_queue();
        faults_csv = fopen((outdir + "/rows_faults.csv").c_str(), "w");
        moves_csv = fopen((outdir + "/rows_moves.csv").c_str(), "w");
        batches_csv = fopen((outdir + "/rows_batches.csv").c_str(), "w");
        if (faults_csv) fprintf(faults_csv, "kernel,repeat,batch,array,page,access,type,gpc,client,cpu_ns,gpu_ns\n");
        if (moves_csv) fprintf(moves_csv, "kernel,repeat,out,array,page,bytes,cause,begin_ns,end_ns,gpu_begin,gpu_end\n");
        if (batches_csv)
            fprintf(batches_csv, "kernel,repeat,batch,reports,pages,blocks,moves,moved,begin_ns,until_replay_ns\n");
    }
    release();
    printf("mode,kernel,repeat,bytes,threads,ns");
    if (tracing)
        printf(
            ",batches,reports,writes,pde_faults,pages,batch_pages,batch_blocks,blocks,clients,replays,n_demand,b_demand,n_"
            "ahead,b_ahead,n_user,b_user,n_out,b_out,cpu_faults,map_remote,rd_invalidate,rd_dup,thrash,dropped,cupti_fault_"
            "records,cupti_fault_sum,cupti_in_records,cupti_in_bytes,cupti_out_records,cupti_cpu_records");
    printf("\n");
    const size_t MB = 1 << 20;
    for (int i = 0; i < 5; i++) measure("empty", i, 0, 1, 0, [&] { empty<<<1, 1>>>(); });

    // single faults: units of 64 KiB 0,1,2,4,8,16 of eight blocks; the same, first touched by the GPU; a store
    {
        A a = managed(32 * MB), b = managed(32 * MB, 0);
        const int u[6] = {0, 1, 2, 4, 8, 16};
        for (int k = 0; k < 8; k++)
            for (int j = 0; j < 6; j++)
                measure("one_fault_u" + std::to_string(u[j]), k, 1, 1, 10,
                        [&] { touch<<<1, 1>>>(a.p + k * 2 * MB + u[j] * 65536, out); });
        for (int k = 0; k < 8; k++)
            measure("one_fault_first_touch", k, 1, 1, 10, [&] { touch<<<1, 1>>>(b.p + k * 2 * MB, out); });
        for (int k = 8; k < 12; k++) measure("one_fault_store", k, 1, 1, 10, [&] { store1<<<1, 1>>>(a.p + k * 2 * MB); });
        release();
    }
    // who reports: one page by every SM; one page a SM; one page a warp of a SM; one page a lane; 1,024 pages of one SM; TPC
    // neighbours
    for (int k = 0; k < 3; k++) {
        A a = managed(64 * MB);
        measure("same_page_all_sms", k, 4096, SM, 4000, [&] { same_page<<<SM, 32>>>(a.p, out); });
        measure("same_page_4_blocks_a_sm", k, 4096, 4 * SM, 4000, [&] { same_page<<<4 * SM, 32>>>(a.p + 2 * MB, out); });
        measure("own_page_each_sm_64k_apart", k, (size_t)SM * 4096, SM, 4000,
                [&] { warp_pages<<<SM, 32>>>(a.p + 4 * MB, 65536, 0, out); });
        measure("page_a_warp_one_sm", k, 32 * 4096, 1024, 4000, [&] { warp_pages<<<1, 1024>>>(a.p + 24 * MB, 65536, 0, out); });
        measure("page_a_lane_one_warp", k, 32 * 4096, 32, 4000, [&] { warp_pages<<<1, 32>>>(a.p + 28 * MB, 65536, 1, out); });
        measure("same_block_page_a_lane_1024_one_sm", k, 1024 * 4096, 1024, 4000,
                [&] { warp_pages<<<1, 1024>>>(a.p + 32 * MB, 4096, 1, out); });
        measure("same_block_two_pages_64k_apart_one_warp", k, 8192, 2, 4000,
                [&] { warp_pages<<<1, 2>>>(a.p + 40 * MB, 65536, 1, out); });
        measure("two_pages_one_64k_one_warp", k, 8192, 2, 4000, [&] { warp_pages<<<1, 2>>>(a.p + 44 * MB, 4096, 1, out); });
        measure("16_pages_one_64k_all_sms", k, 65536, 16 * SM, 4000,
                [&] { warp_pages<<<1, 16>>>(a.p + 46 * MB, 4096, 1, out); });
        measure("same_then_own_all_sms", k, 4096, SM, 4000, [&] { same_page_then_own<<<SM, 32>>>(a.p + 50 * MB, 4096, out); });
        release();
    }
    {
        A a = managed(512 * MB);
        measure("page_a_thread_4_blocks_of_1024", 0, 4096 * 4096, 4096, 6000,
                [&] { warp_pages<<<4, 1024>>>(a.p, 4096, 1, out); });
        measure("page_a_thread_regular", 0, 256 * MB, 65536, 60000,
                [&] { pages<<<256, 256>>>(a.p + 256 * MB, 65536, 4096, out); });
        release();
    }
    // STREAM: 64 Mi and 128 Mi floats an array (the second is the RTX 5070 Ti's row), a thread a float; with the grid's stride
    for (size_t n : {64 * MB, 128 * MB}) {
        A a = managed(n * 4, 0), b = managed(n * 4), c = managed(n * 4);
        for (int k = 0; k < 2; k++)
            measure(n == 64 * MB ? "stream_thread_64Mi" : "stream_thread_128Mi", k, n * 12, n, k ? 0 : 60000,
                    [&] { triad<<<(n + 255) / 256, 256>>>((float*)a.p, (float*)b.p, (float*)c.p, n); });
        release();
    }
    {
        size_t n = 64 * MB;
        A a = managed(n * 4), b = managed(n * 4), c = managed(n * 4);
        for (int k = 0; k < 2; k++)
            measure("stream_stride_64Mi", k, n * 12, 65535 * 256, k ? 0 : 20000,
                    [&] { triad_stride<<<65535, 256>>>((float*)a.p, (float*)b.p, (float*)c.p, n); });
        release();
    }
    // Stencil of 8,192 (the RTX 5070 Ti's row)
    {
        int N = 8192;
        A in = managed((size_t)N * N * 4), o = managed((size_t)N * N * 4, 0);
        dim3 t(16, 16), g(N / 16, N / 16);
        for (int k = 0; k < 2; k++)
            measure("stencil_8192", k, (size_t)N * N * 8, (size_t)N * N, k ? 0 : 40000,
                    [&] { stencil<<<g, t>>>((float*)in.p, (float*)o.p, N); });
        release();
    }
    // gpu_ext's GEMM: a column of 4,096 x 11,008 a thread, 43 blocks of 256; 3 layers of 172 MiB
    {
        A w = managed((size_t)3 * 4096 * 11008 * 4), x = managed(4096 * 4), o = managed(11008 * 4);
        for (int k = 0; k < 2; k++)
            for (int l = 0; l < 3; l++)
                measure("gemv_layer" + std::to_string(l), k, (size_t)4096 * 11008 * 4, 11008, k ? 0 : 8000, [&] {
                    gemv<<<43, 256>>>(11008, 4096, (float*)x.p, (float*)w.p + (size_t)l * 4096 * 11008, (float*)o.p);
                });
        release();
    }
    // few threads (um_reprex): 2 blocks of 128 a SM, and 160 x 128; 512 MiB; hints
    for (int v = 0; v < 7; v++) {
        const char* name[7] = {"few_2xSM",
                               "few_160",
                               "few_2xSM_pref_cpu",
                               "few_2xSM_accessed_by",
                               "few_2xSM_pref_cpu_accessed_by",
                               "few_2xSM_read_mostly",
                               "few_2xSM_write_pref_cpu"};
        A a = managed(512 * MB);
        if (v == 2 || v == 4 || v == 6) CK(cudaMemAdvise(a.p, a.n, cudaMemAdviseSetPreferredLocation, HOST));
        if (v == 3 || v == 4) CK(cudaMemAdvise(a.p, a.n, cudaMemAdviseSetAccessedBy, DEV));
        if (v == 5) CK(cudaMemAdvise(a.p, a.n, cudaMemAdviseSetReadMostly, DEV));
        int grid = v == 1 ? 160 : 2 * SM;
        for (int k = 0; k < 3; k++)
            measure(name[v], k, a.n, grid * 128, k == 0 && v < 3 ? 15000 : 0, [&] {
                if (v == 6) few_write<<<grid, 128>>>((int*)a.p, a.n / 4);
                else few_read<<<grid, 128>>>((int*)a.p, a.n / 4, out);
            });
        release();
    }
    // gpu_ext's sequential kernel (256 x 256 threads, a chunk each, a float a page): 2 x 256 MiB; hints; loads alone and stores
    // alone
    for (int v = 0; v < 6; v++) {
        const char* name[6] = {
            "chunk",         "chunk_read_mostly", "chunk_pref_cpu", "chunk_accessed_by", "chunk_pref_cpu_accessed_by",
            "chunk_pref_gpu"};
        A in = managed(256 * MB), o = managed(256 * MB, 0);
        for (A* a : {&in, &o}) {
            if (v == 1) CK(cudaMemAdvise(a->p, a->n, cudaMemAdviseSetReadMostly, DEV));
            if (v == 2 || v == 4) CK(cudaMemAdvise(a->p, a->n, cudaMemAdviseSetPreferredLocation, HOST));
            if (v == 3 || v == 4) CK(cudaMemAdvise(a->p, a->n, cudaMemAdviseSetAccessedBy, DEV));
            if (v == 5) CK(cudaMemAdvise(a->p, a->n, cudaMemAdviseSetPreferredLocation, DEV));
        }
        size_t N = in.n / 4, ce = (N + 65535) / 65536;
        ce = (ce + 1023) / 1024 * 1024;
        for (int k = 0; k < 4; k++)
            measure(name[v], k, 512 * MB, 65536, k < 2 && v < 3 ? 12000 : 0,
                    [&] { chunk<<<256, 256>>>((float*)in.p, (float*)o.p, N, ce, 1024); });
        release();
    }
    // gpu_ext's pointer chase: 512 MiB of nodes; read-mostly set after the nodes were written
    for (int v = 0; v < 2; v++) {
        size_t per = 512 * MB / 12 / 65536;
        per = (per + 340) / 341 * 341;
        A nd = managed(per * 65536 * 12, 0), o = managed(65536 * 4, 0);
        measure(v ? "chase_init_2" : "chase_init", 0, nd.n, 2048 * 256, 8000,
                [&] { init_nodes<<<2048, 256>>>((Node*)nd.p, per, 65536); });
        if (v)
            for (A* a : {&nd, &o}) CK(cudaMemAdvise(a->p, a->n, cudaMemAdviseSetReadMostly, DEV));
        for (int k = 0; k < 5; k++)
            measure(v ? "chase_read_mostly" : "chase", k, nd.n, 65536, v ? 4000 : 0,
                    [&] { chase<<<256, 256>>>((Node*)nd.p, (float*)o.p, per, 8); });
        release();
    }
    // sparse: 512 blocks of 2 MiB in random order, K pages each
    {
        unsigned* perm;
        CK(cudaMalloc(&perm, 4096));
        std::vector<unsigned> h(512);
        for (int i = 0; i < 512; i++) h[i] = i;
        srand(1);
        for (int i = 511; i > 0; i--) std::swap(h[i], h[rand() % (i + 1)]);
        CK(cudaMemcpy(perm, h.data(), 2048, cudaMemcpyHostToDevice));
        for (int K : {1, 8, 64, 512}) {
            A a = managed(1024 * MB);
            for (int k = 0; k < 2; k++)
                measure("sparse_K" + std::to_string(K), k, a.n, 512 * K, k ? 0 : 12000,
                        [&] { sparse<<<(512 * K + 255) / 256, 256>>>((float*)a.p, perm, 512, K); });
            release();
        }
    }
    // host and GPU in turn; the host's faults (wall time)
    {
        A a = managed(64 * MB);
        volatile char sink = 0;
        size_t n = a.n / 4;
        for (int k = 0; k < 3; k++) {
            measure("turns_gpu_writes", k, a.n, 2 * SM * 128, 3000, [&] { few_write<<<2 * SM, 128>>>((int*)a.p, n); });
            measure(
                "turns_host_reads", k, a.n, 1, 3000,
                [&] {
                    for (size_t i = 0; i < a.n; i += 64) sink += a.p[i];
                },
                true);
        }
        release();
    }
    {
        double w = now();
        A a = managed(512 * MB);
        (void)a;
        printf("%s,host_fill_memset,0,%zu,1,%.0f\n", tracing ? "time_traced" : "time", (size_t)(512 * MB), (now() - w) * 1e9);
        release();
    }
    // explicit prefetches, and copies of pinned memory
    {
        A a = managed(1024 * MB);
        for (int k = 0; k < 2; k++) {
            measure("prefetch_to_gpu", k, a.n, 0, 3000, [&] { CK(prefetch(a.p, a.n, DEV)); });
            measure("prefetch_to_host", k, a.n, 0, 3000, [&] { CK(prefetch(a.p, a.n, HOST)); });
        }
        release();
        A b = managed(1024 * MB, 0);
        measure("prefetch_first_touch", 0, b.n, 0, 3000, [&] { CK(prefetch(b.p, b.n, DEV)); });
        release();
    }
    {
        int* h;
        size_t n = 512 * MB;
        CK(cudaHostAlloc((void**)&h, n, cudaHostAllocMapped));
        memset(h, 0, n);
        int* d;
        CK(cudaMalloc(&d, n));
        size_t N = n / 4, ce = N / 65536;
        ce = (ce + 1023) / 1024 * 1024;
        for (int k = 0; k < 3; k++) {
            measure("memcpy_h2d_pinned", k, n, 0, 0, [&] { CK(cudaMemcpyAsync(d, h, n, cudaMemcpyHostToDevice, 0)); });
            measure("memcpy_d2h_pinned", k, n, 0, 0, [&] { CK(cudaMemcpyAsync(h, d, n, cudaMemcpyDeviceToHost, 0)); });
            measure("remote_read_full_grid", k, n, 2048 * 256, 0, [&] { pinned_read<<<2048, 256>>>(h, N, out); });
            measure("remote_write_full_grid", k, n, 2048 * 256, 0, [&] { pinned_write<<<2048, 256>>>(h, N); });
            measure("remote_read_few_2xSM", k, n, 2 * SM * 128, 0, [&] { few_read<<<2 * SM, 128>>>(h, N, out); });
            measure("remote_read_page_stride", k, n, 65536, 0,
                    [&] { chunk_read<<<256, 256>>>((float*)h, (float*)out, N, ce, 1024); });
            measure("remote_write_page_stride", k, n, 65536, 0, [&] { chunk_write<<<256, 256>>>((float*)h, N, ce, 1024); });
            measure("local_read_few_2xSM", k, n, 2 * SM * 128, 0, [&] { few_read<<<2 * SM, 128>>>(d, N, out); });
            measure("local_read_few_160", k, n, 160 * 128, 0, [&] { few_read<<<160, 128>>>(d, N, out); });
            measure("local_read_page_stride", k, n, 65536, 0,
                    [&] { chunk_read<<<256, 256>>>((float*)d, (float*)out, N, ce, 1024); });
            measure("local_write_page_stride", k, n, 65536, 0, [&] { chunk_write<<<256, 256>>>((float*)d, N, ce, 1024); });
            measure("local_chunk", k, n, 65536, 0, [&] {
                chunk<<<256, 256>>>((float*)d, (float*)(d + N / 2), N / 2, ((N / 2 + 65535) / 65536 + 1023) / 1024 * 1024,
                                    1024);
            });
        }
        size_t per = 512 * MB / 12 / 65536 / 341 * 341;
        init_nodes<<<2048, 256>>>((Node*)d, per, 65536);
        float* o;
        CK(cudaMalloc(&o, 65536 * 4));
        for (int k = 0; k < 3; k++) measure("local_chase", k, n, 65536, 0, [&] { chase<<<256, 256>>>((Node*)d, o, per, 8); });
        CK(cudaFreeHost(h));
        CK(cudaFree(d));
    }
    printf("note,whole run %.1f s\n", now() - t_start);
    return 0;
}
