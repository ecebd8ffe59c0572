// A short causal convolution over the positions, channel by channel.
#include "../../../amk/cuda/device/task.cuh"

AMK_DEVICE void append(Task& t, State inputs, In x, u32 pos) {
    for (u32 i = t.thread(); i < x.len(); i += t.threads()) inputs.set(x[i], pos, i);
}

AMK_DEVICE void short_conv(Task& t, State inputs, Weight w, u32 pos, Out y) {
    const u32 taps = w.dim(1), first = pos + 1 < taps ? taps - 1 - pos : 0;
    for (u32 i = t.thread(); i < y.len(); i += t.threads()) {
        float sum = 0;
        for (u32 tap = first; tap < taps; tap++)
            sum += w.at(i, tap) * inputs.at(pos + 1 + tap - taps, i);
        y.set(i, sum);
    }
}
