// The PTX instructions that the VM uses. No CUDA headers, so NVRTC needs no include path.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define AMK_DEVICE __device__ __forceinline__

AMK_DEVICE u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

// ---- votes of a warp ----
// A branch or loop around a warp-collective operation (a shuffle, a product, a wait) is decided by
// a vote, so that the compiler knows that the lanes stay converged. Otherwise it reconverges them
// before and after, which takes 40 cycles, and yields in loops, which takes 80, and keeps doing so
// in all code that follows.
AMK_DEVICE bool any(bool x) { return __any_sync(~0u, x); }
AMK_DEVICE bool all(bool x) { return __all_sync(~0u, x); }
// The same of lanes that differ, for tests without a GPU, where others are taken to agree.
AMK_DEVICE bool any_lane(bool x) { return any(x); }
// A value that is the same in all lanes: the compiler then knows it, too.
AMK_DEVICE u32 shared_by_lanes(u32 x) { return __shfl_sync(~0u, x, 0); }

// ---- mbarrier ----
AMK_DEVICE void barrier_init(u32 bar, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count));
}
AMK_DEVICE void barrier_arrive(u32 bar) {
    asm volatile("{ .reg .b64 t; mbarrier.arrive.shared::cta.b64 t, [%0]; }" ::"r"(bar) : "memory");
}
// Arrives, and has the barrier wait for the bytes of copies to come.
AMK_DEVICE void barrier_expect(u32 bar, u32 bytes) {
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "{ .reg .b64 t; mbarrier.arrive.expect_tx.shared::cta.b64 t, [%0], %1; }" ::"r"(bar),
        "r"(bytes)
        : "memory");
#else
    barrier_arrive(bar);
#endif
}
// Arrives when the copies that the thread has asked for, other than in bulk, are there.
AMK_DEVICE void arrive_after_copies(u32 bar) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(bar) : "memory");
}
AMK_DEVICE bool barrier_has_passed(u32 bar, u32 parity) {
    u32 ok;
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 "
                 "%0, 1, 0, p; }"
                 : "=r"(ok)
                 : "r"(bar), "r"(parity)
                 : "memory");
    return ok;
}
// The same, which waits for a while where the GPU can.
AMK_DEVICE bool barrier_passed(u32 bar, u32 parity) {
#if __CUDA_ARCH__ >= 900
    u32 ok;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 "
                 "%0, 1, 0, p; }"
                 : "=r"(ok)
                 : "r"(bar), "r"(parity)
                 : "memory");
    return ok;
#else
    return barrier_has_passed(bar, parity);
#endif
}

// ---- global memory ----
AMK_DEVICE uint4 load_relaxed(const u64* p) {
    // Loads two packets at once. Each 8-byte half is a single access, so a packet is never torn.
    u64 a, b;
    asm volatile("ld.relaxed.gpu.global.v2.b64 {%0, %1}, [%2];"
                 : "=l"(a), "=l"(b)
                 : "l"(p)
                 : "memory");
    return make_uint4((u32)a, (u32)(a >> 32), (u32)b, (u32)(b >> 32));
}
AMK_DEVICE uint2 load_relaxed_one(const u64* p) {
    u64 a;
    asm volatile("ld.relaxed.gpu.global.b64 %0, [%1];" : "=l"(a) : "l"(p) : "memory");
    return make_uint2((u32)a, (u32)(a >> 32));
}
AMK_DEVICE void store_relaxed(u64* p, u32 value, u32 epoch) {
    asm volatile("st.relaxed.gpu.global.b64 [%0], %1;" ::"l"(p), "l"((u64)epoch << 32 | value)
                 : "memory");
}
// A packet of 16 bytes, three values and the epoch. It is a single access, so it is never torn.
AMK_DEVICE uint4 load_relaxed_wide(const u64* p) {
    u64 a, b;
    asm volatile("{ .reg .b128 t; ld.relaxed.gpu.global.b128 t, [%2]; mov.b128 {%0, %1}, t; }"
                 : "=l"(a), "=l"(b)
                 : "l"(p)
                 : "memory");
    return make_uint4((u32)a, (u32)(a >> 32), (u32)b, (u32)(b >> 32));
}
AMK_DEVICE void store_relaxed_wide(u64* p, u32 x, u32 y, u32 z, u32 epoch) {
    asm volatile(
        "{ .reg .b128 t; mov.b128 t, {%1, %2}; st.relaxed.gpu.global.b128 [%0], t; }" ::"l"(p),
        "l"((u64)y << 32 | x), "l"((u64)epoch << 32 | z)
        : "memory");
}
// Loads 16 and 8 bytes by way of the L1 cache, which a wait for other workers invalidates.
AMK_DEVICE uint4 load_cached(const u64* p) {
    u64 a, b;
    asm volatile("ld.global.v2.b64 {%0, %1}, [%2];" : "=l"(a), "=l"(b) : "l"(p) : "memory");
    return make_uint4((u32)a, (u32)(a >> 32), (u32)b, (u32)(b >> 32));
}
AMK_DEVICE uint2 load_cached_one(const u64* p) {
    u64 a;
    asm volatile("ld.global.b64 %0, [%1];" : "=l"(a) : "l"(p) : "memory");
    return make_uint2((u32)a, (u32)(a >> 32));
}
AMK_DEVICE u32 load_relaxed_u32(const u32* p) {
    u32 v;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
AMK_DEVICE void store_relaxed_u32(u32* p, u32 value) {
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(value) : "memory");
}
// Orders stores and bulk copies, or products, of the same memory.
AMK_DEVICE void fence_copies() {
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async;" ::: "memory");
#endif
}
// Likewise, of the shared memory.
AMK_DEVICE void fence_shared_copies() {
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
AMK_DEVICE u64 now_ns() {
    u64 t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}
AMK_DEVICE u32 clock_low() {
    u32 t;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(t));
    return t;
}
AMK_DEVICE u64 now_clock() {
    u64 t;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(t));
    return t;
}
// Requests the line of 128 bytes into the L2 cache.
AMK_DEVICE void prefetch_line(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }
#if __CUDA_ARCH__ >= 900
// Brings a multiple of 16 bytes into the L2 cache.
AMK_DEVICE void prefetch_bytes(const void* p, u32 bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p), "r"(bytes) : "memory");
}
#endif

// ---- shared memory ----
AMK_DEVICE uint4 load_shared(u32 address) {
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(address));
    return v;
}

AMK_DEVICE void store_shared(u32 address, const uint4& v) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(v.x), "r"(v.y),
                 "r"(v.z), "r"(v.w)
                 : "memory");
}

// Four matrices of 8 rows of 16 bytes, of which lane l names row l % 8 of matrix l / 8 and gets the
// word l % 4 of row l / 4 of each.
AMK_DEVICE uint4 load_matrices(u32 row) {
    uint4 v;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(row));
    return v;
}
#if __CUDA_ARCH__ >= 900
// Stores four matrices, as `load_matrices` loads them.
AMK_DEVICE void store_matrices(u32 row, const uint4& v) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row),
                 "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}
#endif
AMK_DEVICE uint2 load_shared_two(u32 address) {
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(address));
    return v;
}
AMK_DEVICE u32 load_shared_word(u32 address) {
    u32 v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address));
    return v;
}
AMK_DEVICE u32 load_shared_half(u32 address) {
    u32 v;
    asm volatile("ld.shared.u16 %0, [%1];" : "=r"(v) : "r"(address));
    return v;
}
AMK_DEVICE u32 load_shared_byte(u32 address) {
    u32 v;
    asm volatile("ld.shared.u8 %0, [%1];" : "=r"(v) : "r"(address));
    return v;
}
AMK_DEVICE float2 load_shared_pair(u32 address) {
    const uint2 v = load_shared_two(address);
    return make_float2(__uint_as_float(v.x), __uint_as_float(v.y));
}
AMK_DEVICE float load_shared_one(u32 address) {
    float v;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(address));
    return v;
}
// Reads a word that other threads write atomically. (An atomic addition of 0 would first be reduced
// over the lanes.)
AMK_DEVICE u32 load_shared_atomic(const u32* p) {
    u32 v;
    asm volatile("atom.shared.or.b32 %0, [%1], 0;" : "=r"(v) : "r"(shared_address(p)) : "memory");
    return v;
}
// Counts by one thread, and what it has seen happen before is what others see who read the count.
AMK_DEVICE void count_up(u32& counter) {
    asm volatile("{ .reg .u32 n; ld.shared.u32 n, [%0]; add.u32 n, n, 1;\n"
                 "st.release.cta.shared.u32 [%0], n; }" ::"r"(shared_address(&counter))
                 : "memory");
}
// Likewise, by several threads, each by a number.
AMK_DEVICE void count_by(u32& counter, u32 number) {
    asm volatile("red.release.cta.shared.add.u32 [%0], %1;" ::"r"(shared_address(&counter)),
                 "r"(number)
                 : "memory");
}
AMK_DEVICE u32 counted(const u32& counter) {
    u32 v;
    asm volatile("ld.acquire.cta.shared.u32 %0, [%1];"
                 : "=r"(v)
                 : "r"(shared_address(&counter))
                 : "memory");
    return v;
}
// Predicated per lane, without a branch.
AMK_DEVICE void store_shared(u32 address, float value, bool mine) {
    asm volatile(
        "{ .reg .pred p; setp.ne.u32 p, %2, 0; @p st.shared.f32 [%0], %1; }" ::"r"(address),
        "f"(value), "r"((u32)mine));
}

// ---- bits ----
// `(x & MASK) | bits` in one instruction. It has room for one constant, so the compiler by itself
// takes two.
template <u32 MASK> AMK_DEVICE u32 masked(u32 x, u32 bits) {
    u32 r;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(r) : "r"(x), "n"(MASK), "r"(bits));
    return r;
}
// Four bytes of `a` and `b`, each by a nibble of `selectors`; a nibble above 7 gives the byte's
// sign bit eight times.
AMK_DEVICE u32 permute(u32 a, u32 b, u32 selectors) {
    u32 r;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(selectors));
    return r;
}
// A binary16 in the low or the high half of a word.
AMK_DEVICE float low_half(u32 pair) {
    float x;
    asm("{ .reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, l; }" : "=f"(x) : "r"(pair));
    return x;
}
AMK_DEVICE float high_half(u32 pair) {
    float x;
    asm("{ .reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, h; }" : "=f"(x) : "r"(pair));
    return x;
}

// ---- bf16 and tensor cores ----
constexpr u32 BF16_ONES = 0x3f803f80; // a pair
constexpr float LOG2_E = 1.44269504f;
AMK_DEVICE float bf16_low(u32 pair) { return __uint_as_float(pair << 16); }
AMK_DEVICE float bf16_high(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }
AMK_DEVICE u32 pack_bf16(float low, float high) {
    u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}
// `a * b + c` of pairs, rounded once.
AMK_DEVICE u32 fma_bf16(u32 a, u32 b, u32 c) {
    u32 r;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
    return r;
}
// Rounds once.
AMK_DEVICE u32 multiply_bf16(u32 pair, u32 other) { return fma_bf16(pair, other, 0x80008000u); }
AMK_DEVICE float rsqrt_fast(float x) {
    float r;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}
AMK_DEVICE float exp2_fast(float x) {
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}
// D[16x8] += A[16x16] B[16x8], bf16 operands, fp32 accumulation.
AMK_DEVICE void mma(float (&d)[4], const uint4& a, u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}
AMK_DEVICE u32 transpose_8x8(u32 v) {
    u32 r;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(v));
    return r;
}
