// Values with a bound.
#include "../../../amk/cuda/device/task.cuh"

AMK_DEVICE void soft_cap(Task& t, In x, float cap, Out y) {
    for (u32 i = t.thread(); i < y.len(); i += t.threads()) y.set(i, cap * tanhf(x[i] / cap));
}
