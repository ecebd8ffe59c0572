// Writes the heads of this position into the cache.
#include "../../../amk/cuda/device/task.cuh"

AMK_DEVICE void kv_append(Task& t, State cache, In x, u32 pos) {
    const u32 dim = cache.dim(2);
    for (u32 i = t.thread(); i < x.len(); i += t.threads()) cache.set(x[i], i / dim, pos, i % dim);
}
