// Root-mean-square norms.
#include "../../../amk/cuda/device/task.cuh"

AMK_DEVICE void norm_of_head(Task& t, In x, Weight w, float eps, Out y, u32 first, u32 len) {
    float squares = 0;
    for (u32 i = t.thread(); i < len; i += t.threads()) squares += x[first + i] * x[first + i];
    const float scale = 1.0f / sqrtf(t.sum(squares) / len + eps);
    for (u32 i = t.thread(); i < len; i += t.threads())
        y.set(first + i, w[i] * (x[first + i] * scale));
}

AMK_DEVICE void rms_norm(Task& t, In x, Weight w, float eps, Out y) {
    norm_of_head(t, x, w, eps, y, 0, x.len());
}

AMK_DEVICE void head_norm(Task& t, In x, Weight w, float eps, Out y) {
    for (u32 first = 0; first < x.len(); first += w.len())
        norm_of_head(t, x, w, eps, y, first, w.len());
}
