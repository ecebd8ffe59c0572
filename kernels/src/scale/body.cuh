// Multiplication by a constant.
#include "../../../amk/cuda/device/task.cuh"

AMK_DEVICE void scale(Task& t, In x, float factor, Out y) {
    for (u32 i = t.thread(); i < y.len(); i += t.threads()) y.set(i, factor * x[i]);
}
