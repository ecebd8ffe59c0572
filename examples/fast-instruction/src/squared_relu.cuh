AMK_DEVICE void squared_relu(Task& t, In x, Out y) {
    for (u32 i = t.thread(); i < y.len(); i += t.threads()) {
        const float v = fmaxf(x[i], 0.0f);
        y.set(i, v * v);
    }
}
