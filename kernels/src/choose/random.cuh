// Counter-based random numbers (Philox 4x32-10, Salmon et al., SC 2011), the same words as
// `amk_run::sampler::philox`. The noise of a token in a draw depends on the seed, not on the worker
// that computes it.
#pragma once
#include "../../../amk/cuda/device/ptx.cuh"

AMK_DEVICE u32 philox(u64 seed, u32 draw, u32 token) {
    u32 c0 = token / 4, c1 = 0, c2 = draw, c3 = 0, k0 = (u32)seed, k1 = (u32)(seed >> 32);
#pragma unroll 1
    for (int i = 0; i < 10; i++) {
        const u32 high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0,
                  high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
        c0 = high1 ^ c1 ^ k0, c1 = low1, c2 = high0 ^ c3 ^ k1, c3 = low0;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    return token & 2 ? token & 1 ? c3 : c2 : token & 1 ? c1 : c0;
}
// Returns -ln E of a standard exponential E. Adding it to the logits makes the argmax a sample of
// their softmax.
__device__ __noinline__ float race(u64 seed, u32 draw, u32 token) {
    float v = fminf(((float)philox(seed, draw, token) + 0.5f) * (1.0f / 4294967296.0f),
                    1.0f - 1.0f / 16777216.0f);
    return -logf(-log1pf(-v));
}
