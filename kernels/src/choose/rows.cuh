// choose_rows: the token after each row of a step that asks for one, a row at a time by one worker.
// The worker reads the row's logits from memory, in passes: the highest; where a token is drawn,
// the race and the probability of all; where filters remove tokens, the search of search.cuh.
//
// Threads and sums are the same for every row, so a token depends on the row's own logits and
// choice alone. Its random numbers are from random.cuh: the text is the one of a launch that
// chooses for one row.
#pragma once
#include "fused.cuh"

constexpr u32 CHOOSERS = AMK_WARPS * 32;
constexpr u32 MARK_WORDS = 2048;
// Of a search; without more it ends in all but vast ties.
constexpr u32 MOST_LOOKS = 32;

// What a worker needs while it chooses, in memory that its other tasks no longer use.
struct ChoosingMemory {
    u32 marks[MARK_WORDS]; // a bit for each token whose logit is changed, modulo their number
    Found found[AMK_LEVELS][AMK_WARPS];
};
static_assert(sizeof(ChoosingMemory) <= SCRATCH_FLOATS * 4, "the scratch has room for it");

AMK_DEVICE ChoosingMemory& choosing(const Worker& w) {
#if AMK_WIDE
    return *(ChoosingMemory*)w.memory(0);
#else
    return *(ChoosingMemory*)w.s.scratch;
#endif
}

// The logits of a row, and what penalties and biases change about them.
struct RowLogits {
    const float* logits;
    const LogitWords* changes; // in the order of their tokens
    u32 count;
    const u32* marks;

    AMK_DEVICE bool marked(u32 token) const {
        return marks[token / 32 % MARK_WORDS] >> token % 32 & 1;
    }
};

// The logit of a token that may have a change. Rounds as the host does.
__device__ __noinline__ float changed(RowLogits row, u32 token, float logit) {
    u32 low = 0, high = row.count;
    while (low < high) {
        const u32 middle = (low + high) / 2;
        if (row.changes[middle].token < token)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == row.count || row.changes[low].token != token) return logit;
    const LogitWords c = row.changes[low];
    logit = logit < 0 ? __fmul_rn(logit, c.repetition) : __fdiv_rn(logit, c.repetition);
    return __fadd_rn(__fadd_rn(logit, c.penalty), c.bias);
}

AMK_DEVICE void mark_changes(Worker& w, const RowLogits& row) {
    if (any(row.count == 0)) return;
    u32* marks = choosing(w).marks;
    for (u32 i = w.thread(); i < MARK_WORDS; i += CHOOSERS) marks[i] = 0;
    w.sync();
    for (u32 i = w.thread(); i < row.count; i += CHOOSERS) {
        const u32 token = row.changes[i].token;
        atomicOr(marks + token / 32 % MARK_WORDS, 1u << token % 32);
    }
    w.sync();
}

// Calls `f` with the first of four tokens and their logits, for all tokens. Several loads are under
// way at once; the code of `f` is there once, and the loaded values move up to it.
template <class F> AMK_DEVICE void for_logits(const Worker& w, const RowLogits& row, F f) {
    constexpr int BATCH = 4;
    const u32 quads = w.p.vocab / 4;
#pragma unroll 1
    for (u32 first = w.thread(); first < quads; first += BATCH * CHOOSERS) {
        uint4 v[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            const u32 quad = first + i * CHOOSERS;
            v[i] = load_relaxed((const u64*)(row.logits + 4 * (quad < quads ? quad : first)));
        }
#pragma unroll 1
        for (u32 quad = first; quad < min(quads, first + BATCH * CHOOSERS); quad += CHOOSERS) {
            float x[4] = {__uint_as_float(v[0].x), __uint_as_float(v[0].y), __uint_as_float(v[0].z),
                          __uint_as_float(v[0].w)};
            if (row.count)
#pragma unroll
                for (int k = 0; k < 4; k++)
                    if (row.marked(4 * quad + k)) x[k] = changed(row, 4 * quad + k, x[k]);
            f(4 * quad, x);
#pragma unroll
            for (int i = 1; i < BATCH; i++) v[i - 1] = v[i];
        }
    }
    __syncwarp();
}

// The random words of four tokens from `token` on, the words of `philox`: they share a counter.
AMK_DEVICE void philox_four(u64 seed, u32 draw, u32 token, u32 (&words)[4]) {
    u32 c0 = token / 4, c1 = 0, c2 = draw, c3 = 0, k0 = (u32)seed, k1 = (u32)(seed >> 32);
#pragma unroll 1
    for (int i = 0; i < 10; i++) {
        const u32 high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0,
                  high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
        c0 = high1 ^ c1 ^ k0, c1 = low1, c2 = high0 ^ c3 ^ k1, c3 = low0;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    words[0] = c0, words[1] = c1, words[2] = c2, words[3] = c3;
}
// The noise of a random word, as in `race`.
AMK_DEVICE float noise(u32 word) {
    const float v = fminf(((float)word + 0.5f) * (1.0f / 4294967296.0f), 1.0f - 1.0f / 16777216.0f);
    return -logf(-log1pf(-v));
}
// What a token adds to the tokens found above a level.
AMK_DEVICE Found contender(const DrawParams& d, float highest, Place place, u32 word) {
    return {1, expf((place.logit - highest) * d.inv_temperature),
            fmaf(place.logit, d.inv_temperature, noise(word)), place};
}

// Joins, level by level, what all threads found, into `Shared::found`.
template <int LEVELS> AMK_DEVICE void join_all(Worker& w, Found (&mine)[LEVELS]) {
    ChoosingMemory& memory = choosing(w);
#pragma unroll
    for (int j = 0; j < LEVELS; j++) {
        mine[j] = found_by_warp(mine[j]);
        if (w.lane == 0) memory.found[j][w.warp] = mine[j];
    }
    w.sync();
    for (u32 j = w.warp; any(j < LEVELS); j += AMK_WARPS) {
        Found all = nothing_found();
        if (w.lane < AMK_WARPS) all = memory.found[j][w.lane];
        all = found_by_warp(all);
        if (w.lane == 0) w.s.found[j] = all;
    }
    w.sync();
}

// All of this is inline: around a call most registers of the worker's loop would be spilled.

AMK_DEVICE Place highest_logit(Worker& w, const RowLogits& row) {
    float value = -INFINITY;
    u32 token = NOBODY;
    for_logits(w, row, [&](u32 first, const float (&x)[4]) {
#pragma unroll
        for (int k = 0; k < 4; k++) better(value, token, x[k], first + k);
    });
    best_of_warp(value, token);
    if (w.lane == 0) w.s.best_value[w.warp] = value, w.s.best_index[w.warp] = token;
    w.sync();
    for (int from = 0; from < AMK_WARPS; from++)
        better(value, token, w.s.best_value[from], w.s.best_index[from]);
    w.sync(); // the next row reuses the memory
    return {value, token};
}

// Runs the race of all tokens.
AMK_DEVICE Found race_of_all(Worker& w, const RowLogits& row, const DrawParams& d, float highest) {
    Found mine[1] = {nothing_found()};
    for_logits(w, row, [&](u32 first, const float (&x)[4]) {
        u32 words[4];
        philox_four(d.seed, d.draw, first, words);
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (x[k] > -INFINITY) join(mine[0], contender(d, highest, {x[k], first + k}, words[k]));
    });
    join_all(w, mine);
    return w.s.found[0];
}

// Looks for tokens above each level of the search.
AMK_DEVICE void look_at_row(Worker& w, const RowLogits& row, const DrawParams& d) {
    const Search& s = w.s.search;
    Place lowest = s.level[0];
    for (int j = 1; j < AMK_LEVELS; j++)
        if (above(lowest, s.level[j])) lowest = s.level[j];
    Found mine[AMK_LEVELS];
#pragma unroll
    for (int j = 0; j < AMK_LEVELS; j++) mine[j] = nothing_found();
    for_logits(w, row, [&](u32 first, const float (&x)[4]) {
        bool none = true;
#pragma unroll
        for (int k = 0; k < 4; k++) none &= !above({x[k], first + k}, lowest);
        if (none) return;
        u32 words[4];
        philox_four(d.seed, d.draw, first, words);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const Place place = {x[k], first + k};
            if (!above(place, lowest)) continue;
            const Found one = contender(d, s.highest, place, words[k]);
#pragma unroll
            for (int j = 0; j < AMK_LEVELS; j++)
                if (above(place, s.level[j])) join(mine[j], one);
        }
    });
    join_all(w, mine);
}

// The draw after a row whose likeliest token has the logit `highest`; NOBODY where the search ends
// without one.
AMK_DEVICE u32 drawn_token(Worker& w, const RowLogits& row, const DrawParams& d, float highest) {
    const Found all = race_of_all(w, row, d, highest);
    if (any(!d.filter)) return all.winner.token;
    const Filter f = {d.top_k, d.top_p, d.min_log, 1.0f / d.inv_temperature};
    if (w.thread() == 0) begin(w.s.search, f, highest, all.mass, all.winner);
    w.sync();
#pragma unroll 1
    for (u32 look = 0; any(look < MOST_LOOKS && w.s.search.token == NOBODY); look++) {
        look_at_row(w, row, d);
        if (w.thread() == 0) narrow(w.s.search, f, w.s.found);
        w.sync();
    }
    return w.s.search.token;
}

// Returns the token after a row. Where no logit is a finite number, where the highest is infinite
// and where the search ends without a token, that is NOBODY, and the host chooses.
AMK_DEVICE u32 token_after(Worker& w, u32 number, const RowChoice& choice) {
    const RowLogits row = {
        w.p.logits + (u64)(w.s.rows[number].wanted - 1) * w.p.logit_stride,
        (const LogitWords*)(w.p.choices + w.p.row_count) + choice.first_change,
        choice.change_count,
        choosing(w).marks,
    };
    mark_changes(w, row);
    const Place likeliest = highest_logit(w, row);
    if (any(!(fabsf(likeliest.logit) < INFINITY))) return NOBODY;
    if (any(choice.draw.inv_temperature == 0)) return likeliest.token;
    return drawn_token(w, row, choice.draw, likeliest.logit);
}

AMK_DEVICE void choose_rows(Worker& w, const Record& r) {
    w.stamp(TRACE_INPUTS);
#pragma unroll 1
    for (u32 n = 0; any(n < r.units); n++) {
        const u32 row = r.row + n * gridDim.x;
        if (any(row >= w.p.row_count)) break;
        const RowChoice choice = w.p.choices[row];
        if (any(!choice.asked || !w.s.rows[row].wanted)) continue;
        const u32 token = token_after(w, row, choice);
        if (w.thread() == 0) w.p.chosen[row] = token;
    }
}
