AMK_DEVICE void scale_by(Task& t, In x, Weight w, Out y) {
    for (u32 i = t.thread(); i < y.len(); i += t.threads()) y.set(i, x[i] * w[i]);
}
