// Rotary position embedding: pairs (j, j + half) of each head. Elements from 2 * half on are
// unchanged.
#include "../../../amk/cuda/device/task.cuh"

AMK_DEVICE void rope(Task& t, In x, Weight freqs, u32 head_dim, float scale, u32 pos, Out y) {
    const u32 half = freqs.len();
    for (u32 i = t.thread(); i < y.len(); i += t.threads()) {
        const u32 d = i % head_dim, j = d % half;
        if (d >= 2 * half) {
            y.set(i, x[i]);
            continue;
        }
        float sine, cosine;
        sincosf((float)pos * freqs[j], &sine, &cosine);
        const float a = x[i - d + j], b = x[i - d + j + half];
        y.set(i, scale * (d < half ? a * cosine - b * sine : b * cosine + a * sine));
    }
}
