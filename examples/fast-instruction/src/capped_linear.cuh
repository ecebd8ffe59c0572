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
constexpr u32 ROWS = 16, UNITS = 8, MOST = 1024, PAIR = 32;
constexpr u32 PAIRS = MOST / PAIR / AMK_WARPS; // pairs of fragments that a warp has of a block
constexpr u32 BATCH = 2; // blocks of columns whose inputs are asked for at once
constexpr u32 PITCH = UNITS * ROWS + 8;
static_assert(AMK_WARPS * PITCH <= Task::SHARED_FLOATS, "the sums fit the shared memory");

// The products of this warp's columns of the next block: each quad of lanes has rows lane / 4 and
// lane / 4 + 8.
AMK_DEVICE float2 products(const Task& t, Stream& w, const uint4 (&x)[PAIRS], u32 pairs) {
    const u32 at = w.acquire() + 16 * t.lane();
    uint4 a[PAIRS][2];
#pragma unroll
    for (u32 j = 0; j < PAIRS; j++) {
        const u32 pair = t.warp() + j * AMK_WARPS;
        a[j][0] = a[j][1] = make_uint4(0, 0, 0, 0);
        if (pair >= pairs) continue;
        a[j][0] = load_shared(at + pair * 1024), a[j][1] = load_shared(at + pair * 1024 + 512);
    }
    w.release();
    float d[2][4] = {};
#pragma unroll
    for (u32 j = 0; j < PAIRS; j++) {
        mma(d[0], a[j][0], x[j].x, x[j].y);
        mma(d[1], a[j][1], x[j].z, x[j].w);
    }
    return make_float2(d[0][0] + d[1][0], d[0][2] + d[1][2]);
}

// The sums of this warp, when the previous task's have been read.
AMK_DEVICE void clear(const Task& t, float* sums) {
    t.sync();
    const float4 zero = make_float4(0, 0, 0, 0);
    *(float4*)(sums + t.warp() * PITCH + 4 * t.lane()) = zero;
    __syncwarp();
}

AMK_DEVICE void capped_linear(Task& t, const Input& x, Stream& w, float cap, const Pairs& y) {
    const u32 width = w.block() / (2 * ROWS), pairs = width / PAIR;
    const u32 blocks = (u32)__fdividef(w.columns() + 0.5f, width); // exact: both are small
    float* const sums = t.shared();
    // The first element of this lane's piece `i` of BATCH blocks of columns; a pair of fragments
    // has two.
    const auto first = [&](u32 batch, u32 i) {
        const u32 block = batch + i / (2 * PAIRS), pair = t.warp() + i / 2 % PAIRS * AMK_WARPS;
        if (pair >= pairs || block >= blocks) return x.len();
        return block * width + pair * PAIR + 8 * (t.lane() & 3) + 4 * (i & 1);
    };
    for (u32 group = 0; group < w.rows(); group += UNITS * ROWS) {
        const u32 rows = min(w.rows() - group, UNITS * ROWS);
        uint4 pieces[BATCH * 2 * PAIRS];
        x.ask(pieces, [&](u32 i) { return first(0, i); });
#pragma unroll 1
        for (u32 batch = 0; any(batch < blocks); batch += BATCH) {
            x.await(pieces, [&](u32 i) { return first(batch, i); });
            uint4 input[BATCH][PAIRS];
#pragma unroll
            for (u32 i = 0; i < BATCH * PAIRS; i++) {
                const uint4 even = pieces[2 * i], odd = pieces[2 * i + 1];
                input[i / PAIRS][i % PAIRS] = make_uint4(even.x, even.z, odd.x, odd.z);
            }
            // The next ones are on their way while these are multiplied.
            x.ask(pieces, [&](u32 i) { return first(batch + BATCH, i); });
            if (any(batch == 0)) clear(t, sums);
#pragma unroll
            for (u32 i = 0; i < BATCH; i++) {
                if (batch + i >= blocks) break;
                float* to = sums + t.warp() * PITCH + t.lane() / 4;
#pragma unroll 1
                for (u32 unit = 0; unit < rows; unit += ROWS, to += ROWS) {
                    const float2 sum = products(t, w, input[i], pairs);
                    if (!(t.lane() & 3)) {
                        to[0] += sum.x;
                        to[8] += sum.y;
                    }
                }
            }
        }
        t.sync();
        for (u32 i = 2 * t.thread(); i < rows; i += 2 * t.threads()) {
            float2 sum = make_float2(0, 0);
#pragma unroll
            for (u32 warp = 0; warp < AMK_WARPS; warp++) {
                const float2 part = *(const float2*)(sums + warp * PITCH + i);
                sum.x += part.x, sum.y += part.y;
            }
            y.set(group + i, capped(sum.x, cap), capped(sum.y, cap));
        }
    }
}
#endif
