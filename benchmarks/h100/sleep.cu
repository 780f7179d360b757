// sleep GIB PIECE_MIB CYCLES: as vLLM's sleep level 1: pieces of device memory to new (or kept) pinned host buffers, unmapped,
// mapped, copied home.
#include <cuda.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "driver.h"

int main(int c, char** v) {
    double gib = atof(v[1]);
    size_t piece = (size_t)atoi(v[2]) << 20;
    int cycles = atoi(v[3]);
    CUdevice d;
    CUcontext x;
    CK(cuInit(0));
    CK(cuDeviceGet(&d, 0));
    CK(cuDevicePrimaryCtxRetain(&x, d));
    CK(cuCtxSetCurrent(x));
    CUmemAllocationProp p;
    memset(&p, 0, sizeof p);
    p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    p.location.id = 0;
    CUmemAccessDesc a;
    memset(&a, 0, sizeof a);
    a.location = p.location;
    a.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    int n = (int)(gib * (1 << 30) / piece);
    std::vector<CUdeviceptr> at(n);
    std::vector<CUmemGenericAllocationHandle> h(n);
    std::vector<void*> host(n, (void*)0);
    for (int i = 0; i < n; i++) {
        CK(cuMemAddressReserve(&at[i], piece, 0, 0, 0));
        CK(cuMemCreate(&h[i], piece, &p, 0));
        CK(cuMemMap(at[i], piece, 0, h[i], 0));
        CK(cuMemSetAccess(at[i], piece, &a, 1));
        CK(cuMemsetD32(at[i], 1, piece / 4));
    }
    CK(cuCtxSynchronize());
    for (int kept = 0; kept < 2; kept++)
        for (int k = 0; k < cycles; k++) {
            double al = 0, out = 0, un = 0, map = 0, in = 0, fr = 0, t;
            for (int i = 0; i < n; i++) {
                t = now();
                if (!host[i]) CK(cuMemHostAlloc(&host[i], piece, 0));
                al += now() - t;
                t = now();
                CK(cuMemcpyDtoH(host[i], at[i], piece));
                out += now() - t;
                t = now();
                CK(cuMemUnmap(at[i], piece));
                CK(cuMemRelease(h[i]));
                un += now() - t;
            }
            for (int i = 0; i < n; i++) {
                t = now();
                CK(cuMemCreate(&h[i], piece, &p, 0));
                CK(cuMemMap(at[i], piece, 0, h[i], 0));
                CK(cuMemSetAccess(at[i], piece, &a, 1));
                map += now() - t;
                t = now();
                CK(cuMemcpyHtoD(at[i], host[i], piece));
                in += now() - t;
            }
            t = now();
            if (!kept)
                for (int i = 0; i < n; i++) {
                    CK(cuMemFreeHost(host[i]));
                    host[i] = 0;
                }
            fr = now() - t;
            printf("%.2f,%zu,kept=%d,%d,alloc=%.4f,out=%.4f,unmap=%.4f,map=%.4f,in=%.4f,free=%.4f\n", gib, piece >> 20, kept, k,
                   al, out, un, map, in, fr);
            fflush(stdout);
        }
    return 0;
}
