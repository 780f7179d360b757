// checkpoint GIB CYCLES: a child takes GIB of device memory, its parent suspends and resumes it through the driver's checkpoint
// calls.
#include <cuda.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "driver.h"

int main(int c, char** v) {
    double gib = atof(v[1]);
    int cycles = atoi(v[2]);
    int piece = c > 3 ? atoi(v[3]) : 1024;
    int pipefd[2];
    if (pipe(pipefd)) return 1;
    
    child = fork();
    if (!child) {
        CUdevice d;
        CUcontext x;
        
        cuInit(0);
        cuDeviceGet(&d, 0);
        cuDevicePrimaryCtxRetain(&x, d);
        cuCtxSetCurrent(x);
        double left = gib * 1024;
        while (left > 0) {
            CUdeviceptr p;
            size_t b = (size_t)(left < piece ? left : piece) << 20;
            CK(cuMemAlloc(&p, b));
            CK(cuMemsetD32(p, 0x5a5a1234, b / 4));
            left -= piece;
        }
        CK(cuCtxSynchronize());
        char y = 1;
        write(pipefd[1], &y, 1);
        while (1) pause();
    }
    char y;
    if (read(pipefd[0], &y, 1) != 1) return 1;
    if (cuInit(0)) return 2;
    for (int k = 0; k < cycles; k++) {
        CUcheckpointLockArgs la;
        memset(&la, 0, sizeof la);
        CUcheckpointCheckpointArgs ca;
        memset(&ca, 0, sizeof ca);
        CUcheckpointRestoreArgs ra;
        memset(&ra, 0, sizeof ra);
        CUcheckpointUnlockArgs ua;
        memset(&ua, 0, sizeof ua);
        double t0 = now();
        CK(cuCheckpointProcessLock(child, &la));
        double t1 = now();
        CK(cuCheckpointProcessCheckpoint(child, &ca));
        double t2 = now();
        CK(cuCheckpointProcessRestore(child, &ra));
        double t3 = now();
        CK(cuCheckpointProcessUnlock(child, &ua));
        double t4 = now();
        printf("%.2f,%d,%d,lock=%.4f,checkpoint=%.4f,restore=%.4f,unlock=%.4f\n", gib, piece, k, t1 - t0, t2 - t1, t3 - t2,
               t4 - t3);
        fflush(stdout);
    }
    kill(child, 9);
    wait(0);
    return 0;
}
