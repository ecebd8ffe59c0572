// y = a * (W x) + b.
AMK_DEVICE void affine(Task& t, In x, Weight w, Weight b, float a, Out y) {
    for (u32 n = t.warp(); n < y.len(); n += t.warps()) {
        float sum = 0;
        for (u32 k = 4 * t.lane(); k < x.len(); k += 128) {
            const float4 v = w.four(n, k), u = x.four(k);
            sum += v.x * u.x + v.y * u.y + v.z * u.z + v.w * u.w;
        }
        sum = t.sum_of_warp(sum);
        if (t.lane() == 0) y.set(n, a * sum + b[n]);
    }
}
