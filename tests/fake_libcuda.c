/* A libcuda.so.1 without a GPU, by which cuda-bindings can be called for real: memory is the host's, kernels are done on the CPU
 * at once.  It measures nothing; it refuses arguments that are not what the call takes.  Compiled by test_calibrate_bindings.py.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef uint64_t u64;
typedef uint32_t u32;
typedef void *ptr;
enum { OK = 0, INVALID = 1, NO_MEMORY = 2, NOT_FOUND = 500 };
enum { DEVICES = 2, CONTEXT = 0x100, MODULE = 0x200, POOL = 0x300, BLOCK = 0x400, STREAMS = 0x500 };
#define REFUSE_UNLESS(good) ((good) ? OK : (fprintf(stderr, "%s: wrong arguments\n", __func__), INVALID))
#define ALIAS(name) __attribute__((alias(name)))

static u64 now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}
static int is_stream(ptr s) { return (u64)s >= STREAMS; }
static int is_device(int d) { return 0 <= d && d < DEVICES; }
static int is_context(ptr c) { return is_device((int)((u64)c - CONTEXT)); }

/* Devices and contexts. */
int cuInit(u32 flags) { return REFUSE_UNLESS(!flags); }
int cuDriverGetVersion(int *v) { *v = atoi(getenv("FAKE_VERSION")); return OK; }
int cuDeviceGetCount(int *n) { *n = DEVICES; return OK; }
int cuDeviceGet(int *d, int i) { *d = i; return REFUSE_UNLESS(is_device(i)); }
int cuDeviceGetName(char *s, int n, int d) { snprintf(s, n, "NVIDIA H200"); return REFUSE_UNLESS(is_device(d)); }
int cuDeviceGetPCIBusId(char *s, int n, int d) { snprintf(s, n, "0000:%02x:00.0", d); return REFUSE_UNLESS(is_device(d)); }
int cuDeviceGetAttribute(int *v, int which, int d) {
    switch (which) {
        case 16: *v = 4; break;        /* multiprocessors */
        case 38: *v = 1 << 20; break;  /* L2 */
        case 39: *v = 2048; break;     /* threads per multiprocessor */
        case 75: *v = 9; break;        /* compute capability */
        case 76: *v = 0; break;
        case 89: *v = 1; break;        /* concurrent managed access */
        default: return REFUSE_UNLESS(0);
    }
    return REFUSE_UNLESS(is_device(d));
}
int cuDevicePrimaryCtxRetain(ptr *c, int d) { *c = (ptr)(u64)(CONTEXT + d); return REFUSE_UNLESS(is_device(d)); }
int cuDevicePrimaryCtxRelease(int d) { return REFUSE_UNLESS(is_device(d)); }
int cuCtxSetCurrent(ptr c) { return REFUSE_UNLESS(is_context(c)); }
int cuCtxSynchronize(void) { return OK; }
int cuCtxEnablePeerAccess(ptr c, u32 flags) { return REFUSE_UNLESS(is_context(c) && !flags); }
int cuDeviceCanAccessPeer(int *v, int a, int b) { *v = 1; return REFUSE_UNLESS(is_device(a) && is_device(b) && a != b); }
int cuDeviceGetP2PAttribute(int *v, int which, int a, int b) { *v = 1; return REFUSE_UNLESS(which == 3 && a != b); }
int cuModuleLoadData(ptr *m, const char *image) { *m = (ptr)MODULE; return REFUSE_UNLESS(!memcmp(image, "\x7f" "ELF", 4)); }
int cuModuleUnload(ptr m) { return REFUSE_UNLESS(m == (ptr)MODULE); }
int cuModuleGetFunction(ptr *f, ptr m, const char *name) { *f = strdup(name); return REFUSE_UNLESS(m == (ptr)MODULE); }
int cuGetErrorName(int e, const char **s) { *s = e == NO_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_OF_THE_FAKE"; return OK; }
int cuGetExportTable(const ptr *table, const ptr id) { return NOT_FOUND; } /* NVRTC asks for it */

/* Memory. */
int cuMemGetInfo(size_t *free_bytes, size_t *all) { *free_bytes = 40u << 20; *all = 80u << 20; return OK; }
int cuMemAlloc(u64 *p, size_t n) { *p = (u64)aligned_alloc(4096, (n + 4095) / 4096 * 4096); return *p ? OK : NO_MEMORY; }
int cuMemFree(u64 p) { free((ptr)p); return OK; }
int cuMemHostAlloc(ptr *p, size_t n, u32 flags) { return cuMemAlloc((u64 *)p, n) || REFUSE_UNLESS(flags == 3 || !flags); }
int cuMemFreeHost(ptr p) { free(p); return OK; }
int cuMemAllocManaged(u64 *p, size_t n, u32 flags) { return cuMemAlloc(p, n) || REFUSE_UNLESS(flags == 1); }
int cuMemAllocAsync(u64 *p, size_t n, ptr s) { return cuMemAlloc(p, n) || REFUSE_UNLESS(is_stream(s)); }
int cuMemFreeAsync(u64 p, ptr s) { free((ptr)p); return REFUSE_UNLESS(is_stream(s)); }
int cuDeviceGetDefaultMemPool(ptr *p, int d) { *p = (ptr)POOL; return REFUSE_UNLESS(is_device(d)); }
int cuMemPoolSetAttribute(ptr p, int which, u64 *v) { return REFUSE_UNLESS(p == (ptr)POOL && which == 4 && *v == 1ull << 63); }
int cuMemPoolTrimTo(ptr p, size_t keep) { return REFUSE_UNLESS(p == (ptr)POOL && !keep); }

struct location { int type, id; };
struct wanted { int type, handles; struct location location; };
struct access { struct location location; int flags; };
static int is_wanted(const struct wanted *w) { return w->type == 1 && w->location.type == 1 && w->location.id == 0; }
static int is_location(struct location l) { return (l.type == 1 && is_device(l.id)) || (l.type == 2 && l.id == 0); }
int cuMemGetAllocationGranularity(size_t *g, const struct wanted *w, int o) { *g = 2 << 20; return REFUSE_UNLESS(is_wanted(w) && !o); }
int cuMemAddressReserve(u64 *p, size_t n, size_t align, u64 at, u64 flags) { return cuMemAlloc(p, n); }
int cuMemAddressFree(u64 p, size_t n) { return cuMemFree(p); }
int cuMemCreate(u64 *h, size_t n, const struct wanted *w, u64 flags) { *h = BLOCK; return REFUSE_UNLESS(is_wanted(w) && !flags); }
int cuMemMap(u64 p, size_t n, size_t at, u64 h, u64 flags) { return REFUSE_UNLESS(p && !at && h == BLOCK && !flags); }
int cuMemSetAccess(u64 p, size_t n, const struct access *a, size_t count) {
    return REFUSE_UNLESS(count == 1 && a->flags == 3 && a->location.type == 1 && a->location.id == 0);
}
int cuMemUnmap(u64 p, size_t n) { return REFUSE_UNLESS(p && n); }
int cuMemRelease(u64 h) { return REFUSE_UNLESS(h == BLOCK); }
int cuMemPrefetchAsync(u64 p, size_t n, int to, ptr s) { return REFUSE_UNLESS((to == -1 || is_device(to)) && is_stream(s)); }
int cuMemPrefetchAsync_v2(u64 p, size_t n, struct location to, u32 flags, ptr s) {
    return REFUSE_UNLESS(is_location(to) && !flags && is_stream(s));
}
int cuMemAdvise(u64 p, size_t n, int what, int to) { return REFUSE_UNLESS(what > 0 && what < 6 && (to == -1 || is_device(to))); }
int cuMemAdvise_v2(u64 p, size_t n, int what, struct location to) { return REFUSE_UNLESS(what > 0 && what < 6 && is_location(to)); }

/* Copies. */
static int copy(u64 to, u64 of, size_t n, ptr s) { memmove((ptr)to, (ptr)of, n); return REFUSE_UNLESS(is_stream(s)); }
int cuMemcpyHtoDAsync(u64 to, ptr of, size_t n, ptr s) { return copy(to, (u64)of, n, s); }
int cuMemcpyDtoHAsync(ptr to, u64 of, size_t n, ptr s) { return copy((u64)to, of, n, s); }
int cuMemcpyDtoDAsync(u64 to, u64 of, size_t n, ptr s) { return copy(to, of, n, s); }
int cuMemcpyPeerAsync(u64 to, ptr a, u64 of, ptr b, size_t n, ptr s) {
    return copy(to, of, n, s) || REFUSE_UNLESS(is_context(a) && is_context(b) && a != b);
}
int cuMemcpyHtoD(u64 to, ptr of, size_t n) { memcpy((ptr)to, of, n); return OK; }
int cuMemcpyDtoH(ptr to, u64 of, size_t n) { memcpy(to, (ptr)of, n); return OK; }
int cuMemsetD8Async(u64 to, unsigned char value, size_t n, ptr s) { memset((ptr)to, value, n); return REFUSE_UNLESS(is_stream(s)); }

/* Streams and events. */
int cuStreamCreate(ptr *s, u32 flags) { static u64 next = STREAMS; *s = (ptr)next++; return REFUSE_UNLESS(flags == 1); }
int cuStreamDestroy(ptr s) { return REFUSE_UNLESS(is_stream(s)); }
int cuStreamSynchronize(ptr s) { return REFUSE_UNLESS(is_stream(s)); }
int cuStreamWaitEvent(ptr s, ptr e, u32 flags) { return REFUSE_UNLESS(is_stream(s) && e && !flags); }
int cuEventCreate(ptr *e, u32 flags) { *e = calloc(1, sizeof(u64)); return REFUSE_UNLESS(!flags); }
int cuEventRecord(ptr e, ptr s) { *(u64 *)e = now(); return REFUSE_UNLESS(is_stream(s)); }
int cuEventDestroy(ptr e) { free(e); return OK; }
int cuEventElapsedTime(float *ms, ptr a, ptr b) { *ms = (*(u64 *)b - *(u64 *)a + 1) / 1e6f; return OK; }

/* Kernels and graphs: a graph is the list of its launches. */
#define ARG(T, i) (*(T *)args[i])
static int run(const char *f, ptr *args) {
    if (!strcmp(f, "null_kernel")) return OK;
    if (!strcmp(f, "spin")) return REFUSE_UNLESS(ARG(volatile int *, 0)[0] == 0 && ARG(u64, 1) == 2000000000);
    if (!strcmp(f, "fill")) {
        for (u64 i = 0; i < ARG(u64, 1); i++) ARG(u32 *, 0)[i] = (u32)i * 2654435761u + ARG(u32, 2);
        return OK;
    }
    if (!strcmp(f, "count_wrong")) {
        for (u64 i = 0; i < ARG(u64, 1); i++) *ARG(u64 *, 3) += ARG(u32 *, 0)[i] != (u32)i * 2654435761u + ARG(u32, 2);
        return OK;
    }
    if (!strcmp(f, "stream_copy")) { memmove(ARG(ptr, 0), ARG(ptr, 1), ARG(u64, 2) * 16); return REFUSE_UNLESS(ARG(int, 3) > 0); }
    if (!strcmp(f, "stream_read")) return REFUSE_UNLESS(ARG(u64, 1) && ARG(int, 2) > 0);
    if (!strcmp(f, "stream_write")) return REFUSE_UNLESS(ARG(int, 2) > 0 && ARG(float, 3) == 1.5f);
    if (!strcmp(f, "stream_triad")) return REFUSE_UNLESS(ARG(int, 4) > 0 && ARG(float, 5) == 0.5f);
    if (!strcmp(f, "elementwise")) return REFUSE_UNLESS(ARG(u64, 2) && ARG(float, 3) == 0.5f);
    if (!strcmp(f, "fma_sweep")) return REFUSE_UNLESS(ARG(int, 2) > 0 && ARG(float, 3) == 0.999f);
    if (!strncmp(f, "chase", 5)) {
        u64 p = ARG(u64, 0), begin = now(), *out = ARG(u64 *, 2);
        for (u64 i = 0; i < ARG(u64, 1); i++) p = *(u64 *)p;
        out[0] = p, out[2] = now() - begin + 1, out[1] = 2 * out[2];
        return OK;
    }
    if (!strncmp(f, "touch_read_", 11)) return REFUSE_UNLESS(ARG(u64, 1) && ARG(ptr, 2));
    if (!strncmp(f, "touch_write_", 12)) {
        int width = atoi(f + 12);
        for (u64 i = 0; i < ARG(u64, 1); i++) memcpy(ARG(char *, 0) + i * width, args[2], width < 4 ? width : 4);
        return OK;
    }
    if (!strcmp(f, "gemm_fp32")) {
        int n = ARG(int, 3);
        for (int i = 0; i < n && n <= 256; i++)
            for (int j = 0; j < n; j++) {
                float sum = 0;
                for (int k = 0; k < n; k++) sum += ARG(float *, 0)[i * n + k] * ARG(float *, 1)[k * n + j];
                ARG(float *, 2)[i * n + j] = sum;
            }
        return OK;
    }
    return REFUSE_UNLESS(0);
}
struct node { const char *f; u64 values[8]; ptr args[8]; struct node *next; };
static struct node *first, **last;
int cuLaunchKernel(const char *f, u32 x, u32 y, u32 z, u32 tx, u32 ty, u32 tz, u32 shared, ptr s, ptr *args, ptr *extra) {
    if (!x || !y || z != 1 || !tx || tx * ty * tz > 1024 || shared || !is_stream(s) || extra) return REFUSE_UNLESS(0);
    if (!last) return run(f, args);
    struct node *n = *last = calloc(1, sizeof *n);
    int count = strcmp(f, "stream_copy") ? 0 : 4; /* the kernels that are captured: these and empty ones */
    n->f = f, last = &n->next;
    for (int i = 0; i < count; i++) memcpy(&n->values[i], args[i], i == 3 ? 4 : 8), n->args[i] = &n->values[i];
    return OK;
}
int cuStreamBeginCapture(ptr s, int mode) { first = NULL, last = &first; return REFUSE_UNLESS(is_stream(s) && mode == 1); }
int cuStreamEndCapture(ptr s, ptr *graph) { *graph = first, last = NULL; return REFUSE_UNLESS(is_stream(s)); }
int cuGraphInstantiate(ptr *ready, ptr graph, u64 flags) { *ready = graph; return REFUSE_UNLESS(!flags); }
int cuGraphInstantiateWithFlags(ptr *, ptr, u64) ALIAS("cuGraphInstantiate");
int cuGraphLaunch(struct node *n, ptr s) {
    for (; n; n = n->next)
        if (run(n->f, n->args)) return INVALID;
    return REFUSE_UNLESS(is_stream(s));
}
int cuGraphExecDestroy(ptr ready) { return OK; }
int cuGraphDestroy(ptr graph) { return OK; }

/* cuda-bindings asks for each call by name and CUDA version; from 12.2 on two calls take a location instead of a number. */
int cuGetProcAddress_v2(const char *name, ptr *f, int version, u64 flags, int *status) {
    ptr self = dlopen("libcuda.so.1", RTLD_NOW);
    char newer[128];
    snprintf(newer, sizeof newer, "%s_v2", name);
    *f = !strcmp(name, "cuGetProcAddress") || version >= 12020 ? dlsym(self, newer) : NULL;
    if (!*f) *f = dlsym(self, name);
    if (status) *status = *f ? 0 : 1;
    return *f ? OK : NOT_FOUND;
}
int cuGetProcAddress(const char *name, ptr *f, int version, u64 flags) { return cuGetProcAddress_v2(name, f, version, flags, NULL); }
