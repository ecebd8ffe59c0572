// Counter-based random numbers (Philox 2x32-10, Salmon et al., SC 2011): the draw of a token at a position depends on the seed
// alone, not on which worker asks.
#pragma once
#include "ptx.cuh"

AMK_DEVICE u32 philox(u64 seed, u32 a, u32 b) {
    u32 key = (u32)seed ^ (u32)(seed >> 32);
#pragma unroll 1
    for (int i = 0; i < 10; i++) {
        u32 high = __umulhi(0xD256D193u, a), low = 0xD256D193u * a;
        a = high ^ key ^ b, b = low;
        key += 0x9E3779B9u;
    }
    return a;
}
// -log(-log(u)), u in (0, 1): adding it to the logits makes the argmax a sample of their softmax.
__device__ __noinline__ float gumbel(u64 seed, u32 position, u32 token) {
    float u = ((philox(seed, position, token) >> 8) + 0.5f) * (1.0f / 16777216.0f);
    return -__logf(-__logf(u));
}
