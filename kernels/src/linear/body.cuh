// Matrix times vector on tiles of any size, one row per warp. The fast path is fused.cuh.
#include "../../../amk/cuda/device/task.cuh"

AMK_DEVICE void linear(Task& t, In x, Weight w, Out y) {
    for (u32 n = t.warp(); n < y.len(); n += t.warps()) {
        float sum = 0;
#pragma unroll 4
        for (u32 k = 4 * t.lane(); k < x.len(); k += 128) {
            const float4 a = w.four(n, k), b = x.four(k);
            sum += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
        }
        sum = t.sum_of_warp(sum);
        if (t.lane() == 0) y.set(n, sum);
    }
}
