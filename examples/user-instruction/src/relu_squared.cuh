AMK_DEVICE void relu_squared_mul(Task& t, In gate, In up, Out y) {
    for (u32 i = t.thread(); i < y.len(); i += t.threads()) {
        const float x = fmaxf(gate[i], 0.0f);
        y.set(i, x * x * up[i]);
    }
}
