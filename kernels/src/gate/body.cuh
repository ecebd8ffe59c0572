// Activations of an MLP, and gates without one.
#include "../../../amk/cuda/device/task.cuh"

AMK_DEVICE void mul(Task& t, In gate, In x, Out y) {
    for (u32 i = t.thread(); i < y.len(); i += t.threads()) y.set(i, gate[i] * x[i]);
}

AMK_DEVICE void silu_mul(Task& t, In gate, In up, Out y) {
    for (u32 i = t.thread(); i < y.len(); i += t.threads())
        y.set(i, gate[i] / (1.0f + expf(-gate[i])) * up[i]);
}

AMK_DEVICE float gelu_of(float x) {
    const float factor = 0.7978845608f; // sqrt(2 / pi)
    return 0.5f * x * (1.0f + tanhf(factor * (x + 0.044715f * x * x * x)));
}

AMK_DEVICE void gelu_mul(Task& t, In gate, In up, Out y) {
    for (u32 i = t.thread(); i < y.len(); i += t.threads()) y.set(i, gelu_of(gate[i]) * up[i]);
}

AMK_DEVICE void gelu(Task& t, In x, Out y) {
    for (u32 i = t.thread(); i < y.len(); i += t.threads()) y.set(i, gelu_of(x[i]));
}

AMK_DEVICE void gelu_erf(Task& t, In x, Out y) {
    for (u32 i = t.thread(); i < y.len(); i += t.threads())
        y.set(i, 0.5f * x[i] * (1.0f + erff(0.7071067812f * x[i])));
}

AMK_DEVICE void relu_squared(Task& t, In x, Out y) {
    for (u32 i = t.thread(); i < y.len(); i += t.threads())
        y.set(i, fmaxf(x[i], 0.0f) * fmaxf(x[i], 0.0f));
}
