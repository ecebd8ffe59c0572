// Products of a warpgroup: D[64 x N] += A[64 x 16] B[16 x N], bf16 operands, fp32 accumulation. B
// is in shared memory, A as well or, a fragment for each warp, in registers.
//
// A column of B, or else a row, has lines of 64 elements, whose pieces of 16 bytes are in different
// banks for 8 neighbours.
#pragma once
#include "../../../amk/cuda/device/ptx.cuh"

#if AMK_WIDE
#if __CUDA_ARCH_FEAT_SM90_ALL
constexpr bool HAS_WGMMA = true;
#else
constexpr bool HAS_WGMMA = false;
#endif
constexpr u32 LINE = 128; // bytes of 64 elements

// Where the 16 bytes `piece` of a column are, if from 64 elements of all columns to the next 64 it
// is `block` bytes.
AMK_DEVICE u32 input_place(u32 block, u32 column, u32 piece) {
    return piece / 8 * block + column * LINE + ((piece ^ column) & 7) * 16;
}
// Where a lane finds its row of the matrices of 16 columns from `column` on: the pieces `piece` and
// the next one.
AMK_DEVICE u32 matrix_row(u32 lane, u32 column, u32 piece) {
    return input_place(0, column + (lane & 7) + (lane & 16) / 2, piece + (lane >> 3 & 1));
}

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
// Without ADD, D is the product alone.
#define AMK_WGMMA(COLUMNS, D, N, A, B, ADDS, ONE, TWO, THREE)                                      \
    template <bool ADD = true>                                                                     \
    AMK_DEVICE void wgmma(float (&d)[COLUMNS / 8][4], const uint4& a, u64 b) {                     \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #COLUMNS "k16.f32.bf16.bf16 {" N "}, {" A \
                     "}, " B ", " ADDS ", 1, 1, 0;"                                                \
                     : D                                                                           \
                     : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(b), "n"(ADD));                  \
    }                                                                                              \
    template <bool ADD = true> AMK_DEVICE void wgmma(float (&d)[COLUMNS / 8][4], u64 a, u64 b) {   \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #COLUMNS "k16.f32.bf16.bf16 {" N          \
                     "}, " ONE ", " TWO ", " THREE ", 1, 1, 0, 0;"                                 \
                     : D                                                                           \
                     : "l"(a), "l"(b), "n"(ADD));                                                  \
    }
AMK_WGMMA(16, AMK_D2, AMK_N2, "%8, %9, %10, %11", "%12", "%13", "%8", "%9", "%10")
AMK_WGMMA(32, AMK_D4, AMK_N4, "%16, %17, %18, %19", "%20", "%21", "%16", "%17", "%18")
AMK_WGMMA(64, AMK_D8, AMK_N8, "%32, %33, %34, %35", "%36", "%37", "%32", "%33", "%34")
AMK_WGMMA(128, AMK_D16, AMK_N16, "%64, %65, %66, %67", "%68", "%69", "%64", "%65", "%66")
#undef AMK_WGMMA

// Describes lines of 128 bytes, whose pieces of 16 bytes change places.
AMK_DEVICE u64 swizzled_128(u32 address) {
    return (u64)(address >> 4 & 0x3fff) | (u64)1 << 16 | (u64)(1024 >> 4) << 32 | (u64)1 << 62;
}
// Describes 64 rows of 64 bytes, 32 elements of k, whose pieces of 16 bytes change places by row.
// From 8 of them to the next 8 it is `apart` bytes.
AMK_DEVICE u64 swizzled_64(u32 address, u32 apart) {
    return (u64)(address >> 4 & 0x3fff) | (u64)1 << 16 | (u64)(apart >> 4) << 32 | (u64)2 << 62;
}
// Describes matrices of 8 rows of 16 bytes: the bytes from one to the next along k, and to the next
// rows.
AMK_DEVICE u64 matrices(u32 address, u32 along, u32 apart) {
    return (u64)(address >> 4 & 0x3fff) | (u64)(along >> 4) << 16 | (u64)(apart >> 4) << 32;
}
// The same matrices, so many bytes further in shared memory.
AMK_DEVICE u64 advanced(u64 matrices, u32 bytes) {
    return (matrices & ~(u64)0xffffffff) | ((u32)matrices + bytes / 16);
}
#endif
// Before the first product: the registers of A and D are written.
AMK_DEVICE void wgmma_begin() {
#if __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
// The products begin, as a group.
AMK_DEVICE void wgmma_issue() {
#if __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
// Waits for all groups but the last `LEFT`.
template <u32 LEFT = 0> AMK_DEVICE void wgmma_end() {
#if __CUDA_ARCH_FEAT_SM90_ALL
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
#endif
}

// Behind a wait: no sum is read before it. Else the compiler may do so, and then waits after each
// product.
template <int N> AMK_DEVICE void wgmma_settle(float (&d)[N][4]) {
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])::"memory");
}

// Begins to add a warp's rows of A times 16 elements of COLUMNS columns, whose lines begin at
// shared address `b`. The GPU may have to be told what begins: `wgmma_begin`, and then
// `wgmma_issue`.
template <u32 COLUMNS>
AMK_DEVICE void multiply_columns(u32 lane, float (&d)[COLUMNS / 8][4], const uint4& a, u32 b) {
#if __CUDA_ARCH_FEAT_SM90_ALL
    wgmma(d, a, swizzled_128(b));
#else
    const u32 block = b & ~127u, piece = (b & 127u) / 16;
#pragma unroll
    for (int i = 0; i < COLUMNS / 8; i += 2) {
        const uint4 x = load_matrices(block + matrix_row(lane, 8 * i, piece));
        mma(d[i], a, x.x, x.y), mma(d[i + 1], a, x.z, x.w);
    }
#endif
}
#endif
