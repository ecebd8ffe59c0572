// The read ceiling: a bare ring. It makes the same copies into shared memory as the VM's loader, 32
// KiB into each of six slots, read by as many warps, but computes nothing and never waits for
// another worker.
#pragma once
#include "ptx.cuh"

#define AMK_CEILING_CHUNK 32768
#define AMK_CEILING_WARPS 16

// Block b reads `chunks` chunks starting at b * chunks. `slots` is the depth of the ring.
extern "C" __global__ void __launch_bounds__(AMK_CEILING_WARPS * 32 + 32, 1)
    amk_ceiling(const u8* data, u32 chunks, u32 slots, u32* out) {
    extern __shared__ __align__(1024) u8 ring[];
    __shared__ u64 full[8], empty[8];
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        for (u32 i = 0; i < slots; i++) {
            barrier_init(shared_address(full + i), __CUDA_ARCH__ >= 900 ? 1 : 32);
            barrier_init(shared_address(empty + i), AMK_CEILING_WARPS);
        }
#if __CUDA_ARCH__ >= 900
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
    }
    __syncthreads();
    data += (u64)blockIdx.x * chunks * AMK_CEILING_CHUNK;
    if (warp == AMK_CEILING_WARPS) {
        if (__CUDA_ARCH__ >= 900 && lane != 0) return;
        for (u32 i = 0, slot = 0, parity = 1; i < chunks; i++, data += AMK_CEILING_CHUNK) {
            while (!barrier_passed(shared_address(empty + slot), parity)) {
            }
            const u32 bar = shared_address(full + slot),
                      to = shared_address(ring) + slot * AMK_CEILING_CHUNK;
#if __CUDA_ARCH__ >= 900
            barrier_expect(bar, AMK_CEILING_CHUNK);
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
                         "[%1], %2, [%3];" ::"r"(to),
                         "l"(data), "n"(AMK_CEILING_CHUNK), "r"(bar)
                         : "memory");
#else
            for (u32 at = lane * 16; at < AMK_CEILING_CHUNK; at += 512)
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + at),
                             "l"(data + at)
                             : "memory");
            arrive_after_copies(bar);
#endif
            if (++slot == slots) slot = 0, parity ^= 1;
        }
        return;
    }
    u32 sum = 0;
    for (u32 i = 0, slot = 0, parity = 0; i < chunks; i++) {
        while (!barrier_passed(shared_address(full + slot), parity)) {
        }
        for (u32 at = threadIdx.x * 16; at < AMK_CEILING_CHUNK; at += AMK_CEILING_WARPS * 512) {
            const uint4 v = load_shared(shared_address(ring) + slot * AMK_CEILING_CHUNK + at);
            sum ^= v.x ^ v.y ^ v.z ^ v.w;
        }
        __syncwarp();
        if (lane == 0) barrier_arrive(shared_address(empty + slot));
        if (++slot == slots) slot = 0, parity ^= 1;
    }
    // Never true, but keeps the reads from being eliminated.
    if (sum == 0x1234567 && chunks == 0) out[0] = sum;
}
