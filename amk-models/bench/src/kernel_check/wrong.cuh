// Bodies that are wrong: one rounds what it reads to bf16, one forgets its last element.
#include "../../../amk/cuda/device/task.cuh"

AMK_DEVICE void narrowed(Task& t, In x, Out y) {
    for (u32 i = t.thread(); i < y.len(); i += t.threads())
        y.set(i, bf16_low(pack_bf16(x[i], 0.0f)) + x[i]);
}

AMK_DEVICE void cut_short(Task& t, State kept, In x, u32 pos) {
    const u32 dim = kept.dim(2);
    for (u32 i = t.thread(); i + 1 < x.len(); i += t.threads())
        kept.set(x[i], i / dim, pos, i % dim);
}
