// The first of the largest elements. NaNs are never chosen.
#include "../../../amk/cuda/device/task.cuh"

AMK_DEVICE void argmax(Task& t, In x, Choice token) {
    float* values = t.shared();
    u32* indices = (u32*)(values + t.threads());
    float best = -INFINITY;
    u32 index = 0;
    for (u32 i = t.thread(); i < x.len(); i += t.threads())
        if (x[i] > best) best = x[i], index = i;
    values[t.thread()] = best, indices[t.thread()] = index;
    t.sync();
    if (t.thread() != 0) return;
    for (u32 i = 1; i < t.threads(); i++)
        if (values[i] > best || (values[i] == best && best > -INFINITY && indices[i] < index))
            best = values[i], index = indices[i];
    token.set(index);
}
