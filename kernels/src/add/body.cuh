// Sums, element by element.
#include "../../../amk/cuda/device/task.cuh"

AMK_DEVICE void add(Task& t, In x, In y, Out z) {
    for (u32 i = t.thread(); i < z.len(); i += t.threads()) z.set(i, x[i] + y[i]);
}

AMK_DEVICE void add_bias(Task& t, In x, Weight bias, Out y) {
    for (u32 i = t.thread(); i < y.len(); i += t.threads()) y.set(i, x[i] + bias[i]);
}
