// Products of a warpgroup: D[64 x N] += A[64 x 16] B[16 x N], bf16 operands, fp32 accumulation. B
// is in shared memory, A as well or, a fragment for each warp, in registers.
#pragma once
#include "../../../amk/cuda/device/ptx.cuh"

#if __CUDA_ARCH_FEAT_SM90_ALL
// The accumulators of 8 times so many columns: as operands, and their names in the text.
#define AMK_D1(b) "+f"(d[b][0]), "+f"(d[b][1]), "+f"(d[b][2]), "+f"(d[b][3])
#define AMK_D2 AMK_D1(0), AMK_D1(1)
#define AMK_D4 AMK_D2, AMK_D1(2), AMK_D1(3)
#define AMK_D8 AMK_D4, AMK_D1(4), AMK_D1(5), AMK_D1(6), AMK_D1(7)
#define AMK_D16                                                                                    \
    AMK_D8, AMK_D1(8), AMK_D1(9), AMK_D1(10), AMK_D1(11), AMK_D1(12), AMK_D1(13), AMK_D1(14),      \
        AMK_D1(15)
#define AMK_N2 "%0, %1, %2, %3, %4, %5, %6, %7"
#define AMK_N4 AMK_N2 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define AMK_N8                                                                                     \
    AMK_N4 ", %16, %17, %18, %19, %20, %21, %22, %23"                                              \
           ", %24, %25, %26, %27, %28, %29, %30, %31"
#define AMK_N16                                                                                    \
    AMK_N8 ", %32, %33, %34, %35, %36, %37, %38, %39"                                              \
           ", %40, %41, %42, %43, %44, %45, %46, %47"                                              \
           ", %48, %49, %50, %51, %52, %53, %54, %55"                                              \
           ", %56, %57, %58, %59, %60, %61, %62, %63"
#define AMK_WGMMA(COLUMNS, D, N, A, B, ONE, TWO)                                                   \
    AMK_DEVICE void wgmma(float (&d)[COLUMNS / 8][4], const uint4& a, u64 b) {                     \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #COLUMNS "k16.f32.bf16.bf16 {" N "}, {" A \
                     "}, " B ", 1, 1, 1, 0;"                                                       \
                     : D                                                                           \
                     : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(b));                            \
    }                                                                                              \
    AMK_DEVICE void wgmma(float (&d)[COLUMNS / 8][4], u64 a, u64 b) {                              \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #COLUMNS "k16.f32.bf16.bf16 {" N          \
                     "}, " ONE ", " TWO ", 1, 1, 1, 0, 0;"                                         \
                     : D                                                                           \
                     : "l"(a), "l"(b));                                                            \
    }
AMK_WGMMA(16, AMK_D2, AMK_N2, "%8, %9, %10, %11", "%12", "%8", "%9")
AMK_WGMMA(32, AMK_D4, AMK_N4, "%16, %17, %18, %19", "%20", "%16", "%17")
AMK_WGMMA(64, AMK_D8, AMK_N8, "%32, %33, %34, %35", "%36", "%32", "%33")
AMK_WGMMA(128, AMK_D16, AMK_N16, "%64, %65, %66, %67", "%68", "%64", "%65")
#undef AMK_WGMMA

// Describes N rows of 128 bytes, 64 elements of k, whose pieces of 16 bytes change places by row.
AMK_DEVICE u64 swizzled_128(u32 address) {
    return (u64)(address >> 4 & 0x3fff) | (u64)1 << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}
// Describes 64 rows of 64 bytes, 32 elements of k, whose pieces of 16 bytes change places by row.
// From 8 of them to the next 8 it is `apart` bytes.
AMK_DEVICE u64 swizzled_64(u32 address, u32 apart) {
    return (u64)(address >> 4 & 0x3fff) | (u64)1 << 16 | (u64)(apart >> 4) << 32 | (u64)2 << 62;
}
// Before the first product: the registers of A and D are written.
AMK_DEVICE void wgmma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// The products begin, as a group.
AMK_DEVICE void wgmma_issue() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits for all groups but the last `LEFT`.
template <u32 LEFT = 0> AMK_DEVICE void wgmma_end() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}
#endif
