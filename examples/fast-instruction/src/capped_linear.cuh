// y = cap * tanh((W x) / cap), with plain loads on tiles of any size and with W streaming through
// the ring.

AMK_DEVICE float capped(float y, float cap) { return cap * tanhf(y / cap); }

AMK_DEVICE void capped_linear(Task& t, In x, Weight w, float cap, Out y) {
    for (u32 n = t.warp(); n < y.len(); n += t.warps()) {
        float sum = 0;
#pragma unroll 4
        for (u32 k = 4 * t.lane(); k < x.len(); k += 128) {
            const float4 a = w.four(n, k), b = x.four(k);
            sum += a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
        }
        sum = t.sum_of_warp(sum);
        if (t.lane() == 0) y.set(n, capped(sum, cap));
    }
}

#ifdef AMK_STREAMS
// As layout.rs packs.
constexpr u32 ROWS = 16, UNITS = 8, WINDOW = 4096, PAIR = 32;
// Pairs of fragments that a warp has of a block at most.
constexpr u32 PAIRS = 1024 / PAIR / AMK_WARPS;
constexpr u32 PITCH = UNITS * ROWS + 8;
static_assert(WINDOW / 2 + AMK_WARPS * PITCH <= Task::SHARED_FLOATS,
              "the input and the sums fit the shared memory");

// The products of this warp's columns of some blocks: each quad of lanes has rows lane / 4 and
// lane / 4 + 8.
AMK_DEVICE float2 products(const Task& t, Stream& w, u32 blocks, u32 pairs, u32 input) {
    float d[2][4] = {};
    for (u32 block = 0; block < blocks; block++, input += pairs * PAIR * 2) {
        const u32 at = w.acquire() + 16 * t.lane(), from = input + 16 * (t.lane() & 3);
        uint4 a[PAIRS][2], x[PAIRS];
#pragma unroll
        for (u32 j = 0; j < PAIRS; j++) {
            const u32 pair = t.warp() + j * AMK_WARPS;
            a[j][0] = a[j][1] = x[j] = make_uint4(0, 0, 0, 0);
            if (pair >= pairs) continue;
            a[j][0] = load_shared(at + pair * 1024), a[j][1] = load_shared(at + pair * 1024 + 512);
            x[j] = load_shared(from + pair * PAIR * 2);
        }
        w.release();
#pragma unroll
        for (u32 j = 0; j < PAIRS; j++) {
            mma(d[0], a[j][0], x[j].x, x[j].y);
            mma(d[1], a[j][1], x[j].z, x[j].w);
        }
    }
    return make_float2(d[0][0] + d[1][0], d[0][2] + d[1][2]);
}

AMK_DEVICE void capped_linear(Task& t, const Input& x, Stream& w, float cap, const Out& y) {
    const u32 width = w.block() / (2 * ROWS), blocks = w.columns() / width, pairs = width / PAIR;
    const u32 most = WINDOW / width; // blocks of a pass
    float* const sums = t.shared() + WINDOW / 2;
    const u32 input = shared_address(t.shared()), row = t.lane() / 4;
    for (u32 group = 0; group < w.rows(); group += UNITS * ROWS) {
        const u32 rows = min(w.rows() - group, UNITS * ROWS);
        for (u32 first = 0; first < blocks; first += most) {
            const u32 pass = min(blocks - first, most);
            if (group == 0 || blocks > most) x.window(first * width, pass * width, t.shared());
            for (u32 unit = 0; unit < rows; unit += ROWS) {
                const float2 sum = products(t, w, pass, pairs, input);
                float* const to = sums + t.warp() * PITCH + unit + row;
                if (!(t.lane() & 3)) {
                    to[0] = first ? to[0] + sum.x : sum.x;
                    to[8] = first ? to[8] + sum.y : sum.y;
                }
            }
        }
        t.sync();
        for (u32 i = t.thread(); i < rows; i += t.threads()) {
            float sum = 0;
#pragma unroll
            for (u32 warp = 0; warp < AMK_WARPS; warp++) sum += sums[warp * PITCH + i];
            y.set(group + i, capped(sum, cap));
        }
        t.sync(); // before the next group's sums
    }
}
#endif
