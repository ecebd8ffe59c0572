// Layer norms, in two passes: the mean, then the squares of the differences to it.
#include "../../../amk/cuda/device/task.cuh"

struct Centred {
    float mean, scale;
};

AMK_DEVICE Centred centred(Task& t, In x, float eps) {
    float sum = 0, squares = 0;
    for (u32 i = t.thread(); i < x.len(); i += t.threads()) sum += x[i];
    const float mean = t.sum(sum) / x.len();
    for (u32 i = t.thread(); i < x.len(); i += t.threads())
        squares += (x[i] - mean) * (x[i] - mean);
    return {mean, 1.0f / sqrtf(t.sum(squares) / x.len() + eps)};
}

AMK_DEVICE void layer_norm(Task& t, In x, Weight w, Weight bias, float eps, Out y) {
    const Centred c = centred(t, x, eps);
    for (u32 i = t.thread(); i < x.len(); i += t.threads())
        y.set(i, w[i] * ((x[i] - c.mean) * c.scale) + bias[i]);
}

AMK_DEVICE void centred_norm(Task& t, In x, Weight w, float eps, Out y) {
    const Centred c = centred(t, x, eps);
    for (u32 i = t.thread(); i < x.len(); i += t.threads())
        y.set(i, w[i] * ((x[i] - c.mean) * c.scale));
}
