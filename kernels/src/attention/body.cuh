// Attention of whole query heads over the cache: the warps take positions in turn, each with its
// own online softmax, and are merged at the end. The fast path is fused.cuh.
#include "../../../amk/cuda/device/task.cuh"

// The positions and scores of an attention. A cap of 0 is none.
struct Scores {
    float scale, cap;
    u32 from, to;
};

// Computes one query head, dims `first..first + 32 * PER_LANE` of its result.
template <u32 PER_LANE>
AMK_DEVICE void attend_head(Task& t, In q, State k, State v, u32 head, u32 group, u32 first,
                            const Scores& s, Out y) {
    const u32 dim = k.dim(2), pitch = 32 * PER_LANE + 2;
    float top = -INFINITY, sum = 0, o[PER_LANE];
#pragma unroll
    for (u32 j = 0; j < PER_LANE; j++) o[j] = 0;
    for (u32 at = s.from + t.warp(); at < s.to; at += t.warps()) {
        float score = 0, value[PER_LANE];
        for (u32 d = t.lane(); d < dim; d += 32) score += q[head * dim + d] * k.at(group, at, d);
#pragma unroll
        for (u32 j = 0; j < PER_LANE; j++)
            value[j] =
                first + 32 * j + t.lane() < dim ? v.at(group, at, first + 32 * j + t.lane()) : 0;
        score = s.scale * t.sum_of_warp(score);
        if (s.cap > 0) score = s.cap * tanhf(score / s.cap);
        const float higher = fmaxf(top, score), old = expf(top - higher),
                    now = expf(score - higher);
        top = higher, sum = sum * old + now;
#pragma unroll
        for (u32 j = 0; j < PER_LANE; j++) o[j] = o[j] * old + now * value[j];
    }
    float* mine = t.shared() + t.warp() * pitch;
#pragma unroll
    for (u32 j = 0; j < PER_LANE; j++) mine[32 * j + t.lane()] = o[j];
    if (t.lane() == 0) mine[pitch - 2] = top, mine[pitch - 1] = sum;
    t.sync();
    for (u32 d = t.thread(); d < 32 * PER_LANE && first + d < dim; d += t.threads()) {
        float all = -INFINITY, total = 0, out = 0;
        for (u32 from = 0; from < t.warps(); from++)
            all = fmaxf(all, t.shared()[from * pitch + pitch - 2]);
        for (u32 from = 0; from < t.warps(); from++) {
            const float share = expf(t.shared()[from * pitch + pitch - 2] - all);
            total += share * t.shared()[from * pitch + pitch - 1],
                out += share * t.shared()[from * pitch + d];
        }
        y.set(head * dim + first + d, out / total);
    }
    t.sync();
}

AMK_DEVICE void attend(Task& t, In q, State k, State v, const Scores& s, Out y) {
    constexpr u32 PER_LANE = 4;
    const u32 dim = k.dim(2), heads = q.len() / dim, groups = k.dim(0);
    for (u32 head = 0; head < heads; head++)
        for (u32 first = 0; first < dim; first += 32 * PER_LANE)
            attend_head<PER_LANE>(t, q, k, v, head, head * groups / heads, first, s, y);
}

AMK_DEVICE void attention(Task& t, In q, State k, State v, float scale, u32 pos, Out y) {
    attend(t, q, k, v, Scores{scale, 0, 0, pos + 1}, y);
}

AMK_DEVICE u32 before_window(u32 window, u32 pos) {
    return pos + 1 > window ? pos + 1 - window : 0;
}

AMK_DEVICE void window_attention(Task& t, In q, State k, State v, float scale, u32 window, u32 pos,
                                 Out y) {
    attend(t, q, k, v, Scores{scale, 0, before_window(window, pos), pos + 1}, y);
}

AMK_DEVICE void capped_attention(Task& t, In q, State k, State v, float scale, float cap,
                                 u32 window, u32 pos, Out y) {
    attend(t, q, k, v, Scores{scale, cap, before_window(window, pos), pos + 1}, y);
}
